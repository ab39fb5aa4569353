"""Serializes what a tool returned as JSON text: never a Python repr, and never other than its output schema."""

import functools
import logging
import types
from collections.abc import Callable, Mapping
from typing import Any, Never, NoReturn, Union, get_args, get_origin

import pydantic_core
from pydantic import BaseModel, TypeAdapter

from ..core import Audio, Data, DefinitionError, File, Image, Result, Text, ToolError
from .errors import problems
from .from_python import SchemaGenerator, adapter_of, clean_schema, first_line, other_remedy, type_name
from .view import SchemaView, kind

_log = logging.getLogger("toolcrib")
_CONTENT = (Text, Data, Image, Audio, File, Result)
_LISTS = (list, tuple)
_SHAPELESS = (Any, object, NoReturn, Never, bytes, bytearray)


def has_no_schema(returns: Any) -> bool:
    """Return whether a return annotation has no output schema: Any, bytes, or what is or may hold content."""
    origin, inner = get_origin(returns), get_args(returns)
    if origin in (Union, types.UnionType):
        return any(map(has_no_schema, inner))
    if returns in _LISTS or (origin in _LISTS and (Any in inner or object in inner)):
        return True
    return any(returns is kind for kind in _SHAPELESS) or _holds_content(returns)


def _holds_content(returns: Any) -> bool:
    return any(returns is kind or get_origin(returns) is kind for kind in _CONTENT) or any(
        map(_holds_content, get_args(returns))
    )


def serialize_any(tool: str, value: Any) -> str:
    """Write *value* as JSON text; NaN and infinities, which JSON does not have, become null.

    Raises ToolError `invalid_result` for what has no JSON form.
    """
    try:
        return pydantic_core.to_json(value, inf_nan_mode="null").decode()
    except (ValueError, TypeError, RecursionError) as error:
        _log.error("Tool '%s' returned a %s, which has no JSON form: %s", tool, type(value).__name__, error)
        raise ToolError(
            f"Tool '{tool}' returned something that has no JSON form ({type(value).__name__}).", "invalid_result"
        ) from error


def read_back(tool: str, text: str) -> Any:
    """Return the JSON value that was written as *text*. Raises ToolError `invalid_result` for other text."""
    try:
        return pydantic_core.from_json(text)
    except ValueError as error:
        raise ToolError(f"Tool '{tool}' returned what cannot be read as JSON: {error}.", "invalid_result") from None


def return_serializer(
    returns: Any, *, label: str, tool: str, names: Mapping[str, Any] | None = None
) -> tuple[Mapping[str, Any], Callable[[Any], str]]:
    """Return the output schema of a return annotation, and the function that writes a value of it as JSON text.

    Names in both are the aliases that a model's author gave for them. The writer raises ToolError `invalid_result` for
    a value that does not match the schema. Raises DefinitionError for a type that has no JSON form.
    """
    try:
        adapter, output_schema = _of_scalar(returns) if returns in _SCALARS else _described(returns, names)
    except Exception as error:
        remedy = other_remedy(error) or (
            "Return a type that pydantic can describe, a toolcrib Image, Audio or File, or annotate the return as Any."
        )
        raise DefinitionError(
            f"{label} returns {type_name(returns)}, which has no JSON form ({first_line(error)}). {remedy}"
        ) from error
    to_json = adapter.serializer.to_json
    is_instance = _instance_test(returns)
    scalar = returns if returns in (str, int, bool) else None
    is_rows = _rows_test(returns)
    view = functools.cache(lambda: SchemaView(output_schema))

    def write(value: Any) -> str:
        if type(value) is scalar:
            return to_json(value).decode()
        try:
            if is_rows is not None and is_rows(value):
                # Here False is as good as "none", and ten times as quick.
                return to_json(value, by_alias=True, warnings=False).decode()
            text = to_json(value, by_alias=True, warnings="error").decode()
            # pydantic writes None for any type, and NaN as null.
            if is_instance(value) and "null" not in text:
                return text
        except (ValueError, TypeError, AttributeError, RecursionError):
            # Another type than the one annotated; its JSON may still match the schema (a dict for a model).
            text = serialize_any(tool, value)
        data = read_back(tool, text)
        if view().is_valid(data):
            return text
        mistakes = problems(view(), data)
        sentence = mistakes[0].sentence if mistakes else f"got {kind(data)}."
        _log.error("Tool '%s' returned a value that does not match its output schema: %s", tool, sentence)
        reason = f" (expected {mistakes[0].expected}, got {mistakes[0].received})" if mistakes else ""
        raise ToolError(
            f"Tool '{tool}' returned a value that does not match its output schema{reason}.", "invalid_result"
        )

    return output_schema, write


def _described(returns: Any, names: Mapping[str, Any] | None) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    adapter = adapter_of(returns, names)
    return adapter, clean_schema(adapter.json_schema(schema_generator=SchemaGenerator, mode="serialization"))


@functools.cache
def _of_scalar(returns: Any) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    """Return what most tools share: they return text."""
    return _described(returns, None)


def _instance_test(kind: Any) -> Callable[[Any], bool]:
    """Return a test of whether a value is surely written as *kind* promises, so that its JSON need not be looked at.

    pydantic complains of most values of another type while it writes them. It does not of an object in the place of a
    model, whose other attributes it leaves out, nor of literals and limits.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: True
    if kind in _SCALARS or _is_model(kind):
        return lambda value: isinstance(value, kind)
    if origin in (Union, types.UnionType):
        branches = [_instance_test(branch) for branch in inner]
        return lambda value: any(branch(value) for branch in branches)
    if origin in (list, dict) and all(map(_is_plain, inner)):
        return lambda value: isinstance(value, origin)
    return lambda value: False


def _rows_test(kind: Any) -> Callable[[Any], bool] | None:
    """Return a quick test of whether a value is a row, or a list of rows; None for a *kind* that is neither.

    An instance of a model is what its fields say, and in a `dict[str, Any]` there may be anything.
    """
    is_list = get_origin(kind) is list
    row = get_args(kind)[0] if is_list else kind
    if not _is_model(row) and not (get_origin(row) is dict and get_args(row)[1] is Any):
        return None
    row = get_origin(row) or row
    if is_list:
        return lambda value: type(value) is list and list(map(type, value)).count(row) == len(value)
    return lambda value: type(value) is row


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _is_plain(kind: Any) -> bool:
    return kind is Any or kind in _SCALARS or (get_origin(kind) in (list, dict) and all(map(_is_plain, get_args(kind))))


_SCALARS = (str, int, float, bool)
