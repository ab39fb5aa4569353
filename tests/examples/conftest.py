"""What the tests of the examples share: where they are, and calls by keyword."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Result, Workbench

ROOT = Path(__file__).resolve().parents[2]

Ask = Callable[..., Awaitable[Result[Any]]]


@pytest.fixture
def examples() -> Path:
    return ROOT / "examples"


@pytest.fixture
def asking() -> Callable[[Workbench], Ask]:
    """`ask("tool", name=value)` over a workbench."""

    def over(bench: Workbench) -> Ask:
        async def ask(tool: str, /, **arguments: Any) -> Result[Any]:
            return await bench.call(tool, arguments)

        return ask

    return over
