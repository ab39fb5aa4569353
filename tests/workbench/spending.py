"""A program with a shared budget: `spending.py STORE KEY FILE`. At each line it makes four calls, whose ends it prints.

What has begun is a byte in FILE: that counts also where the process is killed.
"""

import asyncio
import os
import sys
from pathlib import Path

from toolcrib import Crib, tool
from toolcrib.store import Store
from toolcrib.store import limits as stored
from toolcrib.workbench import Limit

BUDGET = 1000
PLACES = 8
LIMITS = [
    Limit("work", concurrency=PLACES, wait_s=300, shared=True),
    Limit("work", per="principal", budget=f"{BUDGET} calls/366d", wait_s=0, shared=True),
]


@tool
async def work() -> str:
    file = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, b".")
    os.close(file)
    await asyncio.sleep(0.005)
    return "worked"


async def main() -> None:
    stored.PLACE_LEASE_S = 1.0
    async with Crib([work], store=Store(sys.argv[1], key=Path(sys.argv[2])), limits=LIMITS) as crib:
        bench = crib.workbench()
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            results = await asyncio.gather(*(bench.call("work") for _ in range(4)))
            print(*(result.text if result.error is None else result.error.code for result in results), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
