"""Calls that count in a limit of the store, on SQLite, beside one of the process: time on the processor."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from cases import TINY, Loop
from report import SHARED_LIMIT

from toolcrib import Crib, Tool, Workbench
from toolcrib.workbench import Limit

LIMITS: dict[str, dict[str, Any]] = {
    "rate": {"rate": "1000000/s"},
    "budget": {"budget": "1000000 calls/s"},
    "place": {"concurrency": 4},
}


async def _loop(bench: Workbench, times: int) -> str:
    answer = ""
    for _ in range(times):
        answer = (await bench.call("tiny", TINY.text)).text
    return answer


@asynccontextmanager
async def calls(kind: str) -> AsyncGenerator[tuple[Loop, Loop]]:
    """The tiny tool with a limit of its own process, and with one that is shared. No call log."""
    async with AsyncExitStack() as stack:
        loops: list[Loop] = []
        for shared in (False, True):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            limits = [Limit(shared=shared, wait_s=60, **LIMITS[kind])]
            store = Path(folder) / "store.db"
            crib = await stack.enter_async_context(
                Crib([Tool(TINY.fn, name="tiny")], store=store, recorder=[], limits=limits)
            )

            loop = partial(_loop, crib.workbench())
            await loop(1)
            loops.append(loop)
        yield loops[0], loops[1]
        if kind == "place":  # the last of them is given back when its call has ended
            await asyncio.gather(*crib.store.limits._releasing)


TITLES = {kind: SHARED_LIMIT.format(kind) for kind in LIMITS}
