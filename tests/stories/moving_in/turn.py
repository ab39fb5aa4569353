"""A turn of the swarm's agent: the model asks for two searches."""

import asyncio

import shop
from agent_swarm_kit import execute_tools


async def main() -> None:
    calls = [
        {"id": str(number), "type": "function", "function": {"name": "search", "arguments": arguments}}
        for number, arguments in enumerate(('{"query": "bolts"}', {"query": "nuts"}))
    ]
    done = await execute_tools("client", "agent", calls, [shop.search_tool])
    print(done.status, *done.outputs.values(), sep="\n")
    refused = await execute_tools(
        "client",
        "agent",
        [*calls, {**calls[0], "id": "2", "function": {**calls[0]["function"], "arguments": {"query": ""}}}],
        ["search-tool"],
    )
    print(refused.status, len(refused.outputs))


asyncio.run(main())
