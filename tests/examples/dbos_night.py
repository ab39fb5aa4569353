"""A program whose tasks DBOS runs: `dbos_night.py EXAMPLES FOLDER`. It submits one, and goes on with what was left."""

import asyncio
import os
import sys
from pathlib import Path

EXAMPLES, FOLDER = sys.argv[1:]
sys.path.insert(0, EXAMPLES)

from dbos_tasks import dbos_crib  # noqa: E402 - an example

from toolcrib import Caller, Context, tool  # noqa: E402
from toolcrib.store import Store  # noqa: E402


def note(text: str) -> str:
    with Path(FOLDER, "effects").open("a") as file:
        file.write(f"{text}\n")
    return text


@tool(task=True, idempotent=True)
async def travel(city: str, context: Context) -> str:
    """Book a journey."""
    name = await context.ask("name", str, "Who travels?")
    room = await context.step("room", note, f"a room in {city}")
    await context.sleep(0.1)
    if not Path(FOLDER, "go").exists():
        note("hangs")
        await asyncio.sleep(600)
    return f"{room} for {name} by {os.getpid()}"


@tool(task=True)
async def pay() -> None:
    """Pay, at most once."""
    note("pays")
    await asyncio.sleep(0 if Path(FOLDER, "go").exists() else 600)


async def main() -> None:
    store = Store(Path(FOLDER, "tools.db"), key=lambda: [b"k" * 32])
    async with dbos_crib([travel, pay], store, f"sqlite:///{FOLDER}/workflows.db") as crib:
        bench = crib.workbench(Caller("ann"))
        pending = (await bench.call("travel", {"city": "Oslo"}, idempotency_key="night")).pending
        assert pending is not None
        payment = await bench.call("pay", idempotency_key="once")
        print(pending.id, os.getpid(), flush=True)
        print((await crib.tasks.wait(pending.id, principal="ann")).text, flush=True)
        if payment.pending is not None:
            payment = await crib.tasks.wait(payment.pending.id)
        print(payment.error and payment.error.code, flush=True)


asyncio.run(main())
