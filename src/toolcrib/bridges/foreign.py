"""What every reader of foreign tools needs: a Tool of their parts, closed schemas, and gates that ask a person."""

import functools
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from ..core import Audio, Context, DefinitionError, File, Hints, Image, Source, ToolError, ToolSpec
from ..formats import mcp
from ..machinery import ApprovalPort, AtDeadline, Encode
from ..schema import is_valid, read_back, serialize_any
from ..tools import LoadProblem, Tool, from_work

T = TypeVar("T")
Work = Callable[[dict[str, Any], Context], Awaitable[Any]]


class ListedSource(Source):
    """A source whose tools are listed at its start: those that cannot be one of ours are its `problems`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[LoadProblem] = []
        self._tools: list[Tool[..., Any]] = []

    def tools(self) -> Sequence[Tool[..., Any]]:
        return self._tools

    def take(self, tools: Iterable[T], read: Callable[[T], Tool[..., Any]]) -> None:
        """Offer what *read* makes of *tools*, in place of the old tools."""
        self._tools, self.problems = [], []
        for tool in tools:
            try:
                self._tools.append(read(tool))
            except DefinitionError as error:
                self.problems.append(LoadProblem(self.name, str(error)))


def tool_of(
    spec: ToolSpec, work: Work, source: Source | None = None, *, at_deadline: AtDeadline = "cancelled"
) -> Tool[..., Any]:
    """Return the Tool that promises *spec*, which is checked, and does *work*. It shares the life of *source*."""
    encode = None if spec.output_schema is None else functools.partial(_promised, spec.output_schema)
    tool = from_work(spec, work, encode=encode, home=type(source or work).__module__, at_deadline=at_deadline)
    return tool if source is None else tool.offered_by(source)


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return *schema* of arguments as one that takes no others, unless it says that it does."""
    return {"type": "object", "properties": {}, "additionalProperties": False, **schema}


def hints_of(annotations: Any) -> Hints:
    """Return the hints of MCP's *annotations*, an object of the SDK or its members; none of anything else."""
    members = annotations.model_dump(by_alias=True) if isinstance(annotations, BaseModel) else annotations
    return mcp.hints(members) if isinstance(members, Mapping) else Hints()


def promise(schema: Any) -> Mapping[str, Any] | None:
    """Return *schema* as the output schema of a tool; None where it promises nothing, or is not a schema."""
    try:
        is_valid(schema, None)
    except Exception:
        return None
    return schema or None


def _promised(output_schema: Mapping[str, Any], tool: str) -> Encode:
    def write(value: Any) -> str:
        text = serialize_any(tool, value)
        if not is_valid(output_schema, read_back(tool, text)):
            raise ToolError(f"The result of tool '{tool}' does not match its output schema.", "invalid_result")
        return text

    return write


def injected(context: Context, tool: str, names: Mapping[str, bool]) -> dict[str, Any]:
    """Return the arguments that the host gives, from the variables of the workbench.

    *names* are theirs, each with whether it is required. Raises ToolError for required ones that are missing.
    """
    missing = [name for name, is_required in names.items() if is_required and name not in context.variables]
    if missing:
        raise ToolError(
            f"Tool '{tool}' needs {', '.join(map(repr, missing))} of its agent or host, not of a model. "
            "The host gives it in the variables of the workbench.",
            "unavailable",
        )
    return {name: context.variables[name] for name in names if name in context.variables}


def one_or_all(parts: list[Any]) -> Any:
    """Return the only one of *parts* by itself, as a tool of ours returns it."""
    return parts[0] if len(parts) == 1 else parts


def png(picture: Any) -> Image:
    """Return a *picture* of Pillow as an image."""
    content = BytesIO()
    picture.save(content, format="PNG")
    return Image(content.getvalue())


def data_url(part: Image | Audio | File) -> str:
    """Return the URL that has the content of *part* in it."""
    return f"data:{part.media_type};base64,{part.base64}"


def from_data_url(url: str) -> tuple[str, bytes] | None:
    """Return the media type and the bytes of *url*; None where it is another URL, which is not fetched."""
    head, _, data = url.partition(";base64,")
    try:
        return (head[5:], b64decode(data, validate=True)) if head.startswith("data:") and data else None
    except ValueError:
        return None


def problems(tool: str, error: ValidationError) -> str:
    """Return what is wrong with the arguments of *tool*, without their values."""
    details = error.errors(include_input=False)
    lines = (f"'{'.'.join(map(str, detail['loc']))}': {detail['msg']}" for detail in details)
    return f"Tool '{tool}': {'; '.join(lines)}"


async def approve(context: Context, message: str = "") -> None:
    """Return once a person has approved the call of *context*: for tools that have a gate of their own."""
    await cast(ApprovalPort, context.port).approve(message or f"May '{context.call.tool}' run with these arguments?")
