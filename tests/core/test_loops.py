"""Work that one thread or event loop has done on another one."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from toolcrib.core import LoopEnded, NotBegun, await_on, blocking, is_blocked, loops, run_on


@pytest.fixture
def other() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
    thread.join()
    for task in asyncio.all_tasks(loop):
        task.cancel()
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
    loop.close()


async def where() -> Any:
    return asyncio.get_running_loop()


async def fail() -> None:
    raise KeyError("no")


async def cancelled() -> None:
    raise asyncio.CancelledError


async def for_ever() -> None:
    await asyncio.Event().wait()


def test_a_thread_gets_what_work_on_a_loop_returns_or_raises(other: asyncio.AbstractEventLoop) -> None:
    assert run_on(other, where()) is other
    with pytest.raises(KeyError, match="no"):
        run_on(other, fail())
    with pytest.raises(LoopEnded):
        run_on(other, cancelled())


async def test_a_loop_gets_what_work_on_another_returns_or_raises(other: asyncio.AbstractEventLoop) -> None:
    assert await await_on(other, where()) is other
    assert await await_on(asyncio.get_running_loop(), where()) is asyncio.get_running_loop()
    with pytest.raises(KeyError, match="no"):
        await await_on(other, fail())
    with pytest.raises(LoopEnded):
        await await_on(other, cancelled())


async def test_who_gives_up_cancels_the_work_on_the_other_loop(other: asyncio.AbstractEventLoop) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await for_ever()
        finally:
            ended.set()

    waiting = asyncio.create_task(await_on(other, work()))
    await asyncio.to_thread(begun.wait, 20)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await asyncio.to_thread(ended.wait, 20)


@pytest.mark.parametrize("or_elsewhere", [False, True])
def test_waiting_for_a_loop_that_stops_ends(other: asyncio.AbstractEventLoop, or_elsewhere: bool) -> None:
    async def stop() -> None:
        asyncio.get_running_loop().stop()
        await for_ever()

    with pytest.raises(LoopEnded) as ended:
        run_on(other, stop(), or_elsewhere=or_elsewhere)  # what has begun is not begun again
    assert ended.value.code == "lost"


async def test_a_loop_that_does_not_run_is_not_waited_for() -> None:
    loop = asyncio.new_event_loop()
    with pytest.raises(LoopEnded):
        await await_on(loop, where())
    work = where()
    with pytest.raises(NotBegun):
        await asyncio.to_thread(run_on, loop, work, or_elsewhere=True)
    loop.close()
    with pytest.raises(LoopEnded):
        await asyncio.to_thread(run_on, loop, where())
    with pytest.raises(NotBegun):
        await asyncio.to_thread(run_on, loop, work, or_elsewhere=True)
    assert await work is asyncio.get_running_loop(), "it can still be given to another"


async def test_a_loop_that_is_blocked_for_a_while_is_waited_for(other: asyncio.AbstractEventLoop) -> None:
    is_standing = threading.Event()

    def stand() -> None:
        with blocking(other):
            is_standing.set()
            time.sleep(0.2)

    other.call_soon_threadsafe(stand)
    await asyncio.to_thread(is_standing.wait, 20)
    assert await await_on(other, where()) is other


@pytest.fixture
def endless_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_PATIENCE_S", 1000.0)


@pytest.mark.usefixtures("endless_patience")
def test_a_loop_that_is_busy_does_the_work_when_it_can(other: asyncio.AbstractEventLoop) -> None:
    other.call_soon_threadsafe(time.sleep, 0.2)
    assert run_on(other, where(), or_elsewhere=True) is other


@pytest.mark.usefixtures("endless_patience")
def test_a_loop_that_runs_only_later_is_waited_for() -> None:
    loop = asyncio.new_event_loop()
    found: asyncio.Future[Any] = loop.create_future()

    def wait() -> None:
        value = run_on(loop, where())
        loop.call_soon_threadsafe(found.set_result, value)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(0.2)
    assert loop.run_until_complete(asyncio.wait_for(found, 20)) is loop
    thread.join()
    loop.close()


@pytest.mark.usefixtures("endless_patience")
async def test_what_a_blocked_loop_cannot_begin_is_done_elsewhere() -> None:
    loop = asyncio.get_running_loop()
    assert not is_blocked(loop)
    refused: list[BaseException] = []
    work = where()

    def give() -> None:
        try:
            run_on(loop, work, or_elsewhere=True)
        except NotBegun as error:
            refused.append(error)

    with blocking(loop):
        assert is_blocked(loop)
        thread = threading.Thread(target=give)
        thread.start()
        thread.join(20)
        assert len(refused) == 1
    assert not is_blocked(loop)
    with blocking(None):
        assert not is_blocked(loop)
    assert await work is loop
