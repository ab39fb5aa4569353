"""How calls end, in short, and a clock for those that wait for a person."""

from datetime import UTC, datetime
from typing import Any

from toolcrib import Pending, Result


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 31, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def code(result: Result[Any]) -> str | None:
    return None if result.error is None else result.error.code


def waiting(result: Result[Any]) -> Pending:
    assert result.pending is not None, result.text
    return result.pending
