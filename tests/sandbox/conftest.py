"""What the tests of isolation share."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolcrib.sandbox.guard import descendants

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


@pytest.fixture
def lives():  # type: ignore[no-untyped-def]
    """Whether the process lives; waits until it does not, for a while."""

    async def lives(pid: int, at_most_s: float = 60) -> bool:
        for _ in range(int(at_most_s * 100)):
            try:
                with open(f"/proc/{pid}/stat") as file:
                    if file.read().rpartition(")")[2].split()[0] in "ZX":
                        return False
            except OSError:
                return False
            await asyncio.sleep(0.01)
        return True

    return lives
