"""Calls that run as tasks, as programs see them. The room `durable` runs them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from ..core import Caller, CancellationToken, Emitted, Pending, Progress, Result, ToolcribError

TaskState = Literal["queued", "running", "waiting", "ended", "lost"]


class UnknownTaskError(ToolcribError):
    """The id of a task that is not there, or is another principal's."""


@dataclass(frozen=True, slots=True)
class Task:
    """A call that runs as a task. *arguments* are JSON text, secrets redacted.

    `queued`: for a process that has the tool, since *run_at*, in UTC. `waiting`: for a time, or an answer, until then.
    `lost`: its process died, and it is not known whether it took effect. *attempts* is how often its process has died.
    *result* is there once it has ended.
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

    def to_dict(self, *, with_content: bool = True) -> dict[str, Any]:
        """Return the task as JSON data, its result without content if not *with_content*."""
        data: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        times = {name: data[name] and data[name].isoformat() for name in ("started_at", "run_at")}
        return {**data, **times, "result": self.result and self.result.to_dict(with_content=with_content)}


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run of the agent *name* that waits for *pendings*, and goes on by itself; with a *result* it has ended.

    *state* is JSON data that the agent alone reads. *prompt* is what people see of it, secrets redacted.
    """

    name: str
    caller: Caller
    state: Mapping[str, Any] = field(repr=False)
    prompt: str = ""
    pendings: Sequence[Pending] = ()
    result: Result[Any] | None = None


Save = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Stores the state of a run that goes on, from which it would go on if its process died."""

GoOn = Callable[[StoredRun, Save, CancellationToken], Awaitable[StoredRun]]
"""Goes on with a run, and returns it as it is then: it waits again, or has a result."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that the tool of a task has logged by `context.log`, secrets redacted. *level*: `"info"`, ..."""

    level: str
    message: str


TaskEvent = Progress | Emitted | LogLine
"""What a task reports while it runs."""


class Tasks(Protocol):
    """The tasks of a crib. An id is known to *principal* alone where that is given.

    The labels of a result that is read are remembered by the thread of its task, and by *thread*, which asks for it.
    """

    @property
    def unclaimed(self) -> Sequence[str]:
        """Return the names of tools with tasks that have been due for a minute, and no process has taken up."""
        ...

    async def start(self) -> None:
        """Run what is due in this process, also what a dead one has left."""
        ...

    async def stop(self) -> None:
        """Stop what runs here: what is idempotent runs again elsewhere, or after the next start."""
        ...

    async def drain(self, timeout_s: float) -> None:
        """Take up no more, and wait until what runs in this process has ended, at most *timeout_s* seconds."""
        ...

    async def get(self, id: str, *, principal: str | None = None, thread: str | None = None) -> Task:  # noqa: A002
        """Return the task with *id*. Raises UnknownTaskError."""
        ...

    async def list(
        self,
        *,
        principal: str | None = None,
        thread: str | None = None,
        state: TaskState | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Sequence[Task]:
        """Return at most *limit* tasks, the newest first; those that come next to the task with the id *after*."""
        ...

    async def wait(
        self,
        id: str,  # noqa: A002
        *,
        principal: str | None = None,
        thread: str | None = None,
        timeout_s: float | None = None,
    ) -> Result[Any]:
        """Return the result of a task, once it has ended, or the error `lost`, which says how a person settles it.

        Raises TimeoutError after *timeout_s*, UnknownTaskError.
        """
        ...

    def follow(
        self,
        id: str,  # noqa: A002
        *,
        principal: str | None = None,
        thread: str | None = None,
    ) -> AsyncIterator[TaskEvent | Result[Any]]:
        """Yield what a task has reported, and reports from now on, in whichever process; last what `wait` returns."""
        ...

    async def progress(self, id: str, *, principal: str | None = None) -> Progress | None:  # noqa: A002
        """Return the progress that a task has reported last, if that is not long ago. Raises UnknownTaskError."""
        ...

    async def questions(self, id: str, *, principal: str | None = None) -> Sequence[Pending]:  # noqa: A002
        """Return what a task waits for of people, the oldest first. Raises UnknownTaskError."""
        ...

    async def cancel(self, id: str, *, principal: str | None = None) -> bool:  # noqa: A002
        """Stop a task. False where it has ended already, or is lost. Raises UnknownTaskError."""
        ...

    async def submit(self, run: StoredRun) -> str:
        """Store *run* as a task, and return its id. It goes on when one of its pendings is answered or has ended."""
        ...

    def go_on_with(self, name: str, work: GoOn) -> None:
        """Go on by *work* with the runs of the agent *name*, in this process."""
        ...

    async def state_of(self, id: str, *, principal: str | None = None) -> Mapping[str, Any]:  # noqa: A002
        """Return the state of the run with the task *id*. Raises UnknownTaskError, also where it is none."""
        ...
