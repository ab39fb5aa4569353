"""`spark.tools.executor`: runs ToolUses on a workbench. Whatever is wrong with one is told in its ToolResult."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from time import time
from typing import Any, cast

from ....core import Result, Text, ToolError
from ....workbench import Limit, Workbench
from ....workbench import Registry as CoreRegistry
from . import _ours
from ._content import blocks_from
from .decorator import DecoratedFunctionTool
from .registry import ToolRegistry
from .tools import InvalidToolUseNameException, validate_tool_use
from .types import ToolResult, ToolUse

logger = logging.getLogger(__name__)

_PATIENCE_S = 1e9
"""A use waits for its turn as long as it takes."""


@dataclass(slots=True)
class ToolExecutionConfig:
    """How uses are run: how long each may take, in seconds, how many at a time, and whether results carry times."""

    default_timeout: float | None = None
    max_concurrency: int | None = 32
    capture_timestamps: bool = True


class ToolCallExecutor:
    """Runs the ToolUses of a registry's tools. *loop* is taken, as Spark does, and has no effect."""

    def __init__(
        self,
        registry: ToolRegistry,
        config: ToolExecutionConfig | None = None,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._registry = registry
        self._config = config or ToolExecutionConfig()
        most = self._config.max_concurrency
        limits = [Limit(per="workbench", concurrency=most, wait_s=_PATIENCE_S)] if most and most > 0 else []
        self._ours = CoreRegistry()
        # The texts of exceptions are part of Spark's results, and all of a value is.
        self._bench = Workbench(self._ours, limits=limits, show_errors=True, max_result_chars=None)

    async def execute_tool_use(
        self,
        tool_use: ToolUse,
        invocation_state: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - Spark's name for it
    ) -> ToolResult:
        """Run one use. *timeout* is in seconds, in place of the default one.

        Always gives a ToolResult. `metadata` has `tool_name` and `duration_ms`, and of an error the `reason`
        ("timeout", "exception", or another code of toolcrib's) and the `code`. What a tool returned as a ToolResult is
        the result, under the id of the use; text is text, and anything else is JSON text.
        """
        made: object = tool_use
        if not isinstance(made, Mapping):
            wrong = ToolError(f"A tool use is a dictionary, not a {type(made).__name__}.", "invalid_arguments")
            return self._refused("", "", wrong)
        name, use_id = str(tool_use.get("name", "")), str(tool_use.get("toolUseId") or "")
        try:
            validate_tool_use(tool_use)
            arguments = self._arguments(name, tool_use)
        except InvalidToolUseNameException as error:
            return self._refused(use_id, name, ToolError(str(error), "unknown_tool"))
        except ToolError as error:
            return self._refused(use_id, name, error)
        limit_s = self._config.default_timeout if timeout is None else timeout
        logger.info("tool '%s' begins", name)
        result = await self._bench.call(
            _ours.Use(
                name,
                arguments,
                use_id,
                # No time at all is a time that has passed.
                timeout_s=None if limit_s is None else max(limit_s, 1e-6),
                tool_use=tool_use,
                invocation_state={} if invocation_state is None else invocation_state,
            )
        )
        told = self._told(result, use_id, name, limit_s)
        logger.info("tool '%s' ended: %s", name, told["status"])
        return told

    def _arguments(self, name: str, use: ToolUse) -> Any:
        """What the workbench is given, which knows the tool by now, if there is one."""
        given, known = use.get("input"), {**self._registry.dynamic_tools, **self._registry.registry}
        tool = known.get(name)
        if tool is None:
            self._take_in(known)  # so that the nearest name can be told
            self._ours.exchange([ours.spec.name for ours in self._ours if ours.spec.name not in known], [])
            return None
        self._take_in([name])
        if given is None or isinstance(given, Mapping):
            return given
        if isinstance(tool, DecoratedFunctionTool):
            if isinstance(given, str):
                return given  # JSON text, as models write it
            kind = type(given).__name__
            raise ToolError(f"the input is a {kind}, not a dictionary of arguments.", "invalid_arguments")
        return _ours.by_position(tool, list(given) if isinstance(given, list | tuple) else [given])

    def _take_in(self, names: Any) -> None:
        """What the registry has now under *names*, which programs may change at any time."""
        for name in names:
            ours = self._registry.get_tool(name).__toolcrib__()
            if ours.spec.name != name:
                ours = ours.named(name)
            if self._ours.find(name) is not ours:
                self._ours.exchange([name] if name in self._ours else [], [ours])

    def _told(self, result: Result[Any], use_id: str, name: str, limit_s: float | None) -> ToolResult:
        told: ToolResult
        if result.error is not None:
            text, reason = _words(result.error, name, limit_s)
            told = _error(use_id, text, {"reason": reason, "code": result.error.code})
        elif result.pending is not None:
            told = {"toolUseId": use_id, "status": "in_progress", "content": [{"text": result.text}]}
            told["metadata"] = {"reason": result.pending.kind, "pending_id": result.pending.id}
        elif _ours.is_tool_result(result.value):
            # A copy: the tool may keep its own. It answers this use, whatever id the tool had to make up.
            of_use = {"toolUseId": use_id or result.value.get("toolUseId", "")}
            told = cast(ToolResult, {**result.value, **of_use, "metadata": {**(result.value.get("metadata") or {})}})
        else:
            content = result.content or (Text(""),)
            told = {"toolUseId": use_id, "status": "success", "content": blocks_from(content)}
        if self._config.capture_timestamps:
            told.setdefault("started_at", result.started_at.isoformat())
            if told["status"] != "in_progress":
                told.setdefault("completed_at", result.finished_at.isoformat())
        metadata = told.setdefault("metadata", {})
        metadata.setdefault("duration_ms", int((result.finished_s - result.started_s) * 1000))
        metadata.setdefault("tool_name", name)
        return told

    def _refused(self, use_id: str, name: str, error: ToolError) -> ToolResult:
        """The result of a use that was not begun."""
        now = time()
        result: Result[Any] = Result(None, (), error, (), now, now, use_id, name)
        return self._told(result, use_id, name, None)


def _error(use_id: str, text: str, metadata: dict[str, Any]) -> ToolResult:
    return {"toolUseId": use_id, "status": "error", "content": [{"text": text}], "metadata": metadata}


def _words(error: ToolError, name: str, limit_s: float | None) -> tuple[str, str]:
    """What is said of *error* in Spark's words, and its reason."""
    match error.code:
        case "timeout":
            return f"Tool '{name}' timed out" + ("" if limit_s is None else f" after {limit_s:.2f}s"), "timeout"
        case "failed":
            return f"Tool '{name}' failed: {error.details.get('text', error.message)}", "exception"
        case "invalid_arguments":
            said = "Validation failed for input parameters: " + error.message.removeprefix(f"Tool '{name}': ")
            return f"Tool '{name}' failed: {said}", "exception"
        case "invalid_result":
            return f"Tool '{name}' failed: {error.message}", "exception"
        case code:
            return error.message, code
