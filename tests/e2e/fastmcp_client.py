"""A client of FastMCP: prints what it gets from its URL, or command, as JSON."""

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport

LEVEL = "io.modelcontextprotocol/logLevel"


async def main(url: str, *args: str) -> None:
    asked: list[str] = []
    logged: list[Any] = []
    progress: list[float] = []

    async def elicit(message: str, *_: Any) -> dict[str, str]:
        asked.append(message)
        return {"username": "ada", "email": "ada@example.org"}

    async def log(params: Any) -> None:
        logged.append(params.data)

    async def report(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    def texts(result: Any) -> list[str]:
        return [getattr(block, "text", block.type) for block in result.content]

    server: Any = url if url.startswith("http") else StdioTransport(url, list(args))
    async with Client(server, elicitation_handler=elicit, log_handler=log, progress_handler=report) as client:
        tools = await client.list_tools()
        small = await client.call_tool("test_structured_content", {"n": 2})
        large = await client.call_tool("test_structured_content", {"n": 20000})
        part: Any = (await client.read_resource(large.data.toolcrib.uri))[0]
        prompt: Any = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        resource: Any = (await client.read_resource("test://template/7/data"))[0]
        found = {
            "tools": len(tools) > 20,
            # As the types that it makes of output schemas.
            "structured": {"numbers": small.data.numbers, "name": small.data.name},
            "large": [large.is_error, large.data.toolcrib.size, part.text[:16]],
            "elicited": texts(await client.call_tool("test_elicitation", {"message": "Who?"})),
            "progressed": texts(await client.call_tool("test_tool_with_progress")),
            "logs": texts(await client.call_tool("test_tool_with_logging", meta={LEVEL: "info"})),
            "kinds": texts(await client.call_tool("test_multiple_content_types")),
            "failed": (await client.call_tool("test_error_handling", raise_on_error=False)).is_error,
            "resource": resource.text,
            "prompt": prompt.messages[0].content.text,
        }
    print(json.dumps({**found, "asked": asked, "progress": progress, "logged": logged}))


asyncio.run(main(*sys.argv[1:]))
