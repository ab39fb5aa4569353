"""Two callers use one tool, each with an own account."""

import asyncio

from toolcrib import Caller, Crib


async def main() -> None:
    async with Crib.from_config() as crib:
        for name in ("ann", "bob", "eve"):
            result = await crib.workbench(Caller(name)).call("my_issues")
            print(f"{name}:", result.pending.message if result.pending else result.text)


asyncio.run(main())
