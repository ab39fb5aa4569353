"""Why a call was refused: all of it in one answer, with names, kinds and the schema's own words, never with a value."""

import datetime
import difflib
import ipaddress
import json
import uuid
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import (
    AfterValidator,
    AnyUrl,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    Field,
    ImportString,
    model_validator,
)

from toolcrib.workbench.registry import unknown

from .calling import bare, called, refusal, takes

SENT = "s3cret-9f8e7d"
"""A value that no explanation may show."""


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Opts(BaseModel, extra="forbid"):
    depth: int
    tags: list[str] = []
    inner: "Opts | None" = None


class Dog(BaseModel):
    kind: Literal["dog"]
    barks: int


class Cat(BaseModel):
    kind: Literal["cat"]
    name: str


class Point(BaseModel):
    x: int
    y: int


class Circle(BaseModel):
    radius: Annotated[float, Field(gt=0)]


async def explained(source: Any, arguments: Any) -> str:
    result = await called(source, json.dumps(arguments))
    message = refusal(result)
    assert SENT not in json.dumps(result.to_dict())
    return message


def send_mail(to: str, subject: str, body: str = "") -> None: ...


def search(values: list[int], color: Color = Color.RED, limit: int | None = None, opts: Opts | None = None) -> None: ...


def draw(
    pet: Annotated[Dog | Cat, Field(discriminator="kind")] | None = None, shape: Point | Circle = Point(x=1, y=1)
) -> None: ...


# Names


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"recipient": "a", "subject": "b"},
            "Tool 'send_mail' takes no argument 'recipient'. Did you mean 'to'? It takes: to, subject, body.",
        ),
        (
            {"recipient": "a", "sbject": "b"},
            "Tool 'send_mail': 2 problems with its arguments.\n"
            "- It takes no argument 'recipient'. Did you mean 'to'?\n"
            "- It takes no argument 'sbject'. Did you mean 'subject'? It takes: to, subject, body.",
        ),
        (
            {"sbject": ["b"], "to": "a"},
            "Tool 'send_mail': 2 problems with its arguments.\n"
            "- It takes no argument 'sbject'. Did you mean 'subject'? It takes: to, subject, body.\n"
            "- 'subject': expected string, got array.",
        ),
        (
            {"count": [5], "subject": "b"},
            "Tool 'send_mail': 2 problems with its arguments.\n"
            "- It takes no argument 'count'. It takes: to, subject, body.\n"
            "- 'to' is missing. Expected string.",
        ),
    ],
)
async def test_unknown_and_missing_names_are_errors_that_propose_the_closest_name(arguments: Any, message: str) -> None:
    assert await explained(send_mail, arguments) == message


async def test_strange_names_are_shown_short_and_on_one_line() -> None:
    message = await explained(send_mail, {"to": "a", "subject": "b", "x\n\x00" + "y" * 100: 1})
    assert message == f"Tool 'send_mail' takes no argument 'x\ufffd\ufffd{'y' * 61}…'. It takes: to, subject, body."


# Kinds, choices, places


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"values": SENT}, "'values': expected array of integer, got string."),
        ({"values": [1, SENT, 2.5]}, "'values[1]': expected integer, got string."),
        ({"values": [1], "limit": SENT}, "'limit': expected integer or null, got string."),
        ({"values": [1], "color": SENT}, '\'color\': expected one of "red", "blue".'),
        ({"values": [1], "color": "RED"}, '\'color\': expected one of "red", "blue". Did you mean "red"?'),
        ({"values": [1], "opts": {"depth": 1, "inner": {}}}, "'opts.inner.depth' is missing. Expected integer."),
        ({"values": [1], "opts": [SENT]}, "'opts': expected object or null, got array."),
        ({"values": None}, "'values': expected array of integer, got null."),
    ],
)
async def test_kinds_and_choices(arguments: Any, sentence: str) -> None:
    assert sentence in await explained(search, arguments)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"pet": {"kind": SENT}}, '\'pet.kind\': expected one of "dog", "cat".'),
        ({"pet": {"kind": "Dog"}}, '\'pet.kind\': expected one of "dog", "cat". Did you mean "dog"?'),
        ({"pet": {"barks": 1}}, '\'pet.kind\' is missing. Expected one of "dog", "cat".'),
        ({"pet": {"kind": "dog", "barks": SENT}}, "'pet.barks': expected integer, got string."),
        ({"pet": {"kind": "cat", "barks": 1}}, "'pet.name' is missing. Expected string."),
        ({"pet": SENT}, "'pet': expected object {kind, barks}, object {kind, name} or null, got string."),
        ({"shape": {"radius": 0}}, "'shape.radius': expected more than 0."),
        ({"shape": {"x": 1, "y": SENT}}, "'shape.y': expected integer, got string."),
        ({"shape": {"z": 1}}, "'shape': expected object {x, y} or object {radius}, got object {z}."),
    ],
)
async def test_unions_are_explained_by_the_closest_branch(arguments: Any, sentence: str) -> None:
    assert await explained(draw, arguments) == f"Tool 'draw': {sentence}"


async def test_every_problem_is_in_one_answer_and_in_its_details() -> None:
    result = await called(search, '{"values": [1, "x"], "color": "redd", "limt": 3, "opts": {}}')
    assert result.error is not None
    assert result.error.retry == "changed"
    assert result.text == result.error.message
    assert result.error.details["problems"] == [
        {
            "path": "/limt",
            "expected": "limit",
            "received": "name",
            "sentence": "It takes no argument 'limt'. Did you mean 'limit'? It takes: values, color, limit, opts.",
        },
        {
            "path": "/values/1",
            "expected": "integer",
            "received": "string",
            "sentence": "'values[1]': expected integer, got string.",
        },
        {
            "path": "/color",
            "expected": 'one of "red", "blue"',
            "received": "string",
            "choices": ["red", "blue"],
            "sentence": '\'color\': expected one of "red", "blue". Did you mean "red"?',
        },
        {
            "path": "/opts/depth",
            "expected": "integer",
            "received": "nothing",
            "sentence": "'opts.depth' is missing. Expected integer.",
        },
    ]


async def test_of_many_problems_the_first_are_shown_and_the_rest_counted() -> None:
    message = await explained(search, {"values": ["x"] * 30})
    assert message.count("\n") == 21
    assert message.startswith("Tool 'search': 30 problems with its arguments.\n- 'values[0]': ")
    assert message.endswith("\n- 'values[19]': expected integer, got string.\n- and 10 more.")
    message = await explained(search, {"values": ["x"] * 3000})
    assert message.startswith("Tool 'search': 50 or more problems")
    assert message.endswith("\n- and more.")


async def test_places_are_written_as_a_program_would_write_them() -> None:
    def take(rows: list[dict[str, list[int]]]) -> None: ...

    result = await called(take, '{"rows": [{}, {"a b/c": [0, "x"], "plain": ["x"]}]}')
    assert result.error is not None
    assert [(problem["path"], problem["sentence"]) for problem in result.error.details["problems"]] == [
        ("/rows/1/a b~1c/1", "'rows[1][\"a b/c\"][1]': expected integer, got string."),
        ("/rows/1/plain/0", "'rows[1].plain[0]': expected integer, got string."),
    ]


async def test_long_lists_of_choices_are_cut_and_the_nearest_is_named() -> None:
    countries = [f"country-{number}" for number in range(100)] + ["Norway"]
    message = await explained(bare(properties={"c": {"enum": countries}}), {"c": "norwya"})
    assert '"country-19" … (101 in all). Did you mean "Norway"?' in message


# Very many names


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are compared letter by letter."""
    seen: list[str] = []
    set_first = difflib.SequenceMatcher.set_seq1

    def counted(matcher: difflib.SequenceMatcher[str], name: str) -> None:
        if name:
            seen.append(name)
        set_first(matcher, name)

    monkeypatch.setattr(difflib.SequenceMatcher, "set_seq1", counted)
    return seen


def test_a_name_is_compared_with_few_of_ten_thousand_tools(compared: list[str]) -> None:
    """A model sends many misspelt names in one turn."""
    names = [f"read_invoice_record_{number:05}" for number in range(10_000)]
    for number in range(30):
        message = unknown(f"raed_invoice_record_{number:05}", names)
        assert f"Did you mean 'read_invoice_record_{number:05}'?" in message
    assert len(compared) <= 30 * 20


async def test_of_very_many_wrong_names_few_are_compared(compared: list[str]) -> None:
    """A model sends 10,000 member names near the declared ones (second case)."""
    tool = bare(properties={f"column_{number}": {} for number in range(200)}, additionalProperties=False)
    message = await explained(tool, {f"colunm_{number}": 1 for number in range(10_000)})
    assert "Did you mean 'column_0'?" in message
    assert len(compared) <= 40 * 20


async def test_names_that_no_misspelling_is_as_short_or_long_as_are_not_compared(compared: list[str]) -> None:
    tool = bare(properties={f"x{number}": {} for number in range(15)}, additionalProperties=False)
    await explained(tool, {f"x{'y' * 90}{number}": 1 for number in range(20)})
    assert not compared


# Messages of pydantic and of a tool's author


def positive(number: int) -> int:
    if number <= 0:
        raise ValueError("must be positive.")
    return number


def known_city(city: str) -> str:
    if city != "Oslo":
        raise ValueError(f"no city '{city}' is known; {city} is not Oslo")
    return city


def text_in(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("send text,\n  not anything else")
    return value


class Span(BaseModel):
    start: int
    end: int
    note: str = ""

    @model_validator(mode="after")
    def ordered(self) -> "Span":
        if self.end < self.start:
            raise ValueError(f"end comes before start, in {self.note!r}")
        return self


def silent(_: Any) -> Any:
    raise AssertionError


@pytest.mark.parametrize(
    ("kind", "sent", "sentence"),
    [
        (Annotated[int, AfterValidator(positive)], -5, "'v': must be positive."),
        (list[Annotated[int, AfterValidator(positive)]], [1, -5], "'v[1]': must be positive."),
        (Annotated[str, AfterValidator(known_city)], SENT, "'v': no city '…' is known; … is not Oslo."),
        (Span, {"start": 2, "end": 1, "note": SENT}, "'v': end comes before start, in '…'."),
        (Annotated[Any, BeforeValidator(text_in)], 5, "'v': send text, not anything else."),
        (Annotated[str, BeforeValidator(text_in)], [1], None),
        (uuid.UUID, SENT, "'v': expected a valid UUID."),
        (Annotated[Any, BeforeValidator(silent)], 5, "'v': refused."),
        (Annotated[int, Field(ge=1, le=5)], 9, "'v': expected at most 5."),
        (Annotated[str, Field(pattern="^a+$")], SENT, "'v': expected text that matches ^a+$."),
        (Annotated[int, Field(ge=1)] | None, SENT, "'v': expected integer (at least 1) or null, got string."),
        (datetime.date, 5, "'v': expected string (date), got integer."),
        (AwareDatetime, "2020-01-01T00:00:00", "'v': expected it to have timezone info."),
        (ipaddress.IPv4Address, f"1.2.3.{SENT}", "'v': expected a valid IP address or network."),
        (AnyUrl, SENT, "'v': expected a valid URL."),
        (ImportString, SENT, "'v': expected something that can be imported."),
    ],
)
async def test_messages_of_validators_are_passed_on_without_the_value(
    kind: Any, sent: Any, sentence: str | None
) -> None:
    message = await explained(takes(kind), {"v": sent})
    assert sentence is None or message == f"Tool 'give': {sentence}"


# Every keyword of a bare JSON Schema


@pytest.mark.parametrize(
    ("schema", "sent", "sentence"),
    [
        ({"enum": [1, "b", None]}, SENT, ": 'a': expected one of 1, \"b\", null."),
        ({"const": "x"}, SENT, ": 'a': expected \"x\"."),
        ({"exclusiveMinimum": 1}, 1, ": 'a': expected more than 1."),
        ({"multipleOf": 3}, 2, ": 'a': expected a multiple of 3."),
        ({"uniqueItems": True}, [SENT, SENT], ": 'a': expected items that differ from one another."),
        ({"not": {"type": "string"}}, SENT, ": 'a': expected what the schema admits here."),
        (
            {"oneOf": [{"type": "integer"}, {"minimum": 5, "type": "number"}]},
            7,
            ": 'a' may fit only one of these, and fits several: integer, number (at least 5).",
        ),
        ({"minLength": 99}, SENT, ": 'a': expected at least 99 characters."),
        ({"pattern": "^x"}, SENT, ": 'a': expected text that matches ^x."),
        ({"format": "email"}, SENT, ": 'a': expected text in the format 'email'."),
        (False, SENT, " takes no argument 'a'. It takes none."),
        ({"$ref": "#/$defs/n", "maximum": 5}, SENT, ": 'a': expected integer, got string."),
    ],
)
async def test_every_keyword_is_explained(schema: Any, sent: Any, sentence: str) -> None:
    tool = bare(properties={"a": schema}, **{"$defs": {"n": {"type": "integer"}}})
    assert await explained(tool, {"a": sent}) == f"Tool 'bare'{sentence}"


@pytest.mark.parametrize(
    ("schema", "sent", "sentence"),
    [
        (
            {"patternProperties": {"^n": {}}, "properties": {"a": {}}, "additionalProperties": False},
            {"z": SENT},
            " takes no argument 'z'. It takes: a, names that match ^n.",
        ),
        ({"maxProperties": 1}, {"a": 1, "b": 2}, ": the arguments: expected at most 1 property."),
        ({"patternProperties": {"^n": {"type": "integer"}}}, {"na": SENT}, ": 'na': expected integer, got string."),
        ({"additionalProperties": {"type": "integer"}}, {"a": SENT}, ": 'a': expected integer, got string."),
        (
            {"allOf": [{"properties": {"first": {}}}], "unevaluatedProperties": False},
            {"frist": SENT},
            " takes no argument 'frist'. Did you mean 'first'? It takes: first.",
        ),
        (
            {"properties": {"id": {}, "name": {}}, "anyOf": [{"required": ["id"]}, {"required": ["name"]}]},
            {},
            ": the arguments: expected object with {id} or object with {name}, got object {}.",
        ),
        (
            {"anyOf": [{"type": "object", "required": ["id"]}, {"type": "object", "required": ["name"]}]},
            {},
            ": the arguments: expected object {id} or object {name}, got object {}.",
        ),
        (
            {"properties": {"id": {}, "name": {}}, "oneOf": [{"required": ["id"]}, {"required": ["name"]}]},
            {"id": SENT, "name": SENT},
            ": the arguments may fit only one of these, and fits several: object with {id}, object with {name}.",
        ),
    ],
)
async def test_keywords_of_the_arguments_are_explained(schema: Any, sent: Any, sentence: str) -> None:
    assert await explained(bare(**schema), sent) == f"Tool 'bare'{sentence}"


async def test_of_many_forms_the_first_are_told() -> None:
    names = [f"n{number}" for number in range(5000)]
    forms = [{"required": [name]} for name in names]
    message = await explained(bare(anyOf=forms), {})
    assert message.endswith("or object with {n19} … (5000 in all), got object {}.")
    message = await explained(bare(oneOf=forms), dict.fromkeys(names, 1))
    assert message.endswith(", object with {n19}.")
    by_reference = {"$defs": {"id": {"required": ["id"]}}, "oneOf": [{"$ref": "#/$defs/id"}, {"required": ["id"]}]}
    assert "fits several: object with {id}." in await explained(bare(**by_reference), {"id": 1})
