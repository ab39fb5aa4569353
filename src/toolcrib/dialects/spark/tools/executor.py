"""`spark.tools.executor`: runs ToolUses in a workbench. Every ToolUse gets a ToolResult, even an invalid one."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ....call import error_result
from ....core import Call, Result, Text, ToolError
from ....workbench import Limit, Registry, Workbench
from ._core_tool import as_json, blocks_from, is_tool_result
from .decorator import DecoratedFunctionTool
from .registry import ToolRegistry, core_tools
from .tools import InvalidToolUseNameException, validate_tool_use
from .types import BaseTool, ToolResult, ToolUse


@dataclass(slots=True)
class ToolExecutionConfig:
    """Seconds that a tool use may take, how many run at a time, and whether results have timestamps."""

    default_timeout: float | None = None
    max_concurrency: int | None = 32
    capture_timestamps: bool = True


class ToolCallExecutor:
    """Runs ToolUses with the tools of a registry. *loop* is accepted, as in Spark, and has no effect."""

    def __init__(
        self,
        registry: ToolRegistry,
        config: ToolExecutionConfig | None = None,
        *,
        loop: Any = None,
    ) -> None:
        self._registry = registry
        self._config = config or ToolExecutionConfig()
        concurrency = self._config.max_concurrency or 0
        # Spark waits without end: a thousand years here.
        limits = [Limit(per="workbench", concurrency=concurrency, wait_s=3e10)] if concurrency > 0 else []
        self._core_registry = Registry()
        # Spark's results have the texts of exceptions, and the whole of a value.
        self._bench = Workbench(
            self._core_registry, limits=limits, error_message=_message, show_errors=True, max_result_chars=None
        )

    async def execute_tool_use(
        self,
        tool_use: ToolUse,
        invocation_state: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - Spark's name for it
    ) -> ToolResult:
        """Run one tool use and return its ToolResult. *timeout* in seconds replaces the default.

        `metadata` has `tool_name` and `duration_ms`, and for an error the `reason` ("timeout", "exception", or another
        of Toolcrib's codes) and the `code`. A ToolResult that the tool returns is the result, with the id of the tool
        use. Text stays text, and any other value becomes JSON text.
        """
        use: Any = tool_use if isinstance(tool_use, Mapping) else {}
        call = Call(str(use.get("name", "")), None, str(use.get("toolUseId") or ""))
        call.timeout_s = self._config.default_timeout if timeout is None else timeout
        if call.timeout_s is not None:
            call.timeout_s = max(call.timeout_s, 1e-6)  # a timeout of 0 has passed at once
        call.data = {"tool_use": tool_use, "invocation_state": {} if invocation_state is None else invocation_state}
        try:
            validate_tool_use(use)
            call.arguments = self._arguments(call.tool, use.get("input"))
            return self._tool_result(await self._bench.call(call))
        except InvalidToolUseNameException as error:
            refusal = ToolError(str(error), "unknown_tool")
        except ToolError as error:
            refusal = ToolError(_message(error, error, call), error.code)
        return self._tool_result(error_result(call, refusal, datetime.now(UTC)))

    def _arguments(self, name: str, value: Any) -> Any:
        """Return the arguments for the tool *name*, and give the workbench that tool if there is one.

        Programs may change the Spark registry at any time.
        """
        tools = {**self._registry.dynamic_tools, **self._registry.registry}
        tool = tools.get(name)
        if tool is None:  # the error suggests the nearest name of all
            old_names = [core_tool.spec.name for core_tool in self._core_registry]
            self._core_registry.exchange(old_names, core_tools(tools).values())
            return value
        current, old = core_tools({name: tool})[name], self._core_registry.find(name)
        if current is not old:
            self._core_registry.exchange([] if old is None else [name], [current])
        if value is None or isinstance(value, Mapping):
            return value
        if not isinstance(tool, DecoratedFunctionTool):
            return _by_position(tool, value if isinstance(value, list | tuple) else [value])
        return value if isinstance(value, str) else as_json(value)  # JSON text, as models write it

    def _tool_result(self, result: Result[Any]) -> ToolResult:
        spark_result: ToolResult = {"toolUseId": result.call_id, "status": "success", "content": []}
        metadata: dict[str, Any] = {}
        if result.error is not None:
            code = result.error.code
            spark_result["status"], spark_result["content"] = "error", [{"text": result.error.message}]
            metadata = {"reason": _REASONS.get(code, code), "code": code}
        elif result.pending is not None:
            spark_result["status"], spark_result["content"] = "in_progress", [{"text": result.text}]
            metadata = {"reason": result.pending.kind, "pending_id": result.pending.id}
        elif is_tool_result(result.value):
            # The id is that of the use, whatever id the tool made up.
            own: ToolResult = result.value
            spark_result = {**own, "toolUseId": result.call_id or own.get("toolUseId", "")}
            metadata = own.get("metadata") or {}
        else:
            spark_result["content"] = blocks_from(result.content or (Text(""),))
        if self._config.capture_timestamps:
            spark_result.setdefault("started_at", result.started_at.isoformat())
            if spark_result["status"] != "in_progress":
                spark_result.setdefault("completed_at", result.finished_at.isoformat())
        times = {"duration_ms": int(result.duration_s * 1000), "tool_name": result.tool}
        spark_result["metadata"] = {**times, **metadata}
        return spark_result


_REASONS = {"failed": "exception", "invalid_arguments": "exception", "invalid_result": "exception"}
"""Spark's reasons for errors, by code. Other codes are themselves the reason."""


def _message(error: ToolError, _: BaseException, call: Call) -> str:
    """Return Spark's message for *error*."""
    match error.code:
        case "timeout":
            return f"Tool '{call.tool}' timed out" + (f" after {call.timeout_s:.2f}s" if call.timeout_s else "")
        case "failed":
            return f"Tool '{call.tool}' failed: {error.details.get('text', error.message)}"
        case "invalid_arguments":
            message = error.message.removeprefix(f"Tool '{call.tool}': ")
            return f"Tool '{call.tool}' failed: Validation failed for input parameters: {message}"
        case "invalid_result":
            return f"Tool '{call.tool}' failed: {error.message}"
        case _:
            return error.message


def _by_position(tool: BaseTool, values: list[Any] | tuple[Any, ...]) -> dict[str, Any]:
    """Return *values* as arguments by name, in the order of the parameters of *tool*, or else of its schema.

    Raises ToolError `invalid_arguments` for too many.
    """
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [name for name, parameter in inspect.signature(tool).parameters.items() if parameter.kind in kinds]
    names = names or list(tool.__toolcrib__().spec.input_schema.get("properties", {}))
    if len(values) > len(names):
        raise ToolError(
            f"Tool '{tool.tool_name}' takes {len(names)} arguments by position, not {len(values)}: {', '.join(names)}.",
            "invalid_arguments",
        )
    return dict(zip(names, values, strict=False))
