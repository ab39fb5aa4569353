"""The tools that the tests of most bridges give to an agent, and what they did: `events` is emptied for each test."""

import base64
from typing import Any

import pytest

from toolcrib import Caller, Context, Image, Source, Workbench, tool
from toolcrib.workbench import Ask

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
events: list[str] = []


@pytest.fixture(autouse=True)
def no_events() -> None:
    events.clear()


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


@tool
async def report() -> str:
    """Write a long report."""
    return "line\n" * 20_000


@tool
async def index(context: Context) -> str:
    """Index, and say how far it is."""
    context.progress(1, 2, "half")
    await context.emit("a page")
    return "indexed"


REPORTED = [
    {"type": "progress", "done": 1, "total": 2, "message": "half"},
    {"type": "emitted", "content": [{"type": "text", "text": "a page"}]},
]
"""What `index` reports, beside the tool and the id of the call."""

NEEDED = [
    ("find_tools", {"query": "numbers"}),
    ("add", {"numbers": [1, 2]}),
    ("find_tools", {"query": "long report"}),
    ("report", {}),
    ("read_result", {"handle": "h"}),
]
"""Calls of tools that only a search, or a result that is too large, has brought to the run."""

LISTED = [call for call in NEEDED if call[0] != "find_tools"]
"""The same, where a list that does not change has all tools from the start."""


def searched() -> Workbench:
    return Workbench([add, wipe, report], search=True)


def check_needed(texts: list[str]) -> None:
    """Check what a model reads of `NEEDED` or `LISTED`."""
    assert '"name":"add"' in texts[0] or texts[0] == "3"
    assert "read on with read_result" in texts[-2]
    assert "There is no result under this handle" in texts[-1]


def asks(*_: Any) -> Any:
    return Ask("Really?")


class Live(Source):
    """Notes in `events` when it starts and stops."""

    async def start(self) -> None:
        events.append("start")

    async def stop(self) -> None:
        events.append("stop")

    def tools(self) -> list[Any]:
        return [add]
