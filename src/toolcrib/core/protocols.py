"""What the rooms expect of one another: shapes without code."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from .call import Call, Caller
from .context import Depends
from .result import Repair, Result
from .spec import ToolSpec

Runs = Literal["async", "sync"]
"""How a tool's work runs: awaited on the event loop, or in a worker thread."""

Checked = tuple[dict[str, Any], tuple[Repair, ...]]
"""Arguments by name, ready for the work, and what was repaired to make them so."""

Availability = Callable[[Caller], bool | Awaitable[bool]]
Decision = Literal["allow", "deny"]
Policy = Callable[[ToolSpec, Mapping[str, Any], Caller], Decision | Awaitable[Decision]]
"""Whether a caller may run a tool with these checked arguments."""


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
    def check(self) -> Check: ...
    @property
    def encode(self) -> Encode: ...


class Redaction(Protocol):
    """Strikes known secrets out of text."""

    def strike(self, text: str, /) -> str: ...


class Session(Protocol):
    """Holds what providers gave, as long as its scope lives, on one event loop."""

    async def provide(self, need: Need, /) -> Any: ...


class Recorder(Protocol):
    """Is told of every call that ended. Whatever it is given has known secrets struck out."""

    def record(self, call: Call, caller: Caller, result: Result[Any], /) -> None: ...


class ReadsTools(Protocol):
    """An object that offers tools to a workbench."""

    def __toolcrib__(self) -> "Tool | Sequence[Tool]": ...
