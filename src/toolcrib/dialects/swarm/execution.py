"""What happened in a turn of tool calls. Data: nothing here runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...core import Result, ToolError
from .words import IToolCall

EventKind = Literal[
    "dropped",
    "on_validate",
    "validate",
    "refused",
    "on_before_call",
    "call",
    "commit",
    "return",
    "error",
    "on_after_call",
    "on_call_error",
    "skipped",
]
"""What happened to a call. The callbacks' names stand for their moment, also where a tool has no such callback."""


Outcome = Literal["success", "refused", "error", "aborted"]


@dataclass(frozen=True, slots=True)
class ToolEvent:
    """Something that happened to one call. *function* is the name it was called by; *detail* may say why."""

    kind: EventKind
    tool_id: str
    function: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Execution:
    """What happened to the tool calls of one turn.

    - *status*: "success"; "refused", and then none ran; "error", and then those that had not begun did not run; or
      "aborted".
    - *tool_calls*: the calls of the turn, each with its id, without those that were dropped.
    - *events*: what happened, in order.
    - *outputs*: what was committed or returned, as text, by tool id: only of calls that have an output.
    - *results*: how each call ended, by tool id, those that were dropped or did not run included.
    """

    status: Outcome
    tool_calls: tuple[IToolCall, ...]
    events: tuple[ToolEvent, ...]
    outputs: Mapping[str, str]
    results: Mapping[str, Result[Any]]

    @property
    def errors(self) -> dict[str, ToolError]:
        """Why calls failed or did not run, by tool id."""
        return {tool_id: result.error for tool_id, result in self.results.items() if result.error is not None}

    def messages(self) -> list[dict[str, Any]]:
        """What the model is told, a message for each call: its output, or else why there is none."""
        return [
            {"role": "tool", "tool_call_id": tool_id, "content": self.outputs.get(tool_id, result.text)}
            for tool_id, result in self.results.items()
        ]
