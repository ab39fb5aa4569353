"""A Toolcrib tool for a Spark tool: how it is called, and how its return value becomes a result."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ....core import Call, Context, Hints, Result, Text, ToolError, ToolSpec
from ....machinery import Work
from ....tools import Tool, from_schema
from ._blocks import content_of, is_block

_STATUSES = ("success", "error", "in_progress")
_RESULT_KEYS = {"content", "status", "metadata", "started_at", "completed_at", "progress"}


def tool_use_of(context: Context) -> tuple[Any, dict[str, Any]]:
    """Return the ToolUse and the invocation state of a call, which an executor puts into `Call.data`."""
    call = context.call
    if call.data and "tool_use" in call.data:
        return call.data["tool_use"], call.data["invocation_state"]
    return {"toolUseId": call.id, "name": call.tool, "input": arguments_of(call)}, dict(context.variables)


def arguments_of(call: Call) -> Any:
    """Return the arguments of *call* as JSON values, or their text if it is not valid JSON."""
    value = call.arguments
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        try:
            return json.loads(value) if value.strip() else {}
        except ValueError:
            return value
    return {} if value is None else dict(value)


def is_tool_result(value: Any) -> bool:
    """Return whether *value* is a ToolResult, and not a dictionary that only shares keys with one.

    A tool without a context does not know its id. A result without one must have blocks as content.
    """
    if not isinstance(value, dict) or value.get("status") not in _STATUSES:
        return False
    content = value.get("content")
    if isinstance(value.get("toolUseId"), str):
        return isinstance(content, list)
    return value.keys() <= _RESULT_KEYS and isinstance(content, list) and bool(content) and all(map(is_block, content))


def build_tool(
    tool: Any,
    schema: Mapping[str, Any],
    fn: Callable[..., Any],
    prepare: Callable[[dict[str, Any], Context], dict[str, Any]],
    *,
    is_async: bool,
    home: str,
    **options: Any,
) -> Tool[..., Any]:
    """Return the Toolcrib tool for the Spark tool *tool*.

    It calls *fn* with what *prepare* makes of the checked arguments. *home* is the module that it belongs to.
    """
    hints = Hints(long_running=tool.is_long_running or None)
    spec = ToolSpec(tool.tool_name, tool.tool_spec.get("description", ""), schema, hints=hints)
    core_tool = from_schema(spec, fn, runs="async" if is_async else "sync", home=home, **options)
    core_tool = core_tool.wrapped(partial(_spark_work, prepare))
    core_tool.needs_context = True
    core_tool.fn = tool  # so that a program can call it by the tool itself: `bench.call(search, "x")`
    return core_tool


def _spark_work(prepare: Callable[[dict[str, Any], Context], dict[str, Any]], work: Work) -> Work:
    async def prepared(arguments: dict[str, Any], context: Context) -> Any:
        return _normalized(await work(prepare(arguments, context), context), context)

    return prepared


def _normalized(value: Any, context: Context) -> Any:
    """Return *value* for a workbench: the content of a ToolResult. Raises ToolError if its status is "error".

    The executor gets the ToolResult as it is.
    """
    if not is_tool_result(value) or "tool_use" in (context.call.data or ()):
        return value
    content = content_of(value["content"])
    if value["status"] == "error":
        raise ToolError("\n".join(part.text for part in content) or "The tool failed.")
    return Result(value, content or (Text(""),))
