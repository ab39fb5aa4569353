"""What the rooms expect of one another: shapes without code."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from .call import Call, Caller
from .context import Depends
from .decision import Decision
from .gate import Gate
from .pending import Answer, Asked, Pending, PendingKind
from .result import Repair, Result
from .spec import ToolSpec

Runs = Literal["async", "sync", "async_generator", "generator", "process"]
"""How a tool's work runs: on the event loop, in a thread, or in a process; and whether it yields what it gives."""

Checked = tuple[dict[str, Any], tuple[Repair, ...]]
"""Arguments by name, ready for the work, and what was repaired to make them so."""

Availability = Callable[[Caller], bool | Awaitable[bool]]
Policy = Callable[[ToolSpec, Mapping[str, Any], Caller], Decision | Awaitable[Decision]]
"""Whether a caller may run a tool with these checked arguments. What raises or is no Decision lets nothing run."""

Asker = Callable[[Pending], Awaitable[Answer | None]]
"""Asks a person at once, in the name of the caller. None where nobody can be asked now."""

MayAnswer = Callable[[Pending, str], bool | Awaitable[bool]]
"""Whether somebody may answer. Whoever made the call never may where the policy says `others_only`."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a function wants beside its arguments: the Context under one name, values of providers under others."""

    context: str | None = None
    depends: tuple["Need", ...] = ()


@dataclass(frozen=True, slots=True)
class Need:
    """One value to provide: under which parameter name, how, and what its provider needs in turn."""

    name: str
    how: Depends
    needs: Needs


class Check(Protocol):
    """What a model sent, and whether to repair it → arguments. Raises ToolError."""

    def __call__(self, given: str | bytes | Mapping[str, Any] | None, repair: bool, /) -> Checked: ...


class Encode(Protocol):
    """A value of a tool → JSON text. Raises ToolError `invalid_result` where it is not what was promised."""

    def __call__(self, value: Any, /) -> str: ...


class Tool(Protocol):
    """What the life of a call runs: a spec, a check for arguments, the work, and a way to write its value down."""

    @property
    def spec(self) -> ToolSpec: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def needs(self) -> Needs | None: ...
    @property
    def available(self) -> Availability | None: ...
    @property
    def work(self) -> Callable[..., Any]: ...
    @property
    def turn(self) -> Gate | None:
        """What lets its calls in one at a time, where they have to be."""
        ...

    @property
    def retries(self) -> int | None:
        """How often a failed call is made again; None where the tool does not say."""
        ...

    @property
    def handles(self) -> Mapping[str, Any] | None:
        """The arguments that take the handle of a large result, with the schemas of their values."""
        ...

    @property
    def owner(self) -> object | None:
        """Whose life it shares, where it is the method of an object or a class."""
        ...

    @property
    def check(self) -> Check: ...
    @property
    def encode(self) -> Encode: ...


class Redaction(Protocol):
    """Strikes known secrets out of text."""

    def strike(self, text: str, /) -> str: ...
    def split(self, text: str, /) -> tuple[str, str]: ...


class Session(Protocol):
    """Holds what providers gave, as long as its scope lives, on one event loop."""

    async def provide(self, need: Need, /) -> Any: ...


class Recorder(Protocol):
    """Is told of every call that ended. Whatever it is given has known secrets struck out."""

    def record(self, call: Call, caller: Caller, result: Result[Any], /) -> None: ...


Next = Callable[[], Awaitable[Result[Any]]]
"""Goes on with a call, to its result."""


class Around(Protocol):
    """Wraps a whole call: goes on with it or not, and gives its result. What it raises is how the call failed."""

    def __call__(self, tool: Tool, call: Call, caller: Caller, go_on: Next, /) -> Awaitable[Result[Any]]: ...


class PendingStore(Protocol):
    """Keeps what calls wait for, and the answers, until they are used or expire.

    Every change is a compare-and-set on the state of one row, so that a table can do it: of several that answer, or
    take, at the same time, exactly one succeeds. Times are seconds since the epoch, on the clock of the workbench.
    """

    async def open(self, pending: Pending, /, *, now_s: float) -> Pending:
        """Keep *pending*. Where one with its digest, kind and key is open and not expired, that one, and not this.

        Raises ToolError `limited` where there is no room.
        """
        ...

    async def get(self, id: str, /) -> Asked | None:  # noqa: A002
        """What is kept under *id*, in whatever state; also when used or expired, for a while."""
        ...

    async def answer(self, id: str, answer: Answer, /, *, by: str, now_s: float) -> bool:  # noqa: A002
        """From `open` to `answered`. False where it is not open, or expired."""
        ...

    async def take(self, digest: str, kind: PendingKind, key: str, /, *, now_s: float) -> Asked | None:
        """From `answered` to `taken`, one that is not expired: it is the caller's alone now."""
        ...

    async def give_back(self, asked: Asked, /) -> None:
        """To `answered` again, for the next call to take; it need not have been in the store before."""
        ...

    async def waiting(self, *, now_s: float) -> Sequence[Pending]:
        """What is open and not expired, the oldest first."""
        ...


class ReadsTools(Protocol):
    """An object that offers tools to a workbench."""

    def __toolcrib__(self) -> "Tool | Sequence[Tool]": ...
