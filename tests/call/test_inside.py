"""A failed call is made again only where that does no harm and may help, and each time is noted."""

import asyncio
import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from toolcrib import Call, Context, Result, SetupError, Tool, ToolError, Workbench, tool
from toolcrib.core import CancellationToken, DefinitionError, Emitted
from toolcrib.record import CallLog
from toolcrib.workbench import Limit, Retry

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
    (BrokenPipeError(), True),
    (TimeoutError(), True),
    (socket.gaierror(), True),
    (chained(RuntimeError("http client"), ConnectionError()), True),
    (chained(RuntimeError("http client"), ConnectionError(), by="context"), True),
    (chained(ValueError("on purpose"), ConnectionError(), by="none"), False),
    (ExceptionGroup("both", [ConnectionError(), TimeoutError()]), True),
    (ExceptionGroup("one", [ConnectionError(), ValueError()]), False),
    (ToolError("later", "unavailable"), True),
    (ToolError("later", "lost"), True),
    (ToolError("later", "limited"), True),
    (ToolError("later"), True),
    (ToolError("never", "unavailable", retry="never"), False),
    (ToolError("other arguments", retry="changed"), False),
    *(
        (ToolError("no", code, retry="later"), False)
        for code in ("denied", "invalid_arguments", "timeout", "cancelled")
    ),
    (ToolError("no", "unauthorized"), False),
    (ToolError("no", "invalid_result"), False),
    (ValueError(), False),
    (KeyError("x"), False),
    (FileNotFoundError(), False),
    (PermissionError(), False),
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
    assert result.error is not None
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

    @tool(read_only=True, timeout_s=0.05)
    async def slow() -> None:
        nonlocal calls
        calls += 1
        await asyncio.sleep(30)

    result = await Workbench([slow], retries=QUICK).call("slow")
    assert result.error is not None
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
    assert result.error is not None
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
    from toolcrib.workbench import Limit

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
