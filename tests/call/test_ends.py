"""Every call ends with a result that is JSON data, whatever its tool raised, and with no known secret in it."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from toolcrib import Context, File, Input, Result, ToolAuth, ToolError, Workbench, tool
from toolcrib.core import CODES, Credential, Data, Emitted


class Uninitialized(ToolError):
    def __init__(self, reason: str) -> None:
        self.reason = reason


class WithBadCode(ToolError):
    def __init__(self) -> None:
        super().__init__("no such row")
        self.code = "not_found"


class WithBadParts(ToolError):
    def __init__(self) -> None:
        super().__init__("strange")
        self.code = ["failed"]  # type: ignore[assignment]
        self.retry = {"when": "later"}  # type: ignore[assignment]
        self.message = 7  # type: ignore[assignment]
        self.details = ["not", "a", "mapping"]  # type: ignore[assignment]


class Exiting(Exception):
    def __str__(self) -> str:
        raise SystemExit("not even this")


def circular() -> dict[str, Any]:
    made: dict[str, Any] = {"name": "loop"}
    made["self"] = [made]
    return made


def deep() -> dict[str, Any]:
    made: dict[str, Any] = {}
    for _ in range(100_000):
        made = {"in": made}
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
    "parts of other types": WithBadParts(),
    "text that exits": Exiting(),
    "circular details": ToolError("x", details=circular()),
    "deep details": ToolError("x", details=deep()),
    "tuple keys": ToolError("x", details={(1, 2): "pair"}),  # type: ignore[dict-item]
    "digits": ToolError("x", details={"pin": 1234, "more": [12345, 1.1234, "1234"]}),
    "no JSON": ToolError(
        "x", details={"set": {1}, "odd": Odd(), "bytes": b"\xff", "nan": float("nan"), "big": 10**5000}
    ),
    "half a pair": ToolError("\ud800", details={"\udfff": "\ud800"}),
    "GeneratorExit": GeneratorExit("by hand"),
    "GeneratorExit in a group": BaseExceptionGroup("group", [GeneratorExit(), ToolError("x")]),
    "nested groups": nested(ToolError("the inner one")),
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
    assert result.error is not None
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

    @tool
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
        ({"order": -1234}, {"order": "-[secret]"}),
        ([1234, 1.1234, 99], ["[secret]", "1.[secret]", 99]),
        ({"1234": 1, "12345": 2, "01234": 3}, {"[secret]": 1, "[secret]5": 2, "0[secret]": 3}),
        (1234, "[secret]"),
        ({"text": '"1234"', "\\1234\n": "\\"}, {"text": '"[secret]"', "\\[secret]\n": "\\"}),
    ],
)
async def test_a_redacted_result_is_valid_json(value: Any, shown: Any) -> None:
    @tool
    async def give() -> Any:
        return value

    result = await Workbench([give], secrets=["1234"]).call("give")
    assert "1234" not in result.text
    assert json.loads(result.text) == shown


async def test_names_and_media_types_of_files_are_redacted() -> None:
    @tool
    async def give() -> Any:
        return [File(b"x", "text/hunter22", "of hunter22.txt"), "and hunter22"]

    result = await Workbench([give], secrets=["hunter22"]).call("give")
    assert "hunter22" not in json.dumps(result.to_dict()) + result.text


async def test_what_a_tool_emits_itself_is_redacted_and_its_value_is_not() -> None:
    @tool
    async def give(ctx: Context) -> None:
        await ctx.emit(Emitted((Data('{"key":"hunter22","pin":12341234}'), File(b"", name="hunter22")), "hunter22"))

    events = [event async for event in Workbench([give], secrets=["hunter22", "1234"]).stream("give")]
    emitted = events[0]
    assert isinstance(emitted, Emitted)
    assert emitted.value == "hunter22"
    assert emitted.content == (Data('{"key":"[secret]","pin":"[secret][secret]"}'), File(b"", name="[secret]"))


async def test_the_repr_of_a_result_and_of_a_context_has_no_secret() -> None:
    seen: list[str] = []

    @tool
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
    @tool
    async def take(of: dict[str, int]) -> int:
        return len(of)

    async with Workbench([take], secrets=["hun/ter~22"]) as bench:
        result = await bench.call("take", {"of": {"hun/ter~22": "7"}})
    assert [repair.path for repair in result.repairs] == ["/of/[secret]"]


async def test_middleware_that_returns_no_result_is_a_failure() -> None:
    @tool
    async def give() -> str:
        return "x"

    async def lose(tool: Any, call: Any, caller: Any, go_on: Any) -> Any:
        await go_on()

    result = await Workbench([give], middleware=[lose]).call("give")
    assert isinstance(result, Result)
    assert result.error is not None
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
    @tool
    async def order(order: Order) -> None: ...

    @tool
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

    @tool
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
    assert result.pending is not None
    assert result.pending.key == "[secret] 1"
    assert "nobody there for [secret]" in caplog.text
    assert "no answer for [secret]" in caplog.text
    assert "tok-123456" not in caplog.text + repr(result) + json.dumps(result.to_dict())


async def test_two_questions_whose_keys_are_secrets_have_answers_of_their_own() -> None:
    @tool
    async def look(ctx: Context) -> str:
        return "".join([await ctx.ask(f"for {key}", str, "Which?") for key in ("hunter22", "hunter23")])

    async with Workbench([look], secrets=["hunter22", "hunter23"]) as bench:
        for answer in ("a", "b"):
            result = await bench.call("look")
            assert result.pending is not None
            assert "hunter" not in result.pending.key
            await bench.answer(result.pending.id, Input(answer), by="ann")
        assert (await bench.call("look")).value == "ab"


async def test_no_line_of_a_secret_of_several_lines_is_in_the_log_of_a_group(caplog: pytest.LogCaptureFixture) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END PRIVATE KEY-----\n"

    @tool
    async def fail() -> None:
        raise ExceptionGroup("several", [ValueError(f"bad key: {key}"), ExceptionGroup("more", [OSError(key)])])

    await Workbench([fail], secrets=[key]).call("fail")
    assert "ValueError: bad key: [secret]" in caplog.text
    assert "MIIEvQIBADANBg" not in caplog.text
