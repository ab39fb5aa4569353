"""Schemas are compared whole: they are those of AutoGen for the same functions."""

import enum
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from toolcrib import DefinitionError
from toolcrib.dialects.autogen import CancellationToken
from toolcrib.dialects.autogen._function_utils import (
    args_base_model_from_signature,
    get_typed_signature,
    normalize_annotated_type,
    type2description,
)
from toolcrib.schema import read_arguments, read_signature
from toolcrib.tools.work import by_name


class Point(BaseModel):
    x: int
    y: int = 2


class Colour(enum.Enum):
    RED = "r"


POINT = {
    "title": "Point",
    "type": "object",
    "properties": {"x": {"title": "X", "type": "integer"}, "y": {"default": 2, "title": "Y", "type": "integer"}},
    "required": ["x"],
}


def draw(
    a: int,
    b: Annotated[str, "the b"] = "x",
    c: "Point | None" = None,
    d: Literal["p", "q"] = "p",
    e: Colour = Colour.RED,
    cancellation_token: CancellationToken | None = None,
) -> "float":
    return a


def schema(fn: Callable[..., Any]) -> dict[str, Any]:
    return args_base_model_from_signature("args", get_typed_signature(fn)).model_json_schema()


def test_annotations_written_as_text_are_resolved() -> None:
    signature = get_typed_signature(draw)
    assert {name: each.annotation for name, each in signature.parameters.items()} == {
        "a": int,
        "b": Annotated[str, "the b"],
        "c": Point | None,
        "d": Literal["p", "q"],
        "e": Colour,
        "cancellation_token": CancellationToken | None,
    }
    assert signature.return_annotation is float
    assert signature.parameters["b"].default == "x"


def test_what_is_not_annotated_stays_empty() -> None:
    def bare(a, b=1):  # type: ignore[no-untyped-def]
        return a

    assert get_typed_signature(bare) == inspect.signature(bare)


def test_what_a_partial_fixes_is_a_default() -> None:
    signature = get_typed_signature(functools.partial(draw, b="z"))
    assert (signature.parameters["b"].annotation, signature.parameters["b"].default) == (Annotated[str, "the b"], "z")
    assert signature.parameters["c"].annotation == Point | None
    assert schema(functools.partial(draw, b="z"))["properties"]["b"] == {
        "default": "z",
        "description": "the b",
        "title": "B",
        "type": "string",
    }


def test_methods_objects_and_names_of_a_function_around_are_read() -> None:
    class Local(BaseModel):
        x: int

    class Callable_:
        def __call__(self, a: "Local") -> "Local":
            return a

        def method(self, a: "Local") -> "Local":
            return a

    for call in (Callable_(), Callable_().method):
        signature = get_typed_signature(call)
        assert [each.annotation for each in signature.parameters.values()] == [Local]
        assert signature.return_annotation is Local


def test_a_name_that_is_not_defined_is_named() -> None:
    def lost(a: "Nowhere") -> int:  # type: ignore[name-defined] # noqa: F821
        return 1

    with pytest.raises(DefinitionError, match=r"^Function 'lost': the name 'Nowhere' in its"):
        get_typed_signature(lost)


def test_the_model_of_the_arguments_is_autogens() -> None:
    assert schema(draw) == {
        "$defs": {"Colour": {"enum": ["r"], "title": "Colour", "type": "string"}, "Point": POINT},
        "title": "args",
        "type": "object",
        "properties": {
            "a": {"description": "a", "title": "A", "type": "integer"},
            "b": {"default": "x", "description": "the b", "title": "B", "type": "string"},
            "c": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}], "default": None, "description": "c"},
            "d": {"default": "p", "description": "d", "enum": ["p", "q"], "title": "D", "type": "string"},
            "e": {"$ref": "#/$defs/Colour", "default": "r", "description": "e"},
        },
        "required": ["a"],
    }


def test_what_annotations_and_fields_say_besides_is_kept() -> None:
    def measure(
        a: Annotated[int, Field(gt=0, description="More than nothing")],
        b: Annotated[int, "At most ten", Field(le=10)] = 1,
        c: int = Field(3, ge=1, description="From one"),
    ) -> None: ...

    assert schema(measure)["properties"] == {
        "a": {"description": "More than nothing", "exclusiveMinimum": 0, "title": "A", "type": "integer"},
        "b": {"default": 1, "description": "At most ten", "maximum": 10, "title": "B", "type": "integer"},
        "c": {"default": 3, "description": "From one", "minimum": 1, "title": "C", "type": "integer"},
    }
    model = args_base_model_from_signature("args", get_typed_signature(measure))
    with pytest.raises(ValidationError):
        model(a=0)


def test_names_that_pydantic_has_itself_are_names_like_others() -> None:
    def odd(copy: int, schema: str, _hidden: int, model_dump: int = 1) -> None: ...

    signature = get_typed_signature(odd)
    model = args_base_model_from_signature("args", signature)
    assert list(model.model_json_schema()["properties"]) == ["copy", "schema", "_hidden", "model_dump"]
    args = model.model_validate({"copy": 1, "schema": "s", "_hidden": 2})
    assert read_arguments(args) == {"copy": 1, "schema": "s", "_hidden": 2, "model_dump": 1}


def test_arguments_reach_parameters_of_every_kind() -> None:
    def every(a: int, /, b: int, *rest: int, c: int = 3, **more: int) -> tuple[Any, ...]:
        return a, b, rest, c, more

    signature = get_typed_signature(every)
    model = args_base_model_from_signature("args", signature)

    def call(**arguments: Any) -> tuple[Any, ...]:
        bound = by_name(every, read_signature(every, label="every"), "every")
        made: tuple[Any, ...] = bound(**read_arguments(model.model_validate(arguments)))
        return made

    assert call(a=1, b=2) == (1, 2, (), 3, {})
    assert call(a=1, b=2, rest=[7, 8], c=4, d="5") == (1, 2, (7, 8), 4, {"d": 5})
    with pytest.raises(ValidationError):
        call(a=1, b=2, rest=["seven"])
    with pytest.raises(ValidationError):
        call(a=1, b=2, d="five")


def test_the_token_of_a_call_is_not_an_argument() -> None:
    signature = get_typed_signature(draw)
    args = args_base_model_from_signature("args", signature).model_validate({"a": 1, "c": {"x": 1}})
    assert read_arguments(args) == {"a": 1, "b": "x", "c": Point(x=1), "d": "p", "e": Colour.RED}


def test_a_parameter_without_an_annotation_is_named() -> None:
    def bare(a: int, b=1):  # type: ignore[no-untyped-def]
        return a

    with pytest.raises(ValueError) as raised:
        schema(bare)
    assert str(raised.value) == (
        "The parameter 'b' has no annotation. Every parameter of a tool needs one, such as 'b: str'."
    )


def test_a_description_is_text() -> None:
    assert type2description("a", Annotated[int, "An a"]) == "An a"
    assert type2description("a", Annotated[int, Field(description="A field")]) == "A field"
    assert [type2description("a", each) for each in (int, Annotated[int, Field(gt=0)])] == ["a", "a"]
    with pytest.raises(ValueError) as raised:
        type2description("a", Annotated[int, 5])
    assert str(raised.value) == "Invalid description 5 for parameter a, should be a string."


def test_annotated_types_are_unwrapped() -> None:
    assert normalize_annotated_type(Annotated[list[int], "x"]) == list[int]
    assert normalize_annotated_type(int) is int
