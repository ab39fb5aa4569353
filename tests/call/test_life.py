"""What happens in a tool stays a result: told to the model, kept in the log, and never the end of the run."""

import asyncio
import contextvars
import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toolcrib import Caller, Context, File, Image, Result, Text, ToolAuth, ToolError, Workbench, tool
from toolcrib.core import Data
from toolcrib.record import CallLog


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def raising(error: BaseException) -> Any:
    @tool(name="break_down")
    async def inline() -> str:
        raise error

    @tool(name="break_down_in_a_thread")
    def threaded() -> str:
        raise error

    return [inline, threaded]


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("db password=hunter2 at /srv/app"),
        SystemExit(3),
        Unspeakable(),
        StopIteration("stop"),
        StopAsyncIteration("stop"),
        asyncio.CancelledError(),
        ExceptionGroup("several", [ValueError("hunter2"), KeyError("x")]),
        BaseExceptionGroup("worse", [SystemExit(1)]),
        TimeoutError("the tool's own hunter2"),
        AssertionError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_exception_becomes_its_type_and_a_reference_and_the_bench_lives(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    async with Workbench([*raising(error), add]) as bench:
        for name in ("break_down", "break_down_in_a_thread"):
            caplog.clear()
            result = await bench.call(name)
            assert result.status == "error"
            assert result.error is not None
            assert result.error.code == "failed"
            assert "hunter2" not in result.text
            reference = result.text.partition("(reference ")[2].partition(")")[0]
            assert len(reference) == 8
            assert reference in caplog.text, "the detail is in the log under the reference"
        assert (await bench.call("add", '{"a": 1, "b": 2}')).value == 3


async def test_the_type_of_the_exception_is_named_and_a_group_names_its_members() -> None:
    async with Workbench(raising(ExceptionGroup("g", [ValueError("x"), KeyError("y")]))) as bench:
        result = await bench.call("break_down")
        assert result.text.startswith("Tool 'break_down' failed: ExceptionGroup of KeyError, ValueError (reference ")


async def test_show_errors_tells_the_text_too() -> None:
    async with Workbench(raising(RuntimeError("the disk is full")), show_errors=True) as bench:
        assert (await bench.call("break_down")).text.endswith("the disk is full")


async def test_keyboard_interrupt_in_a_thread_is_the_tool_s_and_inline_it_is_the_user_s() -> None:
    async with Workbench(raising(KeyboardInterrupt())) as bench:
        result = await bench.call("break_down_in_a_thread")
        assert result.error is not None
        assert "KeyboardInterrupt" in result.text


async def test_a_tool_error_is_passed_on_as_it_is() -> None:
    @tool
    async def weather(city: str) -> str:
        raise ToolError(f"There is no city '{city}'. Try Paris.", "failed", retry="changed")

    result = await Workbench([weather]).call("weather", {"city": "Pariss"})
    assert result.error is not None
    assert (result.error.code, result.error.message, result.error.retry) == (
        "failed",
        "There is no city 'Pariss'. Try Paris.",
        "changed",
    )
    with pytest.raises(ToolError, match="no city 'Pariss'"):
        result.unwrap()


async def test_tool_errors_in_a_group_are_passed_on_together() -> None:
    group = ExceptionGroup("two", [ToolError("One is missing."), ToolError("Two is missing.")])
    result = await Workbench(raising(group)).call("break_down")
    assert result.text == "One is missing.\nTwo is missing."


async def test_sync_tools_run_in_a_thread_with_the_context_variables_of_the_call() -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who")

    @tool
    def where() -> list[str]:
        return [threading.current_thread().name, who.get()]

    who.set("alice")
    value = (await Workbench([where]).call("where")).value
    assert value[0] != threading.current_thread().name
    assert value[1] == "alice"


async def test_a_sync_tool_does_not_hold_up_the_event_loop() -> None:
    entered, leave = threading.Event(), threading.Event()

    @tool
    def block() -> str:
        entered.set()
        assert leave.wait(60)
        return "done"

    bench = Workbench([block, add])
    blocked = asyncio.create_task(bench.call("block"))
    await asyncio.to_thread(entered.wait, 10)
    assert (await bench.call("add", {"a": 1, "b": 1})).value == 2
    leave.set()
    assert (await blocked).value == "done"


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_deadline_is_answered_on_time_and_says_what_may_still_run(kind: str) -> None:
    leave = threading.Event()

    @tool(timeout_s=0.1)
    async def sleep() -> None:
        await asyncio.sleep(30)

    @tool(name="sleep", timeout_s=0.1)
    def block() -> None:
        leave.wait(30)

    started = time.monotonic()
    result = await Workbench([sleep if kind == "async" else block], timeout_s=60).call("sleep")
    leave.set()
    assert time.monotonic() - started < 25
    assert result.error is not None
    assert result.error.code == "timeout"
    assert ("may still be running" in result.text) is (kind == "sync")


async def test_the_context_says_who_calls_and_until_when() -> None:
    seen: list[Context] = []

    @tool(timeout_s=5)
    async def look(question: str, ctx: Context) -> str:
        seen.append(ctx)
        return question

    caller = Caller("alice", profile="work", thread="t1")
    bench = Workbench([look], caller=caller, variables={"region": "eu"})
    result = await bench.call("look", {"question": "?"})
    (ctx,) = seen
    assert (ctx.caller, ctx.variables, ctx.call.id, ctx.log.name) == (
        caller,
        {"region": "eu"},
        result.call_id,
        "toolcrib.tool.look",
    )
    assert ctx.deadline_at is not None
    assert ctx.time_left_s is not None
    assert 0 < ctx.time_left_s <= 5
    assert timedelta() < ctx.deadline_at - datetime.now(UTC) <= timedelta(seconds=5)


async def test_a_policy_decides_on_checked_arguments_and_denies_when_in_doubt() -> None:
    seen: list[Any] = []

    def even_only(spec: Any, arguments: Any, caller: Caller) -> Any:
        seen.append((spec.name, dict(arguments), caller.principal))
        return {0: "allow", 1: "deny"}.get(arguments["a"] % 3, "no idea")

    bench = Workbench([add], policy=even_only)
    assert (await bench.call("add", '{"a": "3", "b": 1}')).value == 4
    assert seen == [("add", {"a": 3, "b": 1}, "local")]
    for a in (1, 2):  # "deny", and an answer that is none
        result = await bench.call("add", {"a": a, "b": 1})
        assert result.error is not None
        assert result.error.code == "denied"

    async def slow_yes(spec: Any, arguments: Any, caller: Caller) -> Any:
        return "allow"

    assert (await Workbench([add], policy=slow_yes).call("add", {"a": 1, "b": 1})).value == 2


async def test_a_tool_that_needs_credentials_never_runs_without() -> None:
    ran: list[str] = []

    @tool(auth=ToolAuth("github", scopes=["repo"]))
    async def star(repository: str) -> None:
        ran.append(repository)

    result = await Workbench([star]).call("star", {"repository": "x"})
    assert result.error is not None
    assert (result.error.code, result.error.retry) == ("unauthorized", "later")
    assert "github" in result.text
    assert ran == []


async def test_values_become_content() -> None:
    @tool
    async def give(what: str) -> Any:
        return {
            "text": "plain",
            "none": None,
            "json": {"a": [1, None, "ä"], "nan": float("nan")},
            "bytes": b"\x00\x01",
            "image": Image(b"png"),
            "mixed": ["before", Image(b"png"), {"after": 1}],
            "result": await Workbench([add]).call("add", {"a": 1, "b": 2}),
        }[what]

    bench = Workbench([give])
    contents = {what: (await bench.call("give", {"what": what})).content for what in
                ("text", "none", "json", "bytes", "image", "mixed", "result")}  # fmt: skip
    assert contents == {
        "text": (Text("plain"),),
        "none": (Data("null"),),
        "json": (Data('{"a":[1,null,"ä"],"nan":null}'),),
        "bytes": (File(b"\x00\x01"),),
        "image": (Image(b"png"),),
        "mixed": (Text("before"), Image(b"png"), Data('{"after":1}')),
        "result": (Data("3"),),
    }


async def test_what_is_not_as_promised_is_an_invalid_result_whatever_it_is_made_of() -> None:
    made: list[Any] = ["a", b"a", Image(b"png"), {"a": 1}, None, 1.5]

    @tool
    async def size(which: int) -> int:
        value: int = made[which]
        return value

    bench = Workbench([size])
    results = await bench.call_many([("size", {"which": which}) for which in range(len(made))])
    assert [r.error.code if r.error else r.text for r in results] == ["invalid_result"] * len(made)


async def test_a_failed_result_of_another_tool_fails_this_one() -> None:
    @tool
    async def outer() -> Result[Any]:
        return await Workbench([add]).call("add", {"a": 1})

    result = await Workbench([outer]).call("outer")
    assert result.error is not None
    assert result.error.code == "invalid_arguments"


@pytest.mark.parametrize("value", [object(), threading.Lock(), {1: {2: object()}}], ids=["object", "lock", "inside"])
async def test_a_value_without_json_form_is_an_invalid_result(value: object) -> None:
    @tool
    async def give() -> Any:
        return value

    result = await Workbench([give]).call("give")
    assert result.error is not None
    assert result.error.code == "invalid_result"


async def test_known_secrets_reach_no_result_error_or_log(caplog: pytest.LogCaptureFixture) -> None:
    secret = 'sk-"quoted"/äö-123456'

    @tool
    async def leak(how: str) -> Any:
        match how:
            case "text":
                return f"token={secret}!"
            case "json":
                return {"token": secret}
            case "told":
                raise ToolError(f"bad token {secret}", details={"token": secret})
            case _:
                raise RuntimeError(f"could not log in with {secret}")

    bench = Workbench([leak], secrets=[secret], show_errors=True)
    caplog.set_level(logging.DEBUG)
    for how in ("text", "json", "told", "raised"):
        result = await bench.call("leak", {"how": how})
        assert "[secret]" in result.text
        for shown in (result.text, str(result.to_dict()), caplog.text, repr(bench)):
            assert secret not in shown
            assert "123456" not in shown


async def test_every_call_is_recorded_refused_ones_too() -> None:
    log = CallLog()
    alice = Caller("alice")
    bench = Workbench([add], recorder=log, caller=alice)
    await bench.call("add", '{"a": "1", "b": 2}')
    await bench.call("add", {"a": 1})
    await bench.call("ad", {})
    assert [(r.tool, r.caller, r.code, r.repairs) for r in log] == [
        ("add", alice, None, 1),
        ("add", alice, "invalid_arguments", 0),
        ("ad", alice, "unknown_tool", 0),
    ]
    assert all(record.duration_s >= 0 and record.started_at.tzinfo is not None for record in log)


async def test_ten_thousand_concurrent_calls_lose_and_mix_nothing() -> None:
    @tool
    async def inline(n: int) -> int:
        await asyncio.sleep(0)
        return n

    @tool
    def threaded(n: int) -> int:
        return n

    async with Workbench([inline, threaded], recorder=(log := CallLog(30_000))) as bench:
        for name in ("inline", "threaded"):
            results = await asyncio.gather(*(bench.call(name, f'{{"n": {n}}}') for n in range(10_000)))
            assert [result.value for result in results] == list(range(10_000))
            assert len({result.call_id for result in results}) == 10_000
    assert len(log) == 20_000


@pytest.mark.parametrize(("size", "parts", "is_whole"), [(20_000, 1, True), (20_001, 1, False), (10_001, 2, False)])
async def test_what_is_longer_than_may_be_shown_is_stored_and_its_beginning_shown(
    size: int, parts: int, is_whole: bool
) -> None:
    @tool
    async def much() -> Any:
        return [Text("x" * size) for _ in range(parts)]

    async with Workbench([much]) as bench:
        result = await bench.call("much")
    assert (result.text == "\n".join(["x" * size] * parts)) == is_whole
    assert len(result.text) <= 20_000
