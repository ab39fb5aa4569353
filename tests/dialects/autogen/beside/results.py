"""The results of calls: values as text, errors as text, and their shapes."""

import base64
import dataclasses
import enum
from datetime import date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

from autogen_core import Image
from autogen_core.tools import FunctionTool, ImageResultContent, StaticWorkbench, TextResultContent, ToolResult
from PIL import Image as Pillow
from probing import add, probe
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_serializer


class Point(BaseModel):
    x: int
    y: int | None = None


class Line(BaseModel):
    start: Point
    label: str = "größe"


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    from_: str = Field(alias="from")


class Quoted(BaseModel):
    text: str

    @model_serializer
    def write(self) -> str:
        return f"said: {self.text}"


class Counted(BaseModel):
    number: int

    @model_serializer
    def write(self) -> int:
        return self.number


class Timed(BaseModel):
    at: datetime


class Colour(enum.Enum):
    RED = "red"


class Text(str, enum.Enum):  # noqa: UP042
    A = "a"


@dataclasses.dataclass
class Pair:
    left: int
    right: str


class Own:
    def __str__(self) -> str:
        return "own words"


VALUES: dict[str, Any] = {
    "text": "hello",
    "empty text": "",
    "text with lines": 'a\nb\t"c"',
    "text beyond ASCII": "größe 😀",
    "JSON text": '{"a": 1}',
    "int": 3,
    "a large int": 12345678901234567890,
    "negative": -1,
    "float": 0.1,
    "a whole float": 3.0,
    "infinity": float("inf"),
    "nan": float("nan"),
    "True": True,
    "False": False,
    "None": None,
    "dict": {"a": 1, "b": [1, 2], "c": None, "d": True},
    "dict beyond ASCII": {"ä": "ö"},
    "empty dict": {},
    "list": [1, "a", None],
    "empty list": [],
    "tuple": (1, "a"),
    "set": {1},
    "bytes": b"abc",
    "date": date(2026, 1, 2),
    "datetime": datetime(2026, 1, 2, 3, 4, 5),
    "Decimal": Decimal("1.50"),
    "enum": Colour.RED,
    "text enum": Text.A,
    "dataclass": Pair(1, "a"),
    "an object": Own(),
    "a class": int,
    "model": Point(x=1),
    "nested model": Line(start=Point(x=1, y=2)),
    "aliased model": Aliased(from_="here"),
    "model that is written as text": Quoted(text="x"),
    "model that is written as a number": Counted(number=3),
    "model with a time": Timed(at=datetime(2026, 1, 2, 3, 4, 5)),
    "list of models": [Point(x=1), Point(x=2)],
    "dict of models": {"p": Point(x=1)},
}


def bench(fn: Any, **options: Any) -> StaticWorkbench:
    return StaticWorkbench([FunctionTool(fn, description="d", **options)])


def returning(value: Any) -> Any:
    async def give() -> Any:
        return value

    return give


def _called(fn: Any, arguments: Any = None) -> Any:
    async def run() -> Any:
        return (await bench(fn).call_tool(fn.__name__, arguments)).model_dump()

    return run


for _name, _value in VALUES.items():
    add(f"value of a call: {_name}", _called(returning(_value)))


def raising(error: BaseException) -> Any:
    async def give() -> str:
        raise error

    return give


class OwnError(Exception):
    def __str__(self) -> str:
        return "own words"


for _name, _error in {
    "ValueError": ValueError("bad"),
    "KeyError": KeyError("k"),
    "without a text": ValueError(),
    "several lines": RuntimeError("a\nb"),
    "space around": RuntimeError("  a  "),
    "own words": OwnError(),
    "group": ExceptionGroup("g", [ValueError("a"), KeyError("b")]),
    "nested group": ExceptionGroup("g", [ValueError("a"), ExceptionGroup("h", [TypeError("b"), OSError("c")])]),
    "TimeoutError": TimeoutError("too late"),
    "StopAsyncIteration": StopAsyncIteration("end"),
    "NotImplementedError": NotImplementedError("not yet"),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "SystemExit": SystemExit(3),
}.items():
    add(f"error of a call: {_name}", _called(raising(_error)))


def typed(a: int, b: float = 1.5, p: Point | None = None, xs: list[int] = [1]) -> str:
    return repr((a, b, p, xs))


for _name, _arguments in {
    "right ones": {"a": 1},
    "all": {"a": 1, "b": 2, "p": {"x": 1}, "xs": [3]},
    "a number in text": {"a": "1"},
    "a float for an int": {"a": 1.0},
    "a broken number": {"a": "one"},
    "missing": {},
    "one too many": {"a": 1, "z": 2},
    "wrong inside": {"a": 1, "p": {"x": "no"}},
    "text for a list": {"a": 1, "xs": "[1, 2]"},
    "a model itself": {"a": 1, "p": Point(x=7)},
}.items():
    add(f"call with arguments: {_name}", _called(typed, _arguments))


@probe
async def an_unknown_tool() -> Any:
    return (await bench(typed).call_tool("other")).model_dump()


@probe
async def a_plain_function_may_return_a_coroutine() -> Any:
    async def later() -> str:
        return "later"

    def give() -> Any:
        return later()

    return (await bench(give).call_tool("give")).is_error


# The shapes of results

for _kind in (ToolResult, TextResultContent):
    add(f"JSON schema of {_kind.__name__}", lambda kind=_kind: kind.model_json_schema())
add("JSON schema of ImageResultContent", lambda: ImageResultContent.model_json_schema())
add("serialization schema of ToolResult", lambda: ToolResult.model_json_schema(mode="serialization"))


def picture() -> Image:
    return Image(Pillow.new("RGB", (2, 2), (255, 0, 0)))


MIXED = [TextResultContent(content="a"), ImageResultContent(content=picture()), TextResultContent(content="b")]


add("a result as JSON", lambda: ToolResult(name="t", result=MIXED).model_dump_json())
add("a result as text", lambda: ToolResult(name="t", result=MIXED).to_text())
add("a result as text without its images", lambda: ToolResult(name="t", result=MIXED).to_text(replace_image="[image]"))
add("a result as text with an empty word for images", lambda: ToolResult(name="t", result=MIXED).to_text(""))
add("an empty result as text", lambda: ToolResult(name="t", result=[]).to_text())
add("defaults of a result", lambda: ToolResult(name="t", result=[]).model_dump())
add(
    "a result of JSON",
    lambda: ToolResult.model_validate_json(ToolResult(name="t", result=MIXED).model_dump_json()).to_text("i"),
)
add(
    "a result of a dictionary",
    lambda: ToolResult.model_validate(
        {"name": "t", "result": [{"type": "TextResultContent", "content": "x"}]}
    ).model_dump(),
)
add(
    "a result of an unknown part",
    lambda: ToolResult.model_validate({"name": "t", "result": [{"type": "Sound", "content": "x"}]}),
)
add("a result without its parts", lambda: ToolResult.model_validate({"name": "t"}))
add("a part without its type", lambda: TypeAdapter(TextResultContent).validate_python({"content": "x"}).model_dump())
add("a result's fields", lambda: {name: repr(field.default) for name, field in ToolResult.model_fields.items()})


@probe
async def a_tool_that_gives_an_image() -> Any:
    def paint() -> Any:
        return picture()

    result = await bench(paint).call_tool("paint")
    return [type(part).__name__ for part in result.result]


def png() -> str:
    written = BytesIO()
    Pillow.new("RGB", (1, 1)).save(written, format="PNG")
    return base64.b64encode(written.getvalue()).decode()
