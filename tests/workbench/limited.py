"""A program with shared limits: `limited.py STORE KEY COUNT TOOL`. It makes so many calls at once, and prints how they
end.

Then it calls TOOL, which holds its only place, and says so, until it is killed.
"""

import asyncio
import sys

from toolcrib import Call, Crib, tool
from toolcrib.store import Store
from toolcrib.workbench import Limit


@tool
async def look() -> str:
    return "seen"


@tool
async def hold() -> str:
    print("holds", flush=True)
    await asyncio.sleep(600)
    return "held"


@tool(serial=True)
async def alone() -> str:
    print("holds", flush=True)
    await asyncio.sleep(600)
    return "held"


LIMITS = [
    Limit("look", per="principal", rate="3/h", wait_s=0, shared=True),
    Limit("hold", concurrency=1, wait_s=0, shared=True),
]


async def main() -> None:
    async with Crib([look, hold, alone], store=Store(sys.argv[1], key=sys.argv[2]), limits=LIMITS) as crib:
        bench = crib.workbench()
        results = await asyncio.gather(*(bench.call("look") for _ in range(int(sys.argv[3]))))
        print(*sorted(result.text if result.error is None else result.error.code for result in results), flush=True)
        while patience_s := sys.stdin.readline().strip():
            result = await bench.call(Call(sys.argv[4], timeout_s=float(patience_s)))
            print(result.text, flush=True)


asyncio.run(main())
