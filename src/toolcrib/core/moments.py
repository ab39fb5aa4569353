"""Moments in what is made for every call: taken as seconds, which become a datetime when they are read."""

from collections.abc import Callable
from datetime import UTC, datetime
from time import time
from typing import Any, cast

EPOCH = datetime.fromtimestamp(0, UTC)

moment = cast("Callable[[], datetime]", time)
"""Now, for a field of `keep_as_moments`: really a float. A datetime takes four times as long to make."""


def keep_as_moments(kind: type[Any], *names: str) -> None:
    """Let the fields *names* of a dataclass with slots take what `moment` gives, and be read as aware datetimes."""
    for name in names:
        setattr(kind, name, _looked_at(getattr(kind, name)))


def _looked_at(slot: Any) -> property:
    def read(owner: Any) -> datetime:
        value = slot.__get__(owner)
        if type(value) is float:
            slot.__set__(owner, value := datetime.fromtimestamp(value, UTC))
        at: datetime = value
        return at

    return property(read, slot.__set__)
