"""What a running call tells whoever streams it, before its result."""

from dataclasses import dataclass

from .content import Content


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a call is: *done* of *total* (None where nobody knows), and a word on it."""

    done: float
    total: float | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Emitted:
    """Content that a call gives while it still runs. Not a part of its result."""

    content: tuple[Content, ...]


Event = Progress | Emitted
