"""One crib under one policy, for an agent of LangGraph and for an MCP client: `python one_crib.py PORT`.

Its tools are a function, those of a remote MCP server and of an OpenAPI document, and one of LangChain.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from toolcrib import Approve, Caller, Crib, MCPSource, bridges, openapi_source, tool
from toolcrib.core import AnswerError
from toolcrib.serve import serve_http
from toolcrib.workbench import Rule, Rules

WIPED: list[str] = []


@tool(destructive=True)
async def wipe(path: str) -> str:
    """Delete a folder."""
    WIPED.append(path)
    return f"Deleted {path}."


@langchain_tool
def shout(text: str) -> str:
    """Write a text in capitals."""
    return text.upper()


class Stock(BaseHTTPRequestHandler):
    """A service with an OpenAPI document."""

    def do_GET(self) -> None:
        part = self.path.rpartition("/")[2]
        operation = {
            "operationId": "stock",
            "parameters": [{"name": "part", "in": "path", "required": True, "schema": {"type": "string"}}],
            "responses": {"200": {"description": "The count."}},
        }
        document = {"openapi": "3.1.0", "info": {"title": "Stock", "version": "1"}, "servers": [{"url": "/"}]}
        answer = document | {"paths": {"/stock/{part}": {"get": operation}}} if part == "api.json" else {part: 7}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        return


class Model(GenericFakeChatModel):
    """What a model would say."""

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self


async def agent_of(name: str, crib: Crib) -> None:
    calls = {"add": {"a": 1, "b": "2"}, "stock": {"part": "bolt"}, "shout": {"text": "hi"}, "wipe": {"path": "/tmp/x"}}
    asked = [{"name": tool, "args": arguments, "id": tool} for tool, arguments in calls.items()]
    model = Model(messages=iter([*(AIMessage("", tool_calls=[one]) for one in asked), AIMessage("Done.")]))
    tools = bridges.langchain.tools(crib, caller=lambda config: Caller(config["configurable"]["user"]))
    agent = create_agent(model, tools=tools, checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1", "user": name}}
    waits = await agent.ainvoke({"messages": [("user", "Clean up.")]}, config)
    print([message.text for message in waits["messages"] if message.type == "tool"])
    print(waits["__interrupt__"][0].value["message"], WIPED)
    (pending,) = await crib.pendings()
    try:
        await crib.answer(pending.id, Approve(), by=name)
    except AnswerError as error:
        print(error.reason, WIPED)
    await crib.answer(pending.id, Approve(), by="bob")
    done = await agent.ainvoke(Command(resume=True), config)
    print(done["messages"][-2].text, WIPED)


async def client_of(name: str, url: str) -> None:
    async with (
        httpx2.AsyncClient(headers={"User": name}) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        print(sorted(each.name for each in (await client.list_tools()).tools))
        for tool, arguments in (("add", {"a": 3, "b": 4}), ("stock", {"part": "nut"}), ("shout", {"text": "ho"})):
            print((await client.call_tool(tool, arguments)).content[0].text)  # type: ignore[union-attr]
        waits = await client.call_tool("wipe", {"path": "/tmp/x"})
        print(waits.is_error, waits.content[0].text.partition(" Someone")[0], WIPED)  # type: ignore[union-attr]


def identify(headers: Mapping[str, str]) -> Caller:
    return Caller(headers["user"])


async def main() -> None:
    stock = ThreadingHTTPServer(("127.0.0.1", 0), Stock)
    threading.Thread(target=stock.serve_forever, daemon=True).start()
    crib = Crib(
        [
            wipe,
            MCPSource(command=[sys.executable, "server.py"]),
            openapi_source(f"http://127.0.0.1:{stock.server_port}/api.json"),
            shout,
        ],
        policy=Rules([Rule(hint="destructive", do="ask", others_only=True)]),
    )
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_http(crib, identify, port=int(sys.argv[1]), ready=ready.set_result))
    url = await ready
    await agent_of("ada", crib)
    await client_of("eve", url)
    serving.cancel()
    await asyncio.wait([serving])


asyncio.run(main())
