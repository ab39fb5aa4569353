"""How a run ended, and what was done on the way. Values."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Literal

from ..core import Call, Pending, Repair, Result, Status
from ..formats import Reply, Results, Turn, Usage

RunStatus = Literal["done", "pending", "stopped", "failed", "cancelled"]
"""The model was done; calls wait for an answer; a bound ended the run; the model could not go on; somebody gave up."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One call that a run made. Data for logs: known secrets are struck out of it.

    *arguments* are as the model wrote them, *text* is what it was told. *code* is the error's, or None. Times are
    in seconds since the epoch.
    """

    call_id: str
    tool: str
    arguments: str
    text: str
    status: Status
    code: str | None
    repairs: tuple[Repair, ...]
    started_s: float
    finished_s: float

    @property
    def started_at(self) -> datetime:
        return datetime.fromtimestamp(self.started_s, UTC)

    @property
    def finished_at(self) -> datetime:
        return datetime.fromtimestamp(self.finished_s, UTC)

    def to_dict(self) -> dict[str, Any]:
        """The trace as JSON data, without what it does not say."""
        said: dict[str, Any] = {
            "call_id": self.call_id,
            "tool": self.tool,
            "arguments": self.arguments,
            "text": self.text,
            "status": self.status,
            "code": self.code,
            "repairs": [{"path": r.path, "from": r.from_kind, "to": r.to_kind} for r in self.repairs] or None,
            "started_at": self.started_at.isoformat(),
            "finished_at": self.finished_at.isoformat(),
        }
        return {name: value for name, value in said.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    `text` is what the model said last. `why` says in words why a run is not done. `turns` is the whole conversation, in
    which every call has its result, so the next run may go on with it: `agent.run("And now?", after=outcome.turns)`.
    `usage` is the sum over the run, `trace` has each of its calls in the order in which they were asked for. Of a
    pending run, `pendings` is what it waits for, each once, and `state` is what `Agent.resume` goes on from: JSON data.
    """

    status: RunStatus
    text: str
    why: str = ""
    turns: tuple[Turn, ...] = ()
    usage: Usage = field(default_factory=Usage)
    trace: tuple[Trace, ...] = ()
    pendings: tuple[Pending, ...] = ()
    state: dict[str, Any] | None = None


def traced(turns: Sequence[Turn], strike: Callable[[str], str]) -> tuple[Trace, ...]:
    """The calls of *turns*, each with its result."""
    found: list[Trace] = []
    for turn, following in pairwise(turns):
        if isinstance(turn, Reply) and turn.calls and isinstance(following, Results):
            found += [_trace(*pair, strike) for pair in zip(turn.calls, following.results, strict=True)]
    return tuple(found)


def _trace(call: Call, result: Result[Any], strike: Callable[[str], str]) -> Trace:
    return Trace(
        call.id,
        strike(call.tool),
        strike(_written(call.arguments)),
        strike(result.text),
        result.status,
        None if result.error is None else result.error.code,
        result.repairs,
        result.started_s,
        result.finished_s,
    )


def _written(arguments: str | bytes | Mapping[str, Any] | None) -> str:
    if isinstance(arguments, str):
        return arguments
    if isinstance(arguments, bytes):
        return arguments.decode(errors="replace")
    return "" if arguments is None else json.dumps(dict(arguments), ensure_ascii=False, default=str)
