"""What a call waits for, and the answers to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, cast

from .errors import AnswerError, SetupError, ToolError

PendingKind = Literal["authorization", "approval", "input", "task"]

Approvers = Mapping[Literal["groups", "principals"], str | Sequence[str]]
"""Who may answer: members of one of `groups`, and `principals`, by pattern, one or several."""


def approvers_from(approvers: Any) -> Approvers:
    """Return *approvers* as JSON data, lists of patterns. Raises SetupError where they name none."""
    names = approvers if isinstance(approvers, Mapping) and approvers.keys() <= {"groups", "principals"} else {}
    lists = {name: [globs] if isinstance(globs, str) else [*globs] for name, globs in names.items() if globs}
    if not lists or not all(isinstance(glob, str) and glob for globs in lists.values() for glob in globs):
        raise SetupError(
            "'approvers' name who may answer, by group or principal, and at least one: "
            '{"groups": ["leads"], "principals": ["alice"]}.'
        )
    return cast("Approvers", lists)


def named_approvers(approvers: Approvers) -> str:
    """Return who *approvers* are, for a person."""
    names = [f"'{glob}'" for glob in approvers.get("principals", ())]
    names += [f"a member of '{glob}'" for glob in approvers.get("groups", ())]
    return " or ".join(names)


@dataclass(frozen=True, slots=True)
class Pending:
    """What a call waits for. Data: it may be stored, sent, and shown to the person who is to answer.

    *digest* binds it to one call: the same principal, thread, tool, definition and checked arguments. *schema* is the
    JSON Schema of the answer to an `input`; *url* is where to go for an `authorization`. *key* distinguishes the
    questions of a call. An answer is accepted until *expires_at*. *arguments* are what the call would run with, as JSON
    text, secrets redacted. *others_only*: not to be answered by *principal*; *approvers*: by these alone.
    """

    id: str
    kind: PendingKind
    message: str
    digest: str
    tool: str
    principal: str
    thread: str
    expires_at: datetime
    arguments: str = "{}"
    key: str = ""
    url: str | None = None
    schema: Mapping[str, Any] | None = None
    others_only: bool = False
    approvers: Approvers | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the pending as JSON data, without empty members."""
        data = {name: getattr(self, name) for name in self.__slots__}
        data |= {"expires_at": self.expires_at.isoformat(), "schema": self.schema and dict(self.schema)}
        return {name: value for name, value in data.items() if value not in (None, "", False)}


@dataclass(frozen=True, slots=True)
class Approve:
    """Let the call run, once, with the arguments that were shown, or with *arguments* in their place.

    *arguments* are all that the tool gets, as JSON data. They are checked, and ruled on, as if the model had sent them.
    What is masked in those that were shown, and left as it is, stays what it was.
    """

    arguments: Mapping[str, Any] | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "approve", **({} if self.arguments is None else {"arguments": dict(self.arguments)})}


@dataclass(frozen=True, slots=True)
class Deny:
    """Do not let the call run. The model reads *reason*. A person's answer, and a policy's."""

    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "deny", "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Input:
    """What was asked for, as JSON data. It stays out of the repr: it may be a password."""

    value: Any = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "input", "value": self.value}


Answer = Approve | Deny | Input

_ANSWERS = ("approve", "deny", "input")


def answer_from(value: Answer | Mapping[str, Any]) -> Answer:
    """Return *value* itself if it is an answer, else the answer whose `to_dict` it is.

    Raises AnswerError with the reason `invalid` for anything else. The message does not quote *value*: it may be a
    password.
    """
    if isinstance(value, Approve | Deny | Input):
        return value
    data: dict[str, Any] = dict(value) if isinstance(value, Mapping) else {}
    kind = data.pop("kind", None)
    match kind:
        case "approve" if data.keys() <= {"arguments"} and isinstance(data.get("arguments", {}), Mapping):
            return Approve(**data)
        case "deny" if data.keys() <= {"reason"} and isinstance(data.get("reason", ""), str):
            return Deny(**data)
        case "input" if data.keys() == {"value"}:
            return Input(data["value"])
        case str() if kind not in _ANSWERS:
            kinds = ", ".join(_ANSWERS)
            raise AnswerError(f"{kind[:40]!r} is not a kind of answer. The kinds are: {kinds}.", "invalid")
        case _:
            raise AnswerError(
                'An answer is Approve(), Deny("why") or Input(...), or as JSON {"kind": "approve"}, {"kind": "deny", '
                f'"reason": "why"}} or {{"kind": "input", "value": ...}}. This one is a {type(value).__name__}.',
                "invalid",
            )


@dataclass(frozen=True, slots=True)
class StoredPending:
    """A pending as a store keeps it: `open`, then `answered` by *by*, then `taken` by the one call that uses it.

    Or `expired`: open when the store has seen that it was too late for an answer. *made* are the arguments with the
    defaults that were made for this call, as JSON text: what was shown, with its secrets, and what is to run.
    """

    pending: Pending
    state: Literal["open", "answered", "taken", "expired"] = "open"
    answer: Answer | None = None
    by: str | None = None
    made: str = field(default="", repr=False)


class Suspended(BaseException):
    """Ends a call that has to wait. A BaseException, so that a tool's `except Exception` does not swallow it."""

    def __init__(self, pending: Pending) -> None:
        super().__init__(pending.message)
        self.pending = pending


class StillPending(ToolError):
    """What `Result.unwrap` raises for a pending call. In a tool, it makes the tool's own call wait for the same."""

    def __init__(self, pending: Pending) -> None:
        super().__init__(pending.message, "unavailable")
        self.pending = pending
