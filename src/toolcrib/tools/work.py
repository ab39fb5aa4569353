"""How the work of a function is done: on the event loop, in a thread, or as a generator, with what it needs besides."""

import asyncio
import copy
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..core import Context, DefinitionError, ToolError
from ..machinery import AtDeadline, Need, Needs, Port, Work, in_thread
from .depends import Dependencies, end, is_async, log_close, overridden, provided, until_closed, with_dependencies

if TYPE_CHECKING:
    from ..schema import Signature

Runs = Literal["async", "sync", "async_generator", "generator"]
"""How a function runs: awaited on the event loop or called in a thread; and whether it yields its results."""

Body = Callable[[dict[str, Any], Any], Any]
"""Plain work: checked arguments and the Context → the value, in a thread."""


def work_of(fn: Callable[..., Any], runs: Runs, needs: Needs | None) -> Work:
    """Return the work that calls *fn* with checked arguments by name, and with its *needs*."""
    work: Work
    if (body := _body(fn, runs)) is not None:
        if needs is not None and needs.depends:
            return partial(in_one_thread, body, needs)
        work = _threaded(body)
    elif runs == "async_generator":
        work = lambda arguments, context: _last(fn(**arguments), context.port)  # noqa: E731
    else:
        work = lambda arguments, _: fn(**arguments)  # noqa: E731
    if needs is None:
        return work
    if needs.depends:
        return partial(with_dependencies, work, needs)
    if needs.caller is None and needs.variables is None and (name := needs.context) is not None:
        return lambda arguments, context: work({**arguments, name: context}, context)
    return lambda arguments, context: work({**arguments, **provided(needs, context)}, context)


def needs_context(runs: Runs, needs: Needs | None) -> bool:
    """Return whether the work looks at the Context of its call."""
    return needs is not None or runs in ("async_generator", "generator")


def at_deadline(runs: Runs) -> AtDeadline:
    """Return what becomes of the work at its deadline: what runs in a thread goes on."""
    return "left_running" if runs in ("sync", "generator") else "cancelled"


def _body(fn: Callable[..., Any], runs: Runs) -> Body | None:
    """Return what calls *fn* in a thread; None where it runs on the event loop."""
    match runs:
        case "sync":
            return lambda arguments, _: fn(**arguments)
        case "generator":
            return lambda arguments, context: _last_in_thread(fn(**arguments), context)
        case _:
            return None


def _threaded(body: Body) -> Work:
    async def work(arguments: dict[str, Any], context: Any) -> Any:
        principal = "" if context is None else context.caller.principal  # a dialect may run the work by itself
        value = await in_thread(partial(body, arguments, context), principal=principal)
        # A plain function may still return an awaitable: a wrapper around a coroutine function does.
        return await value if hasattr(type(value), "__await__") else value

    return work


async def _last(items: Any, port: Port) -> Any:
    """Return the last of what an async generator yields; those before it are emitted."""
    last: Any = None
    is_first = True
    try:
        async for item in items:
            if not is_first:
                await port.emit(last)
            last, is_first = item, False
    finally:
        await items.aclose()
    return last


def _last_in_thread(items: Any, context: Context) -> Any:
    last: Any = None
    is_first = True
    try:
        for item in items:
            if context.cancellation.is_cancelled():
                break  # the call was given up
            if not is_first:
                context.run_on_loop(context.port.emit(last))
            last, is_first = item, False
    finally:
        items.close()
    return last


def by_name(fn: Callable[..., Any], signature: "Signature", label: str) -> Callable[..., Any]:
    """Return what takes checked arguments by name and calls *fn* with them: *fn* itself wherever that does."""
    rest = next((p.name for p in signature.in_python if p.kind is inspect.Parameter.VAR_POSITIONAL), None)
    # What stands before *args can only be given by position once *args has anything in it.
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)[: 1 if rest is None else 2]
    firsts = [p for p in signature.in_python if p.kind in by_place]
    fresh = _fresh_defaults(signature, label)
    if not firsts and rest is None and not fresh:
        return fn

    def work(**given: Any) -> Any:
        for name, default in fresh.items():
            if name not in given:
                given[name] = copy.deepcopy(default)
        given_last = rest is not None and bool(given.get(rest))
        positions: list[Any] = []
        for index, first in enumerate(firsts):
            if first.name in given:
                positions.append(given.pop(first.name))
            elif given_last or any(later.name in given for later in firsts[index + 1 :] if later.kind is first.kind):
                positions.append(first.default)
            else:
                break
        if rest is not None:
            positions += given.pop(rest, ())
        return fn(*positions, **given)

    return work


def _fresh_defaults(signature: "Signature", label: str) -> dict[str, Any]:
    """Return the defaults of which each call gets a copy of its own. Raises DefinitionError for what has no copy."""
    defaults = {parameter.name: parameter.default for parameter in signature.parameters if _mutable(parameter.default)}
    for name, default in defaults.items():
        try:
            copy.deepcopy(default)
        except Exception as error:
            raise DefinitionError(
                f"{label}: the default of '{name}' cannot be copied, so all calls would share it ({error}). "
                "Take None as the default and make the value in the function, or let the host provide it with Depends."
            ) from error
    return defaults


def _mutable(default: Any) -> bool:
    """Return whether a default would be shared between calls, so that one call could change it for the next."""
    if default is inspect.Parameter.empty or type(default).__module__ == "pydantic.fields":
        return False
    try:
        hash(default)
    except TypeError:
        return True
    return False


def yielded(returns: Any) -> Any:
    """Return what a generator annotated like this yields."""
    inner = get_args(returns)
    return inner[0] if inner else inspect.Parameter.empty


def runs_of(fn: Any, *, is_async: bool) -> Runs:
    """Return how *fn* runs; *is_async* says whether calling it returns an awaitable."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    plain = fn if inspect.isroutine(fn) else type(fn).__call__
    if inspect.isasyncgenfunction(plain):
        return "async_generator"
    if inspect.isgeneratorfunction(plain):
        return "generator"
    return "async" if is_async else "sync"


# Plain functions with plain providers: what these open for a call is opened, used and closed in its thread


async def in_one_thread(body: Body, needs: Needs, arguments: dict[str, Any], context: Context) -> Any:
    """Do the same as `with_dependencies` for plain *body*.

    What plain providers open for the call, they open in its thread.
    """
    host = context.host
    outside = Dependencies("call", overrides=host.overrides, outer=host.session(), redaction=host.redaction)
    inside = _Thread(outside, context)

    async def close() -> None:
        await inside.ended()
        await outside.close()

    try:
        await inside.prepare(needs)
        return await in_thread(lambda: inside.run(body, needs, arguments), principal=context.caller.principal)
    finally:
        if outside.is_used():
            await until_closed(close)


class _Thread:
    """What plain providers open for one call, in its thread. *outside* has what is opened on the event loop."""

    def __init__(self, outside: Dependencies, context: Context) -> None:
        self._outside = outside
        self._context = context
        self._overrides = context.host.overrides
        self._redaction = context.host.redaction
        self._turn = threading.Lock()  # taken once: by the thread that begins, or by the call that ends before it
        self._ended: Future[None] = Future()
        self._values: dict[Callable[..., Any], Any] = {}  # by provider
        self._stack = ExitStack()

    async def prepare(self, needs: Needs) -> None:
        """Open, on the event loop, what lives longer than the call or is async, with what that needs itself."""
        for need in needs.depends:
            provider, needs_of = overridden(need, self._overrides)
            if need.how.scope != "call" or is_async(provider):
                self._values[need.how.provider] = await self._outside.value(need, self._context)
            else:
                await self.prepare(needs_of)

    def run(self, body: Body, needs: Needs, arguments: dict[str, Any]) -> Any:
        """Return the value of *body*, in the thread. What was opened here is closed, with or without a waiter."""
        if not self._turn.acquire(blocking=False):
            raise RuntimeError("the call has ended before its work began")
        try:
            with self._stack:
                values = self._arguments(needs)
                if self._context.cancellation.is_cancelled():
                    raise ToolError("The call was given up before its work began.", "cancelled")
                value = body({**arguments, **values}, self._context)
                return self._context.run_on_loop(_awaited(value)) if inspect.isawaitable(value) else value
        finally:
            self._ended.set_result(None)

    async def ended(self) -> None:
        """Wait until the thread is done, if it has begun. It does not begin any more."""
        if not self._turn.acquire(blocking=False):
            await asyncio.wrap_future(self._ended)

    def _arguments(self, needs: Needs) -> dict[str, Any]:
        values = {need.name: self._value(need) for need in needs.depends}
        return {**values, **provided(needs, self._context)}

    def _value(self, need: Need) -> Any:
        key = need.how.provider
        if key not in self._values:
            provider, needs = overridden(need, self._overrides)
            outside = self._outside.opened(key)  # what an async provider needs, too
            self._values[key] = self._open(provider, self._arguments(needs)) if outside is None else outside.result()
        return self._values[key]

    def _open(self, provider: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        result = provider(**arguments)
        if isinstance(result, Generator):
            value = next(result)
            self._stack.callback(self._close, provider, partial(end, result, provider))
            return value
        return self._context.run_on_loop(_awaited(result)) if inspect.isawaitable(result) else result

    def _close(self, provider: Callable[..., Any], close: Callable[[], None]) -> None:
        try:
            close()
        except BaseException as error:
            log_close(provider, error, self._redaction)


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work
