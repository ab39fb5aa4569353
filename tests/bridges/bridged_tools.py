"""The tools that the tests of most bridges give to an agent, and what they did: `events` is emptied for each test."""

import base64
from typing import Any

import pytest

from toolcrib import Caller, Image, tool

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
