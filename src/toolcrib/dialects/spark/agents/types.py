"""`spark.agents.types`: what an agent remembers."""

from typing import Any

from typing_extensions import TypedDict


class ToolTrace(TypedDict):
    """One call of a tool. Times are in seconds since the epoch.

    `input_params` are the arguments as the model gave them; where they are no JSON, the text that they are. `output` is
    what the tool returned, and of a call that failed what the model was told. `error` is None for one that did not.
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
    """What `Agent.state` shows: a view, made anew each time."""

    messages: list[dict[str, Any]]
    tool_traces: list[ToolTrace]
    last_result: Any
    last_error: str | None
