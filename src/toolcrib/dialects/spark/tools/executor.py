"""`spark.tools.executor`: runs ToolUses in a workbench. Every ToolUse gets a ToolResult, even an invalid one."""

import asyncio
import inspect
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ....call import error_result
from ....core import Call, Result, Text, ToolError
from ....workbench import Limit, Registry, Workbench
from ._blocks import as_json, blocks_from
from ._core_tool import is_tool_result
from .decorator import DecoratedFunctionTool
from .registry import ToolRegistry, core_tools
from .tools import InvalidToolUseNameException, validate_tool_use
from .types import BaseTool, ToolResult, ToolUse

logger = logging.getLogger(__name__)

_MAX_WAIT_S = 1e9  # about 30 years


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
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._registry = registry
        self._config = config or ToolExecutionConfig()
        concurrency = self._config.max_concurrency
        is_limited = concurrency is not None and concurrency > 0
        limits = [Limit(per="workbench", concurrency=concurrency, wait_s=_MAX_WAIT_S)] if is_limited else []
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
        value: object = tool_use
        if not isinstance(value, Mapping):
            wrong = ToolError(f"A tool use is a dictionary, not a {type(value).__name__}.", "invalid_arguments")
            return self._refusal("", "", wrong)
        name, use_id = str(tool_use.get("name", "")), str(tool_use.get("toolUseId") or "")
        try:
            validate_tool_use(tool_use)
            arguments = self._arguments(name, tool_use.get("input"))
        except InvalidToolUseNameException as error:
            return self._refusal(use_id, name, ToolError(str(error), "unknown_tool"))
        except ToolError as error:
            return self._refusal(use_id, name, error)
        timeout_s = self._config.default_timeout if timeout is None else timeout
        if timeout_s is not None:
            timeout_s = max(timeout_s, 1e-6)  # a timeout of 0 has passed at once
        data = {"tool_use": tool_use, "invocation_state": {} if invocation_state is None else invocation_state}
        logger.info("tool '%s' started", name)
        result = await self._bench.call(Call(name, arguments, use_id, timeout_s, data=data))
        spark_result = self._tool_result(result)
        logger.info("tool '%s' finished: %s", name, spark_result["status"])
        return spark_result

    def _arguments(self, name: str, written: Any) -> Any:
        """Return the arguments for the tool *name*, and give the workbench that tool if there is one.

        Programs may change the Spark registry at any time.
        """
        known = {**self._registry.dynamic_tools, **self._registry.registry}
        tool = known.get(name)
        # All of them for an unknown name, so that the error can suggest the nearest one.
        current = core_tools(known if tool is None else {name: tool})
        if tool is None or current[name] is not self._core_registry.find(name):
            old = [each.spec.name for each in self._core_registry if tool is None or each.spec.name == name]
            self._core_registry.exchange(old, current.values())
        if tool is None or written is None or isinstance(written, Mapping):
            return written
        if not isinstance(tool, DecoratedFunctionTool):
            return _by_position(tool, written if isinstance(written, list | tuple) else [written])
        return written if isinstance(written, str) else as_json(written)  # JSON text, as models write it

    def _tool_result(self, result: Result[Any]) -> ToolResult:
        use_id = result.call_id
        converted: ToolResult = {"toolUseId": use_id, "status": "success", "content": [], "metadata": {}}
        if result.error is not None:
            code = result.error.code
            converted["status"], converted["content"] = "error", [{"text": result.error.message}]
            converted["metadata"] = {"reason": _REASONS.get(code, code), "code": code}
        elif result.pending is not None:
            converted["status"], converted["content"] = "in_progress", [{"text": result.text}]
            converted["metadata"] = {"reason": result.pending.kind, "pending_id": result.pending.id}
        elif is_tool_result(result.value):
            # A copy, since the tool may keep its own. The id is that of the use, whatever id the tool made up.
            own: ToolResult = result.value
            converted = {**own, "toolUseId": use_id or own.get("toolUseId", "")}
            converted["metadata"] = {**(own.get("metadata") or {})}
        else:
            converted["content"] = blocks_from(result.content or (Text(""),))
        if self._config.capture_timestamps:
            converted.setdefault("started_at", result.started_at.isoformat())
            if converted["status"] != "in_progress":
                converted.setdefault("completed_at", result.finished_at.isoformat())
        metadata = converted["metadata"]
        metadata.setdefault("duration_ms", int(result.duration_s * 1000))
        metadata.setdefault("tool_name", result.tool)
        return converted

    def _refusal(self, use_id: str, name: str, error: ToolError) -> ToolResult:
        """Return the result of a tool use that was not executed."""
        call = Call(name, None, use_id)
        error = ToolError(_message(error, error, call), error.code)
        return self._tool_result(error_result(call, error, datetime.now(UTC)))


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
    """Return *values* as arguments by name, in the order of the parameters of *tool*.

    Raises ToolError `invalid_arguments` for too many.
    """
    try:
        parameters = list(inspect.signature(tool).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in kinds]
    names = names or list(tool.__toolcrib__().spec.input_schema.get("properties", {}))
    if len(values) > len(names):
        raise ToolError(
            f"Tool '{tool.tool_name}' takes {len(names)} arguments by position, not {len(values)}: {', '.join(names)}.",
            "invalid_arguments",
        )
    return dict(zip(names, values, strict=False))
