"""The document of a call: what was sent is refused, or shown, judged and run; nothing is hidden."""

import json
from dataclasses import InitVar, dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    WrapValidator,
    model_validator,
    with_config,
)
from typing_extensions import TypedDict

from toolcrib import Approve, Pending, Result, Tool, Workbench
from toolcrib.schema import document_of
from toolcrib.workbench import Rule, Rules


class Inside(BaseModel):
    first: int = Field(default=3, validation_alias=AliasPath("of", 0))


class Order(BaseModel):
    amount: int = Field(1, validation_alias=AliasChoices("amount", "sum"), exclude=True)
    zero: Annotated[int, PlainSerializer(lambda _: 0)] = 0
    inner: "Order | None" = None


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    amount: int = Field(1, validation_alias=AliasChoices("amount", "sum"))


@dataclass
class Job:
    name: str
    sudo: InitVar[bool] = False
    rest: list[int] = field(default_factory=list)


@with_config(ConfigDict(extra="allow"))
class Row(TypedDict):
    amount: Annotated[int, Field(validation_alias=AliasChoices("x", "y"))]


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    barks: int = 1


class Pair(NamedTuple):
    left: Cat
    right: int = 5


class Key: ...


def tool_of(kind: Any) -> tuple[Tool[..., Any], list[Any]]:
    got: list[Any] = []

    def work(x: Any) -> None:
        got.append(x)

    work.__annotations__ = {"x": kind}
    return Tool(work), got


@pytest.mark.parametrize(
    ("kind", "sent", "name"),
    [
        (Order, {"inner": {"amuont": 1}}, "amuont"),
        (list[Order | int], [{"inner": {"amuont": 1}}], "amuont"),
        (Job, {"name": "ls", "sodu": True}, "sodu"),
        (dict[str, Job], {"a": {"name": "ls", "sodu": True}}, "sodu"),
        (Pair, [{"kind": "cat", "barks": 1}], "barks"),
        (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "cat", "barks": 1}, "barks"),
        (Order, {"amount": 1, "sum": 5000}, "sum"),
        (Order, {"inner": {"sum": 5000, "amount": 1}}, "sum"),
        (Open, {"amount": 1, "sum": 5000}, "sum"),
        (list[Open], [{"more": 1, "amount": 1, "sum": 5000}], "sum"),
        (Row, {"x": 1, "y": 2}, "y"),
        (Row, {"x": 1, "amount": 2}, "amount"),
        (Row, {"y": 5, "more": 1}, "more"),
    ],
)
@pytest.mark.parametrize("repair", [True, False])
async def test_a_member_that_no_field_takes_or_under_a_second_name_is_refused(
    kind: Any, sent: Any, name: str, repair: bool
) -> None:
    tool, got = tool_of(kind)
    result = await Workbench([tool], repair=repair).call("work", {"x": sent})
    assert (result.error and result.error.code, got) == ("invalid_arguments", [])
    assert name in result.text


def swapped(data: Any) -> Any:
    """A validator of a model that reads what another name says."""
    return {"amount": data["inner"]["sum"]} if isinstance(data, dict) and "inner" in data else data


class Swapped(Order):
    _swap = model_validator(mode="before")(swapped)


def doubled(value: Any, handler: Any) -> Any:
    return handler(value) * 2


HIDDEN: list[tuple[Any, str, str]] = [
    (Order, '{"sum": 5000}', "/x/amount"),
    (Order, '{"zero": 5000}', "/x/zero"),
    (Order, '{"inner": {"inner": {"sum": 5000}}}', "/x/inner/inner/amount"),
    (Swapped, '{"inner": {"sum": 5000}, "amount": 1}', "/x/amount"),
    (Swapped, '{"inner": {"sum": 1}, "amount": 5000}', "/x/amount"),
    (Annotated[int, AfterValidator(lambda v: v * 2)], "51", "/x"),
    (Annotated[int, AfterValidator(lambda v: v // 2)], "101", "/x"),
    (Annotated[int, WrapValidator(doubled)], "51", "/x"),
    (Annotated[int, BeforeValidator(lambda v: 1)], "5000", "/x"),
    (Annotated[int, BeforeValidator(lambda v: 5000)], "1", "/x"),
    (Decimal, "100.00000000000000000001", "/x"),
    (Order | Open, '{"sum": 5000}', "/x/amount"),
    (Open | Order, '{"sum": 5000, "more": 1}', "/x/amount"),
    (Row, '{"y": 5000}', "/x/amount"),
    (dict[str, Order], '{"a": {"sum": 5000}}', "/x/a/amount"),
]


@pytest.mark.parametrize(("kind", "sent", "pointer"), HIDDEN)
async def test_a_rule_judges_what_was_sent_and_what_the_tool_gets(kind: Any, sent: str, pointer: str) -> None:
    tool, got = tool_of(kind)
    for rules in (
        Rules([Rule(do="deny", where={pointer: {"gt": 100}})]),
        Rules([Rule(do="allow", where={pointer: {"le": 100}})], default="deny"),
    ):
        result = await Workbench([tool], policy=rules).call("work", f'{{"x": {sent}}}')
        assert (result.error and result.error.code, got) == ("denied", [])


async def test_a_rule_compares_a_moment_and_not_its_offset() -> None:
    tool, _ = tool_of(datetime)
    rules = Rules([Rule(do="deny", where={"/x": {"lt": "2030-01-01T12:00:00Z"}})])
    for sent, status in (("2030-01-01T13:00:00+02:00", "error"), ("2030-01-01T13:00:00+01:00", "success")):
        assert (await Workbench([tool], policy=rules).call("work", {"x": sent})).status == status


async def asked(tool: Tool[..., Any], sent: str) -> tuple[Workbench, Pending]:
    """A workbench where a call of `work` waits for a person, and what is shown to them."""
    bench = Workbench([tool], policy=lambda *_: "ask")
    pending = (await bench.call("work", f'{{"x": {sent}}}')).pending
    assert pending is not None
    return bench, pending


async def approved(tool: Tool[..., Any], sent: str) -> Result[Any]:
    bench, pending = await asked(tool, sent)
    await bench.answer(pending.id, Approve(), by="alice")
    return await bench.call("work", f'{{"x": {sent}}}')


SEEN: list[tuple[Any, str, Any]] = [
    (Order, '{"sum": 5, "zero": 7}', {"amount": 5, "zero": 7, "inner": None}),
    (Job, '{"name": "ls", "sudo": true}', {"name": "ls", "sudo": True, "rest": []}),
    (Job, '{"name": "ls"}', {"name": "ls", "sudo": False, "rest": []}),
    (Row, '{"y": 5}', {"x": 5}),
    (Annotated[Cat | Dog, Field(discriminator="kind")], '{"kind": "dog"}', {"kind": "dog", "barks": 1}),
    (Pair, '[{"kind": "cat"}]', [{"kind": "cat", "lives": 9}, 5]),
    (Pair, '{"left": {"kind": "cat"}}', {"left": {"kind": "cat", "lives": 9}, "right": 5}),
    (set[SecretStr], '["a", "b"]', ["**********"] * 2),
    (dict[str, SecretStr] | None, '{"a": "b"}', {"a": "**********"}),
    (Annotated[SecretStr, AfterValidator(lambda v: v.get_secret_value())], '"a"', "**********"),
    (str | SecretStr, '"a"', "a"),
    (Annotated[str, BeforeValidator(lambda v: "harmless")], '"rm -rf"', "rm -rf"),
    (datetime, '"2030-01-01T13:00:00+02:00"', "2030-01-01T13:00:00+02:00"),
]


@pytest.mark.parametrize(("kind", "sent", "shown"), SEEN)
async def test_a_person_sees_what_was_sent_with_defaults_and_this_runs(kind: Any, sent: str, shown: Any) -> None:
    tool, got = tool_of(kind)
    assert json.loads((await asked(tool, sent))[1].arguments) == {"x": shown}
    assert (await approved(tool, sent)).status == "success"
    if "*" not in str(shown):
        assert got == [tool.check(json.dumps({"x": shown}), False)[0]["x"]]


class Patch(BaseModel):
    name: str = "new"
    mail: str = ""


async def test_an_approved_call_runs_without_the_defaults_that_were_only_shown() -> None:
    tool, got = tool_of(Patch)
    await approved(tool, '{"mail": "a@b"}')
    assert got[0].model_dump(exclude_unset=True) == {"mail": "a@b"}


@pytest.mark.parametrize("sent", ["9.007199254740993e15", "9007199254740993.0"])
async def test_an_approved_call_gets_a_float_for_a_fraction_that_no_float_holds(sent: str) -> None:
    tool, got = tool_of(int | float)
    await approved(tool, sent)
    assert [type(value) for value in got] == [float]


@pytest.mark.parametrize(
    ("default", "shown"),
    [
        (Inside(), {"first": 3}),
        ({1: "a", "1": "b"}, [["1", "a"], ["1", "b"]]),
        ({Key(): 1, "a": [Inside()]}, {"<Key>": 1, "a": [{"first": 3}]}),
    ],
)
@pytest.mark.parametrize("made", [False, True], ids=["default", "factory"])
def test_a_default_without_a_json_form_is_a_part_of_the_document(default: Any, shown: Any, made: bool) -> None:
    def use(x: Any = Field(default_factory=lambda: default) if made else default) -> None: ...

    tool = Tool(use)
    document = document_of(tool.check, "{}", tool.check("{}", True)[0])
    assert document.values == {"x": shown}
