"""Work in threads, and work that is handed over to another event loop: its value, its error, its context, its end."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from toolcrib import Call, Caller, Context, Crib, Tool, ToolError, Workbench, tool
from toolcrib.call import execute, pipeline
from toolcrib.machinery import LONG_CHARS, LoopEnded, in_thread, is_long, loops
from toolcrib.machinery.loops import Handed, run_on

WAIT_S = 30.0

name: ContextVar[str] = ContextVar("name")


@pytest.fixture
def other() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_S)
        loop.close()


async def await_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> Any:
    handed = Handed(loop, lambda: work)
    try:
        return await handed.value()
    finally:
        if handed.is_void:
            work.close()


async def divided(by: int) -> float:
    await asyncio.sleep(0)
    return 1 / by


async def name_here() -> str:
    return name.get()


def test_a_thread_gets_what_work_on_a_loop_returns_or_raises(other: asyncio.AbstractEventLoop) -> None:
    name.set("mine")
    assert run_on(other, divided(2)) == 0.5
    assert run_on(other, name_here()) == "mine"
    with pytest.raises(ZeroDivisionError):
        run_on(other, divided(0))


async def test_a_loop_gets_what_work_on_another_returns_or_raises(other: asyncio.AbstractEventLoop) -> None:
    name.set("mine")
    assert await await_on(other, divided(2)) == 0.5
    assert await await_on(other, name_here()) == "mine"
    with pytest.raises(ZeroDivisionError):
        await await_on(other, divided(0))


async def test_a_timeout_of_the_work_itself_is_raised(other: asyncio.AbstractEventLoop) -> None:
    async def late() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await await_on(other, late())
    with pytest.raises(TimeoutError, match="its own"):
        await asyncio.to_thread(run_on, other, late())


async def test_a_wait_that_is_cancelled_cancels_the_work_on_the_other_loop(other: asyncio.AbstractEventLoop) -> None:
    begun, cancelled = Future[None](), Future[None]()

    async def endless() -> None:
        begun.set_result(None)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set_result(None)
            raise

    call = asyncio.create_task(await_on(other, endless()))
    await asyncio.wrap_future(begun)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.wait_for(asyncio.wrap_future(cancelled), WAIT_S)


@pytest.mark.parametrize("is_closed", [True, False])
async def test_the_wait_for_a_loop_that_stops_ends(other: asyncio.AbstractEventLoop, is_closed: bool) -> None:
    begun = Future[None]()

    async def endless() -> None:
        begun.set_result(None)
        await asyncio.Event().wait()

    call = asyncio.create_task(await_on(other, endless()))
    await asyncio.wrap_future(begun)
    pending = asyncio.all_tasks(other)
    other.call_soon_threadsafe(other.stop)
    with pytest.raises(LoopEnded):
        await asyncio.wait_for(call, WAIT_S)
    for task in pending:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    if is_closed:
        other.close()
        with pytest.raises(LoopEnded):
            await await_on(other, divided(1))


async def test_work_that_its_loop_does_not_begin_is_given_up(
    other: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "BEGIN_TIMEOUT_S", 0.0)
    may_go_on, has_run = threading.Event(), False

    async def work() -> None:
        nonlocal has_run
        has_run = True

    other.call_soon_threadsafe(may_go_on.wait, WAIT_S)
    with pytest.raises(ToolError, match="busy") as error:
        await asyncio.to_thread(run_on, other, work())
    assert error.value.code == "unavailable"
    may_go_on.set()
    assert await await_on(other, divided(1)) == 1
    assert not has_run


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


@contextmanager
def no_threads() -> Iterator[None]:
    """Let the system start no thread: there is no memory for a stack of this size."""
    size = threading.stack_size(1 << 47)
    try:
        yield
    finally:
        threading.stack_size(size)


async def test_late_threads_of_one_principal_leave_room_for_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The case of threads that a caller keeps for ever; here threads that wait for calls count with them, too."""
    monkeypatch.setattr(loops, "MAX_PARKED", 16)
    pool, go_on, begun = loops._Threads(2), threading.Event(), list[str]()
    monkeypatch.setattr(loops, "_threads", lambda _: pool)

    @tool(timeout_s=0.05)
    def hang(ctx: Context) -> None:
        begun.append(ctx.caller.principal)
        go_on.wait(WAIT_S)

    def nested(ctx: Context) -> Any:
        return crib.workbench(ctx.caller).call_sync("plain").value

    def plain() -> str:
        return "done"

    async with Crib([hang, nested, plain]) as crib:

        async def late(name: str) -> list[str]:
            bench, codes = crib.workbench(Caller(name)), list[str]()
            while "limited" not in codes:
                count = len(begun)
                code = (await bench.call("hang")).shown().code
                if code != "timeout" or len(begun) > count:  # on a busy machine, some never get a thread in time
                    codes.append(code)
            return codes

        try:
            assert await late("eve") == [*["timeout"] * 8, "limited"]
            assert await late("mallory") == [*["timeout"] * 4, "limited"]
            assert (await asyncio.wait_for(crib.workbench(Caller("alice")).call("nested"), WAIT_S)).value == "done"
            assert (await crib.workbench(Caller("eve")).call("plain")).shown().code == "limited"
        finally:
            go_on.set()
        async with asyncio.timeout(WAIT_S):
            while pool._parked or pool._shares:
                await asyncio.sleep(0.01)
        assert (await crib.workbench(Caller("eve")).call("plain")).value == "done"


async def test_nobody_waits_for_a_thread_while_another_has_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second case: calls in time that keep every thread busy, and hundreds of them before one of another caller."""
    pool, go_on, ran = loops._Threads(2), threading.Event(), list[str]()
    monkeypatch.setattr(loops, "_threads", lambda _: pool)

    def work(ctx: Context) -> None:
        ran.append(ctx.caller.principal)
        if ctx.caller.principal != "alice":
            go_on.wait(WAIT_S)

    async with Crib([work]) as crib:
        floods = [crib.workbench(Caller(name)).call_many([("work", None)] * 200) for name in ("eve", "mallory")]
        flood = asyncio.ensure_future(asyncio.gather(*floods))
        try:
            async with asyncio.timeout(WAIT_S):
                while len(ran) < 3:
                    await asyncio.sleep(0.01)
                assert sorted(ran) == ["eve", "eve", "mallory"]
                assert (await crib.workbench(Caller("alice")).call("work")).status == "success"
        finally:
            go_on.set()
            await flood
    assert (pool._shares, pool._parked, len(ran)) == ({}, 0, 401)
    assert pool._alive <= 2


async def test_calls_whose_threads_cannot_be_started_end_and_later_ones_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = loops._Threads(2)
    monkeypatch.setattr(loops, "_threads", lambda _: pool)

    def plain() -> str:
        return threading.current_thread().name

    async with Workbench([Tool(plain, serial=True)]) as bench:
        with no_threads():
            errors = [(await bench.call("plain")).error for _ in range(3)]
        assert [error and error.code for error in errors] == ["unavailable"] * 3
        assert all("Nothing has run" in str(error) for error in errors)
        # Also that it is serial: what an earlier call had acquired is free again.
        assert (await asyncio.wait_for(bench.call("plain"), WAIT_S)).value == "toolcrib-1"


async def test_work_that_ran_is_not_said_to_have_done_nothing_where_its_value_gets_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = loops._Threads(2)
    monkeypatch.setattr(loops, "_threads", lambda _: pool)

    async def rows() -> Any:
        return (row for row in range(3))

    async with Workbench([rows]) as bench:
        with no_threads():
            result = await bench.call("rows")
        assert result.shown().code == "unavailable"
        assert "Nothing has run" not in result.text
        assert (await asyncio.wait_for(bench.call("rows"), WAIT_S)).value == [0, 1, 2]


async def test_a_call_that_waits_in_its_thread_for_another_ends_where_that_one_gets_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = loops._Threads(1)
    monkeypatch.setattr(loops, "_threads", lambda _: pool)

    def outer() -> str:
        with no_threads():
            return str(bench.call_sync("inner"))

    def inner() -> str:
        return "done"

    async with Workbench([outer, inner]) as bench:
        result = await asyncio.wait_for(bench.call("outer"), WAIT_S)
        assert "starts no thread" in result.value
        both = await asyncio.wait_for(bench.call_many([Call("inner"), Call("inner")]), WAIT_S)
        assert [result.value for result in both] == ["done", "done"]
    assert pool._parked == 0


async def test_a_call_with_a_deadline_runs_where_nobody_can_watch_its_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    dog = execute._Watchdog()
    monkeypatch.setattr(pipeline, "dog", dog)

    async def timed() -> bool:
        return dog._is_looking

    async with Workbench([Tool(timed, timeout_s=WAIT_S)]) as bench:
        with no_threads():
            assert (await bench.call("timed")).value is False
        assert (await bench.call("timed")).value is True


def test_data_are_long_by_their_texts_and_by_their_parts() -> None:
    text = "x" * (LONG_CHARS + 1)
    many = [1] * LONG_CHARS, (text[:20_000],) * 2, [10**4_000] * 10
    for data in (text, text.encode(), [text], {"a": [{"b": text}]}, {text: 1}, {"a": {text: 1}}, *many):
        assert is_long(data)
    assert not any(map(is_long, (None, 1, "x" * LONG_CHARS, {"a": [1, "x", None]}, [], {"a": object()})))


def test_of_data_that_contain_themselves_no_more_is_looked_at_than_is_long() -> None:
    data: list[Any] = []
    data.append(data)
    assert is_long(data)
