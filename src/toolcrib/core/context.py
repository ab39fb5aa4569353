"""What a running tool may see and do, and what the host hands it."""

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime
from inspect import iscoroutinefunction
from typing import Annotated, Any, Literal, Protocol, TypeVar, final

from .call import Call, Caller
from .cancel import CancellationToken, Deadline
from .content import Progress
from .engine import Steps
from .errors import ToolcribError
from .spec import Credential

T = TypeVar("T")

Scope = Literal["program", "session", "call"]
Overrides = Mapping[Callable[..., Any], Callable[..., Any]]


class Port(Protocol):
    """Carries what a running tool reports and asks to the caller."""

    def progress(self, progress: Progress, /) -> None: ...
    async def emit(self, content: Any, /) -> None: ...
    async def ask(self, key: str, schema: Any, message: str, /) -> Any: ...
    def http(self, credential: Credential, /) -> Any: ...
    async def spend(self, unit: str, amount: float, /) -> None: ...


class ApprovalPort(Port, Protocol):
    """The port of a call in the process of its workbench. `client` is the door's own object for the client."""

    @property
    def client(self) -> Any: ...
    async def ask(self, key: str, schema: Any, message: str, /, *, url: str | None = None) -> Any: ...
    async def approve(self, message: str, /) -> None: ...


class Redaction(Protocol):
    """Replaces known secrets in text. `version` is another object once it knows other secrets."""

    @property
    def version(self) -> object: ...
    def redact(self, text: str, /) -> str: ...
    def split(self, text: str, /) -> tuple[str, str]: ...


class Host(Protocol):
    """What a kind of tool may use of the runtime that calls it."""

    @property
    def caller(self) -> Caller: ...
    @property
    def variables(self) -> Mapping[str, Any]: ...
    @property
    def overrides(self) -> Overrides: ...
    @property
    def redaction(self) -> Redaction | None: ...
    @property
    def show_errors(self) -> bool: ...

    def session(self) -> Any:
        """Return the values that `Depends` holds for the session."""
        ...

    def resource(self, factory: Callable[[], T], /) -> T:
        """Return what *factory* makes once for the runtime, such as a pool of processes. It is closed with that."""
        ...


_above = logging.getLogger("toolcrib.tool")

COUNTED_UNITS = frozenset({"calls", "seconds"})
"""The units that are counted of every tool."""


def is_amount(unit: Any, amount: Any) -> bool:
    """Return whether *amount* of *unit* can be counted: not NaN, nor below 0."""
    if not isinstance(unit, str) or not isinstance(amount, int | float) or isinstance(amount, bool):
        return False
    return re.fullmatch("[a-z][a-z0-9_]{0,31}", unit) is not None and 0 <= amount <= 1e12


def require_spent(unit: Any, amount: Any) -> None:
    """Raise ToolcribError where *amount* of *unit* is nothing that a tool can report."""
    if not is_amount(unit, amount) or unit in COUNTED_UNITS:
        raise ToolcribError(
            'ctx.spend takes a unit, other than calls and seconds, and a number from 0, as in spend("tokens", 512).'
        )


@dataclass(slots=True)
class Context:
    """What a running tool may see and do. Injected where a parameter is annotated with it; not in the schema.

    `variables` are the host's, for all tools of the workbench. `credentials` are those that the tool requires, by
    provider. `cancellation` is cancelled when the caller gives up or the deadline has passed: what blocks in a thread
    should look at it. `log` is the tool's own logger, `toolcrib.tool.<name>`.
    (`deadline`, `host`, `port`, `run_on_loop` and `steps` are for kinds of tools.)
    """

    call: Call
    host: Host
    port: Port
    deadline: Deadline | None
    cancellation: CancellationToken
    credentials: Mapping[str, Credential]
    run_on_loop: Callable[[Coroutine[Any, Any, Any]], Any]
    steps: Steps | None = None

    @property
    def caller(self) -> Caller:
        return self.host.caller

    @property
    def variables(self) -> Mapping[str, Any]:
        return self.host.variables

    @property
    def idempotency_key(self) -> str | None:
        """The key of the call, to pass on to services that take one."""
        return self.call.idempotency_key

    @property
    def log(self) -> logging.Logger:
        log = logging.getLogger(f"toolcrib.tool.{self.call.tool}")
        log.addFilter(_above.filter)  # once: secrets are redacted there, and a filter concerns no logs below
        return log

    @property
    def deadline_at(self) -> datetime | None:
        """When the call has to be over, in UTC; None where it has no deadline."""
        return None if self.deadline is None else self.deadline.at

    @property
    def time_left_s(self) -> float | None:
        """How many seconds are left until then."""
        return None if self.deadline is None else self.deadline.left_s

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far the work is. Never waits; works from threads too; only the newest matters."""
        self.port.progress(Progress(done, total, message))

    async def emit(self, content: Any) -> None:
        """Send content (text, an Image, any value) while the work goes on. Waits while the reader is slow."""
        await self.port.emit(content)

    async def ask(self, key: str, schema: type[T], message: str) -> T:
        """Return a person's answer to *message*, as a *schema* (any type that pydantic describes).

        Asks at once where the host can. Otherwise the call ends here, pending, and runs again from its first line when
        the answer is there: ask before effects. *key* distinguishes the questions of a call. The call's deadline
        goes on while a person thinks. Raises ToolError `denied` where they refuse to answer.
        """
        answer: T = await self.port.ask(key, schema, message)
        return answer

    async def step(self, key: str, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Return the value of `work(*args, **kwargs)`, sync or async: in a task, that of the run that made it, as JSON.

        A task that is interrupted begins again from its first line: what was a step is not repeated. *key* tells the
        steps of a task apart. One in which the process died is: let its effect be idempotent. Raises ToolError
        `conflict` where the steps of an earlier run were others.
        """

        async def begin() -> Any:
            value = work(*args, **kwargs) if iscoroutinefunction(work) else asyncio.to_thread(work, *args, **kwargs)
            return await value

        return await begin() if self.steps is None else await self.steps.run(key, begin)

    async def sleep(self, seconds: float) -> None:
        """Go on after so many *seconds*. A task ends here, holds nothing, and then begins again from its first line.

        In a call that is not a task, this is within its deadline.
        """
        await (asyncio.sleep(seconds) if self.steps is None else self.steps.sleep(seconds))

    async def spend(self, unit: str, amount: float) -> None:
        """Count what the call has used in the budgets of *unit*, as in `await ctx.spend("tokens", 512)`.

        Calls and seconds are counted without it. Raises ToolError `limited` where that is more than was left; it counts
        all the same.
        """
        require_spent(unit, amount)
        await self.port.spend(unit, amount)

    def http(self, provider: str) -> Any:
        """Return an `httpx2.AsyncClient` that sends the credentials of *provider* to that provider's hosts, and nowhere
        else.

        Requests to other hosts are refused. It is closed when the call ends; the caller of it need not. Raises
        ToolcribError where the tool does not require such credentials, and SetupError without the extra `auth`.
        """
        credential = self.credentials.get(provider)
        if credential is None:
            has = ", ".join(self.credentials) or "none"
            raise ToolcribError(
                f"The tool '{self.call.tool}' has no credentials for '{provider}' (it has: {has}). Declare them: "
                f'@tool(auth=ToolAuth("{provider}")).'
            )
        return self.port.http(credential)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the value of *work*, for sync tools: `ctx.wait(ctx.emit("half way"))`.

        Raises ToolcribError on the event loop itself; use `await` there. Raises ToolError `lost` where the loop ends.
        """
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            value: T = self.run_on_loop(work)
            return value
        work.close()
        raise ToolcribError(f"ctx.wait() is for sync tools in threads; here, on {running!r}, await it.")


@dataclass(frozen=True, slots=True)
class Depends:
    """Marks a parameter that the host provides: `Annotated[Pool, Depends(get_pool)]`.

    *provider* is called for the value: plain, async, or a generator of either kind that yields the value once and
    cleans up after it. It may itself have `Caller`, `Variables` and `Depends` parameters, and with the scope `"call"` a
    `Context`. *scope* is how long the value lives and who shares it: `"call"`, `"session"` (one workbench) or
    `"program"` (all that a host runs; a workbench on its own is its own program).
    """

    provider: Callable[..., Any]
    scope: Scope = "session"


@final
class Handle:
    """Marks a parameter that also takes the handle of a large result: `Annotated[list[Row], Handle]`.

    In place of the value a model may send `{"handle": "result_..."}`, or with `"pointer"` a part of it. The value is
    put in before the arguments are checked, so the function gets rows and never sees a handle.
    """


class _HostVariables: ...


HOST_VARIABLES = _HostVariables()
Variables = Annotated[Mapping[str, Any], HOST_VARIABLES]
"""Annotates a parameter that gets the host's variables. Like `Caller`, a provider of any scope may take them."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a function takes beside its arguments, by the names of its parameters: values of providers, and others."""

    context: str | None = None
    depends: tuple["Need", ...] = ()
    caller: str | None = None
    variables: str | None = None

    def __bool__(self) -> bool:
        return bool(self.context or self.depends or self.caller or self.variables)


@dataclass(frozen=True, slots=True)
class Need:
    """One value to provide: under which parameter name, how, and what its provider needs in turn."""

    name: str
    how: Depends
    needs: Needs
