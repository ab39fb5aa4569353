"""What every reader of foreign tools needs: a Tool of their parts, closed schemas, and gates that ask a person."""

import functools
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from ..core import ApprovalPort, AtDeadline, Audio, Context, Encode, File, Hints, Image, Source, ToolError, ToolSpec
from ..formats import mcp
from ..schema import read_back, serialize_any
from ..schema.json_schema_validator import validator
from ..tools import Tool, from_work

Work = Callable[[dict[str, Any], Context], Awaitable[Any]]


def tool_of(
    spec: ToolSpec, work: Work, source: Source | None = None, *, at_deadline: AtDeadline = "cancelled"
) -> Tool[..., Any]:
    """The Tool that promises *spec* and does *work*, which shares the life of *source*. What it promises is checked."""
    encode = None if spec.output_schema is None else functools.partial(_promised, spec.output_schema)
    made = from_work(spec, work, encode=encode, home=type(source or work).__module__, at_deadline=at_deadline)
    return made if source is None else made.offered_by(source)


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """*schema* of arguments as one that takes no others, unless it says that it does."""
    return {"type": "object", "properties": {}, "additionalProperties": False, **schema}


def hints_of(annotations: Any) -> Hints:
    """The hints of MCP's *annotations*, an object of the SDK or its members; none of anything else."""
    members = annotations.model_dump(by_alias=True) if isinstance(annotations, BaseModel) else annotations
    return mcp.hints(members) if isinstance(members, Mapping) else Hints()


def promise(schema: Any) -> Mapping[str, Any] | None:
    """*schema* as the output schema of a tool; None where it promises nothing, or is not a schema."""
    try:
        validator(schema, formats=False)
    except Exception:
        return None
    return schema or None


def _promised(output_schema: Mapping[str, Any], tool: str) -> Encode:
    accepts = functools.cache(lambda: validator(output_schema, formats=False))

    def write(value: Any) -> str:
        text = serialize_any(tool, value)
        if not accepts().is_valid(read_back(tool, text)):
            raise ToolError(f"The result of tool '{tool}' does not match its output schema.", "invalid_result")
        return text

    return write


def data_url(part: Image | Audio | File) -> str:
    return f"data:{part.media_type};base64,{part.base64}"


def from_data_url(url: str) -> tuple[str, bytes] | None:
    """The media type and the bytes of *url*; None where it is another URL, which is not fetched."""
    head, _, encoded = url.partition(";base64,")
    try:
        return (head[5:], b64decode(encoded, validate=True)) if head.startswith("data:") and encoded else None
    except ValueError:
        return None


def problems(tool: str, error: ValidationError) -> str:
    """What is wrong with the arguments of *tool*, without their values."""
    lines = (f"'{'.'.join(map(str, each['loc']))}': {each['msg']}" for each in error.errors(include_input=False))
    return f"Tool '{tool}': {'; '.join(lines)}"


async def approve(context: Context, message: str = "") -> None:
    """Return once a person has approved the call of *context*: for tools that have a gate of their own."""
    await cast(ApprovalPort, context.port).approve(message or f"May '{context.call.tool}' run with these arguments?")
