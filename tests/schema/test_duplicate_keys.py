"""A key that stands twice in an object is refused, wherever it stands and whatever reads it."""

import json
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NotRequired

import pytest
from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from typing_extensions import TypedDict, Unpack

from toolcrib import Tool, ToolError


class Plain(BaseModel):
    x: int
    y: str


class Counted(BaseModel):
    """Says, as those below, that more was read than stood there."""

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
        return _more(data)


class OneNameTwice(BaseModel):
    a: int = Field(validation_alias="x")
    b: int = Field(validation_alias="x")
    c: int = 0


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    x: int


def _more(value: Any) -> Any:
    return {"y": 7, **value} if isinstance(value, dict) else value


class Filled(TypedDict):
    x: int
    y: NotRequired[Annotated[int, Field(default=3)]]


KINDS: list[Any] = [
    int, Any, dict[str, int], Plain, list[Plain], Plain | None, Counted, Initialized, OwnInit, list[OwnInit], Before,
    OneNameTwice, Open, list[Annotated[Plain, BeforeValidator(_more)]],
]  # fmt: skip

VALUES: list[Any] = [
    {"x": 1}, {"x": 1, "y": "a"}, {"x": 1, "y": 2}, {"x": {"x": 1, "y": "a"}}, {"a": 1, "b": 2}, {"x:": 1},
    {"x": 1, "extra": {"deep": [{"p": 1}]}}, [{"x": 1, "y": ":"}], [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}],
]  # fmt: skip


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


TEXTS = [text for value in VALUES for text in with_a_key_twice({"a": value})]
TEXTS_WITH_B = [text for value in VALUES for text in with_a_key_twice({"a": value, "b": 1})]


def refused(tool: Tool[..., Any], text: str) -> bool:
    try:
        tool.check(text, True)
    except ToolError as error:
        return error.code == "invalid_arguments" and "twice" in error.message
    return False


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind)[:60])
def test_a_key_that_stands_twice_is_refused(kind: Any) -> None:
    def work(a: Any, b: Any = None) -> None: ...
    def alone(a: Any) -> None: ...

    work.__annotations__ = {"a": kind, "b": int | None, "return": None}
    alone.__annotations__ = {"a": kind, "return": None}
    for tool, texts in ((Tool(work), TEXTS), (Tool(work), TEXTS_WITH_B), (Tool(alone), TEXTS)):
        assert [text for text in texts if not refused(tool, text)] == []


def _unpacked(**rest: Unpack[Filled]) -> None: ...
def _filled(x: int, y: Annotated[int, Field(default=3)]) -> None: ...
def _filled_by_default(x: int, y: int = Field(3)) -> None: ...
def _alias_of_other(x: int, y: Annotated[int, Field(validation_alias="x")]) -> None: ...
def _choices(x: int, y: Annotated[int, Field(validation_alias=AliasChoices("x", "w"))]) -> None: ...
def _any_names(x: int, **rest: int) -> None: ...
def _places(x: int, /, *rest: int) -> None: ...


@pytest.mark.parametrize(
    "fn",
    [
        _unpacked, _filled, _filled_by_default, _alias_of_other, _choices, _any_names, _places,
    ],
    ids=lambda fn: fn.__name__,
)  # fmt: skip
def test_arguments_that_are_filled_in_hide_no_key_that_stands_twice(fn: Callable[..., Any]) -> None:
    tool = Tool(fn)
    for value in ({"x": 1}, {"x": 1, "y": 2}, {"x": 1, "rest": [1]}, {"x": 1, "w": 2}, {"x": {"p": 1}}):
        assert [text for text in with_a_key_twice(value) if not refused(tool, text)] == []


def test_a_bare_schema_refuses_a_key_that_stands_twice() -> None:
    def work(**arguments: Any) -> None: ...

    tool = Tool(work, parameters={"properties": {"x": True}})
    texts = list(with_a_key_twice({"x": {"y": [{"z": 1}]}, "w": 2}))
    assert [text for text in texts if not refused(tool, text)] == []


def test_quotes_and_colons_in_texts_are_no_keys() -> None:
    def work(rows: list[Plain], note: str = "") -> None: ...

    rows = [{"x": 1, "y": text} for text in ('"', '":', ': "a": ', "\\", '{"a": 1, "a": 2}')]
    arguments, _ = Tool(work).check(json.dumps({"rows": rows, "note": '"a": 1'}), True)
    assert [row.y for row in arguments["rows"]] == [row["y"] for row in rows]
