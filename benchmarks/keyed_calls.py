"""Calls with an idempotency key on SQLite, beside a workflow of DBOS with one step: time on the processor."""

import asyncio
import gc
import json
import logging
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from time import process_time

from cases import TINY, Loop
from report import KEYED, SEEN
from sqlalchemy import Engine, event

from toolcrib import Crib, Tool

TITLE, SEEN_TITLE = KEYED, SEEN
_ROUNDS, _CALLS = 12, 40


@asynccontextmanager
async def calls() -> AsyncGenerator[tuple[Loop, Loop]]:
    """The tiny tool with a new key each time, and with one that was seen. Nothing else is stored: no call log."""
    with tempfile.TemporaryDirectory() as folder:
        async with Crib([Tool(TINY.fn, name="tiny")], store=Path(folder) / "store.db", recorder=[]) as crib:
            bench, numbers = crib.workbench(), count()

            async def new(times: int) -> str:
                answer = ""
                for _ in range(times):
                    answer = (await bench.call("tiny", TINY.text, idempotency_key=f"new-{next(numbers)}")).text
                return answer

            async def seen(times: int) -> str:
                answer = ""
                for _ in range(times):
                    answer = (await bench.call("tiny", TINY.text, idempotency_key="seen")).text
                return answer

            await new(1)
            await seen(1)
            yield new, seen


@asynccontextmanager
async def workflows() -> AsyncGenerator[Loop]:
    """The same by DBOS, where it is installed: each workflow has an id of its own, as a key."""
    from dbos import DBOS, DBOSPortableJSONSerializer, SetWorkflowID

    logging.getLogger("dbos").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/dbos.sqlite"
        DBOS(
            config={
                "name": "bench",
                "system_database_url": url,
                "serializer": DBOSPortableJSONSerializer(),
                "run_admin_server": False,
                "log_level": "ERROR",
            }
        )

        @DBOS.step()
        async def step(a: int, b: int) -> int:
            return int(await TINY.fn(a, b))

        @DBOS.workflow()
        async def workflow(a: int, b: int) -> int:
            return await step(a, b)

        DBOS.launch()
        numbers = count()

        async def new(times: int) -> str:
            answer = 0
            for _ in range(times):
                with SetWorkflowID(f"new-{next(numbers)}"):
                    answer = await workflow(**json.loads(TINY.text))
            return str(answer)

        try:
            await new(1)
            yield new
        finally:
            DBOS.destroy()
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())  # DBOS has put its own there


async def processor_seconds(work: Callable[[int], Awaitable[str]]) -> list[float]:
    """Seconds that one call takes on the processor, in all threads, round by round."""
    gc.collect()
    rounds = []
    for _ in range(_ROUNDS):
        began = process_time()
        await work(_CALLS)
        rounds.append((process_time() - began) / _CALLS)
    return rounds


async def commits(work: Callable[[int], Awaitable[str]]) -> float:
    """How often one call commits."""
    made = 0

    def on_commit(_: object) -> None:
        nonlocal made
        made += 1

    event.listen(Engine, "commit", on_commit)
    try:
        await work(_CALLS)
    finally:
        event.remove(Engine, "commit", on_commit)
    return made / _CALLS
