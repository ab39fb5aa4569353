"""Work that outlives its answer keeps what its call held: a place in a gate is free when the work has really ended."""

import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar, Token
from typing import Any, TypeVar

from ..core import Slot
from .threads import in_thread

T = TypeVar("T")

held: ContextVar[tuple[Slot, ...]] = ContextVar("toolcrib_held", default=())
"""What the running call holds, and the calls that it is a part of."""


def keep() -> tuple[Slot, ...]:
    """Hold once more what the running call holds; to be let go."""
    slots = held.get()
    return tuple(slot for slot in slots if slot.gate.keep(slot)) if slots else slots


def let_go(slots: tuple[Slot, ...]) -> None:
    for slot in slots:
        slot.gate.release(slot)


def put_back(variable: ContextVar[Any], before: Token[Any]) -> None:
    """Reset *variable*. An abandoned call is closed in a context that is not its own, where nothing is to be reset."""
    with suppress(ValueError):
        variable.reset(before)


def in_keeping_thread(work: Callable[[], T]) -> Awaitable[T]:
    """`in_thread`, and what the call holds is held until the thread has come to the end of *work*."""
    slots = keep()
    return _keeping(work, slots) if slots else in_thread(work)


async def _keeping(work: Callable[[], T], slots: tuple[Slot, ...]) -> T:
    begun = threading.Lock()  # taken once: by the thread that begins, or by the call that ends before it could

    def keeping() -> T:
        if not begun.acquire(blocking=False):
            raise RuntimeError("the call has ended before its work began")
        try:
            return work()
        finally:
            let_go(slots)

    try:
        return await in_thread(keeping)
    finally:
        if begun.acquire(blocking=False):
            let_go(slots)
