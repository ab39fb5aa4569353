"""The check of arguments, from every form they come in: strict first, then repaired, then explained; never a crash."""

import collections
import datetime
import json
import types
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import (
    VERSION,
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    StrictInt,
    create_model,
    field_validator,
)
from typing_extensions import TypedDict

from toolcrib.core import Repair
from toolcrib.schema.plan import _NO_PLAN

from .calling import bare, called, refusal

Json = dict[str, Any]


def send(to: str, subject: str, body: str = "") -> list[str]:
    return [to, subject, body]


# The forms that arguments come in


@pytest.mark.parametrize(
    "arguments",
    [
        '{"to": "a", "subject": "b"}',
        b'{"to": "a", "subject": "b"}',
        {"to": "a", "subject": "b"},
        types.MappingProxyType({"to": "a", "subject": "b"}),
        collections.ChainMap({"to": "a"}, {"subject": "b"}),
    ],
    ids=lambda given: type(given).__name__,
)
async def test_arguments_are_text_bytes_or_any_mapping(arguments: Any) -> None:
    result = await called(send, arguments)
    assert (result.unwrap(), result.repairs) == (["a", "b", ""], ())


def lambda_of_nothing(n: int = 1) -> int:
    return n


@pytest.mark.parametrize("text", ["", " \n\t"])
async def test_empty_text_is_an_empty_object_and_that_is_noted(text: str) -> None:
    result = await called(lambda_of_nothing, text)
    assert (result.unwrap(), result.repairs) == (1, (Repair("", "empty", "object"),))
    assert refusal(await called(send, text)) == (
        "Tool 'send': 2 problems with its arguments.\n"
        "- 'to' is missing. Expected string.\n"
        "- 'subject' is missing. Expected string."
    )


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [("[]", "array"), ("3", "integer"), ("null", "null"), ('"text"', "string"), ([1], "array"), (5, "integer")],
)
@pytest.mark.parametrize("repair", [True, False])
async def test_arguments_that_are_no_object_are_refused(arguments: Any, kind: str, repair: bool) -> None:
    for source in (send, bare()):
        message = refusal(await called(source, arguments, repair=repair))
        assert message.endswith(f"the arguments: expected object, got {kind}.")


def _cyclic() -> Json:
    inner: Json = {}
    inner["x"] = [inner]
    return inner


_TOO_DEEP = "Maximum serialization depth exceeded"
if VERSION.startswith("2.12."):
    _TOO_DEEP = "Circular reference detected (depth exceeded)"


def _deep() -> Json:
    inner: Any = 1
    for _ in range(100_000):
        inner = {"x": inner}
    return {"x": inner}


@pytest.mark.parametrize("written", ["NaN", "-Infinity", "1e999"])
async def test_a_field_of_any_name_takes_no_number_that_is_none(written: str) -> None:
    for name in sorted({*_NO_PLAN, "type", "fields", "choices", "schema", "items"} - {"schema"}):
        for kind in (create_model("Of", **{name: float}), TypedDict("Of", {name: float})):  # type: ignore[call-overload]

            def take(of: Any) -> int:
                return len(of)

            take.__annotations__["of"] = kind
            message = refusal(await called(take, f'{{"of": {{"{name}": {written}}}}}'))
            assert "number" in message or "not JSON" in message, name


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (_cyclic, "the arguments have no JSON form: Circular reference detected (id repeated)"),
        (_deep, f"the arguments have no JSON form: {_TOO_DEEP}"),
        (lambda: {"x": b"\xff"}, "the arguments have no JSON form: invalid utf-8 sequence of 1 bytes from index 0"),
        (lambda: {"x": object()}, "the arguments have no JSON form: a value of type object has none"),
        (
            lambda: {"x": [float("nan")]},
            "the arguments are not valid JSON: NaN and Infinity are not JSON, at line 1 column 7",
        ),
        (
            lambda: {1: "a", "1": "b"},
            "the arguments are not valid JSON: the name '1' appears twice in an object, at line 1 column 14",
        ),
    ],
    ids=["cycle", "depth", "bytes", "object", "nan", "keys"],
)
async def test_a_mapping_without_a_json_form_is_refused(arguments: Any, reason: str) -> None:
    def any_value(x: Any = None, **others: Any) -> None: ...

    message = refusal(await called(any_value, arguments()))
    assert message == f"Tool 'any_value': {reason}. Send one JSON object."


async def test_keys_of_a_mapping_that_are_no_text_are_read_as_json_would_write_them() -> None:
    def count(by_number: dict[int, str]) -> list[int]:
        return list(by_number)

    assert (await called(count, {"by_number": {1: "a"}})).unwrap() == [1]
    assert refusal(await called(count, {1: {}})) == (
        "Tool 'count' takes no argument '1'. Did you mean 'by_number'? It takes: by_number."
    )


# Strict first


class Opts(BaseModel):
    depth: int = 1
    note: str | None = None


async def test_a_call_that_is_valid_strictly_is_not_altered() -> None:
    def take(
        s: str,
        i: int,
        f: float,
        b: bool,
        n: int | None,
        many: list[int],
        o: Opts,
        u: int | str,
        e: Literal["A", "b"],
        a: Any,
    ) -> list[Any]:
        return [s, i, f, b, n, many, o, u, e, a]

    result = await called(
        take,
        '{"s": "5", "i": 5, "f": 5, "b": false, "n": null, "many": [], "o": {"depth": 2, "note": "null"},'
        ' "u": "7", "e": "b", "a": "[1]"}',
    )
    assert result.unwrap() == ["5", 5, 5.0, False, None, [], Opts(depth=2, note="null"), "7", "b", "[1]"]
    assert result.repairs == ()


async def test_what_is_repaired_in_one_argument_changes_no_other() -> None:
    def take(n: int, when: datetime.date | str, dec: Decimal, a: Any, x: float) -> list[Any]:
        return [n, when, dec, a, x]

    text = '{{"n": {}, "when": "2020-01-01", "dec": 1.10, "a": {{"b": "5", "c": [1.0, 1]}}, "x": 3}}'
    strictly = await called(take, text.format(5))
    repaired = await called(take, text.format('"5"'))
    assert repr(repaired.unwrap()) == repr(strictly.unwrap())
    assert (strictly.repairs, repaired.repairs) == ((), (Repair("/n", "string", "integer"),))


# A whole number for an integer: the schema takes it, strict reading does not


async def test_what_was_repaired_is_no_problem_when_something_else_is() -> None:
    def take(n: int, many: list[int], m: int, flag: bool) -> None: ...

    message = refusal(await called(take, '{"n": "5", "many": "[1, 2]", "m": 2.0, "flag": "no"}'))
    assert message == "Tool 'take': 'flag': expected boolean, got string."


@pytest.mark.parametrize("spelled", ["2.0", "20e-1"])
async def test_a_whole_number_is_taken_for_an_integer_and_noted(spelled: str) -> None:
    def take(n: int, many: list[StrictInt] = [], o: Opts = Opts()) -> list[Any]:
        return [n, many, o]

    result = await called(take, f'{{"n": {spelled}, "many": [1, {spelled}], "o": {{"depth": {spelled}}}}}')
    assert repr(result.unwrap()) == repr([2, [1, 2], Opts(depth=2)])
    assert result.repairs == (
        Repair("/n", "number", "integer"),
        Repair("/many/1", "number", "integer"),
        Repair("/o/depth", "number", "integer"),
    )


@pytest.mark.parametrize("spelled", ["1.5", "1.00000000000000000001", "9007199254740993.0", "1e23"])
async def test_a_number_that_is_not_surely_an_integer_is_refused(spelled: str) -> None:
    def take(n: int) -> int:
        return n

    assert refusal(await called(take, f'{{"n": {spelled}}}')).startswith("Tool 'take': 'n': expected ")


async def test_what_a_validator_took_is_neither_repaired_nor_a_problem() -> None:
    def take(text: Annotated[str, BeforeValidator(repr)], tags: set[int], n: int) -> list[Any]:
        return [text, tags, n]

    result = await called(take, '{"text": 5, "tags": [1, 1], "n": "7"}')
    assert (result.unwrap(), result.repairs) == (["5", {1}, 7], (Repair("/n", "string", "integer"),))
    assert refusal(await called(take, '{"text": 5, "tags": [1, 1], "n": "x"}')) == (
        "Tool 'take': 'n': expected integer, got string."
    )


# Both sides of a typed tool explain together


async def test_problems_of_schema_and_validators_come_together_each_once() -> None:
    def even(n: int) -> int:
        if n % 2:
            raise ValueError("must be even")
        return n

    class Trip(BaseModel):
        city: str
        nights: Annotated[int, Field(ge=1)]

        @field_validator("city")
        @classmethod
        def known(cls, city: str) -> str:
            if city != "Oslo":
                raise AssertionError("there is only Oslo.")
            return city

    def book(trip: Trip, count: Annotated[int, AfterValidator(even)], when: datetime.date, flag: bool) -> None: ...

    message = refusal(
        await called(book, '{"trip": {"city": "Rome", "nights": 0}, "count": 3, "when": "2026-02-30", "flag": "no"}')
    )
    assert message == (
        "Tool 'book': 5 problems with its arguments.\n"
        "- 'trip.nights': expected at least 1.\n"
        "- 'flag': expected boolean, got string.\n"
        "- 'trip.city': there is only Oslo.\n"
        "- 'count': must be even.\n"
        "- 'when': expected a valid date in the format YYYY-MM-DD, day value is outside expected range."
    )


# What takes long, by its size or by its readings


class And(BaseModel):
    op: Literal["and"]
    items: list["Untagged"]


class Or(BaseModel):
    op: Literal["or"]
    items: list["Untagged"]


class Leaf(BaseModel):
    field: str
    value: int


Untagged = And | Or | Leaf


class All(BaseModel):
    op: Literal["all"]
    items: list["Tagged"] = []


class Some(BaseModel):
    op: Literal["some"]
    items: list["Tagged"] = []


Tagged = All | Some
for model in (And, Or, All, Some):
    model.model_rebuild()


def untagged(query: Untagged) -> str:
    return type(query).__name__


def tagged(query: Tagged) -> str:
    return type(query).__name__


def nested(depth: int, kind: str, leaf: Json) -> Json:
    for _ in range(depth):
        leaf = {"op": kind, "items": [leaf]}
    return leaf


WRONG_LEAF = {"field": "a", "value": "x"}
LEAF = {"field": "a", "value": 1}


@pytest.mark.parametrize(
    "query",
    [nested(40, "or", LEAF), nested(40, "or", WRONG_LEAF), json.dumps(nested(40, "or", LEAF))],
    ids=["valid", "wrong", "as JSON in a string"],
)
async def test_a_model_cannot_nest_a_union_so_deeply_that_pydantic_reads_it_for_ever(query: Any) -> None:
    """The second case: no megabyte, but 1,000 characters. pydantic reads each branch at each level: here, 2**40."""
    assert refusal(await called(untagged, {"query": query})) == (
        "Tool 'untagged': the arguments are nested too deeply in parts that are one of several things: there are too "
        "many readings. Send flatter ones, or in several calls."
    )


async def test_a_large_valid_document_of_nested_unions_passes() -> None:
    document = {"op": "and", "items": [nested(2, "or", LEAF)] * 1_000}
    assert (await called(untagged, json.dumps({"query": document}))).unwrap() == "And"


async def test_models_told_apart_by_a_text_are_read_once_at_any_depth() -> None:
    assert (await called(tagged, {"query": nested(40, "some", {"op": "all"})})).unwrap() == "Some"


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        ({"op": "every"}, '\'query.items[0].op\': expected one of "all", "some".'),
        ({"items": []}, '\'query.items[0].op\' is missing. Expected one of "all", "some".'),
        ({"op": "all", "item": []}, "'query.items[0].item': no field takes it."),
    ],
)
async def test_a_wrong_tag_is_named(leaf: Json, message: str) -> None:
    assert refusal(await called(tagged, {"query": nested(1, "some", leaf)})) == f"Tool 'tagged': {message}"


class Counted(BaseModel):
    number: int

    reads: ClassVar[int] = 0

    @field_validator("number", mode="before")
    @classmethod
    def count(cls, value: Any) -> Any:
        cls.reads += 1
        return value


def add_all(items: list[Counted]) -> int:
    return sum(item.number for item in items)


async def test_of_many_wrong_items_pydantic_reads_one_and_the_message_is_the_same() -> None:
    """A model sends 1 MB of wrong items: an error for each took gigabytes where the item is a union."""
    Counted.reads = 0
    few = refusal(await called(add_all, {"items": [{"number": "x"}] * 100}))
    assert Counted.reads >= 100
    Counted.reads = 0
    many = refusal(await called(add_all, {"items": [{"number": "x"}] * 50_000}))
    assert Counted.reads <= 2
    assert (few.splitlines()[0], few) == ("Tool 'add_all': 50 or more problems with its arguments.", many)


async def test_long_arguments_are_repaired_as_short_ones_are() -> None:
    whole = {"items": [{"number": 2.0}] * 5_000}
    result = await called(add_all, json.dumps(whole))
    assert (result.unwrap(), len(result.repairs)) == (10_000, 5_000)
    text = {"items": json.dumps([{"number": 2}] * 5_000)}
    result = await called(add_all, json.dumps(text))
    assert (result.unwrap(), len(result.repairs)) == (10_000, 1)


async def test_what_only_a_validator_refuses_in_long_arguments_is_worded_as_its_author_did() -> None:
    def even(numbers: list[Annotated[int, AfterValidator(require_even)]]) -> int:
        return len(numbers)

    numbers = [2] * 20_000
    assert refusal(await called(even, {"numbers": [*numbers, 3]})) == "Tool 'even': 'numbers[20000]': it is odd."
    assert (await called(even, {"numbers": numbers})).unwrap() == 20_000


def require_even(number: int) -> int:
    if number % 2:
        raise ValueError("it is odd.")
    return number
