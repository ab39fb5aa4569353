"""What all calls of a workbench have in common. It is made once, and read by every moment of a call."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..core import (
    Call,
    Caller,
    Context,
    Patterns,
    Policy,
    Recorder,
    Redaction,
    SetupError,
    Shelf,
    Tool,
    matching,
)
from .depends import Overrides, Provided
from .waiting import Asking, Desk


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a failed call of *tools* (patterns of their names) is made again, and when. Data.

    The n-th new attempt comes after a random time of up to `first_s * 2**n` seconds, and of up to *most_s*; later
    where the error itself names a time, and never past the deadline of the call. It holds only for tools that say they
    are idempotent or read only. A tool's own `retries` goes before *times*. Raises SetupError.
    """

    tools: Patterns = "*"
    times: int = 2
    first_s: float = 0.2
    most_s: float = 20.0
    names: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if type(self.times) is not int or self.times < 0:
            raise SetupError("times is how often a failed call is made again: a whole number, 0 or more.")
        for name in ("first_s", "most_s"):
            seconds = getattr(self, name)
            if type(seconds) not in (int, float) or not math.isfinite(seconds) or seconds < 0:
                raise SetupError(f"{name} is a number of seconds, 0 or more.")
        object.__setattr__(self, "names", matching(self.tools))


class Seat(Protocol):
    """One call's place in a worker. Whoever asked for it has to `leave`, whatever came before."""

    async def wait(self) -> None:
        """Until it is this call's turn."""
        ...

    async def prepare(self) -> None:
        """Until a worker has imported the tool. Raises ToolError."""
        ...

    async def run(self, arguments: dict[str, Any], context: Context, /) -> Any:
        """The value of the work. Raises what the work raised, as a ToolError, and ToolError `lost`.

        Cancelled, it stops the work and all that came of it.
        """
        ...

    def leave(self) -> None:
        """Give the place up. What is not known to have ended well is stopped."""
        ...


class Isolation(Protocol):
    """Has processes in which tools can run."""

    def seat(self, tool: Tool, scene: "Scene", /) -> Seat: ...


@dataclass(slots=True, kw_only=True)
class Scene:
    """What all calls of a workbench have in common. `session` gives the values held on the running event loop."""

    session: Callable[[], Provided]
    caller: Caller = field(default_factory=Caller)
    repair: bool = True
    policy: Policy | None = None
    timeout_s: float | None = None
    retries: Sequence[Retries] | None = None
    redaction: Redaction | None = None
    recorder: Recorder | None = None
    overrides: Overrides = field(default_factory=dict[Callable[..., Any], Callable[..., Any]])
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    show_errors: bool = False
    desk: Desk | None = None
    shelf: Shelf | None = None
    isolation: Isolation | None = None
    # For the attempts of one call: they share their questions and answers.
    asked: list[Asking] | None = None

    def asking(self, tool: Tool, call: Call) -> Asking | None:
        """The questions of one call; None where nobody can be asked."""
        if self.desk is None:
            return None
        if self.asked:
            return self.asked[0]
        asking = Asking(self.desk, tool, call, self.caller, repair=self.repair, redaction=self.redaction)
        if self.asked is not None:
            self.asked.append(asking)
        return asking
