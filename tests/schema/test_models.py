"""The pydantic model of a function's arguments: it takes what the tool's input schema describes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, ValidationError
from typing_extensions import TypedDict, Unpack

from toolcrib import Context, Depends, Tool
from toolcrib.core import DefinitionError
from toolcrib.schema import arguments_model, read_arguments
from toolcrib.schema.from_python import SchemaGenerator, clean_schema


class Row(BaseModel):
    x: int
    inner: Row | None = None


class Extra(TypedDict, total=False):
    depth: int
    note: str
    tags: list[str]


@dataclass
class Pool:
    size: int = 1


def plain(a: int, b: str = "x", c: list[int] | None = None) -> None:
    """Do something.

    Args:
        a: The first.
        b: The second.
    """


def described(a: Annotated[int, "How many."], b: Annotated[int, Field(ge=1, description="More.")] = 2) -> None: ...
def aliased(a: Annotated[int, Field(alias="from")], b: int = Field(3, description="A number.")) -> None: ...
def strange(schema: int, _private: str, model_dump: int = 1, argument_x: int = 2, copy: int = 3) -> None: ...
def nested(rows: list[Row], row: Row | None = None) -> None: ...
def variadic(a: int, *rest: int, **others: str) -> None: ...
def unpacked(a: int, **others: Unpack[Extra]) -> None: ...
def provided(a: int, context: Context, pool: Annotated[Pool, Depends(Pool)]) -> None: ...
def unfitting(a: int = None, b: object = object()) -> None: ...  # type: ignore[assignment]  # noqa: RUF013
def nothing() -> None: ...


FUNCTIONS = (
    plain, described, aliased, strange, nested, variadic, unpacked, provided, unfitting, nothing,
)  # fmt: skip


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    made = clean_schema(model.model_json_schema(schema_generator=SchemaGenerator))
    return {key: value for key, value in made.items() if key not in ("title", "description")}


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_its_schema_is_the_input_schema_of_the_tool(fn: Any) -> None:
    assert schema_of(arguments_model(fn)) == Tool(fn).spec.input_schema


@pytest.mark.parametrize(
    ("fn", "sent", "read"),
    [
        (plain, {"a": 1}, {"a": 1, "b": "x", "c": None}),
        (aliased, {"from": 1}, {"a": 1, "b": 3}),
        (
            strange,
            {"schema": 1, "_private": "p", "argument_x": 5},
            {"schema": 1, "_private": "p", "model_dump": 1, "argument_x": 5, "copy": 3},
        ),
        (nested, {"rows": [{"x": 1}]}, {"rows": [Row(x=1)], "row": None}),
        (variadic, {"a": 1, "rest": [2, 3], "z": "y"}, {"a": 1, "rest": [2, 3], "z": "y"}),
        (unpacked, {"a": 1, "note": "n"}, {"a": 1, "note": "n"}),
        (provided, {"a": 1}, {"a": 1}),
        (nothing, {}, {}),
    ],
)
def test_arguments_come_back_by_the_names_of_the_parameters(fn: Any, sent: Any, read: Any) -> None:
    assert read_arguments(arguments_model(fn).model_validate(sent)) == read


@pytest.mark.parametrize(
    ("fn", "sent", "places"),
    [
        (plain, {"b": 1}, [("a",), ("b",)]),
        (described, {"a": 1, "b": 0}, [("b",)]),
        (strange, {"schema": 1, "argument__private": "p"}, [("_private",), ("argument__private",)]),
        (variadic, {"a": 1, "z": 5}, [("z",)]),
        (provided, {"a": 1, "context": {}}, [("context",)]),
    ],
)
def test_other_arguments_are_refused(fn: Any, sent: Any, places: Any) -> None:
    with pytest.raises(ValidationError) as raised:
        arguments_model(fn).model_validate(sent)
    assert [error["loc"] for error in raised.value.errors()] == places


def test_parameters_can_be_left_out() -> None:
    made = arguments_model(plain, without={"a", "c"})
    assert list(made.model_fields) == ["b"]
    assert made.model_fields["b"].description == "The second."


def test_types_may_be_local() -> None:
    class Local(BaseModel):
        x: int
        again: Other | None = None

    class Other(BaseModel):
        y: int

    def take(a: Local) -> None: ...

    assert arguments_model(take).model_validate({"a": {"x": 1, "again": {"y": 2}}}).model_dump() == {
        "a": {"x": 1, "again": {"y": 2}}
    }


def test_defaults_are_not_shared_between_calls() -> None:
    def take(a: list[int] = []) -> None: ...

    made = arguments_model(take)
    made().a.append(1)  # type: ignore[attr-defined]
    assert read_arguments(made()) == {"a": []}


def test_a_function_that_cannot_be_a_tool_is_refused() -> None:
    def take(a: Pool, b: type[Pool]) -> None: ...

    with pytest.raises(DefinitionError, match="Function 'take': parameter 'b'"):
        arguments_model(take)
