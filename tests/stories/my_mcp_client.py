"""An MCP client of one's own, the official one, which starts `toolcrib serve tools.py --stdio` and uses its tools."""

import asyncio
import sys

from mcp import Client, StdioServerParameters


async def main() -> None:
    server = StdioServerParameters(command="toolcrib", args=["serve", "tools.py", "--stdio"])
    async with Client(server, mode=sys.argv[1]) as client:
        for tool in (await client.list_tools()).tools:
            print(tool.name, "-", (tool.description or "").partition("\n")[0])
        for name, arguments in [
            ("in_stock", {"part": "bolt"}),
            ("total", {"prices": "[1,2]"}),
            ("in_stock", {"prt": "bolt"}),
            ("in_stock", {"part": "gear"}),
        ]:
            result = await client.call_tool(name, arguments)
            print("error" if result.is_error else "success", result.content[0].text, result.structured_content)


asyncio.run(main())
