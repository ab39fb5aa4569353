"""A process that runs tasks, until it is killed: `task_worker.py URL KEY FOLDER LEASE_S COMMAND...`.

`submit TOOL KEY WAY` submits a task first. What
the tools do is in the file `effects`, one line each; while the file `hold KEY` is in the folder, the task of KEY hangs
in the middle of its first step.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

from toolcrib import Caller, Context, Crib, tool
from toolcrib.store import Store
from toolcrib.store.tasks import DatabaseTasks

URL, KEY, FOLDER, LEASE_S, *COMMAND = sys.argv[1:]
NAP_S = 0.5


def note(text: str) -> str:
    """Append one line, that a kill does not lose."""
    file = os.open(f"{FOLDER}/effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{text} {time.monotonic()}\n".encode())
    os.fsync(file)
    os.close(file)
    return text


async def journey(key: str, way: str, context: Context) -> str:
    """Do two steps, and what *way* says between them."""
    note(f"run {key}")

    async def first() -> str:
        note(f"first {key}")
        while Path(FOLDER, f"hold {key}").exists():
            await asyncio.sleep(0.02)
        return f"first by {os.getpid()}"

    result = await context.step("first", first)
    if way == "sleep":
        await context.sleep(NAP_S)
    name = await context.ask("name", str, f"Who is {key}?") if way == "ask" else "nobody"
    await context.step("second", note, f"second {key}")
    return f"{result} for {name}"


@tool(task=True)
async def book(key: str, way: str, context: Context) -> str:
    """Book, at most once."""
    return await journey(key, way, context)


@tool(task=True, idempotent=True)
async def plan(key: str, way: str, context: Context) -> str:
    """Plan, any number of times."""
    return await journey(key, way, context)


async def main() -> None:
    store = Store(URL, key=Path(KEY))
    store.ledger = DatabaseTasks(store, lease_s=float(LEASE_S))
    async with Crib([book, plan], store=store) as crib:
        print("ready", flush=True)
        if COMMAND:
            _, name, key, way = COMMAND
            result = await crib.workbench(Caller("ann")).call(name, {"key": key, "way": way}, idempotency_key=key)
            assert result.pending is not None, result
            print(result.pending.id, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
