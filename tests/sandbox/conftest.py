"""What the tests of isolation share."""

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
