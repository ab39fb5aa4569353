"""A dangerous call of Alice's: it waits, and goes on where it was. `python interrupted.py TABLE`."""

import asyncio
import sys

from toolcrib import Caller, Crib


async def main() -> None:
    async with Crib.from_config("toolcrib.toml") as crib:
        alice = crib.workbench(Caller("alice"))
        while (result := await alice.call("drop", {"table": sys.argv[1]})).pending is not None:
            print("waits for", result.pending.kind, result.pending.id, flush=True)
            await crib.wait_for(result.pending)
        print(result.status, result.text.splitlines()[0], flush=True)


asyncio.run(main())
