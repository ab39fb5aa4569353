"""Deadlines hold, giving up works from anywhere, and what is said of the work is true for its kind."""

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from toolcrib import Call, Context, Workbench, tool
from toolcrib.call import execute
from toolcrib.core import CancellationToken


@tool
async def sleep(seconds: float) -> str:
    """Sleep on the loop."""
    await asyncio.sleep(seconds)
    return "slept"


@tool
def block(ctx: Context) -> str:
    """Block a thread until the call is given up."""
    ended = threading.Event()
    ctx.cancellation.add_callback(ended.set)
    assert ended.wait(30)
    return "gave up"


async def test_the_shortest_of_the_limits_of_call_tool_and_bench_holds() -> None:
    limits = {"call": (None, None, 0.05), "tool": (None, 0.05, 9), "bench": (0.05, 9, None)}
    for bench_s, tool_s, call_s in limits.values():

        @tool(timeout_s=tool_s)
        async def wait() -> None:
            await asyncio.sleep(30)

        started = time.monotonic()
        result = await Workbench([wait], timeout_s=bench_s).call(Call("wait", timeout_s=call_s))
        assert result.error is not None
        assert result.error.code == "timeout"
        assert time.monotonic() - started < 25


async def test_what_a_tool_calls_has_no_more_time_than_the_tool() -> None:
    seen: list[float | None] = []

    @tool(timeout_s=60)
    async def inner(ctx: Context) -> None:
        seen.append(ctx.deadline and ctx.deadline.due)

    @tool(timeout_s=5)
    async def outer(ctx: Context) -> None:
        seen.append(ctx.deadline and ctx.deadline.due)
        await Workbench([inner]).call("inner")

    await Workbench([outer]).call("outer")
    assert seen[0] is not None
    assert seen == [seen[0], seen[0]]


async def test_a_token_gives_a_cancelled_result_and_a_cancelled_task_raises() -> None:
    bench = Workbench([sleep])
    token = CancellationToken()
    call = asyncio.create_task(bench.call("sleep", {"seconds": 30}, cancellation=token))
    await asyncio.sleep(0)
    threading.Thread(target=token.cancel).start()
    result = await call
    assert result.error is not None
    assert (result.error.code, result.error.message) == ("cancelled", "Tool 'sleep' was cancelled.")

    before = await bench.call("sleep", {"seconds": 30}, cancellation=token)
    assert before.error is not None
    assert before.error.code == "cancelled"

    waiting = asyncio.create_task(bench.call("sleep", {"seconds": 30}, timeout_s=60))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_thread_learns_that_its_caller_has_given_up_and_the_answer_says_it_may_still_run() -> None:
    result = await Workbench([block], timeout_s=1).call("block")
    assert result.error is not None
    assert result.error.code == "timeout"
    assert "may still be running" in result.text


async def test_a_tool_that_swallows_its_cancellation_is_answered_for_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = asyncio.Event()

    @tool
    async def stubborn() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    result = await Workbench([stubborn], timeout_s=0.05).call("stubborn")
    assert result.error is not None
    assert result.error.code == "timeout"
    assert "may still be running" in result.text
    assert "Tool 'stubborn' was cancelled and continues to run" in caplog.text
    release.set()
    await asyncio.sleep(0)


async def test_failures_and_timeouts_inside_a_tool_are_the_tool_s_own_under_a_deadline() -> None:
    @tool(timeout_s=30)
    async def careful(how: str) -> str:
        loop = asyncio.get_running_loop()
        try:
            match how:
                case "failure":
                    future: asyncio.Future[None] = loop.create_future()
                    loop.call_soon(future.set_exception, ConnectionError("reset"))
                    await future
                case "timeout":
                    async with asyncio.timeout(0.01):
                        await asyncio.sleep(30)
                case "group":
                    async with asyncio.TaskGroup() as group:
                        group.create_task(asyncio.sleep(30))
                        raise ConnectionError("reset")
        except (ConnectionError, TimeoutError, ExceptionGroup):
            await asyncio.sleep(0)
            return "handled"
        return "not reached"

    bench = Workbench([careful])
    for how in ("failure", "timeout", "group"):
        assert (await bench.call("careful", {"how": how})).value == "handled"


async def test_a_late_tool_may_clean_up_and_a_failing_clean_up_is_still_a_timeout() -> None:
    cleaned: list[str] = []

    @tool(timeout_s=0.02)
    async def tidy(fail: bool) -> None:
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.01)
            cleaned.append("tidy")
            if fail:
                raise ValueError("cannot tidy")

    for fail in (False, True):
        result = await Workbench([tidy]).call("tidy", {"fail": fail})
        assert result.error is not None
        assert (result.error.code, "may still be running" in result.text) == ("timeout", False)
    assert cleaned == ["tidy", "tidy"]


async def test_a_tool_that_blocks_the_loop_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    @tool(timeout_s=0.05)
    async def rude() -> str:
        time.sleep(1.6)
        await asyncio.sleep(0)
        return "done"

    @tool(timeout_s=60)
    async def polite() -> None:
        await asyncio.sleep(0.6)

    with caplog.at_level(logging.ERROR):
        bench = Workbench([rude, polite])
        result = await bench.call("rude")
        await bench.call("polite")
    assert result.value == "done", "it had ended when the loop lived again"
    assert "The event loop is blocked, and tool 'rude' is" in caplog.text
    assert "in rude" in caplog.text
    assert "polite" not in caplog.text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_tool_that_blocks_the_loop_is_named_in_a_forked_process_too() -> None:
    program = """
import asyncio, os, sys, time
from toolcrib import Workbench, tool

@tool(timeout_s=0.05)
async def rude() -> str:
    time.sleep(1.6)
    return "done"

@tool(timeout_s=60)
async def polite() -> str:
    return "done"

bench = Workbench([rude, polite])
asyncio.run(bench.call("polite"))
child = os.fork()
if child == 0:
    asyncio.run(bench.call("rude"))
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1])
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "tool 'rude' is" in ended.stderr


async def test_many_threads_that_never_return_do_not_exhaust_the_pool() -> None:
    leave = threading.Event()

    @tool(timeout_s=1)
    def forever() -> None:
        leave.wait(60)

    @tool
    def quick(n: int) -> int:
        return n

    bench = Workbench([forever, quick])
    try:
        stuck = await bench.call_many([("forever", None)] * 50)
        codes = {result.error.code for result in stuck if result.error}
        assert codes == {"timeout"}
        assert (await asyncio.wait_for(bench.call("quick", {"n": 7}), 60)).value == 7
        while (await bench.call_many([("forever", None)] * 100))[-1].error.code == "timeout":  # type: ignore[union-attr]
            pass
        refused = await bench.call_many([("forever", None), ("quick", {"n": 7})])
        assert [result.error and result.error.code for result in refused] == ["limited", "limited"]
    finally:
        leave.set()
    for _ in range(200):
        if (await bench.call("quick", {"n": 8})).value == 8:
            break
        await asyncio.sleep(0.05)
    else:
        pytest.fail("the pool did not recover")


def test_a_token_is_reentrant_runs_every_callback_and_keeps_nothing() -> None:
    token = CancellationToken()
    seen: list[str] = []

    def reenter() -> None:
        seen.append(f"cancelled: {token.is_cancelled()}")
        token.cancel()
        token.add_callback(lambda: seen.append("late"))

    def broken() -> None:
        raise ValueError

    token.add_callback(reenter)
    token.add_callback(broken)
    token.add_callback(lambda: seen.append("last"))
    removed = token.add_callback(lambda: seen.append("removed"))
    removed()
    token.cancel()
    token.cancel()
    assert seen == ["cancelled: True", "late", "last"]


async def test_a_linked_future_is_cancelled_and_a_done_one_is_let_go() -> None:
    loop = asyncio.get_running_loop()
    token = CancellationToken()
    done: Any = token.link_future(loop.create_future())
    done.set_result(1)
    await asyncio.sleep(0)
    gone = weakref.ref(done)
    del done
    gc.collect()
    assert gone() is None
    waiting: Any = token.link_future(loop.create_future())
    await asyncio.to_thread(token.cancel)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert token.link_future(loop.create_future()).cancelled()


async def test_a_generator_in_a_thread_ends_when_its_reader_has_left() -> None:
    closed = threading.Event()
    given: list[int] = []

    @tool
    def endless() -> Iterator[int]:
        try:
            for number in range(1_000_000):
                given.append(number)
                yield number
        finally:
            closed.set()

    stream = Workbench([endless]).stream("endless")
    await anext(stream)
    await stream.aclose()
    assert await asyncio.to_thread(closed.wait, 10)
    assert len(given) < 1_000_000


@pytest.mark.parametrize("with_context", [True, False])
async def test_a_token_ends_a_call_that_has_no_deadline(with_context: bool) -> None:
    begun = asyncio.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def wait_with(ctx: Context) -> None:
        await wait()

    token = CancellationToken()
    async with Workbench([wait_with if with_context else wait]) as bench:
        call = asyncio.create_task(bench.call(Call("wait_with" if with_context else "wait", cancellation=token)))
        await begun.wait()
        token.cancel()
        result = await asyncio.wait_for(call, 20)
    assert result.error is not None
    assert result.error.code == "cancelled"


async def test_whoever_is_cancelled_while_late_work_cleans_up_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "_GRACE_S", 30)
    cleaning = asyncio.Event()

    @tool(timeout_s=0.05)
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await asyncio.Event().wait()

    call = asyncio.create_task(Workbench([work]).call("work"))
    await cleaning.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_paused_deadline_is_that_of_the_outer_call_and_not_over_before() -> None:
    @tool(timeout_s=0.05)
    async def inner(ctx: Context) -> str:
        assert ctx.deadline is not None
        with ctx.deadline.paused():
            await asyncio.sleep(0.1)
        return "done"

    @tool(timeout_s=0.9)
    async def outer() -> str:
        return (await bench.call("inner")).text

    bench = Workbench([inner, outer])
    result = await bench.call("outer")
    assert result.text == "done" or (result.error is not None and result.error.code == "timeout")


def test_a_program_ends_while_a_tool_still_runs_in_a_thread() -> None:
    program = """
import asyncio, threading
from toolcrib import Workbench
def never() -> None:
    threading.Event().wait()
result = asyncio.run(Workbench([never], timeout_s=0.2).call("never"))
print(result.error.code)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("timeout\n", "")
