"""What the tests of isolation share."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolcrib.sandbox import Processes
from toolcrib.sandbox.guard import descendants

from ..doubled import doubled
from .family import earlier, family

TOOLS = str(Path(__file__).with_name("isolated_tools.py"))


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    earlier.clear()
    earlier.update(descendants(os.getpid()))
    yield
    assert family() == []


@pytest.fixture
def tools() -> str:
    return TOOLS


@pytest.fixture(scope="module")
def warm() -> Iterator[Processes]:
    """A pool with a worker that has loaded the tools, for the tests of a file that leave it as it was."""
    processes = Processes(size=1)

    async def start() -> None:
        async with doubled([TOOLS], processes=processes) as bench:
            await bench.call("pid")

    asyncio.run(start())
    yield processes
    asyncio.run(processes.close())
