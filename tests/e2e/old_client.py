"""A client of version 1 of the official Python SDK: prints what it gets from its URL, or command, as JSON."""

import asyncio
import json
import sys
from typing import Any

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client


async def main(url: str, *args: str) -> None:
    asked: list[str] = []
    logged: list[Any] = []
    progress: list[float] = []

    async def elicit(_: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"username": "ada", "email": "ada@example.org"})

    async def log(params: Any) -> None:
        logged.append(params.data)

    async def report(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    def texts(result: Any) -> list[str]:
        return [getattr(block, "text", block.type) for block in result.content]

    async def large(result: Any, session: Any) -> list[Any]:
        stored = result.structuredContent["toolcrib"]
        part = (await session.read_resource(types.AnyUrl(stored["uri"]))).contents[0]
        return [result.isError, stored["size"], part.text[:16]]

    is_url = url.startswith("http")
    command = StdioServerParameters(command=url, args=list(args))
    async with streamablehttp_client(url) if is_url else stdio_client(command) as (read, write, *_):  # noqa: SIM117
        async with ClientSession(read, write, elicitation_callback=elicit, logging_callback=log) as session:
            await session.initialize()
            found = {
                "tools": len((await session.list_tools()).tools) > 20,
                "structured": (await session.call_tool("test_structured_content", {"n": 2})).structuredContent,
                "large": await large(await session.call_tool("test_structured_content", {"n": 20000}), session),
                "elicited": texts(await session.call_tool("test_elicitation", {"message": "Who?"})),
                "progressed": texts(await session.call_tool("test_tool_with_progress", {}, progress_callback=report)),
                "logs": texts(await session.call_tool("test_tool_with_logging", {})),
                "kinds": texts(await session.call_tool("test_multiple_content_types", {})),
                "failed": (await session.call_tool("test_error_handling", {})).isError,
                "resource": (await session.read_resource(types.AnyUrl("test://template/7/data"))).contents[0].text,
                "prompt": (await session.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"}))
                .messages[0]
                .content.text,
            }
    print(json.dumps({**found, "asked": asked, "progress": progress, "logged": logged}))


asyncio.run(main(*sys.argv[1:]))
