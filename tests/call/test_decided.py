"""What is decided on is what runs: rules, people, digests and records look at the JSON that was accepted."""

import json
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    Base64Bytes,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    StringConstraints,
    field_serializer,
)

from toolcrib import Approve, Pending, Result, Workbench
from toolcrib.workbench import Rule, Rules, Stores


class Order(BaseModel):
    """An order with all that pydantic can hide."""

    model_config = ConfigDict(extra="allow")
    item: str = "tea"
    amount: int = Field(exclude=True, repr=False, validation_alias=AliasChoices("amount", "sum"))
    shown: int = 0

    @field_serializer("shown")
    def always_one(self, _: int) -> int:
        return 1


@dataclass
class Job:
    name: str
    sudo: InitVar[bool]
    limit: InitVar[int] = 10

    def __post_init__(self, sudo: bool, limit: int) -> None:
        self.command = f"{'sudo ' if sudo else ''}{self.name} {limit}"


def waiting(result: Result[Any]) -> Pending:
    assert result.pending is not None, result.text
    return result.pending


async def asked(fn: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """What a person is shown."""
    pending = waiting(await Workbench([fn], policy=ask).call(fn.__name__, arguments))
    return json.loads(pending.arguments)  # type: ignore[no-any-return]


def ask(*_: Any) -> str:
    return "ask"


def use(kind: Any) -> tuple[Callable[..., Any], list[Any]]:
    """A tool with one argument of a type, and what it was called with."""
    got: list[Any] = []

    def work(x: Any) -> None:
        got.append(x)

    work.__annotations__ = {"x": kind}
    return work, got


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (Order, {"amount": 1}, {"amount": 5000}),
        (Order, {"amount": 1, "shown": 1}, {"amount": 1, "shown": 2}),
        (Order, {"amount": 1, "more": 1}, {"amount": 1, "more": 2}),
        (Job, {"name": "ls", "sudo": False}, {"name": "ls", "sudo": True}),
        (Job, {"name": "ls", "sudo": False}, {"name": "ls", "sudo": False, "limit": 11}),
        (str | Decimal, 1.5, "1.5"),
        (Base64Bytes | str, "aGk=", "hi"),
        (SecretStr, "a", "b"),
        (list[Any], [1], [1.0]),
        (Decimal, 12345678901234567.0, "12345678901234567.89"),
    ],
)
async def test_an_approval_of_one_value_runs_no_other(kind: Any, one: Any, other: Any) -> None:
    work, got = use(kind)
    bench = Workbench([work], policy=ask)
    pending = waiting(await bench.call("work", {"x": one}))
    await bench.answer(pending.id, Approve(), by="alice")
    assert waiting(await bench.call("work", {"x": other})).id != pending.id
    assert got == []
    assert (await bench.call("work", {"x": one})).status == "success"
    assert len(got) == 1


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (Order, '{"amount": 1, "shown": 2}', '{"shown":2,"sum":1}'),
        (Decimal, "12345678901234567.89", "1234567890123456789e-2"),
        (str, '"é\\u0041"', '"\\u00e9A"'),
        (int, "5", '"5"'),
        (list[Order], '[{"amount": 1}]', '[{"sum": 1}]'),
    ],
)
async def test_two_spellings_of_the_same_values_are_one_call(kind: Any, one: str, other: str) -> None:
    work, got = use(kind)
    bench = Workbench([work], policy=ask)
    pending = waiting(await bench.call("work", f'{{"x": {one}}}'))
    await bench.answer(pending.id, Approve(), by="alice")
    assert (await bench.call("work", f'{{"x": {other}}}')).status == "success"
    assert len(got) == 1


async def test_a_person_sees_everything_that_the_tool_gets_with_the_defaults_that_apply() -> None:
    def work(order: Order, job: Job, password: SecretStr, tries: int = 3) -> None: ...

    assert await asked(
        work,
        order={"sum": 5000, "shown": 7, "note": "x"},
        job={"name": "ls", "sudo": True},
        password="hunter2",
    ) == {
        "order": {"amount": 5000, "shown": 7, "note": "x", "item": "tea"},
        "job": {"name": "ls", "sudo": True, "limit": 10},
        "password": "**********",
        "tries": 3,
    }


def exposed(secret: SecretStr) -> str:
    return secret.get_secret_value()


class Login(BaseModel):
    user: str
    password: SecretStr


async def test_secrets_are_masked_wherever_their_type_is() -> None:
    def work(
        one: Annotated[SecretStr, AfterValidator(exposed)],
        many: list[SecretStr],
        either: Login | SecretStr | int,
        by_name: dict[str, Login],
    ) -> None: ...

    login = {"user": "bob", "password": "hunter2"}
    shown = await asked(work, one="hunter2", many=["hunter2", "hunter2"], either=login, by_name={"x": login})
    masked = {"user": "bob", "password": "**********"}
    assert shown == {"one": "**********", "many": ["**********"] * 2, "either": masked, "by_name": {"x": masked}}


@pytest.mark.parametrize("name", ["amount", "sum"])
async def test_a_rule_sees_a_field_that_is_left_out_of_dumps_by_every_name(name: str) -> None:
    def pay(order: Order) -> int:
        return order.amount

    rules = Rules([Rule(tools="pay", where={"/order/amount": {"gt": 100}}, do="deny")])
    bench = Workbench([pay], policy=rules)
    denied = await bench.call("pay", {"order": {name: 5000}})
    assert denied.error is not None
    assert denied.error.code == "denied"
    assert (await bench.call("pay", {"order": {name: 5}})).value == 5


async def test_a_rule_sees_a_text_as_the_tool_gets_it() -> None:
    def delete(path: Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True)], why: Path) -> str:
        return path

    rules = Rules([Rule(where={"/path": "/etc/*"}, do="deny"), Rule(where={"/why": "/tmp"}, do="deny")])
    bench = Workbench([delete], policy=rules)
    sent = [{"path": "  /ETC/passwd", "why": "x"}, {"path": "x", "why": "/tmp/."}, {"path": " x ", "why": "x"}]
    results = [await bench.call("delete", each) for each in sent]
    assert [result.error and result.error.code for result in results] == ["denied", "denied", None]


async def test_a_policy_gets_the_document_beside_the_checked_arguments() -> None:
    seen: list[Any] = []

    def policy(spec: Any, arguments: Any, caller: Any) -> str:
        seen.append((arguments["order"].amount, dict(arguments.document)))
        return "allow"

    def pay(order: Order, price: Decimal) -> None: ...

    bench = Workbench([pay], policy=policy)
    await bench.call("pay", '{"order": {"sum": 7}, "price": 12345678901234567.89}')
    order = {"amount": 7, "item": "tea", "shown": 0}
    assert seen == [(7, {"order": order, "price": Decimal("12345678901234567.89")})]


@pytest.mark.parametrize(
    "sent",
    ['{"order": {"amount": 1, "sum": 5000}}', '{"order": {"sum": 5000, "amount": 1}}'],
)
async def test_a_field_under_two_of_its_names_is_refused(sent: str) -> None:
    def pay(order: Order) -> int:
        return order.amount

    for bench in (Workbench([pay]), Workbench([pay], repair=False)):
        result = await bench.call("pay", sent)
        assert result.error is not None
        assert result.error.code == "invalid_arguments"
        assert result.text == ("Tool 'pay': 'order': 'amount' and 'sum' are names of one field; send one of them.")


async def test_decimals_are_exact_in_the_check_the_digest_and_what_is_shown() -> None:
    def work(price: Decimal, prices: list[Decimal | None], count: int, rate: float = 0.5) -> str:
        return f"{price} {prices}"

    long = "12345678901234567.89"
    bench = Workbench([work])
    sent = f'{{"price": {long}, "prices": [{long}, 0.1, null], "count": 1}}'
    exact = f"{long} [Decimal('{long}'), Decimal('0.1'), None]"
    assert (await bench.call("work", sent)).value == exact
    repaired = await bench.call("work", sent.replace('"count": 1', '"count": "1"'))
    assert (repaired.value, len(repaired.repairs)) == (exact, 1)
    pending = waiting(await Workbench([work], policy=ask).call("work", sent.replace("0.1", "1234567890123456.7")))
    assert f'"price": {long}' in pending.arguments.replace(f'"{long}"', long)


class Note(BaseModel):
    text: str = Field(exclude=True)
    secret: SecretStr
    raw: Base64Bytes = b""
    _hidden: int = PrivateAttr(0)


async def test_python_values_that_no_document_has_the_whole_of_are_refused() -> None:
    note = Note(text="a", secret=SecretStr("s3cret"))
    note._hidden = 1
    for kind, value, reason in (
        (Job, Job("ls", True), "Job does not keep 'sudo', which only its constructor gets"),
        (Note, note, "the private attribute '_hidden' of Note is set"),
    ):
        work, got = use(kind)
        result = await Workbench([work]).call("work", {"x": value})
        assert result.text == (
            f"Tool 'work': {reason}, so it cannot be passed as a Python value. Pass its fields in a dict."
        )
        assert got == []


def made(source: str) -> Callable[..., Any]:
    space: dict[str, Any] = {"Annotated": Annotated, "AfterValidator": AfterValidator}
    exec(source, space)
    function: Callable[..., Any] = space["work"]
    return function


BODY = """
def twice(x: int) -> int:
    return x * 2
def work(x: Annotated[int, AfterValidator(twice)]) -> int:
    return x + 1
"""


@pytest.mark.parametrize(
    "changed", [BODY, BODY.replace("x + 1", "x - 1"), BODY.replace("x * 2", "x * 3"), BODY.replace("+ 1", "+ 2")]
)
async def test_an_approval_is_for_the_code_that_was_there(changed: str) -> None:
    store = Stores()
    bench = Workbench([made(BODY)], policy=ask, store=store)
    await bench.answer(waiting(await bench.call("work", {"x": 1})).id, Approve(), by="alice")
    result = await Workbench([made(changed)], policy=ask, store=store).call("work", {"x": 1})
    assert result.status == ("success" if changed == BODY else "pending")


async def test_an_approval_of_a_tool_from_a_file_is_for_the_file_as_it_was(tmp_path: Path) -> None:
    store, file = Stores(), tmp_path / "tools.py"
    file.write_text("from toolcrib import tool\nLIMIT = 1\n@tool\ndef work(x: int) -> int:\n    return x + LIMIT\n")
    bench = Workbench([file], policy=ask, store=store)
    await bench.answer(waiting(await bench.call("work", {"x": 1})).id, Approve(), by="alice")
    file.write_text(file.read_text().replace("LIMIT = 1", "LIMIT = 2"))
    assert (await Workbench([file], policy=ask, store=store).call("work", {"x": 1})).status == "pending"
