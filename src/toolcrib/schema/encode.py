"""What a tool returned → JSON text: never a Python repr, and never other than the output schema promised."""

import logging
import types
from collections.abc import Callable, Mapping
from typing import Any, Never, NoReturn, Union, get_args, get_origin

import pydantic_core
from pydantic import BaseModel

from ..core import Audio, Data, DefinitionError, File, Image, Result, Text, ToolError
from .bare import Validator, validator
from .derive import Quiet, adapter_of, clean, first_line, other_remedy, type_name
from .document import Document, kind
from .explain import problems

_log = logging.getLogger("toolcrib")
_CONTENT = (Text, Data, Image, Audio, File, Result)
_LISTS = (list, tuple)
_SHAPELESS = (Any, object, NoReturn, Never, bytes, bytearray)


def shapeless(returns: Any) -> bool:
    """Whether a return annotation promises no JSON: Any, bytes, or what is or may hold content, shown as it is."""
    origin, inner = get_origin(returns), get_args(returns)
    if origin in (Union, types.UnionType):
        return any(map(shapeless, inner))
    if returns in _LISTS or (origin in _LISTS and (Any in inner or object in inner)):
        return True
    return any(returns is kind for kind in _SHAPELESS) or _holds_content(returns)


def _holds_content(returns: Any) -> bool:
    return any(returns is kind or get_origin(returns) is kind for kind in _CONTENT) or any(
        map(_holds_content, get_args(returns))
    )


def write_any(tool: str, value: Any) -> str:
    """*value* as JSON text; NaN and infinities, which JSON does not have, become null.

    Raises ToolError `invalid_result` for what has no JSON form.
    """
    try:
        return pydantic_core.to_json(value, inf_nan_mode="null").decode()
    except (ValueError, TypeError, RecursionError) as error:
        _log.error("Tool '%s' returned a %s, which has no JSON form: %s", tool, type(value).__name__, error)
        raise ToolError(
            f"Tool '{tool}' returned something that has no JSON form ({type(value).__name__}).", "invalid_result"
        ) from error


def describe_return(
    returns: Any, *, label: str, tool: str, names: Mapping[str, Any] | None = None
) -> tuple[Mapping[str, Any], Callable[[Any], str]]:
    """The output schema of a return annotation, and what writes a value of it as JSON text.

    Names in both are the aliases that a model's author gave for them. The writer raises ToolError `invalid_result` for
    a value that is not what the schema promises. Raises DefinitionError for a type that has no JSON form.
    """
    try:
        adapter = adapter_of(returns, names)
        output_schema = clean(adapter.json_schema(schema_generator=Quiet, mode="serialization"))
    except Exception as error:
        remedy = other_remedy(error) or (
            "Return a type that pydantic can describe, a toolcrib Image, Audio or File, or annotate the return as Any."
        )
        raise DefinitionError(
            f"{label} returns {type_name(returns)}, which has no JSON form ({first_line(error)}). {remedy}"
        ) from error
    to_json = adapter.serializer.to_json
    keeps = _promise_of(returns)
    exact = returns if returns in (str, int, bool) else None
    surely = _surely(returns)
    promised: list[Validator] = []

    def write(value: Any) -> str:
        if type(value) is exact:
            return to_json(value).decode()
        try:
            if surely is not None and surely(value):
                # Here False is as good as "none", and ten times as quick.
                return to_json(value, by_alias=True, warnings=False).decode()
            text = to_json(value, by_alias=True, warnings="error").decode()
            # pydantic writes None for any type, and NaN as null.
            if keeps(value) and "null" not in text:
                return text
        except (ValueError, TypeError, AttributeError, RecursionError):
            # Another type than the one annotated; its JSON may still be what the schema promises (a dict for a model).
            text = write_any(tool, value)
        if not promised:
            promised.append(validator(output_schema, formats=False))
        data = pydantic_core.from_json(text)
        if promised[0].is_valid(data):
            return text
        found = problems(Document(output_schema, formats=False), data)
        said = found[0].sentence if found else f"a {kind(data)} came."
        _log.error("Tool '%s' returned what its output schema does not promise: %s", tool, said)
        wrong = f" (expected {found[0].expected}, came {found[0].came})" if found else ""
        raise ToolError(f"Tool '{tool}' returned a value that is not what it promises{wrong}.", "invalid_result")

    return output_schema, write


def _promise_of(kind: Any) -> Callable[[Any], bool]:
    """Whether a value is surely written as *kind* promises, so that the JSON need not be looked at.

    pydantic complains of most values of another type while it writes them. It does not of an object in the place of a
    model, whose other attributes it leaves out, nor of literals and limits.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: True
    if kind in _SCALARS or _is_model(kind):
        return lambda value: isinstance(value, kind)
    if origin in (Union, types.UnionType):
        branches = [_promise_of(branch) for branch in inner]
        return lambda value: any(branch(value) for branch in branches)
    if origin in (list, dict) and all(_is_plain(part) for part in inner):
        return lambda value: isinstance(value, origin)
    return lambda value: False


def _surely(kind: Any) -> Callable[[Any], bool] | None:
    """What tells at a glance that a value is of *kind* through and through. None for kinds that need a closer look.

    An instance of a model is what its fields say, and in a `dict[str, Any]` there may be anything.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is list and _is_row(inner[0]):
        only = {get_origin(inner[0]) or inner[0]}
        return lambda value: type(value) is list and only.issuperset(map(type, value))
    if _is_row(kind):
        only_kind = origin or kind
        return lambda value: type(value) is only_kind
    return None


def _is_row(kind: Any) -> bool:
    return _is_model(kind) or (get_origin(kind) is dict and get_args(kind)[1] is Any)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _is_plain(kind: Any) -> bool:
    return kind is Any or kind in _SCALARS or (get_origin(kind) in (list, dict) and all(map(_is_plain, get_args(kind))))


_SCALARS = (str, int, float, bool)
