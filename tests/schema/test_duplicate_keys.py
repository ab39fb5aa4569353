"""A key that stands twice in an object is refused, wherever it stands and whatever reads it."""

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, NotRequired, Optional, TypeVar

import pytest
from annotated_types import BaseMetadata, Len, Predicate
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Json,
    PlainValidator,
    PrivateAttr,
    RootModel,
    SerializeAsAny,
    Tag,
    WrapValidator,
    computed_field,
    field_validator,
    model_validator,
)
from typing_extensions import TypeAliasType, TypedDict, Unpack

from toolcrib import Tool, ToolError

T = TypeVar("T")


class Plain(BaseModel):
    x: int
    y: str


class Defaults(BaseModel):
    x: int
    y: int = 1
    z: list[int] = Field(default_factory=list)


class Counted(BaseModel):
    """Says that more was read than stood there."""

    x: int = 0
    y: int = 0

    @model_validator(mode="after")
    def fill(self) -> "Counted":
        self.y = 7
        return self


class Initialized(BaseModel):
    x: int
    y: int = 0

    def model_post_init(self, context: Any) -> None:
        self.y = 7


class OwnInit(BaseModel):
    x: int
    y: int = 0

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**{"y": 7, **arguments})


class Before(BaseModel):
    x: int
    y: int

    @model_validator(mode="before")
    @classmethod
    def fill(cls, data: Any) -> Any:
        return {"y": 7, **data} if isinstance(data, dict) else data


class Wrapped(BaseModel):
    x: int
    y: int = 0

    @model_validator(mode="wrap")
    @classmethod
    def fill(cls, data: Any, handler: Any) -> Any:
        return handler({"y": 7, **data} if isinstance(data, dict) else data)


class FieldBefore(BaseModel):
    x: dict[str, int]

    @field_validator("x", mode="before")
    @classmethod
    def fill(cls, data: Any) -> Any:
        return {"more": 7, **data} if isinstance(data, dict) else data


def _with_y(data: Any) -> Any:
    return {"y": 7, **data} if isinstance(data, dict) else data


class ShapesItself(BaseModel):
    x: int
    y: int = 0

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(_with_y, handler(source))


class InheritsShape(ShapesItself):
    z: int = 1


class OneNameTwice(BaseModel):
    a: int = Field(validation_alias="x")
    b: int = Field(validation_alias="x")
    c: int = 0


class Choices(BaseModel):
    a: int = Field(validation_alias=AliasChoices("x", "y"))
    b: int = Field(validation_alias=AliasChoices("x", "z"))


class Paths(BaseModel):
    a: int = Field(validation_alias=AliasPath("x", 0))
    b: int = Field(validation_alias=AliasPath("x", 1))
    c: int = Field(validation_alias=AliasPath("x", 2))


class Generated(BaseModel):
    model_config = ConfigDict(alias_generator=lambda name: name[0], populate_by_name=True)

    xa: int
    xb: int


class ByName(BaseModel):
    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    a: int = Field(alias="b")
    b: int


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)

    x: int
    y: int = 2


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    x: int


class Lax(BaseModel):
    model_config = ConfigDict(extra="ignore")

    x: int


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")

    x: int


class Computed(BaseModel):
    x: int
    _hidden: int = PrivateAttr(default=3)

    @computed_field
    @property
    def double(self) -> int:
        return self.x * 2


class Sub(Plain):
    z: int = 0


class Root(RootModel[dict[str, int]]):
    pass


class Box(BaseModel, Generic[T]):
    item: T
    note: str = ""


class Node(BaseModel):
    name: str
    next: Optional["Node"] = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: dict[str, int] = {}


class Nested(BaseModel):
    plain: Plain
    many: list[Defaults] = []


class Record(TypedDict):
    x: int
    y: NotRequired[int]


class OpenRecord(TypedDict, extra_items=int):
    x: int


class Filled(TypedDict):
    x: int
    y: NotRequired[Annotated[int, Field(default=3)]]


class FilledTwice(TypedDict):
    x: Annotated[int, Field(validation_alias=AliasChoices("x", "w"))]
    y: Annotated[int, Field(validation_alias=AliasPath("x"))]


@dataclass
class Point:
    x: int
    y: int = 0


class Fills:
    """Describes itself to pydantic as something with a default."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.with_default_schema(handler(source), default=5)


class Disguised(BaseMetadata):
    """Looks like a mere restriction."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(_more, handler(source))


def _more(value: Any) -> Any:
    return {**value, "more": 1} if isinstance(value, dict) else value


def _marks(value: Any) -> Any:
    value.model_fields_set.add("y")
    return value


def _filling(handler_data: Any, handler: Any) -> Any:
    return _more(handler(handler_data))


Defaulted = TypeAliasType("Defaulted", Annotated[int, Field(default=3)])

KINDS: list[Any] = [
    int, Any, dict[str, int], dict[str, Any], dict[int, int], dict[str, dict[str, int]], dict[str, Plain],
    list[dict[str, int]], tuple[Plain, ...], tuple[Plain, Defaults], set[Frozen],
    Plain, Defaults, Counted, Initialized, OwnInit, Before, Wrapped, FieldBefore, ShapesItself, InheritsShape,
    OneNameTwice, Choices, Paths, Generated, ByName, Frozen, Open, Lax, Closed, Computed, Sub, Root, Box[int],
    Box[Plain], Node, Nested, Record, OpenRecord, Point, Json[Plain], SerializeAsAny[Plain],
    Annotated[Cat | Dog, Field(discriminator="kind")],
    Annotated[Annotated[Cat, Tag("c")] | Annotated[Dog, Tag("d")], Discriminator(lambda v: "cd"["tricks" in str(v)])],
    Plain | Defaults, Plain | None, Defaults | None, Plain | dict[str, int] | None, list[Plain | Defaults],
    *[list[kind] for kind in (
        Plain, Defaults, Counted, Initialized, OwnInit, Before, Wrapped, ShapesItself, InheritsShape, OneNameTwice,
        Choices, Paths, Generated, ByName, Frozen, Open, Lax, Closed, Computed, Sub, Root, Box[int], Node, Nested,
    )],
    list[Plain] | None,
    Annotated[list[Plain], Len(1, 9)],
    Annotated[list[Plain], Field(min_length=1, description="Some.")],
    Annotated[Plain, "Some words."],
    Annotated[dict[str, int], Disguised()],
    Annotated[dict[str, int], BeforeValidator(_more)],
    Annotated[dict[str, int], AfterValidator(_more)],
    Annotated[dict[str, int], WrapValidator(_filling)],
    Annotated[dict[str, int], PlainValidator(_more)],
    Annotated[dict[str, int], Field(description="d"), AfterValidator(_more)],
    Annotated[Defaults, AfterValidator(_marks)],
    Annotated[Defaults, Predicate(_marks)],
    list[Annotated[Defaults, AfterValidator(_marks)]],
    dict[str, Annotated[int, AfterValidator(lambda value: value)]],
]  # fmt: skip

VALUES: list[Any] = [
    {"x": 1}, {"x": 1, "y": "a"}, {"x": 1, "y": 2}, {"x": 1, "y": 2, "z": [1]}, {"1": 1}, {"x": [1, 2, 3]},
    {"x": {"x": 1, "y": "a"}}, {"a": 1, "b": 2}, {"xa": 1, "xb": 2}, {"item": {"x": 1, "y": "a"}, "note": "n"},
    {"name": "a", "next": {"name": "b"}}, {"kind": "dog", "tricks": {"sit": 1, "roll": 2}},
    {"plain": {"x": 1, "y": "a"}, "many": [{"x": 1}, {"x": 2, "y": 3}]}, {"x": 1, "extra": {"deep": [{"p": 1}]}},
    '{"x": 1, "y": "a"}', {"x:": 1},
]  # fmt: skip
VALUES += [[value] for value in VALUES if isinstance(value, dict)] + [[{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]]


def with_a_key_twice(value: Any) -> Iterator[str]:
    """The JSON texts of *value* in each of which one key stands twice: with its value, with another, and escaped."""
    if isinstance(value, dict):
        members = {key: json.dumps(member) for key, member in value.items()}
        for key, member in value.items():
            name = json.dumps(key)
            escaped = '"' + "".join(f"\\u{ord(c):04x}" for c in key) + '"'
            for twin in (f"{name}:{members[key]}", f"{name}:0", f"{escaped}:{members[key]}"):
                rest = [f"{json.dumps(other)}:{text}" for other, text in members.items()]
                yield "{" + ",".join([twin, *rest]) + "}"
                yield "{" + ",".join([*rest, twin]) + "}"
            for inner in with_a_key_twice(member):
                parts = [f"{json.dumps(k)}:{inner if k == key else text}" for k, text in members.items()]
                yield "{" + ",".join(parts) + "}"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            for inner in with_a_key_twice(item):
                texts = [inner if i == index else json.dumps(other) for i, other in enumerate(value)]
                yield "[" + ",".join(texts) + "]"


def refused(tool: Tool[..., Any], text: str) -> bool:
    try:
        tool.check(text, True)
    except ToolError as error:
        return error.code == "invalid_arguments" and "twice" in error.message
    return False


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind)[:60])
def test_a_key_that_stands_twice_is_refused(kind: Any) -> None:
    def work(a: Any, b: Any = None) -> None: ...

    work.__annotations__ = {"a": kind, "b": int | None, "return": None}
    tool = Tool(work)
    passed = [
        text
        for value in VALUES
        for arguments in ({"a": value}, {"a": value, "b": 1})
        for text in with_a_key_twice(arguments)
        if not refused(tool, text)
    ]
    assert passed == []


def _unpacked(**rest: Unpack[Filled]) -> None: ...
def _unpacked_aliases(**rest: Unpack[FilledTwice]) -> None: ...
def _filled(x: int, y: Annotated[int, Field(default=3)]) -> None: ...
def _filled_by_default(x: int, y: int = Field(3)) -> None: ...
def _filled_by_factory(x: int, y: int = Field(default_factory=lambda: 3)) -> None: ...
def _described(x: int, y: Annotated[int, Fills()] = 1) -> None: ...
def _same_alias(p: Annotated[int, Field(alias="x")], q: Annotated[int, Field(alias="x")]) -> None: ...
def _alias_of_other(x: int, y: Annotated[int, Field(validation_alias="x")]) -> None: ...
def _choices(x: int, y: Annotated[int, Field(validation_alias=AliasChoices("x", "w"))]) -> None: ...
def _path(x: Any, y: Annotated[Any, Field(validation_alias=AliasPath("x"))]) -> None: ...
def _any_names(x: int, **rest: int) -> None: ...
def _untyped(x: int, **rest: Any) -> None: ...
def _places(x: int, /, *rest: int) -> None: ...


@pytest.mark.parametrize(
    "fn",
    [
        _unpacked, _unpacked_aliases, _filled, _filled_by_default, _filled_by_factory, _described, _same_alias,
        _alias_of_other, _choices, _path, _any_names, _untyped, _places,
    ],
    ids=lambda fn: fn.__name__,
)  # fmt: skip
def test_arguments_that_are_filled_in_hide_no_key_that_stands_twice(fn: Callable[..., Any]) -> None:
    tool = Tool(fn)
    for value in ({"x": 1}, {"x": 1, "y": 2}, {"x": 1, "rest": [1]}, {"x": 1, "w": 2}, {"x": {"p": 1}}):
        assert [text for text in with_a_key_twice(value) if not refused(tool, text)] == []


def test_a_type_alias_with_a_default_hides_no_key_that_stands_twice() -> None:
    def work(x: int, y: Defaulted = 1) -> None: ...

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydantic's, that such a default has no effect
        tool = Tool(work)
    assert [text for text in with_a_key_twice({"x": 1}) if not refused(tool, text)] == []


def test_a_bare_schema_refuses_a_key_that_stands_twice() -> None:
    def work(**arguments: Any) -> None: ...

    tool = Tool(work, parameters={"properties": {"x": True}})
    texts = list(with_a_key_twice({"x": {"y": [{"z": 1}]}, "w": 2}))
    assert [text for text in texts if not refused(tool, text)] == []


names = st.sampled_from(["x", "y", "z", "plain", "many", "w"])
json_values = st.recursive(
    st.none() | st.integers(-5, 5) | st.sampled_from(["", ":", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


def _many(plain: Nested | None = None, many: list[Defaults] = [], w: dict[str, int] = {}, **rest: Any) -> None: ...


MANY = Tool(_many)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(names, json_values, max_size=4))
def test_whatever_else_the_text_holds_a_key_that_stands_twice_is_refused(arguments: dict[str, Any]) -> None:
    assert [text for text in with_a_key_twice(arguments) if not refused(MANY, text)] == []


def test_quotes_and_colons_in_texts_are_no_keys() -> None:
    def work(rows: list[Plain], note: str = "") -> None: ...

    rows = [{"x": 1, "y": text} for text in ('"', '":', ': "a": ', "\\", '{"a": 1, "a": 2}')]
    arguments, _ = Tool(work).check(json.dumps({"rows": rows, "note": '"a": 1'}), True)
    assert [row.y for row in arguments["rows"]] == [row["y"] for row in rows]
