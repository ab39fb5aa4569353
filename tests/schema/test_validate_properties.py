"""What must hold of the check for any types, any schemas and any JSON."""

import datetime
import enum
import json
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter

from toolcrib import Tool, ToolError
from toolcrib.core import DefinitionError

from .. import fuzz
from .calling import bare, takes
from .random_schemas import NAMES, SCALARS, Generator
from .test_lower_laws import calm, make

Json = Any


def checked(tool: Tool[..., Any], given: Any, *, repair: bool = True) -> tuple[Any, Any] | ToolError:
    """What the check says. Whatever else it might raise is a failure of the test."""
    try:
        return tool.check(given, repair)
    except ToolError as error:
        assert error.code in ("invalid_arguments", "too_large")
        assert error.message
        assert len(error.message) < 100_000
        assert error.code == "too_large" or error.details["problems"]
        json.dumps(error.to_dict())
        return error


def same(left: Json, right: Json) -> bool:
    """Equal as JSON: 1, 1.0 and true are three values."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
numbers = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
any_json = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


# Types: what a program writes down arrives as it was


class Color(enum.Enum):
    RED = "red"
    FIVE = 5


class Leaf(BaseModel):
    n: int
    note: str | None = None
    when: datetime.date = datetime.date(2020, 1, 1)


class Node(BaseModel, extra="forbid"):
    leaf: Leaf
    more: "list[Node]" = []
    kind: Literal["node"] = "node"


leaves = st.builds(Leaf, n=st.integers(), note=st.none() | words, when=st.dates())
nodes = st.recursive(
    st.builds(Node, leaf=leaves, more=st.just([])),
    lambda inner: st.builds(Node, leaf=leaves, more=st.lists(inner, max_size=2)),
    max_leaves=4,
)


def unfolded(time: Any) -> Any:
    """JSON does not say which of two hours with one name is meant."""
    return time.replace(fold=0)


finite = st.floats(allow_nan=False, allow_infinity=False)
SIMPLE: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers(-(10**30), 10**30)),
    (float, finite),
    (bool, st.booleans()),
    (str, st.text(st.characters(exclude_categories=["Cs"]), max_size=10)),
    (type(None), st.none()),
    (datetime.date, st.dates()),
    (datetime.datetime, st.datetimes(timezones=st.none() | st.just(datetime.UTC)).map(unfolded)),
    (datetime.time, st.times().map(unfolded)),
    (uuid.UUID, st.uuids()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False, places=3)),
    (Color, st.sampled_from(Color)),
    (Literal["a", 1, True, None], st.sampled_from(["a", 1, True, None])),
    (Leaf, leaves),
    (Node, nodes),
    (Annotated[int, Field(ge=0, le=9)], st.integers(0, 9)),
]


@st.composite
def kinds_and_values(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    kind, values = draw(st.sampled_from(SIMPLE))
    for _ in range(draw(st.integers(0, depth))):
        match draw(st.sampled_from(["list", "dict", "optional", "tuple", "keep"])):
            case "list":
                kind, values = list[kind], st.lists(values, max_size=3)
            case "dict":
                kind, values = dict[str, kind], st.dictionaries(words, values, max_size=3)
            case "optional":
                kind, values = kind | None, st.none() | values
            case "tuple":
                kind, values = tuple[kind, int], st.tuples(values, st.integers())
    return kind, values


@calm(50)
@given(st.data())
def test_a_value_written_down_by_its_type_arrives_equal_and_unrepaired(data: st.DataObject) -> None:
    kind, values = data.draw(kinds_and_values())
    tool, written = takes(kind), TypeAdapter(kind)
    for value in data.draw(st.lists(values, min_size=1, max_size=3)):
        text = '{"v":' + written.dump_json(value).decode() + "}"
        for given_arguments in (text, text.encode(), {"v": written.dump_python(value, mode="json")}):
            arguments, repairs = tool.check(given_arguments, True)
            assert (arguments["v"], repairs) == (value, ())
            assert written.dump_json(arguments["v"]) == written.dump_json(value)  # 1, 1.0 and true differ


@st.composite
def distorted(draw: st.DrawFn, values: st.SearchStrategy[Json]) -> Json:
    """A value as a careless model would write it."""

    def distort(value: Json) -> Json:
        if isinstance(value, list):
            value = [distort(item) for item in value]
        elif isinstance(value, dict):
            value = {distort_key(key): distort(member) for key, member in value.items()}
        match draw(st.integers(0, 9)):
            case 0 | 1:
                return json.dumps(value)
            case 2:
                return value[0] if isinstance(value, list) and len(value) == 1 else value
            case 3:
                return None
            case 4:
                return [value]
            case 5 if isinstance(value, str):
                try:
                    return json.loads(value, parse_constant=lambda _: None)
                except ValueError:
                    return value
        return value

    def distort_key(key: str) -> str:
        match draw(st.integers(0, 5)):
            case 0:
                return key.upper()
            case 1:
                return key.replace("_", "-")
        return key

    return distort(draw(values))


@calm(50)
@given(st.data())
def test_typed_tools_read_any_json_or_say_what_is_wrong(data: st.DataObject) -> None:
    kind, values = data.draw(kinds_and_values())
    tool = takes(kind)
    written = values.map(lambda value: TypeAdapter(kind).dump_python(value, mode="json"))
    for sent in data.draw(st.lists(any_json | distorted(written), min_size=1, max_size=4)):
        text = json.dumps({"v": sent})
        strictly, repaired = checked(tool, text, repair=False), checked(tool, text)
        if not isinstance(strictly, ToolError):
            assert not isinstance(repaired, ToolError)
            assert repr(repaired) == repr(strictly)
            assert strictly[1] == ()
        elif not isinstance(repaired, ToolError):
            assert repaired[1]


# Any JSON Schema


@pytest.mark.parametrize("seed", fuzz.seeds(83))
def test_under_any_schema_what_is_valid_is_unchanged_and_what_is_not_is_explained(seed: int) -> None:
    generator = Generator(seed)
    schema = {**generator.whole(), "type": "object"}
    try:
        judge = jsonschema_rs.Draft202012Validator(schema, validate_formats=True, offline=True)
        tool = bare(**schema)
    except (ValueError, jsonschema_rs.ReferencingError, DefinitionError):
        return
    for _ in range(4):
        value = make(schema, schema, generator.chance)
        holds_for(judge, tool, value if isinstance(value, dict) else {})
        holds_for(judge, tool, {name: generator.chance.choice(SCALARS) for name in generator.chance.sample(NAMES, 2)})


def holds_for(judge: jsonschema_rs.Draft202012Validator, tool: Tool[..., Any], sent: Json) -> None:
    result = checked(tool, json.dumps(sent))
    if judge.is_valid(sent):
        assert not isinstance(result, ToolError), result
        assert same(result[0], sent)
        assert result[1] == ()
    elif not isinstance(result, ToolError):
        assert result[1]
        assert judge.is_valid(result[0])
    else:
        strictly = checked(tool, json.dumps(sent), repair=False)
        assert isinstance(strictly, ToolError)


# Any text


damaged = st.builds(
    lambda text, at, put: text[:at] + put + text[at + 1 :],
    any_json.map(lambda value: json.dumps({"v": value})),
    st.integers(0, 60),
    st.text(max_size=3),
)


@calm(150)
@given(st.text(max_size=40) | st.binary(max_size=40) | any_json.map(json.dumps) | any_json | damaged)
def test_no_text_no_bytes_and_no_value_crash_the_check(sent: Any) -> None:
    for tool in (ANY, MODEL, BARE):
        checked(tool, sent)
        checked(tool, sent, repair=False)


ANY = takes(Any)
MODEL = takes(Node | list[Leaf] | None)
BARE = bare(properties={"v": {"type": "array", "items": {"type": "string"}}})
