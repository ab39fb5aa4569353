"""Repairs: each rule where it is certain, none where it is not, and nothing else ever."""

import datetime
import enum
import json
import time
from typing import Annotated, Any, Literal, NotRequired

import pytest
from pydantic import BaseModel, Field, SecretStr
from typing_extensions import TypedDict

from toolcrib import Result

from .calling import bare, called, takes


class Opts(BaseModel):
    depth: int = 1
    tags: list[str] = []
    limit: int | None = None


class Closed(BaseModel, extra="forbid"):
    max_depth: int
    note: str = "none"


class Entry(TypedDict):
    name: str
    count: NotRequired[int]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Tagged(BaseModel):
    tags: list[str]


class Dog(BaseModel):
    kind: Literal["dog"]
    barks: int


class Cat(BaseModel):
    kind: Literal["cat"]
    names: list[str]


Pet = Annotated[Dog | Cat, Field(discriminator="kind")]


async def arrived(kind: Any, sent: Any) -> tuple[Any, list[str]]:
    """What arrives of an argument, and what was repaired in it."""
    result = await called(takes(kind), {"v": sent})
    return result.unwrap(), noted(result)


def noted(result: Result[Any]) -> list[str]:
    return [f"{repair.path} {repair.from_kind} {repair.to_kind}" for repair in result.repairs]


CERTAIN: list[tuple[Any, str, Any, list[str]]] = [
    # JSON in a string, where no string is admitted
    (list[int], '"[1, 2]"', [1, 2], ["/v string array"]),
    (Opts, '"{\\"depth\\": 2}"', Opts(depth=2), ["/v string object"]),
    (int, '"5"', 5, ["/v string integer"]),
    (float, '"2.50"', 2.5, ["/v string number"]),
    (bool, '"true"', True, ["/v string boolean"]),
    (int | Literal["auto"], '"7"', 7, ["/v string integer"]),
    # ... at any depth, and in one another
    (list[int], '["1", 2, "3"]', [1, 2, 3], ["/v/0 string integer", "/v/2 string integer"]),
    (
        Opts,
        '{"depth": "2", "limit": "3"}',
        Opts(depth=2, limit=3),
        ["/v/depth string integer", "/v/limit string integer"],
    ),
    (
        list[list[int]],
        json.dumps(json.dumps([json.dumps([1]), "[2]"])),
        [[1], [2]],
        ["/v string array", "/v/0 string array", "/v/1 string array"],
    ),
    (Pet, '{"kind": "dog", "barks": "3"}', Dog(kind="dog", barks=3), ["/v/barks string integer"]),
    (dict[str, bool], '{"a/b": "true"}', {"a/b": True}, ["/v/a~1b string boolean"]),
    # a number or boolean as text
    (str, "1.5", "1.5", ["/v number string"]),
    (str, "true", "true", ["/v boolean string"]),
    (Literal["1", "2"], "2", "2", ["/v integer string"]),
    (dict[str, str], '{"a": 1.25}', {"a": "1.25"}, ["/v/a number string"]),
    # one item for a list
    (list[str], '"a"', ["a"], ["/v string array"]),
    (list[int] | None, "5", [5], ["/v integer array"]),
    (list[tuple[int, int]], "[1, 2]", [(1, 2)], ["/v array array"]),
    (list[bool], '"true"', [True], ["/v string boolean", "/v boolean array"]),
    (
        list[Closed],
        '{"max-depth": "5"}',
        [Closed(max_depth=5)],
        ["/v object array", "/v/max-depth key key", "/v/max-depth string integer"],
    ),
    # a name that differs in case, `-` or `_`
    (Dog, '{"Kind": "dog", "BARKS": 1}', Dog(kind="dog", barks=1), ["/v/Kind key key", "/v/BARKS key key"]),
    # null for a name that may be left out
    (Entry, '{"name": "a", "count": null}', {"name": "a"}, ["/v/count null default"]),
]


@pytest.mark.parametrize(("kind", "sent", "value", "repairs"), CERTAIN, ids=range(len(CERTAIN)))
async def test_what_has_one_reading_is_repaired_and_noted(kind: Any, sent: str, value: Any, repairs: Any) -> None:
    result = await called(takes(kind), f'{{"v": {sent}}}')
    assert (result.unwrap(), noted(result)) == (value, repairs)
    assert type(result.unwrap()) is type(value)

    refused = await called(takes(kind), f'{{"v": {sent}}}', repair=False)
    assert refused.error is not None
    assert refused.error.code == "invalid_arguments"


async def test_null_for_an_argument_with_a_default_is_left_out() -> None:
    def number(v: int = 7) -> int:
        return v

    def perhaps(v: int | None = 7) -> int | None:
        return v

    result = await called(number, '{"v": null}')
    assert (result.unwrap(), noted(result)) == (7, ["/v null default"])
    assert (await called(perhaps, '{"v": null}')).unwrap() is None


async def test_all_arguments_in_one_string_are_read() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    result = await called(add, json.dumps('{"a": 1, "b": "2"}'))
    assert (result.unwrap(), noted(result)) == (3, [" string object", "/b string integer"])


# Nothing else


REFUSED: list[tuple[Any, str]] = [
    # more than one reading
    (list[list[int]], "[1, 2]"),
    (list[list[str]], json.dumps('["a", "b"]')),
    (str | list[str], "5"),
    (Literal["1"] | list[str], "1"),
    (list[str] | dict[str, int], '"{\\"a\\": 1}"'),
    # text that is not spelled the same
    (str, "1.50"),
    (str, "100000000000000000000.0"),
    (dict[str, str], '"{\\"a\\": 1.50}"'),
    # null is nothing
    (list[int], "null"),
    (int, '"null"'),
    (str, "null"),
    # nothing is read into text
    (bool, '"True"'),
    (bool, "0.0"),
    (int, "true"),
    (float, '"1e999"'),
    (list[int], '"1, 2"'),
    (dict[str, int], '[["a", 1]]'),
    (Pet, '{"kind": "Dog", "barks": 3}'),
    (int, '"\uff15"'),
    (Color, '"RED"'),
    (list[int], '"[1, 2"'),
    (dict[str, int], '"{\\"a\\": 1, \\"a\\": 2}"'),
    (int, "[5]"),
    (Annotated[int, Field(le=5)], '"9"'),
    (Annotated[str, Field(max_length=2)], "123"),
    (Annotated[list[Any], Field(min_length=1)], "[]"),
    (Annotated[list[list[int]], Field(min_length=1)], "[]"),
    # names
    (Closed, '{"maxdepth": 5}'),
    (Closed, '{"max_depth": 5, "Max-Depth": 6}'),
    (Closed, '{"max_depth": 5, "notes": "x"}'),
]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (list[str], '["a","b"]', ["a", "b"]),
        (list[str], "[]", []),
        (list[str], ' ["a, b"]\n', ["a, b"]),
        (list[str] | None, '["a"]', ["a"]),
        (set[str], '["a","b"]', {"a", "b"}),
        (tuple[str, ...], '["a"]', ("a",)),
        (list[str] | list[list[str]], '["a"]', ["a"]),
        (list[Any], '["a", 1]', ["a", 1]),
        (dict[str, list[str]], {"q": '["a"]'}, {"q": ["a"]}),
        (Tagged, {"tags": '["a","b"]'}, Tagged(tags=["a", "b"])),
    ],
)
async def test_a_list_that_a_client_sends_as_text_is_the_list_also_where_its_items_are_text(
    kind: Any, text: Any, value: Any
) -> None:
    result = await called(takes(kind), {"v": text})
    place = "/v" if isinstance(text, str) else f"/v/{next(iter(text))}"
    assert (result.unwrap(), noted(result)) == (value, [f"{place} string array"])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Annotated[list[str], Field(min_length=1)], "[]"),
        (Annotated[list[str], Field(max_length=1)], '["a", "b"]'),
        (set[str], '["a", "a"]'),
        (list[str], '[["a"]]'),
    ],
)
async def test_a_list_in_text_that_does_not_fit_is_refused_and_does_not_become_one_item(kind: Any, text: str) -> None:
    result = await called(takes(kind), {"v": text})
    assert result.error is not None and result.error.code == "invalid_arguments"


@pytest.mark.parametrize("text", ['["a","b"]', "[]"])
async def test_text_stays_text_where_text_is_taken_beside_a_list_or_in_one(text: str) -> None:
    assert await arrived(str | list[str], text) == (text, [])
    assert await arrived(list[str], [text]) == ([text], [])


async def test_text_with_commas_is_one_item_and_never_split() -> None:
    assert await arrived(list[str], "a, b") == (["a, b"], ["/v string array"])
    assert await arrived(list[str], "[a, b]") == (["[a, b]"], ["/v string array"])


async def test_the_items_of_a_list_in_text_are_repaired_too() -> None:
    assert await arrived(list[str], '["a", 1]') == (
        ["a", "1"],
        ["/v string array", "/v/1 integer string"],
    )


@pytest.mark.parametrize(("kind", "sent"), REFUSED, ids=range(len(REFUSED)))
async def test_what_has_no_or_more_than_one_reading_is_refused(kind: Any, sent: str) -> None:
    result = await called(takes(kind), f'{{"v": {sent}}}')
    assert result.error is not None, result.value
    assert result.error.code == "invalid_arguments"
    assert result.error.details["problems"]


@pytest.mark.parametrize("sent", ["20200101", "1.5"])
@pytest.mark.parametrize("kind", ["date", "datetime", "time", "timedelta"])
async def test_a_number_is_no_date(kind: str, sent: str) -> None:
    result = await called(takes(getattr(datetime, kind)), f'{{"v": {sent}}}')
    assert result.error is not None


async def test_in_an_open_object_only_a_missing_name_is_found_under_another_spelling() -> None:
    tool = bare(properties={"a": {}, "b": {}, "n": {"type": "integer"}}, required=["b", "n"])
    result = await called(tool, '{"A": 1, "B": 2, "n": "3"}')
    assert (result.unwrap(), noted(result)) == (
        {"A": 1, "b": 2, "n": 3},
        ["/B key key", "/n string integer"],
    )
    assert (await called(bare(properties={"a_b": {}}, required=["a_b"]), '{"A-B": 1, "a-b": 2}')).status == "error"


async def test_of_names_that_differ_only_in_case_none_is_chosen() -> None:
    tool = bare(properties={"a_b": {}, "A-B": {}}, additionalProperties=False)
    result = await called(tool, '{"a-b": 1}')
    assert result.error is not None
    assert result.error.message == "Tool 'bare' takes no argument 'a-b'. Did you mean 'A-B'? It takes: a_b, A-B."


async def test_a_secret_sent_as_a_number_stays_a_secret() -> None:
    def login(password: SecretStr) -> str:
        return f"{password}{len(password.get_secret_value())}"

    result = await called(login, '{"password": 12345}')
    assert (result.unwrap(), noted(result)) == ("**********5", ["/password integer string"])


# Bare JSON Schemas


@pytest.mark.parametrize(
    ("schema", "sent", "value", "repairs"),
    [
        ({"properties": {"n": {"type": ["integer", "null"]}}}, {"n": "5"}, {"n": 5}, ["/n string integer"]),
        ({"additionalProperties": {"type": "boolean"}}, {"x": "true"}, {"x": True}, ["/x string boolean"]),
        (
            {"properties": {"me": {"$ref": "#"}, "n": {"type": "integer"}}},
            {"me": {"me": '{"n": "5"}'}},
            {"me": {"me": {"n": 5}}},
            ["/me/me string object", "/me/me/n string integer"],
        ),
        (
            {
                "properties": {
                    "p": {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "boolean"}}
                }
            },
            {"p": ["1", "true", "false"]},
            {"p": [1, True, False]},
            ["/p/0 string integer", "/p/1 string boolean", "/p/2 string boolean"],
        ),
    ],
)
async def test_bare_schemas_are_repaired_by_the_same_rules(schema: Any, sent: Any, value: Any, repairs: Any) -> None:
    result = await called(bare(**schema), json.dumps(sent))
    assert (result.unwrap(), noted(result)) == (value, repairs)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"n": {"$ref": "#/$defs/n", "maximum": 4}}, "$defs": {"n": {"type": "integer"}}},
        {"properties": {"n": {"type": "integer", "not": {"const": 5}}}},
        {"properties": {"n": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}},
        {"properties": {"n": {"type": "integer"}}, "if": {"required": ["n"]}, "then": {"required": ["m"]}},
    ],
    ids=["beside-ref", "not", "oneOf", "then"],
)
async def test_a_repair_that_does_not_make_the_call_valid_is_none(schema: Any) -> None:
    result = await called(bare(**schema), '{"n": "5"}')
    assert (result.status, result.repairs) == ("error", ())


# Bounds


def _nested_unions(depth: int) -> Any:
    schema: Any = {"type": "array", "items": {"type": "integer"}}
    for level in range(depth):
        schema = {
            "anyOf": [{"type": "array", "items": schema}, {"type": "object", "properties": {f"k{level}": schema}}]
        }
    return schema


_NODE = {
    "type": "object",
    "properties": {"next": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}, {"type": "null"}]}},
    "required": ["next"],
}
_RECURSIVE = {
    "properties": {"v": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}},
    "$defs": {
        "a": {**_NODE, "properties": {**_NODE["properties"], "x": {"type": "integer"}}},  # type: ignore[dict-item]
        "b": {**_NODE, "properties": {**_NODE["properties"], "y": {"type": "integer"}}},  # type: ignore[dict-item]
        "lists": {"type": "array", "items": {"$ref": "#/$defs/lists"}},
    },
}


def _chain(depth: int) -> Any:
    value: Any = 5
    for _ in range(depth):
        value = {"next": value}
    return value


def _text_in_text(depth: int) -> str:
    text = "x"
    for _ in range(depth):
        text = json.dumps([text])
    return text


def _arrays(depth: int) -> Any:
    value: Any = "1"
    for _ in range(depth):
        value = [value]
    return value


ADVERSARIES: list[tuple[Any, Any]] = [
    ({"properties": {"v": _nested_unions(11)}}, _arrays(10)),
    (_RECURSIVE, _chain(190)),
    ({**_RECURSIVE, "properties": {"v": {"$ref": "#/$defs/lists"}}}, _text_in_text(12)),
    ({"properties": {"v": {"type": "object", "additionalProperties": False}}}, {f"k{i}": "x" for i in range(10_000)}),
]


@pytest.mark.parametrize(("schema", "value"), ADVERSARIES, ids=range(len(ADVERSARIES)))
async def test_no_schema_and_no_data_make_the_check_long(schema: Any, value: Any) -> None:
    tool = bare(**schema)
    started = time.process_time()
    result = await called(tool, json.dumps({"v": value}))
    assert time.process_time() - started < 60
    assert result.error is None or (result.error.code == "invalid_arguments" and result.error.details["problems"])
    assert result.error is None or len(result.error.message) < 20_000


class Num(BaseModel):
    kind: Literal["num"]
    value: int


class Add(BaseModel):
    kind: Literal["add"]
    left: "Expression"
    right: "Expression"


class Mul(BaseModel):
    kind: Literal["mul"]
    left: "Expression"
    right: "Expression"


Expression = Annotated[Num | Add | Mul, Field(discriminator="kind")]
Add.model_rebuild()
Mul.model_rebuild()


@pytest.mark.parametrize("depth", [3, 15])
async def test_a_deep_tree_of_tagged_models_is_repaired_and_explained(depth: int) -> None:
    def tree(leaf: Any) -> Any:
        value: Any = {"kind": "num", "value": leaf}
        for _ in range(depth):
            value = {"kind": "mul", "left": value, "right": {"kind": "num", "value": 1}}
        return value

    repaired = await called(takes(Expression), json.dumps({"v": tree("7")}))
    assert noted(repaired) == [f"/v{'/left' * depth}/value string integer"]
    refused = await called(takes(Expression), json.dumps({"v": tree("seven")}))
    assert refused.error is not None
    assert refused.error.message == f"Tool 'give': 'v{'.left' * depth}.value': expected integer, got string."
