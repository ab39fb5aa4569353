"""How a run ended, and which calls it made. Values."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, Literal

from ..core import Call, Pending, Repair, Result, Status
from ..formats import Reply, Results, Turn, Usage
from ..machinery import redacted_json

RunStatus = Literal["done", "pending", "stopped", "failed", "cancelled"]
"""The model was done; calls wait for an answer; a limit was reached; the model could not continue; it was cancelled."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One call of a run. Data for logs: known secrets are redacted.

    *arguments* are as the model wrote them, *text* is the result as the model got it, *code* is the error's. *handle*
    is that of a large result, of which *text* is a preview.
    """

    call_id: str
    tool: str
    arguments: str
    text: str
    status: Status
    code: str | None
    repairs: tuple[Repair, ...]
    started_at: datetime
    finished_at: datetime
    handle: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the trace as JSON data, without members that are not set."""
        members: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        members |= {
            "repairs": [{"path": r.path, "from": r.from_kind, "to": r.to_kind} for r in self.repairs] or None,
            "started_at": self.started_at.isoformat(),
            "finished_at": self.finished_at.isoformat(),
        }
        return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    `text` is the model's last text. `why` is the reason why a run is not done. `turns` is the whole conversation, in
    which every call has its result, so the next run can continue it: `agent.run("And now?", after=outcome.turns)`.
    `usage` is the sum over the run, `trace` has each of its calls in the model's order. Of a pending run, `pendings` is
    what it waits for: calls that are the same wait for one, and an answer to it counts for one of them. `state` is what
    `Agent.resume` takes: JSON data. An agent with a name has stored it instead, under the id `task`, which `Agent.wait`
    takes.
    """

    status: RunStatus
    text: str
    why: str = ""
    turns: tuple[Turn, ...] = ()
    usage: Usage = field(default_factory=Usage)
    trace: tuple[Trace, ...] = ()
    pendings: tuple[Pending, ...] = ()
    state: dict[str, Any] | None = None
    task: str | None = None


def traced(turns: Sequence[Turn], redact: Callable[[str], str]) -> tuple[Trace, ...]:
    """Return the calls of *turns*, each with its result."""
    traces: list[Trace] = []
    for turn, following in pairwise(turns):
        if isinstance(turn, Reply) and turn.calls and isinstance(following, Results):
            traces += [_trace(*pair, redact) for pair in zip(turn.calls, following.results, strict=True)]
    return tuple(traces)


def _trace(call: Call, result: Result[Any], redact: Callable[[str], str]) -> Trace:
    handle = result.metadata.get("handle")
    return Trace(
        call.id,
        redact(call.tool),
        redacted_json(_arguments_text(call.arguments), redact),
        redact(result.text),
        result.status,
        None if result.error is None else result.error.code,
        result.repairs,
        result.started_at,
        result.finished_at,
        handle if isinstance(handle, str) else None,
    )


def _arguments_text(arguments: str | bytes | Mapping[str, Any] | None) -> str:
    if isinstance(arguments, str):
        return arguments
    if isinstance(arguments, bytes):
        return arguments.decode(errors="replace")
    return "" if arguments is None else json.dumps(dict(arguments), ensure_ascii=False, default=str)
