"""Where sync work runs, and how its values come back to the loop that waits for them."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from toolcrib.machinery import in_thread


async def test_the_thread_that_worked_last_works_next() -> None:
    together = threading.Barrier(20)
    await asyncio.gather(*(in_thread(lambda: together.wait(60)) for _ in range(20)))
    names = {await in_thread(lambda: threading.current_thread().name) for _ in range(200)}
    assert len(names) < 20


def test_work_that_ends_after_its_loop_is_dropped_and_keeps_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    begun, goes_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        goes_on.wait(60)

    async def wait() -> None:
        asyncio.ensure_future(in_thread(work))  # noqa: RUF006 - the loop is to end before it
        await in_thread(begun.wait)

    loop = asyncio.new_event_loop()
    kept = weakref.ref(loop)
    loop.run_until_complete(wait())
    loop.close()
    del loop
    goes_on.set()
    # The thread that has ended the work begins the next one, so this one has been dropped by then.
    require_dropped(kept, ended.set)
    assert ended.is_set()
    assert raised == []


def require_dropped(kept: "weakref.ref[Any]", work: Callable[[], None]) -> None:
    """Use the pool from other loops until nothing is left of the one that was *kept*."""
    for _ in range(200):
        asyncio.run(_use(work))
        gc.collect()
        if kept() is None:
            break
    assert kept() is None


async def _use(work: Callable[[], None]) -> None:
    await in_thread(work)
