"""What the rooms expect of one another, and what a policy may decide: shapes without code."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from .call import UNNAMED_THREAD, Call, Caller
from .errors import ToolError
from .pending import Answer, Approvers, Deny, Grant, Pending, PendingKind, StoredPending, approvers_from
from .result import CallRecord, Repair, Result
from .spec import Credential, Requirement, ToolSpec

AtDeadline = Literal["cancelled", "killed", "left_running"]
"""What becomes of work at its deadline: it is cancelled, its process is killed, or a thread goes on with it."""

Checked = tuple[dict[str, Any], tuple[Repair, ...]]
"""Arguments by name, ready for the work, and what was repaired to make them so."""

Do = Literal["allow", "deny", "ask"]


@dataclass(frozen=True, slots=True)
class Ask:
    """Let a person decide. *message* is shown to them; *others_only*: the caller may not answer it.

    *approvers*: these alone may. Raises SetupError where these name none.
    """

    message: str = ""
    others_only: bool = False
    approvers: Approvers | None = None

    def __post_init__(self) -> None:
        if self.approvers is not None:
            object.__setattr__(self, "approvers", approvers_from(self.approvers))


@dataclass(frozen=True, slots=True)
class Decision:
    """What to *do* with a call: by which *rule*, with which *message*; *by* is the person who answered.

    *edited* are the arguments that they gave in place of those that were sent, as JSON text, secrets redacted.
    *grantable* is the rule with a digest of it, which a standing grant is bound to: without it, as where the thread has
    seen something, no grant lifts the decision. *grant* is the id of the one that did. *at_most*: of so many calls of a
    thread, this is one.
    """

    do: Do
    rule: str | None = None
    message: str = ""
    others_only: bool = False
    by: str | None = None
    approvers: Approvers | None = None
    edited: str = ""
    grantable: str = ""
    grant: str | None = None
    at_most: int | None = None


PolicyAnswer = Do | Ask | Deny | Decision

Availability = Callable[[Caller], bool | Awaitable[bool]]
Policy = Callable[[ToolSpec, Mapping[str, Any], Caller], PolicyAnswer | Awaitable[PolicyAnswer]]
"""Whether a caller may run a tool with these checked arguments. Where it fails, nothing runs."""

Asker = Callable[[Pending], Awaitable[Answer | None]]
"""Asks a person at once, in the name of the caller. None where a person cannot be asked now."""

MayAnswer = Callable[[Pending, str], bool | Awaitable[bool]]
"""Whether a person may answer. The caller never may where the policy has `others_only`."""

ErrorMessage = Callable[[ToolError, BaseException, Call], str]
"""The message of a failed call for the model, given the error as it would be, and the exception it was made of."""


class Work(Protocol):
    """Checked arguments and the Context → the value. Where the tool needs no Context, it is the Host."""

    def __call__(self, arguments: dict[str, Any], context: Any, /) -> Awaitable[Any]: ...


class Check(Protocol):
    """What a model sent, and whether to repair it → arguments. Raises ToolError.

    A check that repairs, or takes a field by several names, has a `document`, which makes a `schema.Document` of what
    was sent and the checked arguments. Without it, the document of a call, which rules, people and digests look at, is
    the JSON as it was sent.
    """

    def __call__(self, arguments: str | bytes | Mapping[str, Any] | None, repair: bool, /) -> Checked: ...


class Encode(Protocol):
    """A value of a tool → JSON text. Raises ToolError `invalid_result` where it is not what was promised."""

    def __call__(self, value: Any, /) -> str: ...


class Tool(Protocol):
    """What the pipeline runs. A kind of tool is whatever has these; it may inherit from here what it does not change.

    *work* is awaited with the checked arguments and, unless `needs_context` is False, the Context of the call.
    `lock`, a Semaphore, admits its calls one at a time, where they have to be. `retries` is how often a failed call is
    made again; None where the tool does not say. `handles` are the arguments that take the handle of a large
    result, with the schemas of their values. `source` is the source whose life the tool shares. `verify` finds out
    whether the call with an idempotency key, its argument `key`, took effect: True, False, or None where that is
    unknown; any other value is the result of that call. `cost` is what a call takes of budgets, by
    unit. `is_task`: its calls are stored, acknowledged, and then run, those of a higher `priority` first; `"required"`
    where a caller has to be able to wait for that.
    """

    spec: ToolSpec
    check: Check
    work: Work
    encode: Encode
    at_deadline: AtDeadline = "cancelled"
    needs_context: bool = True
    available: Availability | None = None
    lock: Any = None
    retries: int | None = None
    handles: Mapping[str, Any] | None = None
    source: Any = None
    verify: Any = None
    cost: Mapping[str, float] | None = None
    is_task: bool | Literal["required"] = False
    priority: int = 0

    def body(self) -> str:
        """Return the identity of what the tool does, as far as known: an approval of another body does not count."""
        return ""


class Broker(Protocol):
    """Decides over credentials, between approval and execution: has them, refreshes them, or asks for them.

    One that also has `async has_granted(required, caller) -> bool`, which asks no person, lets what a server offers be
    listed for those who have logged in there.
    """

    async def authorize(
        self, requirements: Sequence[Requirement], caller: Caller, call: Call, /
    ) -> Sequence[Credential] | Pending:
        """Return a credential for each of *requirements*, or what the call waits for.

        Raises ToolError `unauthorized` where there are none. What it gives is redacted for the caller from then.
        """
        ...


class Recorder(Protocol):
    """Sees every call: `started` before its work, `finished` with how it ended. Known secrets are redacted in records.

    Of a call that ends before its work would begin there is only `finished`. With `with_content`, records have the
    arguments and the result as text, bounded. What a recorder raises is logged, and the call goes on.

    With a `digest`, they have digests of the whole texts that it has made: a keyed one, since few possible values could
    be tried out. Of several recorders, that of the first is for all.
    """

    with_content: bool = False
    digest: Callable[[bytes], str] | None = None

    async def started(self, record: CallRecord, /) -> None:
        """Take note that the work of a call is about to begin."""
        return

    async def finished(self, record: CallRecord, /) -> None:
        """Take note that a call has ended."""
        return

    async def flush(self) -> None:
        """Write what is still in memory: the crib stops."""
        return


Next = Callable[[], Awaitable[Result[Any]]]
"""Goes on with a call, to its result."""


class Middleware(Protocol):
    """Wraps a whole call: goes on with it or not, and returns its result. What it raises is how the call failed."""

    def __call__(self, tool: Tool, call: Call, caller: Caller, go_on: Next, /) -> Awaitable[Result[Any]]: ...


class ThreadStore(Protocol):
    """Stores what threads remember of their calls, for rules that ask what came before. What it raises counts as a no.

    A fact is text, and remembered for a while: `seen LABEL`, `after GLOB` (a call of such a tool succeeded), or
    `calls RULE 2` (the second call that a rule has let through).
    """

    async def remember(self, principal: str, thread: str, facts: Collection[str], /) -> None:
        """Store *facts*, from now on for their whole life."""
        ...

    async def recall(self, principal: str, thread: str, facts: Collection[str], /) -> frozenset[str]:
        """Return those of *facts* that are stored."""
        ...

    async def take(self, principal: str, thread: str, name: str, most: int, /) -> bool:
        """Store the next fact of `fact_of_call`, up to the number *most*. False where all of them are there."""
        ...

    async def clear(self, principal: str | None = None, thread: str | None = None, /) -> int:
        """Forget the facts of a thread, of all threads of a principal, or of all. Return how many there were."""
        ...


def fact_of_call(name: str, number: int) -> str:
    """Return the fact that the rule *name* has let a call through *number* times."""
    return f"calls {name} {number}"


def life_s(thread: str) -> float:
    """Return how long a fact of *thread* is remembered: an hour, and 30 days where the thread has a name."""
    return 3600.0 if thread == UNNAMED_THREAD else 30 * 24 * 3600.0


class GrantStore(Protocol):
    """Stores approvals for more than one call, until they expire or are revoked: from then on they count nowhere."""

    async def add(self, grant: Grant, /, *, now: datetime) -> None:
        """Store *grant*. Raises AnswerError where its principal has too many."""
        ...

    async def find(self, principal: str, thread: str, rule: str, /, *, now: datetime) -> Sequence[Grant]:
        """Return those that have not expired, the oldest first."""
        ...

    async def page(
        self, *, now: datetime, of: str | None = None, after: int = 0, limit: int = 50
    ) -> tuple[Sequence[Grant], int | None]:
        """Return the next *limit* after *after*, the oldest first, and what to go on after, None at the end.

        *of* takes those that this principal has, or has given.
        """
        ...

    async def revoke(self, id: str, /, *, of: str | None = None) -> Grant | None:  # noqa: A002
        """End a grant, and return it; with *of* only one that `page` would return."""
        ...


class PendingStore(Protocol):
    """Stores what calls wait for, and the answers, until they are used or expire.

    One that has `grants`, a GrantStore, takes a `grant` in `answer`, to be stored with the answer or not at all.

    Every change is a compare-and-set on the state of one row, so that a table can do it: of several that answer, or
    take, at the same time, exactly one succeeds. *now* is an aware datetime, by the clock of the workbench. That may
    step back: what a method has seen expired stays expired.
    """

    async def open(self, pending: Pending, /, *, now: datetime, made: str = "") -> Pending:
        """Store *pending*, with *made* for its StoredPending.

        Where one with its digest, kind and key is open and not expired: that one, and not this.

        Raises ToolError `limited` where there is no room.
        """
        ...

    async def get(self, id: str, /) -> StoredPending | None:  # noqa: A002
        """Return what is stored under *id*, in whatever state; also when used or expired, for a while."""
        ...

    async def answer(self, id: str, answer: Answer, /, *, by: str, now: datetime) -> bool:  # noqa: A002
        """Change from `open` to `answered`. False where it is not open, or expired."""
        ...

    async def take(self, digest: str, kind: PendingKind, key: str, /, *, now: datetime) -> StoredPending | None:
        """Change from `answered` to `taken`, one that is not expired: it is the caller's alone now."""
        ...

    async def give_back(self, stored: StoredPending, /) -> None:
        """Change to `answered` again, for the next call to take; it need not have been in the store before."""
        ...

    async def waiting(self, *, now: datetime, principal: str | None = None) -> Sequence[Pending]:
        """Return what is open and not expired, the oldest first: of *principal*, or of all callers."""
        ...
