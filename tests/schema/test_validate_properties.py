"""What must hold of the check for any types, any schemas and any JSON."""

import datetime
import enum
import itertools
import json
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Any, Literal

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter

from toolcrib import Tool, ToolError
from toolcrib.core import DefinitionError

from .. import fuzz
from .random_schemas import NAMES, SCALARS, Generator
from .test_lower_laws import make

Json = Any


def calm(max_examples: int) -> settings:
    """Many examples of much data, on a machine that may be busy."""
    return settings(max_examples=max_examples, deadline=None, suppress_health_check=list(HealthCheck))


def bare(schema: dict[str, Any]) -> Tool[..., Any]:
    return Tool(lambda **arguments: arguments, name="bare", parameters=schema)


def typed(kind: Any) -> Tool[..., Any]:
    def take(v: Any) -> Any:
        return v

    take.__annotations__["v"] = kind
    return Tool(take)


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
    tool, written = typed(kind), TypeAdapter(kind)
    for value in data.draw(st.lists(values, min_size=1, max_size=3)):
        text = '{"v":' + written.dump_json(value).decode() + "}"
        for given_arguments in (text, text.encode(), {"v": written.dump_python(value, mode="json")}):
            arguments, repairs = tool.check(given_arguments, True)
            assert (arguments["v"], repairs) == (value, ())
            assert written.dump_json(arguments["v"]) == written.dump_json(value)  # 1, 1.0 and true differ


@calm(50)
@given(st.data())
def test_typed_tools_read_any_json_or_say_what_is_wrong(data: st.DataObject) -> None:
    kind, values = data.draw(kinds_and_values())
    tool = typed(kind)
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


# Repairs, held against every reading that the documented rules allow


def admits(value: Json, schema: Json) -> bool:
    """Whether a value is valid, for the few keywords that are used here. Written anew on purpose."""
    if "anyOf" in schema:
        return any(admits(value, branch) for branch in schema["anyOf"])
    if "enum" in schema:
        return any(equal(value, choice) for choice in schema["enum"])
    match schema["type"]:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "integer":
            whole = isinstance(value, float) and value.is_integer()
            return whole or (isinstance(value, int) and not isinstance(value, bool))
        case "array":
            return isinstance(value, list) and all(admits(item, schema["items"]) for item in value)
    if not isinstance(value, dict) or any(name not in value for name in schema["required"]):
        return False
    others = [name for name in value if name not in schema["properties"]]
    known = [name for name in value if name in schema["properties"]]
    return (schema["additionalProperties"] or not others) and all(
        admits(value[name], schema["properties"][name]) for name in known
    )


def equal(left: Json, right: Json) -> bool:
    """Equal as JSON Schema has it: 1 and 1.0 are one value."""
    both_numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (left, right))
    return bool(left == right) if both_numbers else same(left, right)


def kinds_of(schema: Json) -> set[str]:
    if "enum" in schema:
        names = {str: "string", int: "integer", bool: "boolean", type(None): "null"}
        return {names[type(choice)] for choice in schema["enum"]}
    return {schema["type"]} if "type" in schema else set()


def may_be_array(schema: Json) -> bool:
    return "array" in kinds_of(schema) or any(map(may_be_array, schema.get("anyOf", ())))


def readings(value: Json, schema: Json, unclear: list[Json]) -> list[Json]:
    """Every valid reading of a value by the documented rules. Parts of it that have several go to *unclear*."""
    if admits(value, schema):
        return [value]
    if may_be_array(schema) and isinstance(inner := in_text(value), list):
        return readings(inner, schema, unclear)  # a list in text is nothing else
    found = [reading for branch in schema.get("anyOf", ()) for reading in readings(value, branch, unclear)]
    found += [reading for reading in proposed(value, schema, unclear) if admits(reading, schema)]
    distinct = {json.dumps(reading, sort_keys=True): reading for reading in found}
    if len(distinct) > 1:
        unclear.append(value)
    return list(distinct.values())


def proposed(value: Json, schema: Json, unclear: list[Json]) -> Iterator[Json]:
    kinds = kinds_of(schema)
    if isinstance(value, str) and kinds & {"integer", "number", "boolean", "array", "object"}:
        inner = in_text(value)
        if inner is not None and not isinstance(inner, str):
            yield from readings(inner, schema, unclear)
    if isinstance(value, bool | int | float) and "string" in kinds:
        yield json.dumps(value)
    if "array" in kinds:
        if isinstance(value, list):
            for items in itertools.product(*(readings(item, schema["items"], unclear) for item in value)):
                yield list(items)
        if value is not None and (not isinstance(value, list) or (value and may_be_array(schema["items"]))):
            for item in readings(value, schema["items"], unclear):
                yield [item]
    if "object" in kinds and isinstance(value, dict):
        members = [list(member_readings(key, value, schema, unclear)) for key in value]
        for choice in itertools.product(*members):
            yield {name: member for part in choice for name, member in part.items()}


def in_text(value: Json) -> Json:
    try:
        return json.loads(value, parse_constant=lambda _: "no number", object_pairs_hook=unique)
    except (TypeError, ValueError, RecursionError):
        return None


def unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError
    return dict(pairs)


def member_readings(key: str, value: dict[str, Json], schema: Json, unclear: list[Json]) -> Iterator[dict[str, Json]]:
    def fold(name: str) -> str:
        return name.lower().replace("-", "_")

    properties, name = schema["properties"], key
    if key not in properties:
        matches = [candidate for candidate in properties if fold(candidate) == fold(key)]
        rivals = [other for other in value if fold(other) == fold(key)]
        needed = len(matches) == 1 and (matches[0] in schema["required"] or not schema["additionalProperties"])
        if needed and len(rivals) == 1:
            name = matches[0]
    if name not in properties:
        yield {name: value[key]}
    elif value[key] is None and name not in schema["required"] and not admits(None, properties[name]):
        yield {}
    else:
        for reading in readings(value[key], properties[name], unclear):
            yield {name: reading}


names = st.sampled_from(["a", "b_c", "B-c", "Dd", "dd", "e"])


def objects(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    def build(properties: dict[str, Json], required: list[str], others: bool) -> Json:
        return {
            "type": "object",
            "properties": properties,
            "required": sorted(set(required) & set(properties)),
            "additionalProperties": others,
        }

    return st.builds(build, st.dictionaries(names, inner, max_size=3), st.lists(names, max_size=3), st.booleans())


small_schemas = st.recursive(
    st.sampled_from([{"type": kind} for kind in ("integer", "number", "string", "boolean", "null")])
    | st.lists(st.sampled_from(["a", "A", "1", "true", 1, 2, True, None]), min_size=1, max_size=3).map(
        lambda choices: {
            "enum": [choice for i, choice in enumerate(choices) if not any(same(choice, c) for c in choices[:i])]
        }
    ),
    lambda inner: (
        inner.map(lambda items: {"type": "array", "items": items})
        | objects(inner)
        | st.lists(inner, min_size=2, max_size=2).map(lambda branches: {"anyOf": branches})
    ),
    max_leaves=5,
)


def valid(schema: Json) -> st.SearchStrategy[Json]:
    if "anyOf" in schema:
        return st.one_of(*map(valid, schema["anyOf"]))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "array":
            return st.lists(valid(schema["items"]), max_size=2)
        case "object":
            members = {name: valid(of) for name, of in schema["properties"].items()}
            optional = {name: of for name, of in members.items() if name not in schema["required"]}
            needed = {name: of for name, of in members.items() if name in schema["required"]}
            return st.fixed_dictionaries(needed, optional=optional)
        case "integer":
            return st.integers(-3, 12) | st.just(2.0)
        case "number":
            return st.integers(-3, 12) | st.sampled_from([1.5, 1e16, 0.1])
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
    return st.sampled_from(["x", "1", "true", "null", "[1]", '["a"]', "{}", ""])


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


@pytest.mark.full
@calm(200)
@given(st.data())
def test_a_repair_is_made_just_where_the_rules_leave_one_reading(data: st.DataObject) -> None:
    schema = data.draw(small_schemas)
    tool = bare({"type": "object", "properties": {"v": schema}, "required": ["v"], "additionalProperties": False})
    for sent in data.draw(st.lists(distorted(valid(schema)) | any_json, min_size=1, max_size=5)):
        result = checked(tool, json.dumps({"v": sent}))
        event("refused" if isinstance(result, ToolError) else f"{len(result[1])} repairs")
        unclear: list[Json] = []
        found = readings(sent, schema, unclear)
        if not isinstance(result, ToolError):
            assert same([result[0]], [{"v": reading} for reading in found])
            assert bool(result[1]) == (not admits(sent, schema))
        else:
            assert len(found) != 1 or unclear


# Any JSON Schema


@pytest.mark.parametrize("seed", fuzz.seeds(83))
def test_under_any_schema_what_is_valid_is_unchanged_and_what_is_not_is_explained(seed: int) -> None:
    generator = Generator(seed)
    schema = {**generator.whole(), "type": "object"}
    try:
        judge = jsonschema_rs.Draft202012Validator(schema, validate_formats=True, offline=True)
        tool = bare(schema)
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


@calm(133)
@given(st.text(max_size=40) | st.binary(max_size=40) | any_json.map(json.dumps) | any_json)
def test_no_text_no_bytes_and_no_value_crash_the_check(sent: Any) -> None:
    for tool in (ANY, MODEL, BARE):
        checked(tool, sent)
        checked(tool, sent, repair=False)


@calm(100)
@given(any_json.map(lambda value: json.dumps({"v": value})), st.integers(0, 60), st.text(max_size=3))
def test_json_that_is_damaged_does_not_crash_the_check(text: str, at: int, put: str) -> None:
    for tool in (ANY, MODEL, BARE):
        checked(tool, text[:at] + put + text[at + 1 :])


ANY = typed(Any)
MODEL = typed(Node | list[Leaf] | None)
BARE = bare({"type": "object", "properties": {"v": {"type": "array", "items": {"type": "string"}}}})
