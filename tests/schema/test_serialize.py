"""What a tool returns is written as JSON that keeps what its output schema promises."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Never, TypeVar

import jsonschema_rs
import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field
from typing_extensions import TypedDict

from toolcrib import File, Image, Result, Text, Tool, ToolError, Workbench
from toolcrib.core import Data, DefinitionError

T = TypeVar("T")


class Person(BaseModel):
    name: str
    born: datetime | None = None


class Named(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    from_: str = Field(alias="from")
    to: str = Field(serialization_alias="To")


class Area(BaseModel):
    width: int

    @computed_field
    @property
    def area(self) -> int:
        return self.width**2


@dataclass
class Point:
    x: int
    y: float = 0.0


class Record(TypedDict):
    a: int


class Unknown:
    pass


def returning(value: Any, kind: Any) -> Tool[..., Any]:
    def give() -> Any:
        return value

    give.__annotations__["return"] = kind
    return Tool(give)


async def text_of(value: Any, kind: Any) -> str:
    async with Workbench([returning(value, kind)]) as bench:
        return (await bench.call("give")).text


async def error_of(value: Any, kind: Any) -> ToolError:
    async with Workbench([returning(value, kind)]) as bench:
        error = (await bench.call("give")).error
    assert error is not None
    return error


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (
            Annotated[int, Field(ge=1, description="How many.")],
            {"type": "integer", "minimum": 1, "description": "How many."},
        ),
        (
            Area,
            {
                "type": "object",
                "properties": {"width": {"type": "integer"}, "area": {"type": "integer", "readOnly": True}},
                "required": ["width", "area"],
            },
        ),
    ],
    ids=str,
)
def test_the_output_schema_comes_from_the_return_type(kind: Any, schema: dict[str, Any]) -> None:
    made = returning(None, kind).spec.output_schema
    assert made == schema
    jsonschema_rs.meta.validate(made)


@pytest.mark.parametrize(
    "kind",
    [
        None, Any, Never, bytes, T, Text, list[Image], tuple[Text, Image], list, list[Any], Text | int, Any | None,
        Result[int], Annotated[Image, "x"], dict[str, File],
    ],
    ids=str,
)  # fmt: skip
def test_what_promises_no_json_has_no_output_schema(kind: Any) -> None:
    assert returning(None, kind).spec.output_schema is None


def test_without_a_return_annotation_nothing_is_promised() -> None:
    def give():  # type: ignore[no-untyped-def]
        return 1

    assert Tool(give).spec.output_schema is None


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, None, "null"),
        ([1, "ä"], Any, '[1,"ä"]'),
        ({"a": Path("/x")}, dict[str, Path], '{"a":"/x"}'),
        (datetime(2024, 1, 2, tzinfo=UTC), datetime, '"2024-01-02T00:00:00Z"'),
        (Point(1), Any, '{"x":1,"y":0.0}'),
        ([Person(name="A")], Any, '[{"name":"A","born":null}]'),
        (Named(from_="a", to="b"), Named, '{"from":"a","To":"b"}'),
        ({"a": 1}, Record, '{"a":1}'),
        ({"name": "A", "born": None}, Person, '{"name":"A","born":null}'),
        (math.nan, Any, "null"),
        (math.inf, float | None, "null"),
        ({1, 2}, list[int], "[1,2]"),
    ],
)
async def test_values_are_written_as_json(value: Any, kind: Any, text: str) -> None:
    assert await text_of(value, kind) == text


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.5, int),
        (None, int),
        ({"name": 5}, Person),
        (Point(1), Person),
        (math.nan, float),
        (Point(1, math.nan), Point),
        (5, Literal[4]),
        (0, Annotated[int, Field(ge=1)]),
        ([Point(1)], list[Person]),
        (Point(1), int | Person),
        ([None], list[dict[str, int]]),
    ],
    ids=str,
)
async def test_what_breaks_the_promise_is_an_invalid_result(value: Any, kind: Any) -> None:
    error = await error_of(value, kind)
    assert (error.code, error.retry) == ("invalid_result", "never")
    assert error.message.startswith("Tool 'give' returned a value that does not match its output schema (expected ")


async def test_the_log_names_the_place_in_a_result_that_breaks_the_promise(caplog: pytest.LogCaptureFixture) -> None:
    await error_of("no", int)
    await error_of({"a": "no"}, dict[str, int])
    await error_of(5, Literal[1, 2])
    promise = "Tool 'give' returned a value that does not match its output schema: "
    assert [record.message.removeprefix(promise) for record in caplog.records] == [
        "expected integer, got string.",
        "'a': expected integer, got string.",
        "expected one of 1, 2.",
    ]


@pytest.mark.parametrize("kind", [Any, int, list[int]], ids=str)
async def test_what_has_no_json_form_is_an_invalid_result(kind: Any) -> None:
    error = await error_of(Unknown(), kind)
    assert error.code == "invalid_result"
    assert error.message == "Tool 'give' returned something that has no JSON form (Unknown)."


@pytest.mark.parametrize("value", [10**5000, {"a": [-(10**4300)]}, Data("{not json"), Data("NaN")], ids=type)
async def test_a_value_that_python_does_not_read_is_text(value: Any) -> None:
    async with Workbench([returning(value, Any)]) as bench:
        result = await bench.call("give")
    (part,) = json.loads(json.dumps(result.to_dict(), allow_nan=False))["content"]
    assert (result.status, part) == ("success", {"type": "text", "text": result.text})
    assert result.value is value


async def test_a_number_with_too_many_digits_for_a_check_is_an_invalid_result() -> None:
    assert (await error_of({"a": [10**4300]}, dict)).code == "invalid_result"


@pytest.mark.parametrize("kind", [Unknown, list[Unknown], Iterator[Unknown], dict[Unknown, int]], ids=str)
def test_a_return_type_without_json_form_is_refused_with_the_way_out(kind: Any) -> None:
    with pytest.raises(DefinitionError) as raised:
        returning(None, kind)
    message = str(raised.value)
    assert message.startswith("Tool 'give' returns ")
    assert "which has no JSON form" in message
    assert message.endswith(
        "Return a type that pydantic can describe, a toolcrib Image, Audio or File, or annotate the return as Any."
    )
