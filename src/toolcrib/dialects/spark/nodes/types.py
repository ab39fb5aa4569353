"""`spark.nodes.types`: what an agent is given and what it gives. Graphs and queues are no part of this."""

import copy
import time
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

TNodeState = TypeVar("TNodeState")


class NodeMessage(BaseModel):
    """What is said to an agent, and what it says: `content`, and in `raw` what that was made of."""

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
    """Which attempt this is, and when it ran: seconds of `time.perf_counter()`."""

    attempt: int = 1
    started_at: float | None = None
    finished_at: float | None = None

    def mark_started(self, attempt: int) -> None:
        """This attempt begins now."""
        self.attempt, self.started_at, self.finished_at = attempt, time.perf_counter(), None

    def mark_finished(self) -> None:
        """It ends now."""
        self.finished_at = time.perf_counter()

    @property
    def duration(self) -> float | None:
        """How long it took, in seconds; None before it has ended."""
        if self.started_at is None or self.finished_at is None:
            return None
        return self.finished_at - self.started_at

    def as_dict(self) -> dict[str, Any]:
        """The same as a dictionary."""
        return {
            "attempt": self.attempt,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "duration": self.duration,
        }


@dataclass(slots=True)
class ExecutionContext(Generic[TNodeState]):
    """What `process` is given: `inputs`. An agent looks at nothing else of it, and sets `metadata` and `outputs`."""

    inputs: NodeMessage = field(default_factory=NodeMessage)
    state: TNodeState | dict[str, Any] = field(default_factory=dict[str, Any])
    metadata: ExecutionMetadata = field(default_factory=ExecutionMetadata)
    outputs: Any = None
    graph_state: Any = None

    def snapshot(self) -> Any:
        """A copy of the state, as deep as it can be made."""
        return _copy(self.state)

    def fork(self) -> "ExecutionContext[TNodeState]":
        """A copy for another branch. The state of the graph stays shared."""
        return replace(
            self,
            inputs=_copy(self.inputs),
            state=_copy(self.state),
            metadata=replace(self.metadata),
            outputs=_copy(self.outputs),
        )


def _copy(value: Any) -> Any:
    # A lock, a connection or an agent in it cannot be copied, and then it is shared.
    try:
        return copy.deepcopy(value)
    except Exception:
        return copy.copy(value) if isinstance(value, dict | list) else value
