"""The tools that the tests of most bridges give to an agent, and what they did: `events` is emptied for each test."""

import base64
import threading
from typing import Any

import pytest

from toolcrib import Call, Caller, Image, Workbench, tool

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
events: list[str] = []
go_on = threading.Event()


@pytest.fixture(autouse=True)
def no_events() -> None:
    events.clear()
    go_on.clear()


async def late(theirs: Any) -> str:
    """What a model reads of the tool *theirs*, which takes nothing and waits, when its deadline has passed."""
    call = Call("wait", {})
    call.timeout_s = 0.3
    shown = (await Workbench([theirs]).call(call)).shown()
    go_on.set()
    assert shown.code == "timeout"
    return shown.text


@tool
async def add(numbers: list[int]) -> int:
    """Add numbers."""
    return sum(numbers)


@tool
async def draw() -> list[Any]:
    """Draw."""
    return ["Here:", Image(PNG)]


@tool
async def wipe(path: str) -> str:
    """Delete."""
    events.append(path)
    return f"wiped {path}"


@tool
async def whoami(caller: Caller) -> str:
    """Say who calls."""
    return caller.principal


def wait() -> None:
    """Wait, in a thread or not at all."""
    go_on.wait(60)


STILL = "Its work may still be running."
"""What is told of work that nobody can stop."""
