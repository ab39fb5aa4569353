"""What a call waits for, and the answers to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from .errors import ToolError

PendingKind = Literal["authorization", "approval", "input", "task"]


@dataclass(frozen=True, slots=True)
class Pending:
    """What a call waits for. Data: it may be stored, sent, and shown to the person who is to answer.

    *digest* binds it to one call: the same principal, thread, tool, definition and checked arguments. *schema* is the
    JSON Schema of the answer to an `input`; *url* is where to go for an `authorization`. *key* tells one question of a
    call from another. *expires_s* is in seconds since the epoch; an answer works until then. *arguments* are what the
    call would run with, as JSON text, secrets struck out. *others_only*: not to be answered by *principal*.
    """

    id: str
    kind: PendingKind
    message: str
    digest: str
    tool: str
    principal: str
    thread: str
    expires_s: float
    arguments: str = "{}"
    key: str = ""
    url: str | None = None
    schema: Mapping[str, Any] | None = None
    others_only: bool = False

    @property
    def expires_at(self) -> datetime:
        return datetime.fromtimestamp(self.expires_s, UTC)

    def to_dict(self) -> dict[str, Any]:
        """The pending as JSON data, without what it does not say."""
        said = {name: getattr(self, name) for name in self.__slots__ if name != "expires_s"}
        said |= {"expires_at": self.expires_at.isoformat(), "schema": self.schema and dict(self.schema)}
        return {name: value for name, value in said.items() if value not in (None, "", False)}


@dataclass(frozen=True, slots=True)
class Approve:
    """Let the call run, once, with these arguments."""


@dataclass(frozen=True, slots=True)
class Deny:
    """Do not let the call run. *reason* is told to the model. A person's answer, and a policy's."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Input:
    """What was asked for, as JSON data. It stays out of the repr: it may be a password."""

    value: Any = field(default=None, repr=False)


Answer = Approve | Deny | Input


@dataclass(frozen=True, slots=True)
class Asked:
    """A pending as a store keeps it: `open`, then `answered` by *by*, then `taken` by the one call that uses it."""

    pending: Pending
    state: Literal["open", "answered", "taken"] = "open"
    answer: Answer | None = None
    by: str | None = None


class Waiting(BaseException):
    """Ends a call that has to wait. A BaseException, so that a tool's `except Exception` does not swallow it."""

    def __init__(self, pending: Pending) -> None:
        super().__init__(pending.message)
        self.pending = pending


class StillPending(ToolError):
    """What `Result.unwrap` raises of a call that waits. In a tool, it makes the tool's own call wait for the same."""

    def __init__(self, pending: Pending) -> None:
        super().__init__(pending.message, "unavailable")
        self.pending = pending
