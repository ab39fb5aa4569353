"""A process that makes calls: `call_worker.py JOB PATH [DURABLE]`, with the call log in the store at PATH."""

import asyncio
import os
import resource
import sys
from itertools import count
from pathlib import Path

from toolcrib import Call, Context, Crib, Workbench, tool
from toolcrib.record import DatabaseCalls
from toolcrib.store import Store

_, job, where, *durable = sys.argv
path = Path(where)


@tool
async def work(context: Context) -> str:
    descriptor = os.open(path.with_name("effects"), os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    os.write(descriptor, f"{context.call.id}\n".encode())
    os.close(descriptor)
    return "done"


@tool
async def wait() -> None:
    await asyncio.Event().wait()


@tool
async def add(a: int, b: int) -> int:
    return a + b


async def caller(crib: Crib, name: str) -> None:
    bench = crib.workbench()
    for number in count():
        await bench.call(Call("work", id=f"{os.getpid()}-{name}-{number}"))


async def main() -> None:
    match job:
        case "work":
            store = Store(path)
            async with Crib([work], store=store, recorder=DatabaseCalls(store, durable=durable[0])) as crib:  # type: ignore[arg-type]
                await crib.workbench().call(Call("work", id=f"{os.getpid()}-first"))
                print("begun", flush=True)
                await asyncio.gather(*(caller(crib, str(n)) for n in range(5)))
        case "wait":
            async with Crib([wait], store=path) as crib:
                await crib.workbench().call(Call("wait", id="c1"))
        case "leave":
            bench = Workbench([add], store=Store(path))
            for number in range(3):
                await bench.call(add, number, 1)
        case "full":
            async with Crib([add], store=path) as crib:
                bench = crib.workbench()
                await bench.call(add, 0, 0)
                await crib.recorders[0].flush()
                resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
                results = [await bench.call(add, number, 1) for number in range(500)]
                print(sum(result.status == "success" for result in results), flush=True)


def fork() -> None:
    """Call in this process, in a child of it, and in this one again; no event loop runs while it forks."""
    crib = Crib([add], store=Store(path))

    async def call(call_id: str) -> None:
        await crib.workbench().call(Call("add", {"a": 1, "b": 1}, id=call_id))
        await crib.recorders[0].flush()

    asyncio.run(call("parent"))
    if (child := os.fork()) == 0:
        asyncio.run(call("child"))
        os._exit(0)
    os.waitpid(child, 0)
    asyncio.run(call("parent-2"))
    print("done")


if job == "fork":
    fork()
else:
    asyncio.run(main())
