"""What all calls of one caller have in common, made once and read by every step; and what one call leaves behind."""

import re
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from annotated_doc import Doc
from annotated_types import Ge

from ..core import (
    Broker,
    Call,
    Caller,
    CallRecord,
    CancellationToken,
    Credential,
    Decision,
    Middleware,
    Policy,
    Recorder,
    Redaction,
    Repair,
    Tool,
    ToolError,
)
from ..machinery import (
    ErrorMessage,
    Globs,
    Ledger,
    Overrides,
    ResultHandles,
    ThreadStore,
    compile_globs,
    current_client,
)
from .arguments import CheckedArguments
from .pending import PendingCalls, Questions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a failed call of *tools* (patterns of their names) is made again, and when. Data.

    The n-th new attempt comes after a random time of up to `first_s * 2**n` seconds, and of up to *most_s*; later
    where the error itself names a time, and never past the deadline of the call. It holds only for tools that are
    declared idempotent or read-only. A tool's own `retries` takes precedence over *times*. Raises SetupError.
    """

    tools: Annotated[Globs, Doc("Patterns of tool names, one or several, as in 'db_*'.")] = "*"
    times: Annotated[int, Ge(0), Doc("How often.")] = 2
    first_s: Annotated[
        float, Ge(0), Doc("The longest pause before the first, in seconds; each next one can be twice as long.")
    ] = 0.2
    most_s: Annotated[float, Ge(0), Doc("The longest pause of all, in seconds.")] = 20.0
    names: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        from ..schema.declared import require_fields  # brings pydantic: with the first value, and not with the package

        require_fields(self)
        object.__setattr__(self, "names", compile_globs(self.tools))


class Resources:
    """What kinds of tools share for the life of a crib, such as a pool of processes: one of each factory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._resources: dict[Callable[[], Any], Any] = {}

    def get(self, factory: Callable[[], T]) -> T:
        resource = self._resources.get(factory)
        if resource is None:
            with self._lock:
                resource = self._resources[factory] = self._resources.get(factory) or factory()
        return resource

    def set(self, factory: Callable[[], T], resource: T) -> None:
        self._resources[factory] = resource

    def __iter__(self) -> Iterator[Any]:
        return iter(tuple(self._resources.values()))


@dataclass(slots=True, kw_only=True)
class Runtime:
    """What all calls of one caller have in common: the `Host` of the tools that it runs.

    `ready` has the tools that can be called as they are; `resolve` finds the others, starts what they need, and raises
    ToolError. `session` gives the values that `Depends` holds.
    """

    resolve: Callable[[Call], Awaitable[Tool]]
    session: Callable[[], Any]
    pending: PendingCalls
    resources: Resources
    caller: Caller
    ready: dict[str, Tool] = field(default_factory=dict[str, Tool])
    middleware: Sequence[Middleware] = ()
    wraps_all: bool = False
    """Whether *middleware* concerns every call, and not only those of tools with a lock."""
    repair: bool = True
    policy: Policy | None = None
    broker: Broker | None = None
    timeout_s: float | None = None
    retries: Sequence[Retry] | None = None
    redaction: Redaction | None = None
    recorders: Sequence[Recorder] = ()
    start_recorders: Sequence[Recorder] = ()
    """Those that see the start of calls, too."""
    overrides: Overrides = field(default_factory=dict[Callable[..., Any], Callable[..., Any]])
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    show_errors: bool = False
    error_message: ErrorMessage | None = None
    handles: ResultHandles | None = None
    records_content: bool = False
    """Whether any recorder sees arguments and results."""
    digest: Callable[[bytes], str] | None = None
    """Makes the digests that recorders see of them."""
    task_id: str = ""
    """The task that runs: its questions are its own."""
    threads: ThreadStore | None = None
    """What threads remember."""
    remembers: bool = False
    """Whether the policy asks for that."""
    marks: bool = False
    """Whether models are told what is untrusted."""
    ledger: Ledger | None = None
    """Where calls with an idempotency key are stored."""
    redact_also: Callable[[Credential], None] = lambda credential: None
    """Takes up secrets that are given out while a call runs."""

    def resource(self, factory: Callable[[], T], /) -> T:
        return self.resources.get(factory)

    def questions(self, tool: Tool, call: Call, client: Any = None) -> Questions:
        """Return the questions of one call, and the client that it is for, if that is not the current one."""
        return Questions(
            pendings=self.pending,
            tool=tool,
            call=call,
            caller=self.caller,
            repair=self.repair,
            redaction=self.redaction,
            client=client or current_client.get(),
            task_id=self.task_id,
        )


class Trail:
    """What one call leaves behind on its way, for its result and its record. Its steps write it; only its ends read it.

    One is made for each call, so what most calls never have is a default of the class.
    """

    value: Any
    """The value of `Bounded` work: reading it from the StopIteration of a coroutine would take longer."""
    repairs: tuple[Repair, ...] = ()
    labels: AbstractSet[str] = frozenset()
    """Where what the tool gives comes from: its own labels, and those of what it was given."""
    arguments: CheckedArguments | None = None
    """What ran, where it was sent and is not what a handle stands for."""
    decision: Decision | None = None
    sent: str | None = None
    """What was sent, as JSON text, where a person has changed it."""
    questions: Questions | None = None
    digest: str | None = None
    """What an approval of the call is bound to, where a person was asked."""
    failures: tuple[dict[str, Any], ...] = ()
    """The attempts that failed."""
    record: CallRecord | None = None
    """The record of the start of the work."""
    task: Any = None
    """The `TaskRun` that the call is."""
    lookup: Any = None
    """The `Claim` of a call with an idempotency key, or a task, that was looked up."""
    claim: Any = None
    """The same, once the call is claimed."""
    begun: Tool | None = None
    """The tool, once its work has begun."""
    error: ToolError | None = None
    """How the call was cut short: nothing that runs on changes that, nor begins the work."""
    cancels_itself = False
    """Whether the work has cancelled the task that it runs in."""
    cancellation: CancellationToken | None = None
    """That of the work's Context."""
    account: Any = None
    """What counts in budgets what the work spends."""


current_trail: ContextVar[Trail | None] = ContextVar("toolcrib_trail", default=None)
"""The trail of the call that is on its way through the middleware."""
