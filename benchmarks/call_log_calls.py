"""Calls with the call log in a store: one that is read-only, one whose start is committed before its work."""

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from cases import TINY, Loop

from toolcrib import Crib, Tool

READ_ONLY, COMMITTED = "with the call log, read-only", "with the call log, start committed"
TITLE = "tiny async tool and the call log in SQLite"


@asynccontextmanager
async def calls() -> AsyncGenerator[dict[str, Loop]]:
    """The tiny tool of a crib whose calls are logged, where it is read-only and where it is not."""
    tools = [Tool(TINY.fn, name="reads", read_only=True), Tool(TINY.fn, name="writes")]
    with tempfile.TemporaryDirectory() as folder:
        async with Crib(tools, store=Path(folder) / "store.db") as crib:
            bench = crib.workbench()

            def loop(name: str) -> Loop:
                async def loop(times: int) -> str:
                    answer = ""
                    for _ in range(times):
                        answer = (await bench.call(name, TINY.text)).text
                    return answer

                return loop

            yield {READ_ONLY: loop("reads"), COMMITTED: loop("writes")}
