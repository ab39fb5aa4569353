"""A program with a task: `night.py STORE EFFECTS JOB`. It submits a task, or runs what is due, until it is killed."""

import asyncio
import os
import sys
from pathlib import Path

from toolcrib import Caller, Context, Crib, tool

STORE, EFFECTS, JOB = sys.argv[1:]


def effect(text: str) -> None:
    """Append one line, that a kill does not lose."""
    file = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{text}\n".encode())
    os.fsync(file)


async def hold() -> None:
    """Hang, in the first run."""
    if JOB == "hang":
        print("hangs", flush=True)
        await asyncio.sleep(600)
    effect("two")


@tool(task=True, idempotent=True)
async def night(context: Context) -> str:
    """Work in three steps, with a question."""
    await context.step("one", effect, "one")
    await context.step("two", hold)
    name = await context.ask("name", str, "Who?")
    await context.step("three", effect, f"three {name}")
    return f"done for {name}"


@tool(task=True)
async def pay() -> str:
    """Pay, which is not idempotent."""
    effect("paid")
    await hold()
    return "paid"


async def main() -> None:
    async with Crib([night, pay], store=Path(STORE)) as crib:
        crib.store.ledger._lease_s = 1.0  # of what was killed, too: it ends soon
        if JOB == "hang":
            bench = crib.workbench(Caller("ann"))
            for name in ("night", "pay"):
                pending = (await bench.call(name)).pending
                print(pending.id, flush=True)
        await asyncio.sleep(600)


asyncio.run(main())
