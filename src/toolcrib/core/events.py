"""What a running call reports to whoever streams it, before its result."""

from dataclasses import dataclass, field
from typing import Any

from .content import Content


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a call is: *done* of *total* (None where that is not known), with a message."""

    done: float
    total: float | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Emitted:
    """Content that a call gives while it still runs. Not a part of its result.

    *value* is for the program, and is not redacted: a tool that emits an Emitted may put one there.
    """

    content: tuple[Content, ...]
    value: Any = field(default=None, repr=False, compare=False)


Event = Progress | Emitted
