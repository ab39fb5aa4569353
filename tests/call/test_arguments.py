"""What is decided on is what runs: rules, people, digests and records look at the JSON that was accepted."""

import json
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID, uuid4

import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    Base64Bytes,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    field_serializer,
)

from toolcrib import Approve, Context, Input, Workbench
from toolcrib.record import CallLog
from toolcrib.store import DatabasePendings, Store
from toolcrib.workbench import MemoryPendings, PendingStore, Rule, Rules, Stores

from .outcomes import waiting


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


async def test_a_python_value_that_no_document_has_the_whole_of_is_refused() -> None:
    work, got = use(Job)
    result = await Workbench([work]).call("work", {"x": Job("ls", True)})
    assert result.text == (
        "Tool 'work': Job does not keep 'sudo', which only its constructor gets, so it cannot be passed as a Python "
        "value. Pass its fields in a dict."
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


ran: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@pytest.fixture(params=["memory", "database"])
def pendings(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        yield MemoryPendings()
        return
    store = Store(tmp_path / "store.db")
    yield DatabasePendings(store)
    store.close()


class Line(BaseModel):
    sku: str
    id: UUID = Field(default_factory=uuid4)


@dataclass
class Marked:
    text: str
    marks: list[str] = field(default_factory=lambda: [uuid4().hex])


def order(lines: list[Line], note: Marked | str, key: UUID = Field(default_factory=uuid4)) -> str:
    ran.append({"lines": lines, "note": note, "key": key})
    return str(key)


def bench(source: Any, pendings: PendingStore, **options: Any) -> Workbench:
    return Workbench([source], policy=lambda *_: "ask", store=Stores(pendings=pendings), **options)


CALL = {"lines": [{"sku": "a"}, {"sku": "b"}], "note": {"text": "hi"}}


async def test_what_was_made_for_the_question_is_what_runs_in_a_later_call(pendings: PendingStore) -> None:
    log = CallLog(with_content=True)
    async with bench(order, pendings) as first:
        pending = (await first.call("order", CALL)).pending
        assert pending is not None
        again = (await first.call("order", CALL)).pending  # the same question, with what was shown
        assert again == pending
    async with bench(order, pendings, recorder=log) as other:  # as in another process
        await other.answer(pending.id, Approve(), by="bob")
        result = await other.call("order", CALL)
        assert result.error is None
        assert (await other.call("order", CALL)).pending is not None  # an answer counts once
    shown = json.loads(pending.arguments)
    assert [line["sku"] for line in shown["lines"]] == ["a", "b"]
    (got,) = ran
    assert [str(line.id) for line in got["lines"]] == [line["id"] for line in shown["lines"]]
    assert got["note"] == Marked(**shown["note"])
    assert str(got["key"]) == shown["key"] == result.value
    assert json.loads(next(iter(log)).arguments or "") == shown


async def test_what_was_made_is_neither_in_the_pending_nor_in_a_repr(pendings: PendingStore) -> None:
    def enter(name: str, key: SecretStr = Field(default_factory=lambda: SecretStr("hush-hush"))) -> str:
        return key.get_secret_value()

    async with bench(enter, pendings) as it:
        pending = (await it.call("enter", {"name": "ada"})).pending
        assert json.loads(pending.arguments) == {"name": "ada", "key": "**********"}
        await it.answer(pending.id, Approve(), by="bob")
        stored = await pendings.get(pending.id)
        assert "hush" not in f"{pending!r} {pending.to_dict()} {stored!r}"
        assert (await it.call("enter", {"name": "ada"})).value == "hush-hush"


async def test_other_arguments_and_sent_defaults_are_other_calls(pendings: PendingStore) -> None:
    async with bench(order, pendings) as it:
        pending = (await it.call("order", CALL)).pending
        await it.answer(pending.id, Approve(), by="bob")
        for other in (CALL | {"note": "hi"}, CALL | {"key": str(uuid4())}, json.loads(pending.arguments)):
            assert (await it.call("order", other)).pending is not None
        assert ran == []
        assert (await it.call("order", CALL)).error is None


async def test_a_tool_that_asks_after_its_approval_has_the_same_default_again(pendings: PendingStore) -> None:
    async def pay(context: Context, key: UUID = Field(default_factory=uuid4)) -> str:
        ran.append(key)
        pin: int = await context.ask("pin", int, f"The PIN for {key}?")
        return f"{key} {pin}"

    async with bench(pay, pendings) as it:
        first = (await it.call("pay")).pending
        await it.answer(first.id, Approve(), by="bob")
        second = (await it.call("pay")).pending
        await it.answer(second.id, Input(1234), by="bob")
        result = await it.call("pay")
    key = json.loads(first.arguments)["key"]
    assert (result.value, second.message, list(map(str, ran))) == (f"{key} 1234", f"The PIN for {key}?", [key, key])


async def test_a_default_that_no_json_gives_back_is_asked_for_again(pendings: PendingStore) -> None:
    @dataclass
    class Hidden:
        name: str
        key: str = field(default_factory=lambda: uuid4().hex, init=False)

    def use(it: Hidden) -> str:
        return it.key

    async with bench(use, pendings) as it:
        pending = (await it.call("use", {"it": {"name": "x"}})).pending
        await it.answer(pending.id, Approve(), by="bob")
        assert (await it.call("use", {"it": {"name": "x"}})).pending is not None


async def test_whoever_is_asked_at_once_sees_what_runs(pendings: PendingStore) -> None:
    shown: list[str] = []

    async def ask(pending: Any) -> Approve:
        shown.append(json.loads(pending.arguments)["key"])
        return Approve()

    async with bench(order, pendings, ask=ask) as it:
        result = await it.call("order", CALL)
    assert shown == [result.value]
