"""`spark.nodes` and its `types`: the inputs and outputs of an agent. Graphs and queues are not part of the dialect."""

import time
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from ..._modules import also_as, left_out

__all__ = ["ExecutionContext", "ExecutionMetadata", "NodeMessage"]


TNodeState = TypeVar("TNodeState")


class NodeMessage(BaseModel):
    """A message to or from an agent: its `content`, and the object that it was made from in `raw`."""

    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)

    id: str | None = Field(default=None, coerce_numbers_to_str=True)
    type: Literal["json", "text"] = "text"
    content: Any = None
    raw: Any = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    extras: dict[str, Any] = Field(default_factory=dict)
    state: dict[str, Any] | None = None


@dataclass(slots=True)
class ExecutionMetadata:
    """The number of an attempt, and its times in seconds of `time.perf_counter()`."""

    attempt: int = 1
    started_at: float | None = None
    finished_at: float | None = None

    def mark_started(self, attempt: int) -> None:
        """Set the start of this *attempt* to now."""
        self.attempt, self.started_at, self.finished_at = attempt, time.perf_counter(), None

    def mark_finished(self) -> None:
        """Set its end to now."""
        self.finished_at = time.perf_counter()

    @property
    def duration(self) -> float | None:
        """Return its duration in seconds; None before its end."""
        if self.started_at is None or self.finished_at is None:
            return None
        return self.finished_at - self.started_at


@dataclass(slots=True)
class ExecutionContext(Generic[TNodeState]):
    """The argument of `process`. An agent reads `inputs`, and sets `metadata` and `outputs`."""

    inputs: NodeMessage = field(default_factory=NodeMessage)
    state: TNodeState | dict[str, Any] = field(default_factory=dict[str, Any])
    metadata: ExecutionMetadata = field(default_factory=ExecutionMetadata)
    outputs: Any = None
    graph_state: Any = None


also_as(__name__, "types")

__getattr__ = left_out(__name__, "Nodes and graphs are left out, but for the messages of agents.")
