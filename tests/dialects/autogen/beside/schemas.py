"""The schemas of functions and models, and their errors."""

import enum
import functools
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Optional, Union
from uuid import UUID

from autogen_core import CancellationToken
from autogen_core._function_utils import (
    args_base_model_from_signature,
    get_typed_signature,
    normalize_annotated_type,
    type2description,
)
from autogen_core.tools import BaseTool, FunctionTool
from probing import add, probe
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    """How large."""

    SMALL = 1
    LARGE = 2


class Point(BaseModel):
    """A place."""

    x: int
    y: int = 0


class Line(BaseModel):
    start: Point
    end: Point = Field(description="Where it ends")
    label: str | None = None


class Node(BaseModel):
    value: int
    children: list["Node"] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Aliased(BaseModel):
    from_: str = Field(alias="from")
    to: str


class Shape(TypedDict):
    sides: int
    name: NotRequired[str]


@dataclass
class Pair:
    left: int
    right: str = "r"


def plain(a: int, b: str) -> str: ...
def defaults(a: int = 1, b: str = "x", c: float = 0.5, d: bool = True, e: str | None = None) -> str: ...
def described(a: Annotated[int, "The first"], b: Annotated[str, "The second"] = "x") -> str: ...
def nothing() -> str: ...
def optional(a: Optional[int], b: int | None = None) -> str: ...  # noqa: UP045
def union(a: int | str, b: Union[list[int], dict[str, int]]) -> str: ...  # noqa: UP007
def literal(a: Literal["x", "y"], b: Literal[1, 2] = 1) -> str: ...
def lists(a: list[int], b: list[list[str]], c: list[Any]) -> str: ...
def dicts(a: dict[str, int], b: dict[str, list[float]], c: dict[str, Any]) -> str: ...
def tuples(a: tuple[int, str], b: tuple[int, ...], c: set[str], d: frozenset[int]) -> str: ...
def bare_containers(a: list, b: dict, c: tuple, d: set) -> str: ...  # type: ignore[type-arg]
def enums(a: Colour, b: Size = Size.SMALL) -> str: ...
def times(a: datetime, b: date, c: timedelta, d: UUID, e: Path, f: Decimal, g: bytes) -> str: ...
def anything(a: Any, b: object = None) -> str: ...
def a_model(p: Point) -> str: ...
def a_described_model(p: Annotated[Point, "Where to go"]) -> str: ...
def a_nested_model(line: Line) -> str: ...
def twice_a_model(p: Point, q: Point) -> str: ...
def a_list_of_models(points: list[Point]) -> str: ...
def a_dict_of_models(points: dict[str, Point]) -> str: ...
def an_optional_model(p: Point | None = None) -> str: ...
def a_union_of_models(pet: Cat | Dog) -> str: ...
def a_discriminated_union(pet: Annotated[Cat | Dog, Field(discriminator="kind")]) -> str: ...
def a_model_by_default(p: Point = Point(x=1)) -> str: ...
def a_recursive_model(node: Node) -> str: ...
def a_closed_model(a: Closed) -> str: ...
def an_open_model(a: Open) -> str: ...
def an_aliased_model(a: Aliased) -> str: ...
def a_typed_dict(shape: Shape) -> str: ...
def a_dataclass(pair: Pair) -> str: ...
def with_a_token(a: int, cancellation_token: CancellationToken) -> str: ...
def with_an_optional_token(a: int, cancellation_token: CancellationToken | None = None) -> str: ...
def constrained(a: Annotated[int, Field(gt=0)]) -> str: ...
def described_and_constrained(a: Annotated[int, "How many", Field(gt=0)]) -> str: ...
def field_described(a: Annotated[int, Field(description="How many")]) -> str: ...
def a_field_as_default(a: int = Field(default=3, description="How many", le=9)) -> str: ...
def two_descriptions(a: Annotated[int, "one", "two"]) -> str: ...
def a_number_for_a_description(a: Annotated[int, 3]) -> str: ...
def unannotated(a, b: int) -> str: ...  # type: ignore[no-untyped-def]
def unannotated_return(a: int): ...  # type: ignore[no-untyped-def]
def text_annotations(a: "int", b: "list[Point]", c: "Annotated[str, 'said']" = "c") -> "str": ...
def undefined_annotation(a: "Nowhere") -> str: ...  # type: ignore[name-defined]  # noqa: F821
def keyword_only(a: int, *, b: int, c: int = 3) -> str: ...
def positional_only(a: int, b: int = 2, /) -> str: ...
def any_number(*args: int) -> str: ...
def any_keywords(**kwargs: int) -> str: ...
def underscored(_a: int) -> str: ...
def shadowing(copy: int, schema: str, json: int = 3) -> str: ...
def returns_a_model() -> Point: ...
def returns_annotated() -> Annotated[Point, "said"]: ...
def returns_none(a: int) -> None: ...
async def asynchronous(a: int, b: int = 2) -> int: ...


def documented(a: int) -> str:
    """The docstring says this.

    Args:
        a: And this of a.
    """
    return ""


class Callable_:
    def __call__(self, a: int, b: str = "x") -> str: ...


class Methods:
    def method(self, a: int) -> str: ...

    @staticmethod
    def static(a: int) -> str: ...

    @classmethod
    def of_class(cls, a: int) -> str: ...


def wrapped_in(fn: Any) -> Any:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


SHAPES = [
    *(plain, defaults, described, nothing, optional, union, literal, lists, dicts, tuples, bare_containers, enums),
    *(times, anything, a_model, a_described_model, a_nested_model, twice_a_model, a_list_of_models, a_dict_of_models),
    *(an_optional_model, a_union_of_models, a_discriminated_union, a_model_by_default, a_recursive_model),
    *(a_closed_model, an_open_model, an_aliased_model, a_typed_dict, a_dataclass, with_a_token),
    *(with_an_optional_token, constrained, described_and_constrained, field_described, a_field_as_default),
    *(two_descriptions, a_number_for_a_description, unannotated, unannotated_return, text_annotations),
    *(undefined_annotation, keyword_only, positional_only, any_number, any_keywords, underscored, shadowing),
    *(returns_a_model, returns_annotated, returns_none, asynchronous, documented),
]


def tool(fn: Any, **options: Any) -> Any:
    return FunctionTool(fn, **{"description": "It does.", **options})


for _fn in SHAPES:
    add(f"schema of a function: {_fn.__name__}", lambda fn=_fn: tool(fn).schema)
for _name, _fn in {
    "a partial": functools.partial(plain, b="given"),
    "a partial by place": functools.partial(plain, 1),
    "a partial of text annotations": functools.partial(text_annotations, a=1),
    "a method": Methods().method,
    "a static method": Methods.static,
    "a class method": Methods.of_class,
    "a wrapped function": wrapped_in(plain),
}.items():
    add(f"schema of {_name}", lambda fn=_fn: tool(fn).schema)
add("schema of a callable object with a name", lambda: tool(Callable_(), name="called").schema)
add("schema of a lambda with a name", lambda: tool(lambda: "x", name="short").schema)
for _fn in (plain, defaults, a_model, a_model_by_default, nothing, with_a_token, with_an_optional_token, any_number):
    add(f"strict schema: {_fn.__name__}", lambda fn=_fn: tool(fn, strict=True).schema)
add("a strict tool is made before its schema is wrong", lambda: tool(defaults, strict=True).name)
add("name given", lambda: tool(plain, name="other").schema["name"])
add("name that no model could call", lambda: tool(plain, name="has space").schema["name"])
add("empty description", lambda: tool(plain, description="").schema)
add("args_type's name", lambda: tool(plain).args_type().__name__)
add("args_type's JSON schema", lambda: tool(a_nested_model).args_type().model_json_schema())
add("return_type", lambda: [tool(fn).return_type().__name__ for fn in (plain, returns_a_model, returns_annotated)])
add("return_type of None", lambda: repr(tool(returns_none).return_type()))
add("state_type", lambda: tool(plain).state_type())
add("properties of a tool", lambda: [tool(plain).name, tool(plain).description, tool(plain).component_type])


class Given(BaseTool[BaseModel, BaseModel]):
    component_type = "tool"

    async def run(self, args: BaseModel, cancellation_token: CancellationToken) -> BaseModel:
        return args


class Empty(BaseModel):
    pass


class Titled(BaseModel):
    model_config = ConfigDict(title="A title")
    a: int = Field(title="Its A", examples=[1])


for _model in (Point, Line, Node, Closed, Open, Aliased, Empty, Titled):
    add(f"schema of a model: {_model.__name__}", lambda model=_model: Given(model, model, "t", "d").schema)
    add(f"strict schema of a model: {_model.__name__}", lambda model=_model: Given(model, model, "t", "d", True).schema)


@probe
def typed_signature() -> Any:
    signature = get_typed_signature(text_annotations)
    return [
        [
            (name, str(each.annotation).rpartition(".")[2], repr(each.default))
            for name, each in signature.parameters.items()
        ],
        str(signature.return_annotation),
    ]


@probe
def typed_signature_of_a_partial() -> Any:
    return repr(get_typed_signature(functools.partial(plain, b="x")))


@probe
def descriptions_of_annotations() -> Any:
    return [type2description("k", kind) for kind in (int, Annotated[int, "said"], "int", list[int])]


@probe
def a_wrong_description_of_an_annotation() -> Any:
    return type2description("k", Annotated[int, 3])


@probe
def annotated_taken_off() -> Any:
    return [repr(normalize_annotated_type(kind)) for kind in (int, Annotated[int, "said"], list[int])]


@probe
def a_model_of_a_signature() -> Any:
    model = args_base_model_from_signature("Args", get_typed_signature(described))
    return [model.__name__, model.model_json_schema(), model(a=1).model_dump()]
