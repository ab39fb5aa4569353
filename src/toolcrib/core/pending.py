"""What a call waits for, and the answers to it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any, Literal, cast

from .errors import AnswerError, SetupError, ToolError

PendingKind = Literal["authorization", "approval", "input", "task"]

Approvers = Mapping[Literal["groups", "principals"], str | Sequence[str]]
"""Who may answer: members of one of `groups`, and `principals`, by pattern, one or several."""


def approvers_from(approvers: Any) -> Approvers:
    """Return *approvers* as JSON data, lists of patterns. Raises SetupError where they name none."""
    names = approvers if isinstance(approvers, Mapping) and approvers.keys() <= {"groups", "principals"} else {}
    lists = {name: [globs] if isinstance(globs, str) else [*globs] for name, globs in names.items() if globs}
    if not lists or not all(isinstance(glob, str) and glob for glob in chain(*lists.values())):
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
    text, secrets redacted. *others_only*: not to be answered by *principal*; *approvers*: by these alone. *rule* is the
    one that asked, with a digest of it, which a standing grant is bound to; without it there is none to give.
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
    rule: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the pending as JSON data, without empty members."""
        data = {name: getattr(self, name) for name in self.__slots__}
        data |= {"expires_at": self.expires_at.isoformat(), "schema": self.schema and dict(self.schema)}
        return {name: value for name, value in data.items() if value not in (None, "", False)}


@dataclass(frozen=True, slots=True)
class Approve:
    """Let the call run, once, with the arguments that were shown, or with *arguments* in their place.

    *arguments* are all that the tool gets, as JSON data, or as JSON text, of which each digit counts. They are checked,
    and ruled on, as if the model had sent them. What is masked in those that were shown, and left as it is, stays what
    it was.

    With *until*, a time with its offset or `"conversation"`, it is a grant as well: until then, calls in the same
    thread that only the same rule asks about run without a question. They are calls of the same tool, or of *tools*, by
    pattern, that meet the conditions in *where*, as a rule has them.
    """

    arguments: Mapping[str, Any] | str | None = field(default=None, repr=False)
    until: datetime | Literal["conversation"] | None = None
    where: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tools: str | Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        until = self.until.isoformat() if isinstance(self.until, datetime) else self.until
        tools = self.tools if isinstance(self.tools, str) else [*self.tools]
        arguments = dict(self.arguments) if isinstance(self.arguments, Mapping) else self.arguments
        values: dict[str, Any] = {"arguments": arguments, "until": until}
        values |= {"where": dict(self.where) or None, "tools": tools or None}
        return {"kind": "approve", **{name: value for name, value in values.items() if value is not None}}


@dataclass(frozen=True, slots=True)
class Grant:
    """An approval for more than one call: what runs in a thread without a question, until *expires_at*.

    It is for *tools*, by name, each as its digest has it, and for calls that *rule*, with its digest, asks about and
    that meet the conditions in *where*.
    """

    id: str
    principal: str
    thread: str
    rule: str
    tools: Mapping[str, str]
    where: Mapping[str, Any]
    given_by: str
    given_at: datetime
    expires_at: datetime

    @property
    def rule_name(self) -> str:
        return self.rule.rpartition(" ")[0]

    @property
    def text(self) -> str:
        """What it allows, in words. A caller may choose the name of the thread, so it is quoted as a whole."""
        names = " or ".join(map(repr, self.tools))
        wheres = [
            f"{'every ' * ('*' in pointer.split('/'))}{pointer} {_words(condition)}"
            for pointer, condition in self.where.items()
        ]
        which = f" where {' and '.join(wheres)}" if wheres else " with any arguments"
        until = f"{self.expires_at:%Y-%m-%d %H:%M:%S %Z}".strip()
        return (
            f"{self.principal!r} may call {names}{which}, in the thread {self.thread!r} until {until}, without being "
            f"asked by the rule {self.rule_name!r}. What other rules ask is asked."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the grant as JSON data, with its text."""
        data: dict[str, Any] = {name: getattr(self, name) for name in ("id", "principal", "thread", "given_by", "text")}
        data |= {"rule": self.rule_name, "tools": [*self.tools], "where": dict(self.where)}
        return data | {name: getattr(self, name).isoformat() for name in ("given_at", "expires_at")}


def _words(condition: Any) -> str:
    tests = condition if isinstance(condition, Mapping) else {"like" if isinstance(condition, str) else "eq": condition}
    words = {"eq": "is", "ne": "is not", "like": "is like", "in": "is one of", "exists": "exists:"}
    words |= {"gt": "is above", "ge": "is at least", "lt": "is below", "le": "is at most"}
    return " and ".join(f"{words[op]} {json.dumps(operand, ensure_ascii=False)}" for op, operand in tests.items())


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
_MEMBERS: dict[str, Any] = {"arguments": (Mapping, str), "until": str, "where": Mapping, "tools": (str, list)}


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
        case "approve" if data.keys() <= _MEMBERS.keys() and all(
            isinstance(member, _MEMBERS[name]) for name, member in data.items()
        ):
            return Approve(**data | {"until": _until(data.get("until"))})
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


def _until(text: Any) -> Any:
    """Return the end of a grant that a person has written. Raises AnswerError for one that is not a time."""
    if text is None or text == "conversation":
        return text
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise AnswerError("'until' is 'conversation', or a time as in 2026-01-31T18:00:00+01:00.", "invalid") from None


@dataclass(frozen=True, slots=True)
class StoredPending:
    """A pending as a store keeps it: `open`, then `answered` by *by*, then `taken` by the one call that uses it.

    Or `expired`: open when the store has seen that it was too late for an answer. *made* are the arguments with the
    defaults that were made for this call, as JSON text: what was shown, with its secrets, and what is to run.
    *grant* is the id of the standing grant that answered in place of a person.
    """

    pending: Pending
    state: Literal["open", "answered", "taken", "expired"] = "open"
    answer: Answer | None = None
    by: str | None = None
    made: str = field(default="", repr=False)
    grant: str | None = None


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
