"""Who calls: each request runs for the caller that it was identified as, in that caller's workbench.

A thread is a conversation of one principal: two principals that name the same one have nothing in common.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from starlette.types import Scope

from ...call import require_key
from ...core import Caller, SetupError, ToolcribError, ToolError
from ...machinery import Shares
from ...workbench import Crib, Right, Role, Workbench
from ..mcp.pending import asking
from .hosts import is_loopback

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

Identify = Callable[[Mapping[str, str]], Caller | Awaitable[Caller]]
"""The caller of a request, by its HTTP headers (names in lower case; none over stdio). Raises where there is none."""

_log = logging.getLogger("toolcrib.serve")

CALLER = "toolcrib.caller"
"""Where `Authentication` puts the Caller in the scope of a request."""

DEFAULT_WORKBENCHES = 1000
_MAX_THREAD_CHARS = 128
_THREAD = Caller().thread
_ONCE = ("authorization", "mcp-session-id", "toolcrib-thread")
_FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip"})


class AuthenticationError(ToolcribError):
    """A request that is not let in. Its text is sent to the client, with *status*.

    *error* is the code of RFC 6750, 3.1 (None where nothing was presented), and *scopes* are what would be needed.
    """

    def __init__(
        self, message: str, error: str | None = "invalid_token", *, status: int = 401, scopes: Iterable[str] = ()
    ) -> None:
        super().__init__(message)
        self.error = error
        self.status = status
        self.scopes = tuple(scopes)


def local_caller(headers: Mapping[str, str]) -> Caller:
    """Return the person at this computer, in the thread that *headers* name, as the caller."""
    return Caller(thread=thread_of(headers))


def require_local(scope: Scope, identify: Identify) -> None:
    """Raise AuthenticationError where `local_caller` is to identify a request that another computer may have sent.

    A server on a Unix socket gives no address, and one behind a proxy may give the address that the client wrote.
    """
    address = (scope.get("client") or ("",))[0]
    if identify is not local_caller:
        return
    if not address or not is_loopback(address) or not _FORWARDED.isdisjoint(dict(scope["headers"])):
        raise AuthenticationError(_NOT_HERE, None, status=403)


_NOT_HERE = (
    "Without keys or an issuer, this server answers programs on its own computer only, and none behind a proxy. In a "
    "program, `identify` says who calls."
)


def thread_of(headers: Mapping[str, str]) -> str:
    """Return the thread of a request: the MCP session, else the header `Toolcrib-Thread`, else `default`.

    A session is named by what its id begins with, up to a dot. Raises AuthenticationError for a name that is too long,
    or that is not plain ASCII.
    """
    thread = headers.get("mcp-session-id", "").partition(".")[0] or headers.get("toolcrib-thread") or _THREAD
    if len(thread) > _MAX_THREAD_CHARS or not (thread.isascii() and thread.isprintable()):
        raise _invalid(f"A thread is named by at most {_MAX_THREAD_CHARS} printable ASCII characters.")
    return thread


def single_headers(scope: Scope) -> dict[str, str]:
    """Return headers by name, in lower case. Raises AuthenticationError where one that says who calls is there twice.

    Others that are there several times have their values as one, as HTTP does (RFC 9110, 5.2): a client that adds a
    second `X-User` to that of a proxy is neither of the two.
    """
    result: dict[str, str] = {}
    for encoded_name, encoded_value in scope["headers"]:
        name, value = encoded_name.decode("latin-1").lower(), encoded_value.decode("latin-1")
        if name in result and name in _ONCE:
            raise _invalid(f"The header '{name}' is there more than once.")
        result[name] = f"{result[name]}{'; ' if name == 'cookie' else ', '}{value}" if name in result else value
    return result


def log_unidentified(error: BaseException, what: str = "A request could not be identified") -> None:
    """Log *what* failed when a caller could not be identified, by which *error*, and where; without its text.

    That of a lookup which fails is often what was looked up.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f", at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    _log.warning("%s (%s%s)", what, type(error).__name__, place)


async def identified(identify: Identify, headers: Mapping[str, str]) -> Caller:
    """Return the caller that *identify* returns for *headers*.

    Raises what it raises, and SetupError where that is not a Caller.
    """
    caller: object = identify(headers)
    if isawaitable(caller):
        caller = await caller
    if not isinstance(caller, Caller):
        # Such as the None of a lookup without a match: that is not the person at this computer.
        raise SetupError(
            f"identify returned {type(caller).__name__}, not a Caller. Raise where there is no such caller."
        )
    return caller


def require_key_for(bench: Workbench, key: object) -> str:
    """Return *key*, the idempotency key of a call in *bench*. Raises ToolError where there can be no such key."""
    if getattr(bench.crib.store, "ledger", None) is None:
        message = (
            "An idempotency key needs a store, and this server has none: url in [store], --store, or Crib(store=...)."
        )
        raise ToolError(message, "unavailable", retry="never")
    return require_key(key)


async def caller_of(request: "HTTPConnection | None", identify: Identify) -> Caller:
    """Return who made *request*; None is the client over stdio.

    A caller that `Authentication` has identified is not identified again. Raises what *identify* and `require_local`
    raise, and SetupError.
    """
    if request is None:
        return await identified(identify, {})
    if (caller := request.scope.get(CALLER)) is not None:
        return cast(Caller, caller)
    require_local(request.scope, identify)
    return await identified(identify, single_headers(request.scope))


class Callers:
    """The workbenches of *crib* by caller, whichever door they come by: at most *size*, a tenth of one principal.

    With one more, that is stopped which was not used for longest: their own, or of who has the most. None is stopped
    while a request uses it, so there are more while more requests are open.
    """

    def __init__(
        self, crib: Crib, identify: Identify, size: int = DEFAULT_WORKBENCHES, roles: Sequence[Role] = ()
    ) -> None:
        if size < 1:
            raise SetupError("A server has at least 1 workbench.")
        self.crib = crib
        self.identify = identify
        self._roles = roles
        self._size = size
        self._share = max(1, size // 10)
        self._ask = asking(crib)
        self._benches: Shares[Caller, tuple[Workbench, WeakSet[asyncio.Task[Any]]]] = Shares()
        self._stopping: set[asyncio.Task[None]] = set()

    async def workbench(self, request: "HTTPConnection | None") -> Workbench:
        """Return the workbench of the caller of *request*, for the running task. Raises what `caller_of` raises."""
        caller, task = await caller_of(request, self.identify), asyncio.current_task()
        assert task is not None
        if (entry := self._benches.get(caller)) is not None:
            entry[1].add(task)
            return entry[0]
        bench = self.crib.workbench(caller, ask=self._ask)
        self._benches.put(caller, (bench, WeakSet({task})), caller.principal)
        self._drop_idle(caller.principal)
        with suppress(ToolcribError):  # logged, and each call answers for itself
            await bench.start()
        return bench

    def _drop_idle(self, principal: str) -> None:
        """Stop what is too much, but for what a request still uses."""
        while True:
            of = principal if self._benches.count(principal) > self._share else None
            if of is None and len(self._benches) <= self._size:
                return
            if (entry := self._benches.drop(lambda entry: all(task.done() for task in entry[1]), of=of)) is None:
                return
            task = asyncio.create_task(entry[0].stop())
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)

    def may(self, caller: Caller, right: Right) -> bool:
        """Return whether *caller* has *right*: a role gives it, or they are the person at this computer."""
        return self.identify is local_caller or any(role.gives(caller, right) for role in self._roles)

    def __iter__(self) -> Iterator[Workbench]:
        return iter([bench for bench, _ in self._benches])


def _invalid(message: str) -> AuthenticationError:
    return AuthenticationError(message, "invalid_request", status=400)
