"""Calls that outlive their process: what a ledger stores of one, and what stores them."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from .errors import ToolError
from .pending import Approvers

EntryState = Literal["queued", "running", "waiting", "ended", "released"]


@dataclass(slots=True)
class LedgerEntry:
    """One call with an idempotency key, or that runs as a task, as a ledger has it.

    `running`, a task also `queued` before and `waiting` between, until it has `ended` with its *result*, as JSON data;
    `released` where it did not take place, or may be made again. *digest* is that of the tool and the arguments.
    *is_idempotent*: another run changes nothing more. *fence* counts its runs. *is_own*: it was claimed just now, to be
    run here. *is_abandoned*: its process has not been heard of within its lease, so it is not known how far it came.
    *approved_by* is the person who approved it, as one of *approvers* where these are named, *approval* the digest of
    what they approved, and *grant* the id of their standing one. *arguments* are JSON text, secrets redacted. Of a
    task, *call* is what runs, and its caller; *definition* the digest of what its tool takes and returns, empty where
    any will do; *attempts* counts the runs whose process died. Treat it as a value. (Not frozen: each call with a key
    makes two, and freezing costs 4 µs each.)
    """

    id: str
    principal: str
    key: str
    digest: str
    tool: str
    thread: str
    is_idempotent: bool
    started_at: datetime
    approved_by: str | None = None
    approval: str | None = field(default=None, repr=False)
    approvers: Approvers | None = None
    grant: str | None = None
    arguments: str = field(default="{}", repr=False)
    state: EntryState = "running"
    fence: int = 1
    is_abandoned: bool = False
    is_own: bool = False
    call: Mapping[str, Any] | None = field(default=None, repr=False)
    definition: str = ""
    attempts: int = 0
    run_at: datetime | None = None
    is_cancelled: bool = False
    result: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def is_lost(self) -> bool:
        """Whether it is unknown if the call took effect, until that is settled."""
        return self.is_abandoned and not self.is_idempotent

    def to_dict(self) -> dict[str, str]:
        """Return what a person sees of the call who is to settle it, as JSON data."""
        names = ("id", "principal", "thread", "tool", "key", "arguments", "approved_by")
        data = {name: value for name in names if (value := getattr(self, name)) is not None}
        return {**data, "started_at": self.started_at.isoformat()}


class Steps(Protocol):
    """The finished parts of a task, by their place: each is made once, in whichever run."""

    async def run(self, key: str, work: Callable[[], Awaitable[Any]], /) -> Any:
        """Return the value of the step *key*, JSON data: stored by a run before, or that of *work*, stored now."""
        position, values = await self.begin(f"step {key}")
        if values:
            return values[0]
        value = await work()
        try:
            text = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            message = (
                f"The value of 'step {key}' is not JSON data, and cannot be stored. Let the step return JSON data."
            )
            raise ToolError(message, "invalid_result") from None
        await self.store(position, text)
        return json.loads(text)

    async def begin(self, key: str, /) -> tuple[int, list[Any]]:
        """Return the place of the next step, and the one value that a run before has stored there, if it has."""
        ...

    async def store(self, position: int, text: str, /) -> None:
        """Store the value of a step that has begun, as JSON text."""
        ...

    async def sleep(self, seconds: float, /) -> None:
        """Go on after so many seconds, in another run."""
        ...


class Ledger(Protocol):
    """Stores calls by principal and idempotency key, so that each takes effect at most once, over all processes.

    Every change is a compare-and-set on one row. Time is the database's.
    """

    async def find(self, principal: str, key: str, /) -> LedgerEntry | None:
        """Return the entry of *key*; None where it is unknown, or has expired."""
        ...

    async def claim(self, entry: LedgerEntry, /) -> LedgerEntry:
        """Store *entry* and return it, for this process to run: also in place of one that may run again.

        One that may is released, or abandoned and idempotent, and has the same digest. Return any other as it is.
        """
        ...

    async def finish(self, entry: LedgerEntry, result: Mapping[str, Any] | None, /) -> bool:
        """Store how *entry*, which this process has claimed, ended; None releases it. False where another has it."""
        ...

    def give_up(self, entry: LedgerEntry, /) -> None:
        """Let the lease of *entry* run out: this process does not know how it ends."""
        ...

    async def settle(self, entry: LedgerEntry, result: Mapping[str, Any] | None, /, *, by: str | None = None) -> bool:
        """Do as `finish`, for an abandoned *entry* of another process, in the name of *by*, if a person says so.

        False where it is not abandoned any more.
        """
        ...
