"""Every call ends with a result, in the log and in the middleware too, whatever its tool does."""

import ast
import asyncio
import contextvars
import inspect
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

import toolcrib
from toolcrib import (
    Approve,
    Call,
    Caller,
    Context,
    Depends,
    File,
    Image,
    Input,
    Result,
    Text,
    ToolAuth,
    ToolError,
    Workbench,
    tool,
)
from toolcrib.call import Retry, pipeline
from toolcrib.call.runtime import Resources
from toolcrib.core import CODES, Credential, Data, Emitted
from toolcrib.core import Tool as AnyTool
from toolcrib.machinery import Next
from toolcrib.record import CallLog
from toolcrib.workbench import Limit, Rule, Rules


@tool
async def add(a: int, b: int) -> int:
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
        asyncio.CancelledError(),
        ExceptionGroup("several", [ValueError("hunter2"), KeyError("x")]),
        BaseExceptionGroup("worse", [SystemExit(1)]),
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
            assert result.error.code == "failed"
            assert "hunter2" not in result.text
            reference = result.text.partition("(reference ")[2].partition(")")[0]
            assert len(reference) == 8
            assert reference in caplog.text, "the detail is in the log under the reference"
            assert "hunter2" in caplog.text or not isinstance(error, RuntimeError)
        assert (await bench.call("add", '{"a": 1, "b": 2}')).value == 3


async def test_keyboard_interrupt_in_a_thread_is_the_tool_s_and_inline_it_is_the_user_s() -> None:
    async with Workbench(raising(KeyboardInterrupt())) as bench:
        result = await bench.call("break_down_in_a_thread")
        assert result.error is not None
        assert "KeyboardInterrupt" in result.text


async def test_a_tool_error_is_passed_on_as_it_is() -> None:
    async def weather(city: str) -> str:
        raise ToolError(f"There is no city '{city}'. Try Paris.", "failed", retry="changed")

    result = await Workbench([weather]).call("weather", {"city": "Pariss"})
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

    def where() -> list[str]:
        return [threading.current_thread().name, who.get()]

    who.set("alice")
    value = (await Workbench([where]).call("where")).value
    assert value[0] != threading.current_thread().name
    assert value[1] == "alice"


async def test_a_sync_tool_does_not_hold_up_the_event_loop() -> None:
    entered, leave = threading.Event(), threading.Event()

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
    has_learnt = threading.Event()

    @tool(timeout_s=0.1)
    async def sleep() -> None:
        await asyncio.sleep(30)

    @tool(name="sleep", timeout_s=0.1)
    def block(ctx: Context) -> None:
        ctx.cancellation.add_callback(has_learnt.set)
        has_learnt.wait(30)

    started = time.monotonic()
    result = await Workbench([sleep if kind == "async" else block], timeout_s=60).call("sleep")
    assert kind == "async" or has_learnt.wait(10), "a thread learns that its caller has given up"
    assert time.monotonic() - started < 25
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


async def test_values_become_content() -> None:
    async def give(what: str) -> Any:
        return {
            "text": "plain",
            "none": None,
            "json": {"a": [1, None, "ä"], "nan": float("nan"), "set": {1}},
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
        "json": (Data('{"a":[1,null,"ä"],"nan":null,"set":[1]}'),),
        "bytes": (File(b"\x00\x01"),),
        "image": (Image(b"png"),),
        "mixed": (Text("before"), Image(b"png"), Data('{"after":1}')),
        "result": (Data("3"),),
    }


async def test_what_is_not_as_promised_is_an_invalid_result_whatever_it_is_made_of() -> None:
    made: list[Any] = ["a", b"a", Image(b"png"), {"a": 1}, None, 1.5]

    async def size(which: int) -> int:
        value: int = made[which]
        return value

    bench = Workbench([size])
    results = await bench.call_many([("size", {"which": which}) for which in range(len(made))])
    assert [r.error.code if r.error else r.text for r in results] == ["invalid_result"] * len(made)


async def test_a_failed_result_of_another_tool_fails_this_one() -> None:
    async def outer() -> Result[Any]:
        return await Workbench([add]).call("add", {"a": 1})

    result = await Workbench([outer]).call("outer")
    assert result.error.code == "invalid_arguments"


async def test_known_secrets_reach_no_result_error_or_log(caplog: pytest.LogCaptureFixture) -> None:
    secret = 'sk-"quoted"/äö-123456'

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


async def test_thousands_of_concurrent_calls_lose_and_mix_nothing() -> None:
    async def inline(n: int) -> int:
        await asyncio.sleep(0)
        return n

    def threaded(n: int) -> int:
        return n

    async with Workbench([inline, threaded], recorder=(log := CallLog(10_000))) as bench:
        for name in ("inline", "threaded"):
            results = await asyncio.gather(*(bench.call(name, f'{{"n": {n}}}') for n in range(3_000)))
            assert [result.value for result in results] == list(range(3_000))
            assert len({result.call_id for result in results}) == 3_000
    assert len(log) == 6_000


class Uninitialized(ToolError):
    def __init__(self, reason: str) -> None:
        self.reason = reason


class WithBadCode(ToolError):
    def __init__(self) -> None:
        super().__init__("no such row")
        self.code = "not_found"


def circular() -> dict[str, Any]:
    made: dict[str, Any] = {"name": "loop"}
    made["self"] = [made]
    return made


def nested(error: BaseException) -> BaseExceptionGroup[BaseException]:
    group = BaseExceptionGroup("group", [error])
    for _ in range(5000):
        group = BaseExceptionGroup("group", [group])
    return group


class Odd:
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


ERRORS: dict[str, Any] = {
    "subclass without super().__init__": Uninitialized("the shelf is empty"),
    "code that is none": WithBadCode(),
    "circular details": ToolError("x", details=circular()),
    "digits": ToolError("x", details={"pin": 1234, "more": [12345, 1.1234, "1234"]}),
    "no JSON": ToolError(
        "x", details={"set": {1}, "odd": Odd(), "bytes": b"\xff", "nan": float("nan"), "big": 10**5000}
    ),
    "half a pair": ToolError("\ud800", details={"\udfff": "\ud800"}),
    "nested groups of anything": nested(ValueError("1234")),
}


@pytest.mark.parametrize("secrets", [(), ("1234",)], ids=["no secrets", "secrets"])
@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS.keys())
@pytest.mark.parametrize("how", ["inline", "thread"])
async def test_a_call_ends_with_a_result_that_is_json(error: BaseException, how: str, secrets: Any) -> None:
    @tool(name="break_down", idempotent=True, retries=0)
    async def inline() -> str:
        raise error

    @tool(name="break_down")
    def threaded() -> str:
        raise error

    async with Workbench([inline if how == "inline" else threaded], secrets=secrets, show_errors=True) as bench:
        result = await bench.call("break_down")
    assert result.error.code in CODES
    written = json.dumps(result.to_dict(), allow_nan=False)
    assert isinstance(result.error.details, dict | Mapping)
    if secrets:
        by_chance = (result.call_id, result.error.message.partition("reference ")[2][:8])
        by_chance += (result.started_at.isoformat(), result.finished_at.isoformat())
        for text in filter(None, by_chance):
            written = written.replace(text, "")
        assert "1234" not in written


async def test_closing_a_call_from_outside_is_not_held_up() -> None:
    began = asyncio.Event()

    async def wait() -> None:
        began.set()
        await asyncio.Event().wait()

    async with Workbench([wait]) as bench:
        call = bench.call(wait)
        call.send(None)
        assert began.is_set()
        call.close()  # raises RuntimeError where GeneratorExit is answered with something


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"order": 12345}, {"order": "[secret]5"}),
        ({"1234": 1, "12345": 2, "01234": 3}, {"[secret]": 1, "[secret]5": 2, "0[secret]": 3}),
        ({"text": '"1234"', "\\1234\n": "\\"}, {"text": '"[secret]"', "\\[secret]\n": "\\"}),
    ],
)
async def test_a_redacted_result_is_valid_json(value: Any, shown: Any) -> None:
    async def give() -> Any:
        return value

    result = await Workbench([give], secrets=["1234"]).call("give")
    assert "1234" not in result.text
    assert json.loads(result.text) == shown


async def test_what_a_tool_emits_itself_is_redacted_and_its_value_is_not() -> None:
    async def give(ctx: Context) -> None:
        await ctx.emit(Emitted((Data('{"key":"hunter22","pin":12341234}'), File(b"", name="hunter22")), "hunter22"))

    events = [event async for event in Workbench([give], secrets=["hunter22", "1234"]).stream("give")]
    emitted = events[0]
    assert isinstance(emitted, Emitted)
    assert emitted.value == "hunter22"
    assert emitted.content == (Data('{"key":"[secret]","pin":"[secret][secret]"}'), File(b"", name="[secret]"))


async def test_the_repr_of_a_result_and_of_a_context_has_no_secret() -> None:
    seen: list[str] = []

    async def give(ctx: Context) -> str:
        seen.append(repr(ctx))
        return "hunter22"

    async with Workbench([give], secrets=["hunter22"], variables={"key": "hunter22"}) as bench:
        result = await bench.call("give")
        unknown = await bench.call("hunter22")
    assert result.value == "hunter22"
    shown = [repr(result), repr(unknown), json.dumps(unknown.to_dict()), repr(bench), repr(bench.crib), *seen]
    assert not any("hunter22" in each for each in shown)


async def test_the_path_of_a_repair_has_no_secret() -> None:
    async def take(of: dict[str, int]) -> int:
        return len(of)

    async with Workbench([take], secrets=["hun/ter~22"]) as bench:
        result = await bench.call("take", {"of": {"hun/ter~22": "7"}})
    assert [repair.path for repair in result.repairs] == ["/of/[secret]"]


async def test_middleware_that_returns_no_result_is_a_failure() -> None:
    async def give() -> str:
        return "x"

    async def lose(tool: Any, call: Any, caller: Any, go_on: Any) -> Any:
        await go_on()

    result = await Workbench([give], middleware=[lose]).call("give")
    assert isinstance(result, Result)
    assert result.error.code == "failed"


class Order(BaseModel):
    to: str
    card: str
    amount: int
    note: str = ""

    @model_validator(mode="after")
    def refuse(self) -> "Order":
        raise ValueError(
            f"no order of {self.amount:,} ({self.amount}) for {self.to} with card {self.card[:14]}...: {self}"
        )


class Payment(BaseModel):
    iban: str
    pin: int

    @field_validator("pin")
    @classmethod
    def refuse(cls, pin: int, info: ValidationInfo) -> int:
        raise PydanticCustomError("wrong_pin", "pin {pin} is not that of {iban}", {"pin": pin, **info.data})


async def test_the_message_of_a_validator_quotes_no_value_of_the_call() -> None:
    async def order(order: Order) -> None: ...

    async def pay(by: Payment) -> None: ...

    async with Workbench([order, pay]) as bench:
        given = {"to": "Ann Lee", "card": "4111-1111-1111-1111", "amount": 52000, "note": "it is her birthday"}
        refused = await bench.call("order", {"order": given})
        other = await bench.call("pay", {"by": {"iban": "DE89370400440532013000", "pin": 4021}})
    for result, values in ((refused, ("Ann Lee", "4111-", "52000", "52,000", "birthday")), (other, ("DE8937", "4021"))):
        assert result.error is not None
        shown = json.dumps(result.to_dict(), ensure_ascii=False)
        assert not [value for value in values if value in shown], shown
    assert "no order of … (…) for … with card …" in refused.text
    assert "pin … is not that of …" in other.text


async def test_no_log_line_has_a_secret_whoever_writes_it(caplog: pytest.LogCaptureFixture) -> None:
    secret = "hunter22hunter"

    def unsure(caller: Any) -> bool:
        raise LookupError(f"no answer for {secret}")

    @tool(available=unsure)
    async def hidden() -> None: ...

    async def cancel(ctx: Context) -> None:
        def fail() -> None:
            raise OSError(f"not closed: {secret}")

        ctx.cancellation.add_callback(fail)
        ctx.cancellation.cancel()

    async with Workbench([hidden, cancel], secrets=[secret]) as bench:
        bench.specs()
        await bench.call("cancel")
    assert "LookupError: no answer for [secret]" in caplog.text
    assert "OSError: not closed: [secret]" in caplog.text
    assert secret not in caplog.text


async def test_a_credential_of_the_caller_is_in_no_log_line_of_what_the_host_brings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given: list[str] = []  # before it was, nobody knows that it is a secret

    class Vault:
        async def authorize(self, requirements: Any, caller: Any, call: Any) -> Any:
            given.append("tok-123456")
            return (Credential("bank", given[0]),)

    async def ask(pending: Any) -> Any:
        raise OSError("nobody there for tok-123456")

    def unsure(caller: Any) -> bool:
        raise LookupError(f"no answer for {given[0] if given else 'anybody'}")

    @tool(auth=ToolAuth("bank"))
    async def look(ctx: Context) -> str:
        return await ctx.ask("tok-123456", str, "Which one?")

    @tool(available=unsure)
    async def hidden() -> None: ...

    async with Workbench([look, hidden], broker=Vault(), ask=ask) as bench:
        result = await bench.call("look")
        bench.specs()
    assert result.pending.key == "[secret] 1"
    assert "nobody there for [secret]" in caplog.text
    assert "no answer for [secret]" in caplog.text
    assert "tok-123456" not in caplog.text + repr(result) + json.dumps(result.to_dict())


async def test_two_questions_whose_keys_are_secrets_have_answers_of_their_own() -> None:
    async def look(ctx: Context) -> str:
        return "".join([await ctx.ask(f"for {key}", str, "Which?") for key in ("hunter22", "hunter23")])

    async with Workbench([look], secrets=["hunter22", "hunter23"]) as bench:
        for answer in ("a", "b"):
            result = await bench.call("look")
            assert "hunter" not in result.pending.key
            await bench.answer(result.pending.id, Input(answer), by="ann")
        assert (await bench.call("look")).value == "ab"


async def test_no_line_of_a_secret_of_several_lines_is_in_the_log_of_a_group(caplog: pytest.LogCaptureFixture) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END PRIVATE KEY-----\n"

    async def fail() -> None:
        raise ExceptionGroup("several", [ValueError(f"bad key: {key}"), ExceptionGroup("more", [OSError(key)])])

    await Workbench([fail], secrets=[key]).call("fail")
    assert "ValueError: bad key: [secret]" in caplog.text
    assert "MIIEvQIBADANBg" not in caplog.text


async def test_wrappers_see_the_call_in_order_and_may_answer_it_themselves() -> None:
    seen: list[str] = []
    kept: dict[Any, Result[Any]] = {}

    async def note(tool: AnyTool, call: Call, caller: Caller, go_on: Next) -> Result[Any]:
        seen.append(f"{caller.principal} calls {tool.spec.name}")
        result = await go_on()
        seen.append(f"{call.tool} gave {result.text}")
        return result

    async def keep(tool: AnyTool, call: Call, caller: Caller, go_on: Next) -> Result[Any]:
        if call.arguments not in kept:
            seen.append("asked")
            kept[call.arguments] = await go_on()
        return kept[call.arguments]

    bench = Workbench([add], caller=Caller("alice"), middleware=[note, keep], limits=[Limit(rate="1/h", wait_s=0)])
    text = '{"a": 1, "b": 2}'
    assert [(await bench.call("add", text)).value for _ in range(3)] == [3, 3, 3], "what is kept costs no turn"
    assert seen == ["alice calls add", "asked", "add gave 3", *["alice calls add", "add gave 3"] * 2]
    refused = await bench.call("add", '{"a": 2, "b": 2}')
    assert refused.error.code == "limited"


async def test_what_a_wrapper_raises_is_how_the_call_failed_and_is_recorded() -> None:
    raised: list[BaseException] = [ToolError("not today", "conflict"), RuntimeError("password=hunter2")]

    async def refuse(tool: AnyTool, call: Call, caller: Caller, go_on: Next) -> Result[Any]:
        raise raised.pop(0)

    log = CallLog()
    bench = Workbench([add], middleware=[refuse], recorder=log)
    refused, failed = await bench.call(Call("add", id="one")), await bench.call(Call("add", id="two"))
    assert (refused.error and refused.error.code, refused.text, refused.call_id) == ("conflict", "not today", "one")
    assert failed.error.code == "failed"
    assert "hunter2" not in failed.text
    assert [(entry.call_id, entry.code) for entry in log] == [("one", "conflict"), ("two", "failed")]


async def test_a_wrapped_call_streams_and_can_be_cancelled() -> None:
    begun = asyncio.Event()

    async def count(up_to: int) -> Any:
        for number in range(up_to):
            yield number

    async def wait() -> None:
        begun.set()
        await asyncio.sleep(600)

    async def plain(tool: AnyTool, call: Call, caller: Caller, go_on: Next) -> Result[Any]:
        return await go_on()

    bench = Workbench([count, wait], middleware=[plain])
    *events, result = [event async for event in bench.stream("count", {"up_to": 3})]
    assert isinstance(result, Result)
    assert (len(events), result.value) == (2, 2)
    waiting = asyncio.create_task(bench.call("wait"))
    await begun.wait()
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()


def test_what_tools_share_is_made_once_by_threads_that_ask_at_once() -> None:
    resources = Resources()

    def slow() -> object:
        time.sleep(0.05)
        return object()

    with ThreadPoolExecutor(8) as pool:
        made = {*pool.map(lambda _: resources.get(slow), range(8))}
    assert made == {*resources}
    assert len(made) == 1


PACKAGE = str(Path(toolcrib.__file__).parent)


async def provided() -> int:
    return 1


@tool(idempotent=True, retries=2)
async def full(a: int, ctx: Context, more: Annotated[int, Depends(provided)]) -> int:
    return a + more


def _file_within(frame: FrameType | None) -> str | None:
    """The file of the nearest caller in the package."""
    while frame is not None and not frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return None if frame is None else frame.f_code.co_filename


async def borders(call: Callable[[], Any]) -> list[tuple[str, str]]:
    """The borders that one call crosses, once everything is warm: from which file to which function."""
    crossed: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            of_caller = _file_within(frame.f_back)
            if of_caller is not None and of_caller != frame.f_code.co_filename:
                crossed.append((of_caller[len(PACKAGE) :], frame.f_code.co_qualname))

    for _ in range(3):
        assert (await call()).status == "success"
    sys.setprofile(note)
    try:
        await call()
    finally:
        sys.setprofile(None)
    return crossed


async def test_a_plain_call_crosses_at_most_seven_borders() -> None:
    async with Workbench([add]) as bench:
        crossed = await borders(lambda: bench.call("add", '{"a": 1, "b": 2}'))
    assert len(crossed) <= 7, crossed


async def test_a_call_with_a_deadline_crosses_at_most_ten() -> None:
    async with Workbench([add], timeout_s=5) as bench:
        crossed = await borders(lambda: bench.call("add", '{"a": 1, "b": 2}'))
    assert len(crossed) <= 10, crossed


async def test_a_call_with_everything_switched_on_crosses_at_most_twenty_six() -> None:
    async with Workbench(
        [full],
        timeout_s=5,
        policy=Rules([Rule(do="allow")]),
        secrets=["s3cret-key"],
        limits=[Limit(concurrency=2)],
        retries=[Retry()],
        recorder=CallLog(),
    ) as bench:
        await bench.call("full", '{"a": 1}')  # which makes the check
        crossed = await borders(lambda: bench.call("full", '{"a": 1}'))
    assert len(crossed) <= 26, (len(crossed), crossed)


def test_the_pipeline_is_one_function_of_at_most_forty_lines() -> None:
    function = ast.parse(inspect.getsource(pipeline.run)).body[0]
    assert isinstance(function, ast.AsyncFunctionDef)
    first, last = function.body[1], function.body[-1]
    assert last.end_lineno is not None
    assert last.end_lineno - first.lineno + 1 <= 40


# Foreign data, and the loop of the host


async def turns_during(work: Coroutine[Any, Any, Any]) -> tuple[int, Any]:
    """Return how often the loop gets to other work during *work*, and its value: never while that is done at once."""
    count, loop = 0, asyncio.get_running_loop()

    def turn() -> None:
        nonlocal count, next_turn
        count += 1
        next_turn = loop.call_soon(turn)

    next_turn = loop.call_soon(turn)
    try:
        value = await work
    finally:
        next_turn.cancel()
    return count, value


SECRET = "s3cr3t-value-1"
LONG = "x" * 40_000


@pytest.mark.parametrize("wrong", [False, True], ids=["valid", "wrong"])
@pytest.mark.parametrize(
    "form", [json.dumps, dict, lambda data: json.dumps(data).encode()], ids=["text", "dict", "bytes"]
)
async def test_long_arguments_are_checked_in_a_thread(form: Callable[[Any], Any], wrong: bool) -> None:
    """A model, by any door, sends a list of 20,000; a short one is checked at once."""
    item = "x" if wrong else 1

    async def count(numbers: list[int]) -> int:
        return len(numbers)

    async with Workbench([count]) as bench:
        await bench.call("count", form({"numbers": [item]}))
        assert (await turns_during(bench.check("count", form({"numbers": [item]}))))[0] == 0
        turns, result = await turns_during(bench.check("count", form({"numbers": [item] * 20_000})))
        assert (turns > 0, result.status) == (True, "error" if wrong else "success")
        turns, result = await turns_during(bench.call("count", form({"numbers": [item] * 20_000})))
        assert (turns > 0, result.status) == (True, "error" if wrong else "success")


@pytest.mark.parametrize(
    "value",
    [f"{SECRET}\n" * 3_000, {"rows": [SECRET] * 3_000}, [Text(SECRET)] * 20_000, ToolError(f"{SECRET}\n" * 3_000)],
    ids=["a secret on every line", "JSON", "20,000 parts", "an error"],
)
async def test_long_results_are_redacted_in_a_thread(value: Any) -> None:
    """A server that knows its own token fills its results and its errors with it."""

    async def read() -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    async with Workbench([read], secrets=[SECRET]) as bench:
        turns, result = await turns_during(bench.call("read", "{}"))
    assert turns > 0
    assert (SECRET in result.text, "[secret]" in result.text) == (False, True)


async def test_a_long_call_is_approved_and_recorded_as_a_short_one_is() -> None:
    """The second case: a person is asked for arguments of 40,000 characters, and the log has them redacted."""
    log = CallLog(with_content=True)
    ran: list[int] = []

    async def keep(text: str) -> str:
        ran.append(len(text))
        return text

    async with Workbench([keep], policy=lambda *_: "ask", recorder=log, secrets=[SECRET]) as bench:
        arguments = json.dumps({"text": LONG + SECRET})
        turns, asked = await turns_during(bench.call("keep", arguments))
        assert (turns > 0, asked.status, asked.pending.kind) == (True, "pending", "approval")
        await bench.answer(asked.pending.id, Approve(), by="bob")
        _, done = await turns_during(bench.call("keep", arguments))
        assert (done.status, ran) == ("success", [len(LONG) + len(SECRET)])
        assert (await bench.call("keep", arguments)).status == "pending"
    assert all(SECRET not in str(record.arguments) for record in log)
    assert str(next(iter(log)).arguments).startswith('{"text": "xxx')
