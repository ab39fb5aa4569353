"""A Spark tool as ours: what is called, with what, and what becomes of its value. Knows no registry."""

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeGuard

from ....core import Call, Context, Hints, Result, Text, ToolError, ToolSpec
from ....tools import Tool, given, reference
from ._content import is_block, shown

if TYPE_CHECKING:
    from .types import BaseTool, ToolResult, ToolUse

CONTEXT = "toolcrib context"
"""Under which name work is given our Context. No parameter can have it."""

_STATUSES = ("success", "error", "in_progress")
_PARTS = {"content", "status", "metadata", "started_at", "completed_at", "progress"}


@dataclass(slots=True)
class Use(Call):
    """A ToolUse on its way through a workbench, with what its caller hands along."""

    tool_use: "ToolUse | None" = None
    invocation_state: dict[str, Any] = field(default_factory=dict[str, Any])


def use_of(context: Context) -> tuple["ToolUse", dict[str, Any]]:
    """The ToolUse and the invocation state of a call, whoever made it."""
    call = context.call
    if isinstance(call, Use) and call.tool_use is not None:
        return call.tool_use, call.invocation_state
    return {"toolUseId": call.id, "name": call.tool, "input": _decoded(call.arguments)}, dict(context.variables)


def is_tool_result(value: Any) -> TypeGuard["ToolResult"]:
    """Whether *value* is a ToolResult, and not just a dictionary that has something in common with one.

    The id may be missing, which a tool without a context does not know: then its content has to be blocks.
    """
    if not isinstance(value, dict) or value.get("status") not in _STATUSES:
        return False
    content = value.get("content")
    if isinstance(value.get("toolUseId"), str):
        return isinstance(content, list)
    return value.keys() <= _PARTS and isinstance(content, list) and bool(content) and all(map(is_block, content))


def finished(value: Any, context: Context) -> Any:
    """The *value* of a tool, for a workbench: of a ToolResult its content is shown, and one that is an error fails.

    Whoever made a Use wants the ToolResult itself.
    """
    if not is_tool_result(value) or isinstance(context.call, Use):
        return value
    content = shown(value["content"])
    if value["status"] == "error":
        raise ToolError("\n".join(part.text for part in content) or "The tool failed.")
    return Result(value, content or (Text(""),))


def made(
    tool: "BaseTool", input_schema: Mapping[str, Any], work: Callable[..., Any], *, is_async: bool, **options: Any
) -> Tool[..., Any]:
    """Our Tool of a Spark tool. *work* is given its arguments, and our Context as `CONTEXT`."""
    spec = tool.tool_spec
    fn = getattr(tool, "tool_func", None)
    ours = given(
        ToolSpec(
            name=tool.tool_name,
            description=spec.get("description", ""),
            input_schema=input_schema,
            hints=Hints(long_running=tool.is_long_running or None),
        ),
        work,
        runs="async" if is_async else "sync",
        context=CONTEXT,
        home=getattr(fn or getattr(tool, "_tool_func", None), "__module__", None) or type(tool).__module__,
        **options,
    )
    # So that the program can name it by the tool itself: `bench.call(search, "x")`.
    ours.fn = tool
    ours.ref = None if fn is None else reference(fn)
    return ours


def tool_of(tool: "BaseTool") -> Tool[..., Any]:
    """Our Tool of any Spark tool, the same one as long as its name and its spec are the same."""
    now = (tool.tool_name, tool.tool_spec, tool.is_long_running, tool.supports_async)
    kept = vars(tool).get("_ours")
    if kept is not None and kept[0] == now:
        known: Tool[..., Any] = kept[1]
        return known
    build: Callable[[], Tool[..., Any]] = getattr(tool, "_build", None) or (lambda: _of_base(tool))
    ours = build()
    vars(tool)["_ours"] = copy.deepcopy(now), ours
    return ours


def _of_base(tool: "BaseTool") -> Tool[..., Any]:
    from .tools import normalize_tool_spec
    from .types import BaseTool

    schema = normalize_tool_spec(tool.tool_spec).get("parameters", {}).get("json", {"type": "object"})
    prepare = getattr(tool, "prepare_tool_kwargs", None)

    def prepared(arguments: dict[str, Any]) -> tuple[Context, dict[str, Any]]:
        context: Context = arguments.pop(CONTEXT)
        if prepare is None:
            return context, arguments
        use, state = use_of(context)
        changed: Any = {**use, "input": arguments}
        return context, prepare(changed, state)

    def work(**arguments: Any) -> Any:
        context, arguments = prepared(arguments)
        return finished(tool(**arguments), context)

    async def async_work(**arguments: Any) -> Any:
        context, arguments = prepared(arguments)
        return finished(await tool.acall(**arguments), context)

    is_async = (
        tool.supports_async
        or type(tool).acall is not BaseTool.acall
        or inspect.iscoroutinefunction(type(tool).__call__)
    )
    return made(tool, schema, async_work if is_async else work, is_async=is_async)


def by_position(tool: "BaseTool", values: list[Any]) -> dict[str, Any]:
    """*values* as arguments by name, in the order of the tool's parameters.

    Raises ToolError `invalid_arguments` where there are too many.
    """
    try:
        parameters = list(inspect.signature(tool).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in kinds]
    if not names:
        names = list(tool_of(tool).spec.input_schema.get("properties", {}))
    if len(values) > len(names):
        raise ToolError(
            f"Tool '{tool.tool_name}' takes {len(names)} arguments by position, not {len(values)}: {', '.join(names)}.",
            "invalid_arguments",
        )
    return dict(zip(names, values, strict=False))


def _decoded(arguments: Any) -> Any:
    """What a call was given, as JSON values. It was checked before: it is JSON."""
    if isinstance(arguments, str | bytes):
        import pydantic_core

        return pydantic_core.from_json(arguments) if arguments.strip() else {}
    return {} if arguments is None else arguments
