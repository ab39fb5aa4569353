"""Forms of schemas: what is filled in is what is sent."""

import base64
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Base64Bytes, Base64UrlBytes

from tests.schema.random_schemas import Generator
from toolcrib import Workbench, tool
from toolcrib.schema import SchemaView
from toolcrib.schema.json_text import canonical_json
from toolcrib.serve.console.forms import (
    MISSING,
    changed,
    depth_of,
    invalid,
    mark,
    outline,
    root_field,
    to_form,
    value_of,
)


@dataclass
class Person:
    """A person."""

    name: str
    age: int | None = None
    parent: "Person | None" = None


@tool
def everything(
    text: str,
    number: float,
    day: date,
    person: Person,
    at: datetime | None = None,
    clock: time | None = None,
    price: Decimal = Decimal(1),
    size: Literal["s", "m", 1] = "m",
    flag: bool | None = None,
    words: list[str] | None = None,
    people: list[Person] = [],
    either: Person | int | str = 0,
    by_name: dict[str, int] = {},
    pair: tuple[int, str] = (1, "a"),
    file: Base64Bytes | None = None,
    url_file: Base64UrlBytes | None = None,
    anything: Any = None,
) -> None:
    """Take everything."""


VIEW = SchemaView(Workbench([everything]).specs()[0].input_schema)

TEXTS = st.one_of(
    st.text(max_size=8), st.sampled_from(["", " ", "\n", "\r\n", "a\rb", "\t", "\u200b", "2026-01-01", "é"])
)
NUMBERS = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["name", "age", "parent", "a", "b", "k", "x1", "x/y", ""]), inner, max_size=3),
    ),
    max_leaves=8,
)
PEOPLE: st.SearchStrategy[Any] = st.recursive(
    st.fixed_dictionaries({"name": TEXTS}, optional={"age": st.none() | st.integers()}),
    lambda inner: st.fixed_dictionaries({"name": TEXTS, "parent": st.none() | inner}),
    max_leaves=3,
)
MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 1, 1))
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "text": TEXTS,
        "number": NUMBERS,
        "day": MOMENTS.map(lambda at: at.date().isoformat()),
        "person": PEOPLE,
        "at": st.one_of(st.none(), MOMENTS.map(lambda at: f"{at.isoformat(timespec='seconds')}Z"), TEXTS),
        "clock": st.one_of(st.none(), MOMENTS.map(lambda at: at.time().isoformat()), st.just("10:00")),
        "price": NUMBERS | TEXTS,
        "size": st.sampled_from(["s", "m", 1, 1.0, True, "x"]),
        "flag": st.sampled_from([None, True, False, "true"]),
        "words": st.none() | st.lists(TEXTS, max_size=4),
        "people": st.lists(PEOPLE, max_size=3),
        "either": PEOPLE | st.integers() | TEXTS,
        "by_name": st.dictionaries(TEXTS, st.integers(), max_size=2),
        "pair": st.tuples(st.integers(), TEXTS).map(list),
        "file": st.none() | st.binary(max_size=8).map(lambda content: base64.b64encode(content).decode()),
        "url_file": st.none() | st.binary(max_size=8).map(lambda content: base64.urlsafe_b64encode(content).decode()),
        "anything": VALUES,
        "unknown": VALUES,
    },
)


def again(view: SchemaView, value: Any) -> Any:
    return value_of(root_field(view, to_form(view, value)))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(ARGUMENTS)
def test_the_fields_of_a_value_give_the_same_value(value: dict[str, Any]) -> None:
    assert canonical_json(again(VIEW, value)) == canonical_json(value)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.dictionaries(st.sampled_from(["a", "b", "k", "x1", "x/y", ""]), VALUES, max_size=4))
def test_any_value_survives_the_form_of_any_schema(seed: int, value: dict[str, Any]) -> None:
    view = SchemaView(Generator(seed).whole())
    assert canonical_json(again(view, value)) == canonical_json(value)
    assert len(outline(view)) <= 300


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.dictionaries(st.sampled_from(["v/text", "j/text", "e/text", "n/people", "v/people/1/name", "k/either"]), TEXTS)
)
def test_any_form_is_read(form: dict[str, str]) -> None:
    assert isinstance(value_of(root_field(VIEW, form)), dict)


def test_plain_values_are_shown_in_fields_and_only_odd_ones_as_json() -> None:
    value = {
        "text": "two\nlines",
        "number": 1.5,
        "day": "2026-11-28",
        "person": {"name": "Ada", "age": None},
        "at": "2026-11-28T10:00:00Z",
        "clock": "10:00:00",
        "size": 1,
        "flag": None,
        "words": ["", "a"],
        "people": [{"name": "Bob"}],
        "either": 3,
    }
    assert not [name for name in to_form(VIEW, {}) if name.startswith("j")]
    form = to_form(VIEW, value)
    assert not [name for name in form if name.startswith("j")]
    odd = {**value, "at": "2026-11-28T10:00:00+02:00", "clock": "10:00", "size": True, "people": [{"nam": 1}]}
    assert {name for name in to_form(VIEW, odd) if name.startswith("j")} == {"j/at", "j/clock", "j/size", "j/people/0"}


def test_what_browsers_send_is_read() -> None:
    form = {
        "v/text": "two\r\nlines",
        "v/number": " 1.10000000000000000000001 ",
        "v/day": "2026-11-28",
        "v/person/name": "Ada",
        "v/person/age": "forty",
        "v/at": "2026-11-28T10:00",
        "v/clock": "10:00",
        "f/file": b"\xff\xfe",
        "f/url_file": b"\xff\xfe",
        "v/words/1": "spare",
    }
    assert value_of(root_field(VIEW, form)) == {
        "text": "two\nlines",
        "number": Decimal("1.10000000000000000000001"),
        "day": "2026-11-28",
        "person": {"name": "Ada", "age": "forty"},
        "at": "2026-11-28T10:00:00Z",
        "clock": "10:00:00",
        "words": ["spare"],
        "file": "//4=",
        "url_file": "__4=",
    }


def test_what_is_not_filled_in_is_left_out_or_empty_or_null() -> None:
    assert value_of(root_field(VIEW, {})) == {"person": {}}
    states = {"e/words": "value", "e/at": "null", "e/text": "value"}
    assert value_of(root_field(VIEW, states)) == {"text": "", "person": {}, "words": [], "at": None}
    states = {"e/words": "null", "e/text": "null", "k/either": "0", "e/person": "out"}
    assert value_of(root_field(VIEW, states)) == {"words": None, "either": {}}


def test_lists_grow_and_shrink() -> None:
    form = changed({"v/words/0": "a", "v/words/1": "", "v/words/2": "c", "v/text": "x"}, "add/words")
    assert form == {"n/words": "3", "v/words/0": "a", "v/words/1": "c", "v/text": "x"}
    assert value_of(root_field(VIEW, form))["words"] == ["a", "c"]
    assert value_of(root_field(VIEW, {**form, "e/words/2": "value"}))["words"] == ["a", "c", ""]
    form = changed({"n/people": "2", "v/people/0/name": "a", "v/people/1/name": "b"}, "remove/people/0")
    assert form == {"n/people": "1", "v/people/0/name": "b"}
    assert changed({}, "remove/people/7") == {"n/people": "0"}


def test_problems_are_shown_at_the_nearest_field() -> None:
    root = root_field(VIEW, {"n/people": "1"})
    mark(root, [{"path": "/people/0/name/x", "sentence": "A"}, {"path": "/none", "sentence": "B"}])
    assert {of.place: of.problems for of in root.all() if of.problems} == {"": ["B"], "/people/0/name": ["A"]}


def test_json_that_is_none_is_a_problem_of_its_field() -> None:
    root = root_field(VIEW, {"j/by_name": "{1}"})
    assert invalid(root)
    (of,) = [of for of in root.all() if of.problems]
    assert of.place == "/by_name"
    assert "not valid JSON" in of.problems[0]
    assert not invalid(root_field(VIEW, {"j/by_name": ""}))


def test_a_schema_that_contains_itself_or_is_large_ends() -> None:
    kinds = {of.place: of.kind for of in root_field(VIEW, {}).all()}
    assert kinds["/person/parent"] == "json"
    wide = {"type": "object", "properties": {str(name): {"$ref": "#/$defs/A"} for name in range(40)}}
    inner = {"type": "object", "properties": {str(name): {"type": "string"} for name in range(40)}}
    large = SchemaView({**wide, "$defs": {"A": inner}})
    assert depth_of(large) == 1
    assert {of.kind for of in root_field(large, {}).fields} == {"json"}
    assert again(large, {"1": {"2": "x"}}) == {"1": {"2": "x"}}


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string", "maxLength": 20}, "line"),
        ({"type": "string"}, "text"),
        ({"type": "string", "contentEncoding": "base64"}, "file"),
        ({"type": ["integer", "null"]}, "number"),
        ({"type": ["integer", "string"]}, "json"),
        ({"const": 1}, "const"),
        ({"oneOf": [{"const": 1}, {"const": "a"}]}, "choice"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "union"),
        ({"type": "array", "prefixItems": [{}]}, "json"),
        ({"allOf": [{"type": "object"}, {"properties": {"a": {}}}]}, "json"),
        ({"type": "object", "additionalProperties": False}, "object"),
        ({"type": "object"}, "json"),
        (True, "json"),
    ],
)
def test_each_kind_of_schema_has_its_field(schema: Any, kind: str) -> None:
    view = SchemaView({"type": "object", "properties": {"a": schema}, "required": ["a"]})
    (of,) = root_field(view, {}).fields
    assert of.kind == kind
    assert value_of(of) in (MISSING, None, "", 1, {})
