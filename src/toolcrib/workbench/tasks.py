"""Calls that run as tasks, as programs see them. The room `durable` runs them."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from ..core import Event, Result, ToolcribError

TaskState = Literal["queued", "running", "waiting", "ended", "lost"]


class UnknownTaskError(ToolcribError):
    """The id of a task that is not there, or is another principal's."""


@dataclass(frozen=True, slots=True)
class Task:
    """A call that runs as a task. *arguments* are JSON text, secrets redacted.

    `waiting`: for a time, or an answer, until *run_at*, in UTC. `lost`: its process died, and it is not known whether
    it took effect. *attempts* is how often its process has died. *result* is there once it has ended.
    """

    id: str
    tool: str
    principal: str
    thread: str
    state: TaskState
    started_at: datetime
    run_at: datetime | None
    attempts: int = 0
    arguments: str = "{}"
    result: Result[Any] | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the task as JSON data."""
        data: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        times = {name: data[name] and data[name].isoformat() for name in ("started_at", "run_at")}
        return {**data, **times, "result": self.result and self.result.to_dict()}


class Tasks(Protocol):
    """The tasks of a crib. An id is known to *principal* alone where that is given."""

    async def start(self) -> None:
        """Run what is due in this process, also what a dead one has left."""
        ...

    async def stop(self) -> None:
        """Stop what runs here: what is idempotent runs again elsewhere, or after the next start."""
        ...

    async def get(self, id: str, *, principal: str | None = None) -> Task:  # noqa: A002
        """Return the task with *id*. Raises UnknownTaskError."""
        ...

    async def list(self, *, principal: str | None = None, after: str | None = None, limit: int = 50) -> Sequence[Task]:
        """Return at most *limit* tasks, the newest first; those that come next to the task with the id *after*."""
        ...

    async def wait(self, id: str, *, principal: str | None = None, timeout_s: float | None = None) -> Result[Any]:  # noqa: A002
        """Return the result of a task, once it has ended. Raises TimeoutError after *timeout_s*, UnknownTaskError."""
        ...

    def follow(self, id: str, *, principal: str | None = None) -> AsyncIterator[Event | Result[Any]]:  # noqa: A002
        """Yield what a task has reported so far, and reports from now on, in whichever process; last its result."""
        ...

    async def cancel(self, id: str, *, principal: str | None = None) -> bool:  # noqa: A002
        """Stop a task. False where it has ended already, or is lost. Raises UnknownTaskError."""
        ...
