"""What a tool returned → JSON text: never a Python repr, and never other than the output schema promised."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, get_args

import pydantic_core
from pydantic import TypeAdapter

from ..core import Audio, Data, DefinitionError, File, Image, Result, Text, ToolError
from .bare import Validator, validator
from .derive import UNSUITABLE, Quiet, clean, first_line, type_name
from .explain import schema_problems

_log = logging.getLogger("toolcrib")
_CONTENT = (Text, Data, Image, Audio, File, Result)


def shapeless(returns: Any) -> bool:
    """Whether a return annotation promises no JSON: Any, or content that is shown as it is."""
    return returns in (Any, object) or returns in _CONTENT or any(map(shapeless, get_args(returns)))


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


def describe_return(returns: Any, *, label: str, tool: str) -> tuple[Mapping[str, Any], Callable[[Any], str]]:
    """The output schema of a return annotation, and what writes a value of it as JSON text.

    The writer raises ToolError `invalid_result` for a value that is not what the schema promises. Raises
    DefinitionError for a type that has no JSON form.
    """
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(returns)
        output_schema = clean(adapter.json_schema(schema_generator=Quiet, mode="serialization"))
    except UNSUITABLE as error:
        raise DefinitionError(
            f"{label} returns {type_name(returns)}, which has no JSON form ({first_line(error)}). Return a type "
            "that pydantic can describe, a toolcrib Image, Audio or File, or annotate the return as Any."
        ) from error
    to_json = adapter.serializer.to_json
    promised: list[Validator] = []

    def write(value: Any) -> str:
        try:
            return to_json(value, warnings="error").decode()
        except (ValueError, TypeError, AttributeError, RecursionError):
            # Another type than the one annotated; its JSON may still be what the schema promises (a dict for a model).
            text = write_any(tool, value)
        if not promised:
            promised.append(validator(output_schema, formats=False))
        data = pydantic_core.from_json(text)
        if promised[0].is_valid(data):
            return text
        problem = schema_problems(promised[0].iter_errors(data), output_schema, data)[0]
        _log.error("Tool '%s' returned what its output schema does not promise: %s", tool, problem.sentence)
        raise ToolError(
            f"Tool '{tool}' returned a value that is not what it promises (expected {problem.expected}, "
            f"came {problem.came}).",
            "invalid_result",
        )

    return output_schema, write
