"""The official MCP client, on the tools that have moved in."""

import asyncio
import sys

from mcp import Client, StdioServerParameters


async def main() -> None:
    async with Client(StdioServerParameters(command="toolcrib", args=["serve", *sys.argv[1:], "--stdio"])) as client:
        print(*sorted(tool.name for tool in (await client.list_tools()).tools))
        for name, arguments in [
            ("get_stock_price", {"ticker": "AAPL", "date": "2021/01/01"}),
            ("search_database", {"query": "bolt", "limit": 1}),
            ("async_api_call", {"endpoint": "/x"}),
            ("search", {"query": "nuts"}),
            ("search", {"query": ""}),
            ("search_database", {"limit": 1}),
        ]:
            result = await client.call_tool(name, arguments)
            print("error" if result.is_error else "success", result.content[0].text)


asyncio.run(main())
