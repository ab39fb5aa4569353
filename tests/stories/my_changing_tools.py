"""Story 2, its second half: a client stays connected to `toolcrib serve tools.py --stdio` while the file is edited."""

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from mcp import Client, StdioServerParameters

TOOLS = Path("tools.py")
SERVER = StdioServerParameters(command="toolcrib", args=["serve", "tools.py", "--stdio"])
ADDED = '''

@tool
def order(part: str, count: int = 1) -> str:
    """Order a part."""
    return f"{count} x {part}"
'''


async def main() -> None:
    notices: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: object) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            await notices.put("changed")

    async def listen(events: object) -> None:
        async for _ in events:
            await notices.put("changed")

    async def names() -> list[str]:
        return [tool.name for tool in (await client.list_tools()).tools]

    async with AsyncExitStack() as stack:
        is_old = sys.argv[1] == "legacy"
        client = await stack.enter_async_context(
            Client(SERVER, mode=sys.argv[1], message_handler=hear if is_old else None)
        )
        if not is_old:
            events = await stack.enter_async_context(client.listen(tools_list_changed=True))
            stack.callback(asyncio.create_task(listen(events)).cancel)
        print(await names())

        before = TOOLS.read_text()
        TOOLS.write_text(before + ADDED)
        print(await notices.get(), await names())
        print((await client.call_tool("order", {"part": "bolt", "count": "3"})).content[0].text)

        TOOLS.write_text(before + ADDED + "\ndef broken(:\n")
        while "SyntaxError" not in Path("log").read_text():
            await asyncio.sleep(0.05)
        print(await names())
        print((await client.call_tool("order", {"part": "nut"})).content[0].text)

        TOOLS.write_text(before)
        print(await notices.get(), await names())


asyncio.run(main())
