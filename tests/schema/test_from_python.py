"""From annotations to JSON Schema and back: what pydantic describes can be a parameter, and arrives as what it is."""

import enum
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Required,
    TypeVar,
)

import jsonschema_rs
import pytest
from annotated_types import Ge, Le
from pydantic import (
    VERSION,
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Json,
    RootModel,
    SecretStr,
    with_config,
)
from typing_extensions import TypeAliasType, TypedDict, Unpack

from toolcrib import Tool

from .calling import refused_definition

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Point(BaseModel):
    """A place on paper."""

    x: int
    y: int = 0


class Tree(BaseModel):
    value: int
    children: list["Tree"] = []


class Box(BaseModel, Generic[T]):
    item: T


class Names(RootModel[list[str]]):
    pass


@dataclass
class Size:
    width: int
    height: int = 1
    tags: list[str] = field(default_factory=list)


class Pair(NamedTuple):
    left: int
    right: str


class Record(TypedDict):
    a: int
    b: NotRequired[str]


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


UserId = NewType("UserId", int)
Ids = TypeAliasType("Ids", list[int])
Nested = TypeAliasType("Nested", "list[Nested] | int")  # type: ignore[misc]


def one(kind: Any) -> Tool[..., Any]:
    """A tool whose argument `a` and return are of this kind."""

    def take(a: Any) -> Any:
        return a

    take.__annotations__ = {"a": kind, "return": kind}
    return Tool(take)


def schema_of(fn: Callable[..., Any], **options: Any) -> dict[str, Any]:
    return dict(Tool(fn, **options).spec.input_schema)


CASES: list[tuple[Any, Any, Any]] = [
    (int, 3, 3),
    (object, [1, "a"], [1, "a"]),
    (int | str | list[int], [1], [1]),
    (Colour, "red", Colour.RED),
    (Level, 2, Level.HIGH),
    (Names, ["a"], Names(["a"])),
    (tuple[int, str], [1, "a"], (1, "a")),
    (dict[Colour, int], {"red": 1}, {Colour.RED: 1}),
    (Sequence[int], [1, 2], [1, 2]),
    (frozenset[str], ["a"], frozenset({"a"})),
    (Record, {"a": 1}, {"a": 1}),
    (Size, {"width": 2}, Size(2)),
    (Pair, [1, "a"], Pair(1, "a")),
    (Tree, {"value": 1, "children": [{"value": 2}]}, Tree(value=1, children=[Tree(value=2)])),
    (Box[Point], {"item": {"x": 1}}, Box[Point](item=Point(x=1))),
    (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "dog", "name": "a"}, Dog(kind="dog", name="a")),
    (datetime, "2024-02-29T12:00:00Z", datetime(2024, 2, 29, 12, tzinfo=UTC)),
    (timedelta, "PT90S", timedelta(seconds=90)),
    (Decimal, "1.50", Decimal("1.50")),
    (bytes, "abc", b"abc"),
    (Path, "/tmp/a", Path("/tmp/a")),
    (UserId, 5, 5),
    (Nested, [1, [2, [3]]], [1, [2, [3]]]),
    (Annotated[int, Ge(1), Le(5)], 5, 5),
    (Annotated[int, BeforeValidator(lambda v: v), AfterValidator(lambda v: v * 2)], 3, 6),
    (Json[list[int]], "[1, 2]", [1, 2]),
]


@pytest.mark.parametrize(("kind", "sent", "value"), CASES, ids=lambda part: str(part)[:40])
def test_what_pydantic_describes_can_be_a_parameter(kind: Any, sent: Any, value: Any) -> None:
    made = one(kind)
    arguments, repairs = made.check(json.dumps({"a": sent}), False)
    assert arguments == {"a": value}
    assert type(arguments["a"]) is type(value)
    assert repairs == ()
    jsonschema_rs.meta.validate(made.spec.input_schema)
    assert jsonschema_rs.Draft202012Validator(made.spec.input_schema).is_valid({"a": sent})


# The schema


def test_the_whole_schema_of_a_function() -> None:
    def order(
        item: Annotated[str, "What to order."],
        place: Point,
        colour: Colour = Colour.RED,
        amount: Annotated[int, Field(ge=1, le=9)] = 1,
        note: str | None = None,
        sizes: Sequence[Size] = (),
    ) -> None: ...

    assert schema_of(order) == {
        "type": "object",
        "properties": {
            "item": {"type": "string", "description": "What to order."},
            "place": {"$ref": "#/$defs/Point"},
            "colour": {"$ref": "#/$defs/Colour", "default": "red"},
            "amount": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "sizes": {"type": "array", "items": {"$ref": "#/$defs/Size"}, "default": []},
        },
        "required": ["item", "place"],
        "additionalProperties": False,
        "$defs": {
            "Colour": {"type": "string", "enum": ["red", "blue"]},
            "Point": {
                "type": "object",
                "description": "A place on paper.",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
                "required": ["x"],
            },
            "Size": {
                "type": "object",
                "properties": {
                    "width": {"type": "integer"},
                    "height": {"type": "integer", "default": 1},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["width"],
                **({} if VERSION.startswith("2.12.") else {"additionalProperties": False}),
            },
        },
    }


def titles(schema: Any) -> list[Any]:
    if isinstance(schema, dict):
        own = [schema["title"]] if isinstance(schema.get("title"), str) else []
        return own + [title for value in schema.values() for title in titles(value)]
    return [title for item in schema for title in titles(item)] if isinstance(schema, list) else []


def test_there_are_no_titles_but_those_that_were_written() -> None:
    class Named(BaseModel):
        model_config = ConfigDict(title="A name of its own")
        x: int = Field(title="The X")

    @dataclass
    class Kept:
        """Kept."""

        title: int

    Same = Kept

    class Kind(enum.Enum):
        A = 1

    def use(
        a: int,
        named: Named,
        kept: Kept,
        box: Box[int],
        boxes: list[Box[Point]],
        kind: Kind,
        record: Record,
        names: Names,
        pair: Pair,
        tree: Tree,
        title: Annotated[str, Field(title="Title of a book")] = "",
        **rest: int,
    ) -> Named: ...

    made = Tool(use)
    assert sorted(titles(made.spec.input_schema)) == ["A name of its own", "The X", "Title of a book"]
    assert titles(made.spec.output_schema) == ["A name of its own", "The X"]
    properties: Any = made.spec.input_schema["$defs"]
    assert properties["Kept"]["properties"] == {"title": {"type": "integer"}}
    assert Same is Kept


def test_a_field_of_a_dataclass_may_be_called_as_pydantics_settings_are() -> None:
    @with_config(ConfigDict(title="Settings of a model"))
    @dataclass
    class Settings:
        model_config: object = "gpt"

    @dataclass
    class Plain:
        model_config: int = 3

    def use(settings: Settings, plain: Plain) -> None: ...

    definitions: Any = Tool(use).spec.input_schema["$defs"]
    assert titles(definitions) == ["Settings of a model"]
    assert definitions["Plain"]["properties"] == {"model_config": {"type": "integer", "default": 3}}


# Defaults


NOTHING: Any = None


def test_defaults_are_shown_where_the_schema_admits_them() -> None:
    def use(
        number: int = NOTHING,
        path: Path = Path("/a"),
        when: date = date(2024, 1, 2),
        price: Decimal = Decimal("1.50"),
        point: Point = Point(x=1),
        size: Size = Size(3),
        names: set[str] = {"b", "c", "a"},
        pair: tuple[int, str] = (1, "a"),
        secret: SecretStr = SecretStr("hunter2"),
        limit: float = float("inf"),
        key: Any = print,
        short: Annotated[str, Field(max_length=2)] = "long",
    ) -> None: ...

    shown = {name: schema.get("default", "none") for name, schema in schema_of(use)["properties"].items()}
    assert shown == {
        "number": "none",
        "path": "/a",
        "when": "2024-01-02",
        "price": "1.50",
        "point": {"x": 1, "y": 0},
        "size": {"width": 3, "height": 1, "tags": []},
        "names": ["a", "b", "c"],
        "pair": [1, "a"],
        "secret": "none",
        "limit": "none",
        "key": "none",
        "short": "none",
    }
    assert Tool(use).check("{}", False) == ({}, ())


def test_a_pydantic_field_may_be_the_default() -> None:
    def use(
        a: int = Field(description="The a."),
        b: int = Field(5, ge=1),
        c: list[int] = Field(default_factory=lambda: [1]),
        d: Annotated[int, Field(default=4)] = 7,
        e: Any = Field(default=object(), title="Anything"),
        f: float = Field(default=float("nan")),
    ) -> None: ...

    made = Tool(use)
    assert made.spec.input_schema["properties"] == {
        "a": {"type": "integer", "description": "The a."},
        "b": {"type": "integer", "minimum": 1, "default": 5},
        "c": {"type": "array", "items": {"type": "integer"}},
        "d": {"type": "integer", "default": 7},
        "e": {"title": "Anything"},
        "f": {"type": "number"},
    }
    assert made.spec.input_schema["required"] == ["a"]
    json.dumps(made.spec.input_schema, allow_nan=False)
    arguments, _ = made.check('{"a": 1}', False)
    assert {name: arguments[name] for name in "abcd"} == {"a": 1, "b": 5, "c": [1], "d": 7}


# **kwargs


class Filter(TypedDict, total=False):
    limit: Required[int]
    order: Annotated[str, Field(description="By what.")]


class MoreFilter(Filter):
    page: int
    after: NotRequired[date]


def test_the_names_of_an_unpacked_typed_dict_are_parameters() -> None:
    def find(text: str, **rest: Unpack[MoreFilter]) -> None:
        """Find.

        Args:
            text: The text.
            limit: How many.
            page: Which page.
        """

    assert schema_of(find) == {
        "type": "object",
        "properties": {
            "limit": {"type": "integer", "description": "How many."},
            "order": {"type": "string", "description": "By what."},
            "page": {"type": "integer", "description": "Which page."},
            "after": {"type": "string", "format": "date"},
            "text": {"type": "string", "description": "The text."},
        },
        "required": ["limit", "page", "text"],
        "additionalProperties": False,
    }
    arguments, _ = Tool(find).check('{"text": "a", "limit": 1, "page": 2, "after": "2024-01-01"}', False)
    assert arguments == {"text": "a", "limit": 1, "page": 2, "after": date(2024, 1, 1)}


# Descriptions


def test_a_field_says_more_than_a_text_and_a_text_more_than_the_docstring() -> None:
    def use(
        a: Annotated[int, "text", Field(description="field")],
        b: Annotated[int, Field(ge=1), "text"],
        c: int,
        d: Annotated[int, Field(ge=1)],
        *e: Annotated[int, Field(ge=1)],
        f: Annotated[int, "text"] = Field(3, description="field"),
        g: int = Field(3),
    ) -> None:
        """Use.

        Args:
            a: doc
            b: doc
            c: doc
            d: doc
            *e: doc
            f: doc
            g: doc
        """

    properties = schema_of(use)["properties"]
    assert {name: schema["description"] for name, schema in properties.items()} == {
        "a": "field",
        "b": "text",
        "c": "doc",
        "d": "doc",
        "e": "doc",
        "f": "field",
        "g": "doc",
    }
    assert properties["e"] == {"type": "array", "description": "doc", "items": {"type": "integer", "minimum": 1}}


# What has no JSON Schema


class Connection:
    pass


class Unfinished(TypedDict):
    next: "Nowhere"  # type: ignore[name-defined]  # noqa: F821


class UnfinishedModel(BaseModel):
    next: "Nowhere"  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (Connection, "Connection"),
        (Callable[[int], int], "Callable"),
        (Iterator[Connection], "Iterator"),
        (list[Connection], "list[tests.schema.test_from_python.Connection]"),
        (type[int], "type[int]"),
        (Annotated[Connection, "text"], "Connection"),
    ],
    ids=str,
)
def test_a_parameter_without_json_schema_is_refused_with_the_way_out(kind: Any, named: str) -> None:
    def use(fine: int, wrong: Any) -> None: ...

    use.__annotations__["wrong"] = kind
    message = refused_definition(use)
    assert message.startswith("Tool 'use': parameter 'wrong' has the type ")
    assert named in message
    assert "which has no JSON Schema" in message
    assert message.endswith("Depends(provider)], or take a type that JSON can carry.")


@pytest.mark.parametrize("kind", [Unfinished, UnfinishedModel, list[UnfinishedModel]], ids=str)
def test_a_type_that_is_not_finished_is_refused_with_the_way_out(kind: Any) -> None:
    def use(wrong: Any) -> None: ...

    use.__annotations__["wrong"] = kind
    assert refused_definition(use).endswith(
        "Define every name in it before the tool is made, at the top of its module."
    )

    def unpacked(**wrong: Unpack[Unfinished]) -> None: ...

    assert refused_definition(unpacked) == (
        "Tool 'unpacked': the name 'Nowhere' in Unfinished is not defined. "
        "Define it at the top of the module of Unfinished."
    )


def test_the_host_may_provide_what_has_no_json_schema() -> None:
    from toolcrib import Depends

    def use(a: int, connection: Annotated[Connection, Depends(Connection)]) -> None: ...

    assert list(schema_of(use)["properties"]) == ["a"]
