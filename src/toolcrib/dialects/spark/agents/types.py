"""`spark.agents.types`: the state of an agent."""

from typing import Any

from typing_extensions import TypedDict


class ToolTrace(TypedDict):
    """One call. Times are in seconds since the epoch.

    `input_params` are the model's arguments, or their text if it is not valid JSON. `output` is the tool's return
    value, or the message that the model received for a call that failed. `error` is None if the call did not fail.
    """

    tool_name: str
    tool_use_id: str
    input_params: Any
    output: Any
    start_time: float
    end_time: float
    duration_ms: float
    error: str | None


class AgentState(TypedDict):
    """A snapshot of an agent, made by `Agent.state`."""

    messages: list[dict[str, Any]]
    tool_traces: list[ToolTrace]
    last_result: Any
    last_error: str | None
