"""Deadlines hold, giving up works from anywhere, and a failed call is made again only where that may help."""

import asyncio
import decimal
import gc
import itertools
import logging
import random
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import Annotated, Any

import pytest

from toolcrib import Approve, Call, Context, Depends, Result, SetupError, Tool, ToolError, Workbench, tool
from toolcrib.call import execute
from toolcrib.core import CancellationToken, DefinitionError, Emitted, Source, Text
from toolcrib.record import CallLog
from toolcrib.workbench import Limit, MemoryPendings, MemoryResults, Retry, Stores


@tool
async def sleep(seconds: float, ctx: Context) -> str:
    await asyncio.sleep(seconds)
    return "slept"


async def test_the_shortest_of_the_limits_of_call_tool_and_bench_holds() -> None:
    limits = {"call": (None, None, 0.05), "tool": (None, 0.05, 9), "bench": (0.05, 9, None)}
    for bench_s, tool_s, call_s in limits.values():

        @tool(timeout_s=tool_s)
        async def wait() -> None:
            await asyncio.sleep(30)

        started = time.monotonic()
        result = await Workbench([wait], timeout_s=bench_s).call(Call("wait", timeout_s=call_s))
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
    await asyncio.sleep(0.01)
    threading.Thread(target=token.cancel).start()
    result = await call
    assert (result.error.code, result.error.message) == ("cancelled", "Tool 'sleep' was cancelled.")

    before = await Workbench([Tool(flaky := Flaky(), name="flaky")]).call(Call("flaky", cancellation=token))
    assert (before.error.code, flaky.calls) == ("cancelled", 0)

    waiting = asyncio.create_task(bench.call("sleep", {"seconds": 30}, timeout_s=60))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_tool_that_swallows_its_cancellation_is_answered_for_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = asyncio.Event()

    async def stubborn() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    result = await Workbench([stubborn], timeout_s=0.05).call("stubborn")
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

    @tool(timeout_s=0.5)
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
        assert (result.error.code, "may still be running" in result.text) == ("timeout", False)
    assert cleaned == ["tidy", "tidy"]


async def test_a_tool_that_blocks_the_loop_is_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(execute, "_LOOK_INTERVAL_S", 0.05)

    @tool(timeout_s=0.05)
    async def rude() -> str:
        time.sleep(0.8)
        await asyncio.sleep(0)
        return "done"

    @tool(timeout_s=60)
    async def polite() -> None:
        await asyncio.sleep(0.15)

    with caplog.at_level(logging.ERROR):
        bench = Workbench([rude, polite])
        result = await bench.call("rude")
        await bench.call("polite")
    assert result.value == "done", "it had ended when the loop lived again"
    assert "The event loop is blocked, and tool 'rude' is" in caplog.text
    assert "in rude" in caplog.text
    assert "polite" not in caplog.text


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


QUICK = [Retry(times=3, first_s=0.001)]


class Flaky:
    """Fails with each of *errors* in turn, then gives how often it was called."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> int:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.calls


async def call(flaky: Any, plans: Any = QUICK, **options: Any) -> Result[Any]:
    return await Workbench([Tool(flaky, name="flaky", **options)], retries=plans).call("flaky")


async def test_a_call_that_failed_is_made_again_and_each_attempt_is_noted(caplog: pytest.LogCaptureFixture) -> None:
    log = CallLog()
    flaky = Flaky(ConnectionResetError("gone"), ToolError("busy", "unavailable"))
    bench = Workbench([Tool(flaky, name="flaky", idempotent=True)], retries=QUICK, recorder=log)
    result = await bench.call("flaky")
    assert (result.value, flaky.calls, len(log)) == (3, 3, 1)
    noted = result.metadata["retries"]
    assert [attempt["error"] for attempt in noted] == ["ConnectionResetError", "unavailable"]
    assert 0 <= noted[0]["after_s"] <= 0.001
    assert 0 <= noted[1]["after_s"] <= 0.002
    assert [line.partition(" in ")[0] for line in caplog.messages] == [
        "Tool 'flaky' failed (ConnectionResetError) and is tried again",
        "Tool 'flaky' failed (unavailable) and is tried again",
    ]
    assert "retries" not in (await bench.call("flaky")).metadata


def chained(error: Exception, cause: Exception, *, by: str = "cause") -> Exception:
    try:
        try:
            raise cause
        except type(cause) as inner:
            if by == "cause":
                raise error from inner
            if by == "none":
                raise error from None
            raise error
    except type(error) as outer:
        return outer


WORTH: list[tuple[BaseException, bool]] = [
    (ConnectionRefusedError(), True),
    (TimeoutError(), True),
    (socket.gaierror(), True),
    (chained(RuntimeError("http client"), ConnectionError()), True),
    (chained(RuntimeError("http client"), ConnectionError(), by="context"), True),
    (chained(ValueError("on purpose"), ConnectionError(), by="none"), False),
    (ExceptionGroup("both", [ConnectionError(), TimeoutError()]), True),
    (ExceptionGroup("one", [ConnectionError(), ValueError()]), False),
    (ToolError("later", "unavailable"), True),
    (ToolError("later"), True),
    (ToolError("never", "unavailable", retry="never"), False),
    (ToolError("other arguments", retry="changed"), False),
    *(
        (ToolError("no", code, retry="later"), False)
        for code in ("denied", "invalid_arguments", "timeout", "cancelled")
    ),
    (ToolError("no", "unauthorized"), False),
    (ValueError(), False),
    (FileNotFoundError(), False),
    (SystemExit(3), False),
]


@pytest.mark.parametrize(("error", "worth_it"), WORTH, ids=lambda value: repr(value)[:60])
async def test_only_errors_that_may_pass_by_themselves_are_worth_another_attempt(
    error: BaseException, worth_it: bool
) -> None:
    flaky = Flaky(error)
    result = await call(flaky, idempotent=True)
    assert flaky.calls == (2 if worth_it else 1)
    assert result.status == ("success" if worth_it else "error")


async def test_a_tool_that_does_not_say_it_can_be_repeated_is_not() -> None:
    for hints in ({}, {"idempotent": False}, {"read_only": False}, {"destructive": False}, {"idempotent": None}):
        flaky = Flaky(ConnectionError())
        assert (await call(flaky, **hints)).status == "error"
        assert flaky.calls == 1
    with pytest.raises(DefinitionError, match=r"Add idempotent=True or read_only=True, or leave out retries"):
        Tool(Flaky(), name="flaky", retries=2)
    for wrong in (-1, 1.5, "2", True):
        with pytest.raises(DefinitionError, match="retries is how often"):
            Tool(Flaky(), name="flaky", idempotent=True, retries=wrong)  # type: ignore[arg-type]


async def test_what_a_tool_says_of_its_retries_goes_before_what_the_workbench_says() -> None:
    for retries, plans, calls in (
        (2, (), 3),
        (1, QUICK, 2),
        (0, QUICK, 1),
        (None, QUICK, 4),
        (None, [Retry("other", times=9), Retry("fl*", times=1, first_s=0), *QUICK], 2),
        (None, (), 1),
        (None, [Retry("other", times=9)], 1),
    ):
        flaky = Flaky(*(ToolError("busy", "lost") for _ in range(9)))
        await call(flaky, plans, idempotent=True, retries=retries)
        assert flaky.calls == calls


async def test_no_attempt_is_begun_that_could_not_begin_before_the_deadline() -> None:
    flaky = Flaky(*(ConnectionError() for _ in range(9)), ToolError("busy", "unavailable"))
    started = time.monotonic()
    plans = [Retry(times=9, first_s=1e6, most_s=2e6)]
    result = await Workbench([Tool(flaky, name="flaky", idempotent=True)], retries=plans, timeout_s=60).call("flaky")
    assert result.error.code == "failed"
    assert flaky.calls <= 2
    assert time.monotonic() - started < 50

    flaky = Flaky(ToolError("busy", "limited", details={"retry_after_s": 60}))
    result = await Workbench([Tool(flaky, name="flaky", idempotent=True)], retries=QUICK, timeout_s=1).call("flaky")
    assert (result.text, flaky.calls) == ("busy", 1), "it asked for more time than there is"


async def test_the_time_that_an_error_names_is_waited_for() -> None:
    flaky = Flaky(ToolError("busy", "limited", details={"retry_after_s": 0.05}))
    result = await call(flaky, idempotent=True)
    assert result.value == 2
    assert result.metadata["retries"] == [{"error": "limited", "after_s": 0.05}]


async def test_all_attempts_share_one_deadline() -> None:
    seen: list[float | None] = []

    @tool(idempotent=True, timeout_s=60)
    async def look(ctx: Context) -> None:
        seen.append(ctx.deadline and ctx.deadline.due)
        await asyncio.sleep(0.05)
        if len(seen) < 3:
            raise ConnectionError

    await Workbench([look], retries=QUICK).call("look")
    first, *others = [due for due in seen if due is not None]
    assert len(others) == 2
    assert all(abs(due - first) < 0.04 for due in others)


async def test_a_deadline_that_has_passed_is_the_end() -> None:
    calls = 0

    @tool(read_only=True, timeout_s=0.5)
    async def slow() -> None:
        nonlocal calls
        calls += 1
        await asyncio.sleep(30)

    result = await Workbench([slow], retries=QUICK).call("slow")
    assert (result.error.code, calls) == ("timeout", 1)


async def test_giving_up_ends_the_pause_between_attempts() -> None:
    plans = [Retry(times=1, first_s=0)]
    flaky = Flaky(ToolError("busy", "limited", details={"retry_after_s": 600}))
    bench = Workbench([Tool(flaky, name="flaky", idempotent=True)], retries=plans)
    token = CancellationToken()
    waiting = asyncio.create_task(bench.call(Call("flaky", cancellation=token)))
    while not flaky.calls:
        await asyncio.sleep(0)
    threading.Thread(target=token.cancel).start()
    result = await asyncio.wait_for(waiting, 30)
    assert (result.error.code, flaky.calls) == ("cancelled", 1)

    flaky.errors = [ToolError("busy", "limited", details={"retry_after_s": 600})]
    waiting = asyncio.create_task(bench.call("flaky"))
    while flaky.calls == 1:
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_each_attempt_is_given_the_arguments_as_they_were_checked() -> None:
    seen: list[list[int]] = []

    @tool(idempotent=True)
    async def drain(numbers: list[int]) -> str:
        seen.append(list(numbers))
        numbers.clear()
        if len(seen) < 3:
            raise ConnectionError
        return "drained"

    assert (await Workbench([drain], retries=QUICK).call("drain", {"numbers": [1, 2]})).value == "drained"
    assert seen == [[1, 2]] * 3


async def test_once_a_part_of_the_answer_is_given_away_there_is_no_other_attempt() -> None:
    calls = 0

    @tool(idempotent=True)
    async def speak(ctx: Context, aloud: bool) -> str:
        nonlocal calls
        calls += 1
        ctx.progress(1, 2)
        if aloud:
            await ctx.emit("half")
        if calls == 1:
            raise ConnectionError
        return "whole"

    bench = Workbench([speak], retries=QUICK)
    for aloud, status, emitted in ((True, "error", 1), (False, "success", 0)):
        calls = 0
        *events, result = [event async for event in bench.stream("speak", {"aloud": aloud})]
        assert isinstance(result, Result)
        assert result.status == status
        assert sum(isinstance(event, Emitted) for event in events) == emitted


async def test_sync_tools_and_calls_with_limits_are_tried_again_too() -> None:
    calls = 0

    @tool(idempotent=True, retries=1, serial=True)
    def flaky() -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ConnectionError
        return calls

    bench = Workbench([flaky], limits=[Limit(rate="1/h", wait_s=0)], retries=QUICK)
    assert (await bench.call("flaky")).value == 2, "one call, whatever the number of attempts"


async def test_pauses_double_up_to_the_longest_and_any_time_below_them_may_be_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranges: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        ranges.append((low, high))
        return 0.00123

    monkeypatch.setattr(random, "uniform", uniform)
    flaky = Flaky(*(ToolError("busy", "lost") for _ in range(9)))
    result = await call(flaky, [Retry(times=4, first_s=0.001, most_s=0.005)], idempotent=True)
    assert ranges == [(0, 0.001), (0, 0.002), (0, 0.004), (0, 0.005)]
    assert result.metadata["retries"] == [{"error": "lost", "after_s": 0.001}] * 4


@pytest.mark.parametrize(("wrong", "name"), [({"times": -1}, "times"), ({"first_s": "soon"}, "first_s")])
def test_retries_that_cannot_be_are_refused(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(SetupError, match=name):
        Retry(**wrong)


class Counted(CancellationToken):
    """Counts the callbacks that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.callbacks = 0

    def add_callback(self, callback: Callable[[], object]) -> Callable[[], None]:
        remove = super().add_callback(callback)
        self.callbacks += 1

        def end() -> None:
            self.callbacks -= 1
            remove()

        return end


async def test_a_call_with_a_token_is_made_again_after_the_pause_and_leaves_nothing_with_the_token() -> None:
    token, flaky = Counted(), Flaky(ConnectionError(), ConnectionError())
    limits = [Limit("flaky", concurrency=1, wait_s=60)]
    async with Workbench([Tool(flaky, name="flaky", idempotent=True)], retries=QUICK, limits=limits) as bench:
        calls = [bench.call(Call("flaky", timeout_s=60, cancellation=token)) for _ in range(2)]
        results = await asyncio.gather(*calls)
    assert ([result.value for result in results], token.callbacks) == ([3, 4], 0)


async def test_the_deadline_stands_still_while_a_person_is_asked_for_approval() -> None:
    async def work() -> str:
        await asyncio.sleep(0.01)
        return "done"

    async def ask(_: Any) -> Approve:
        await asyncio.sleep(1.1)
        return Approve()

    async with Workbench([work], policy=lambda *_: "ask", ask=ask, timeout_s=1) as bench:
        assert (await bench.call("work")).text == "done"


async def test_what_is_opened_for_a_session_has_no_deadline_and_shows_no_secret(
    caplog: pytest.LogCaptureFixture,
) -> None:
    polled: list[asyncio.Task[Any]] = []

    async def work() -> str:
        await asyncio.sleep(0.01)
        return "done"

    async def poll() -> Any:
        await asyncio.sleep(1.1)
        return await bench.call("work")

    async def poller() -> AsyncIterator[int]:
        polled.append(asyncio.create_task(poll()))
        yield 1
        raise OSError("refused for s3cret-key")

    async def use(number: Annotated[int, Depends(poller)]) -> int:
        return number

    with caplog.at_level(logging.DEBUG):
        async with Workbench([use, work], secrets=["s3cret-key"]) as bench:
            assert (await bench.call(Call("use", timeout_s=1))).value == 1
            assert (await polled[0]).text == "done"
    assert "failed to close" in caplog.text
    assert "s3cret-key" not in caplog.text


# One bound around all steps


class Never:
    """Waits for ever at one of the steps of a call that are not its work, and counts how often the work ran."""

    def __init__(self, at: str, *, swallows: bool = False) -> None:
        self.at, self.swallows = at, swallows
        self.release = asyncio.Event()
        self.reached = asyncio.Event()
        self.ran = 0

    async def wait(self) -> None:
        self.reached.set()
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                if not self.swallows:
                    raise

    async def policy(self, *_: Any) -> str:
        if self.at == "policy":
            await self.wait()
        return "ask" if self.at == "pending store" else "allow"

    async def middleware(self, tool: Any, call: Any, caller: Any, go_on: Any, /) -> Any:
        if self.at == "middleware":
            await self.wait()
        return await go_on()

    def bench(self, **options: Any) -> Workbench:
        async def work() -> str:
            self.ran += 1
            return "done"

        never = self

        class Recorder(CallLog):
            async def started(self, record: Any, /) -> None:
                if never.at == "recorder":
                    await never.wait()

        class Store(MemoryPendings):
            async def take(self, *args: Any, **kwargs: Any) -> Any:
                if never.at == "pending store":
                    await never.wait()
                return await super().take(*args, **kwargs)

        middleware = [self.middleware]
        return Workbench(
            [work],
            policy=self.policy,
            middleware=middleware,
            recorder=Recorder(),
            store=Stores(pendings=Store(), results=MemoryResults()),
            **options,
        )


STEPS = ("policy", "middleware", "recorder", "pending store")


@pytest.mark.parametrize("at", STEPS)
async def test_a_step_that_hangs_ends_at_the_deadline_and_nothing_has_run(at: str) -> None:
    """A trusted plug that hangs by accident, at each of the steps around the work (the case: a policy)."""
    never = Never(at)
    async with never.bench(timeout_s=0.1) as bench, asyncio.timeout(30):
        result = await bench.call("work")
    assert (result.error.code, never.ran) == ("timeout", 0)
    assert result.text == "Tool 'work' has not run: its deadline passed before it could begin."


@pytest.mark.parametrize("at", STEPS)
async def test_a_token_ends_a_step_that_hangs(at: str) -> None:
    """The second case: there is no deadline, and the caller gives up while a step around the work hangs."""
    never, token = Never(at), CancellationToken()
    async with never.bench() as bench, asyncio.timeout(30):
        call = asyncio.create_task(bench.call(Call("work", cancellation=token)))
        await never.reached.wait()
        await asyncio.to_thread(token.cancel)
        result = await call
    assert (result.error.code, never.ran) == ("cancelled", 0)


async def test_a_policy_that_swallows_its_cancellation_lets_nothing_run_after_the_answer() -> None:
    never = Never("policy", swallows=True)
    async with never.bench(timeout_s=0.05) as bench, asyncio.timeout(30):
        result = await bench.call("work")
        assert (result.error.code, "may still be running" in result.text) == ("timeout", False)
        never.release.set()
        while execute._detached_tasks:
            await asyncio.sleep(0)
    assert never.ran == 0


async def test_middleware_sees_that_the_deadline_has_passed_and_may_answer_in_its_place() -> None:
    @tool(timeout_s=0.05)
    async def work() -> str:
        await asyncio.Event().wait()
        return "never"

    seen: list[str] = []

    async def fallback(tool: Any, call: Call, caller: Any, go_on: Any, /) -> Result[Any]:
        result = await go_on()
        seen.append(result.error.code)
        return Result("as of yesterday", (Text("as of yesterday"),), call_id=call.id, tool=call.tool)

    async with Workbench([work], middleware=[fallback]) as bench, asyncio.timeout(30):
        assert (await bench.call("work")).text == "as of yesterday"
    assert seen == ["timeout"]


def numbers() -> Iterable[int]:
    return itertools.count()


def generated() -> Any:
    return (number for number in itertools.count())


async def generated_on_the_loop() -> Any:
    return (number for number in itertools.count())


async def mapped_on_the_loop() -> Any:
    return map(str, itertools.count())


async def yielded_on_the_loop() -> AsyncIterator[int]:
    for number in itertools.count():
        yield number


@pytest.mark.parametrize(
    "fn",
    [numbers, generated, generated_on_the_loop, mapped_on_the_loop, yielded_on_the_loop],
    ids=lambda fn: fn.__name__,
)
async def test_a_returned_iterator_that_never_ends_holds_no_loop_and_ends_with_the_call(fn: Any) -> None:
    """The case is a generator; the second is an iterator that is none, which its annotation has pydantic read; then
    one that nothing describes, and an async generator that never waits."""
    token = CancellationToken()

    async def turn() -> None:
        for _ in range(3):
            await asyncio.sleep(0.01)
        token.cancel()

    async with Workbench([fn]) as bench, asyncio.timeout(30):
        other = asyncio.create_task(turn())
        for call, code in (
            (Call(fn.__name__, cancellation=token), "cancelled"),
            (Call(fn.__name__, timeout_s=0.05), "timeout"),
        ):
            result = await bench.call(call)
            assert result.error.code == code
        await other


async def test_a_returned_iterator_is_the_list_of_its_items() -> None:
    def rows() -> Iterable[int]:
        return iter([1, 2, 3])

    async with Workbench([rows, Tool(lambda: (n for n in "ab"), name="letters")]) as bench:
        result = await bench.call("rows")
        assert (result.value, result.text) == ([1, 2, 3], "[1,2,3]")
        assert (await bench.call("letters")).value == ["a", "b"]


async def test_a_person_who_is_asked_at_once_and_never_answers_lets_the_call_wait() -> None:
    """The host's `ask` never returns, and swallows its cancellation (the second case)."""
    release = asyncio.Event()

    async def ask(_: Any) -> Approve:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return Approve()

    options: Any = {"policy": lambda *_: "ask", "pending_timeout_s": 1}
    async with Workbench([sleep], ask=ask, timeout_s=0.1, **options) as bench, asyncio.timeout(30):
        result = await bench.call("sleep", {"seconds": 0})
        assert result.status == "pending"
        release.set()


async def test_a_recorder_that_swallows_its_cancellation_holds_neither_an_answer_nor_who_gives_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("toolcrib.call.record.RECORDER_TIMEOUT_S", 0.05)
    release, began = asyncio.Event(), asyncio.Event()

    class Stuck(CallLog):
        async def finished(self, record: Any, /) -> None:
            began.set()
            while not release.is_set():
                with suppress(asyncio.CancelledError):
                    await release.wait()

    async with Workbench([sleep], recorder=Stuck()) as bench, asyncio.timeout(30):
        assert (await bench.call("sleep", {"seconds": 0})).value == "slept"
        monkeypatch.setattr("toolcrib.call.record.RECORDER_TIMEOUT_S", 3600)
        began.clear()
        call = asyncio.create_task(bench.call("sleep", {"seconds": 3600}))
        await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert began.is_set()
        release.set()


# What is aimed at the work does not hit the caller

user: ContextVar[str] = ContextVar("user", default="host")


@pytest.fixture(params=["plain", "deadline", "token"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"plain": {}, "deadline": {"timeout_s": 60}, "token": {"cancellation": CancellationToken()}}[request.param]


@pytest.mark.parametrize("suspends", [False, True])
async def test_what_a_tool_sets_in_its_context_stays_there(suspends: bool, options: dict[str, Any]) -> None:
    """Context variables and the precision of decimals; the rounding, and what a policy sets, are the second cases."""

    def policy(*_: Any) -> str:
        user.set("policy")
        return "allow"

    async def work() -> str:
        seen = user.get()
        user.set("tool")
        decimal.getcontext().prec = 3
        decimal.getcontext().rounding = decimal.ROUND_UP
        if suspends:
            await asyncio.sleep(0)
            user.set("tool again")
        return seen

    before = decimal.getcontext().copy()
    async with Workbench([work], policy=policy) as bench:
        assert (await bench.call(Call("work", **options))).value == "policy"
    assert user.get() == "host"
    assert repr(decimal.getcontext()) == repr(before)


class Keeping(CancellationToken):
    """Keeps its callbacks for ever, as AutoGen's own token does, whose `add_callback` returns nothing."""

    def add_callback(self, callback: Callable[[], object]) -> Any:
        super().add_callback(callback)


@pytest.mark.parametrize("kind", [CancellationToken, Keeping])
async def test_a_token_that_is_cancelled_as_the_work_ends_cancels_no_task_of_the_host(kind: type) -> None:
    """The last step of the work cancels the token (the case); or the program cancels it a while later (AutoGen's)."""
    for is_later in (False, True):
        token = kind()

        async def work(ctx: Context, is_later: bool) -> str:
            await asyncio.sleep(0)
            if not is_later:
                ctx.call.cancellation.cancel()
            return "done"

        async with Workbench([work]) as bench:
            result = await bench.call(Call("work", {"is_later": is_later}, cancellation=token, timeout_s=60))
            token.cancel()
            await asyncio.sleep(0.01)
            assert result.value == "done"
        task = asyncio.current_task()
        assert task.cancelling() == 0


async def test_a_token_that_lives_on_keeps_no_call_alive() -> None:
    class Big:
        pass

    async def work(ctx: Context) -> str:
        await asyncio.sleep(0)
        return str(ctx.call.data is not None)

    alive: list[weakref.ref[Big]] = []

    def data() -> dict[str, Any]:
        big = Big()
        alive.append(weakref.ref(big))
        return {"big": big}

    token = Keeping()
    async with Workbench([work]) as bench:
        await bench.call(Call("work", cancellation=token, data=data()))
        await asyncio.sleep(0)
        gc.collect()
        assert alive[0]() is None


@pytest.mark.parametrize("how", ["suspends", "returns", "later", "raises"])
async def test_a_tool_that_cancels_the_task_it_runs_in_ends_as_cancelled_and_its_caller_goes_on(
    how: str, options: dict[str, Any]
) -> None:
    """The case suspends at once. The second cases cancel in a later step, return without another one, or raise."""

    async def work() -> str:
        if how != "suspends":
            await asyncio.sleep(0)
        task = asyncio.current_task()
        task.cancel()
        if how == "raises":
            raise ValueError("no")
        if how != "returns":
            await asyncio.sleep(30)
        return "not reached"

    async with Workbench([work]) as bench, asyncio.timeout(20):
        result = await bench.call(Call("work", **options))
        assert result.error.code == "cancelled"
        await asyncio.sleep(0.001)
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_a_call_with_a_token_has_a_task_of_its_own_from_its_first_step() -> None:
    tasks: list[Any] = []

    async def work() -> None:
        tasks.append(asyncio.current_task())
        asyncio.get_running_loop().call_later(0.01, tasks[0].cancel)  # after the call

    async with Workbench([work]) as bench:
        await bench.call(Call("work", cancellation=CancellationToken()))
        await asyncio.sleep(0.05)
    assert tasks[0] is not asyncio.current_task()


async def test_a_caller_who_is_cancelled_is_cancelled_whatever_a_call_with_a_token_makes_of_it() -> None:
    """The tool swallows the cancellation; the second cases pass it on, raise in its place, or come in a step of the
    tool itself, as Ctrl-C does under `asyncio.run`."""
    began = asyncio.Event()

    async def work(how: str) -> str:
        began.set()
        if how == "in a step":
            caller.cancel()
            await asyncio.sleep(0)
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            if how == "raises":
                raise ValueError("no") from None
            if how == "passes on":
                raise
        return "done"

    async with Workbench([work], timeout_s=60) as bench, asyncio.timeout(20):
        for how in ("swallows", "passes on", "raises", "in a step"):
            began.clear()
            call = Call("work", {"how": how}, cancellation=CancellationToken())
            caller = asyncio.create_task(bench.call(call))
            await began.wait()
            if how != "in a step":
                caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller


async def test_sys_exit_around_a_call_ends_neither_the_call_nor_its_loop() -> None:
    """In middleware of a call with a token; the second cases are a recorder, and the host's `ask`."""

    async def leave(*_: Any) -> Any:
        sys.exit(3)

    class Leaving(CallLog):
        async def finished(self, record: Any, /) -> None:
            sys.exit(3)

    doors: dict[str, Any] = {
        "failed": {"middleware": [leave]},
        None: {"recorder": Leaving()},  # type: ignore[dict-item]
        "pending": {"policy": lambda *_: "ask", "ask": leave},
    }
    for end, options in doors.items():
        for token in (None, CancellationToken()):
            async with Workbench([sleep], **options) as bench, asyncio.timeout(20):
                result = await bench.call(Call("sleep", {"seconds": 0}, cancellation=token))
                assert (result.error.code if result.error else "pending" if result.pending else None) == end


async def test_a_person_who_has_answered_waits_for_no_rule_on_who_may_answer() -> None:
    """`may_answer` never returns: the deadline stands still for the person alone."""

    async def never(*_: Any) -> bool:
        await asyncio.Event().wait()
        return True

    async def approve(_: Any) -> Approve:
        return Approve()

    options: Any = {"policy": lambda *_: "ask", "may_answer": never}
    async with Workbench([sleep], ask=approve, timeout_s=0.1, **options) as bench, asyncio.timeout(30):
        result = await bench.call("sleep", {"seconds": 0})
        assert (result.error.code, "has not run" in result.text) == ("timeout", True)


async def test_the_deadline_of_a_call_begins_before_its_tool_is_there() -> None:
    class Slow(Source):
        async def start(self) -> None:
            await asyncio.Event().wait()

        def tools(self) -> list[Tool]:
            return []

    async with asyncio.timeout(60):
        result = await Workbench([Slow()]).call(Call("any", timeout_s=0.05))
    assert result.error.code == "timeout"
