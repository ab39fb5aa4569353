"""How the work of a function is done: on the event loop, in a thread, or as a generator, with what the host provides.

What it provides is opened when first needed, shared within its scope, and closed in reverse order. Each value is opened
and closed in one task of its own, on one event loop: what holds a cancel scope or a task group (most clients do) may
only be left by the task that entered it.
"""

import asyncio
import copy
import functools
import inspect
import logging
import os
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..core import Context, DefinitionError, Redaction, ToolcribError, ToolError
from ..machinery import (
    AtDeadline,
    Escaped,
    Need,
    Needs,
    Overrides,
    Port,
    Suspended,
    Work,
    call_later,
    create_lasting_task,
    in_thread,
    log_failure,
    release_permits,
    share_permits,
)

if TYPE_CHECKING:
    from ..schema import Signature

Runs = Literal["async", "sync", "async_generator", "generator"]
"""How a function runs: awaited on the event loop or called in a thread; and whether it yields its results."""

Body = Callable[[dict[str, Any], Any], Any]
"""Plain work: checked arguments and the Context → the value, in a thread."""

_log = logging.getLogger("toolcrib")

_CLOSE_TIMEOUT_S = 5.0
"""How long a provider may take to end when what it opens is not needed any more."""

# An event loop does not keep its tasks: a task without a waiter is kept here until it has ended.
_running: set[asyncio.Task[Any]] = set()
_END = object()


class Replacements(dict[Callable[..., Any], Callable[..., Any]]):
    """*overrides*, which `get` finds by where a provider is defined, too.

    A `.py` file that is loaded by its path is a module of its own: its provider is another object than the one that a
    test imports from the same file.
    """

    def __init__(self, overrides: Overrides) -> None:
        super().__init__(overrides)
        self._places = {place: provider for provider in self if (place := _place_of(provider)) is not None}

    def get(self, provider: Callable[..., Any], default: Any = None) -> Any:
        return super().get(self._key(provider), default)

    def unused(self, needs: Iterable[Needs | None]) -> list[Callable[..., Any]]:
        """Return the providers that nothing with these *needs* uses, with replacements or without."""
        used_keys: set[Callable[..., Any]] = set()
        waiting = [need for need_set in needs if need_set is not None for need in need_set.depends]
        while waiting:
            need = waiting.pop()
            key = self._key(need.how.provider)
            replacement = super().get(key)
            used_keys.add(key)
            waiting += (*need.needs.depends, *(() if replacement is None else _needs_of(replacement).depends))
        return [provider for provider in self if provider not in used_keys]

    def _key(self, provider: Callable[..., Any]) -> Callable[..., Any]:
        if provider in self or (place := _place_of(provider)) is None:
            return provider
        return self._places.get(place, provider)


def _place_of(provider: Callable[..., Any]) -> tuple[str, str, int] | None:
    """Return file, name and line of a function or class at the top of a module; None for anything else."""
    name, code = getattr(provider, "__qualname__", "<"), getattr(inspect.unwrap(provider), "__code__", None)
    if "<" in name or inspect.ismethod(provider):
        return None
    if code is not None:
        return os.path.realpath(code.co_filename), name, code.co_firstlineno
    file = getattr(sys.modules.get(getattr(provider, "__module__", "")), "__file__", None)
    return (os.path.realpath(file), name, 0) if file and isinstance(provider, type) else None


class Dependencies:
    """The values of some *scopes*.

    *outer* has the longer-lived scopes; *overrides* puts other providers in the place of some; *redaction* is for what
    is logged. *variables* are given where several callers share the values: then a provider that takes the Caller has
    one value for each of them, and these variables.
    """

    def __init__(
        self,
        *scopes: str,
        overrides: Overrides | None = None,
        outer: "Dependencies | None" = None,
        redaction: Redaction | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> None:
        self._scopes = frozenset(scopes)
        self._redaction = redaction
        self._overrides = overrides or {}
        self._outer = outer
        self._variables = variables
        self._values: dict[Any, Value] = {}
        self._opened: list[Value] = []  # in the order in which they can be relied on

    async def arguments(self, needs: Needs, context: Context) -> dict[str, Any]:
        """Return the values of *needs* by parameter name. Raises what a provider raises."""
        values: dict[str, Any] = {need.name: await self.value(need, context) for need in needs.depends}
        return {**values, **provided(needs, context, self._variables)}

    async def value(self, need: Need, context: Context) -> Any:
        """Return the value of *need*. Raises what its provider raises."""
        if need.how.scope not in self._scopes:
            if self._outer is None:
                raise ToolcribError(f"Values of this scope cannot be opened here: {need.how.scope}.")
            return await self._outer.value(need, context)
        key: Any = need.how.provider
        if self._variables is not None and _takes_caller(need.needs):
            key = (key, context.caller)
        value = self._values.get(key)
        if value is None:
            provider, needs = overridden(need, self._overrides)
            # What lives longer than the call does not have its deadline.
            is_lasting = need.how.scope != "call"
            arguments = self.arguments(needs, context)
            value = self._values[key] = Value(provider, arguments, self._opened.append, is_lasting=is_lasting)
        try:
            return await value.value()
        except BaseException:
            if value.failed and self._values.get(key) is value:
                del self._values[key]
            raise

    def opened(self, provider: Callable[..., Any]) -> asyncio.Future[Any] | None:
        """Return the value of *provider*, where it was opened here."""
        value = self._values.get(provider)
        return None if value is None else value.future

    async def close(self) -> None:
        """Close what was opened, the newest first. One that fails to close is logged, and the others are closed."""
        opening = [value for value in self._values.values() if value not in self._opened]
        self._values.clear()
        await asyncio.gather(*(value.close(self._redaction) for value in opening))
        while self._opened:
            await self._opened.pop().close(self._redaction)

    def abandon(self) -> None:
        """Forget what was opened on an event loop that has ended."""
        if self._values:
            _log.warning("What Depends opened on an event loop that has ended cannot be closed any more.")
            self._values.clear()

    def is_used(self) -> bool:
        return bool(self._values)


def provided(needs: Needs, context: Context, variables: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what *needs* takes of the call itself, by parameter name."""
    values: dict[str, Any] = {}
    if needs.context is not None:
        values[needs.context] = context
    if needs.caller is not None:
        values[needs.caller] = context.caller
    if needs.variables is not None:
        values[needs.variables] = context.variables if variables is None else variables
    return values


async def with_dependencies(work: Work, needs: Needs, arguments: dict[str, Any], context: Context) -> Any:
    """Return the value of *work*, with what it *needs* besides its arguments; what is opened for the call is closed."""
    host = context.host
    dependencies = Dependencies("call", overrides=host.overrides, outer=host.session(), redaction=host.redaction)
    try:
        return await work({**arguments, **await dependencies.arguments(needs, context)}, context)
    finally:
        if dependencies.is_used():
            await until_closed(dependencies.close)


async def until_closed(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Wait until *close* is done. It ends without a waiter too, so it keeps the permits of the call."""
    permits = share_permits()

    async def work() -> None:
        try:
            await close()
        finally:
            release_permits(permits)

    task = create_lasting_task(work())
    _keep(task)
    await asyncio.shield(task)


class Value:
    """One value: opened, kept and closed by a task of its own."""

    def __init__(
        self,
        provider: Callable[..., Any],
        arguments: Awaitable[dict[str, Any]],
        on_open: Callable[["Value"], None],
        *,
        is_lasting: bool,
    ) -> None:
        self._provider = provider
        self._on_open = on_open
        self._is_lasting = is_lasting
        self.future: asyncio.Future[Any] = asyncio.Future()
        self._closing = asyncio.Event()
        # Kept alive until it is closed, also where a workbench was dropped without being stopped.
        self._task = (create_lasting_task if is_lasting else asyncio.create_task)(self._live(arguments))
        _keep(self._task)

    @property
    def failed(self) -> bool:
        return self.future.done() and (self.future.cancelled() or self.future.exception() is not None)

    async def value(self) -> Any:
        # Shielded: one caller that gives up must not take the value from the others.
        return await asyncio.shield(self.future)

    async def close(self, redaction: Redaction | None) -> None:
        """Wait until it is closed. What is still being opened is cancelled, and waited for, but not for long."""
        if self._closing.is_set():
            return
        self._closing.set()
        if not self.future.done():
            self._task.cancel()
            if not (await asyncio.wait({self._task}, timeout=_CLOSE_TIMEOUT_S))[0]:
                _log.warning("The provider %r was cancelled and continues to open", self._provider)
            return
        await asyncio.wait({self._task})
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            log_close(self._provider, error, redaction)

    async def _live(self, arguments: Awaitable[dict[str, Any]]) -> None:
        try:
            result, value = await self._open(await arguments)
        except BaseException as error:
            if isinstance(error, GeneratorExit):
                raise  # this task is closed, and nothing waits
            # A provider may ask too, and then it is the call that waits.
            is_reported = isinstance(error, Exception | Suspended)
            self.future.set_exception(error if is_reported else self._stopped(error))
            self.future.exception()  # retrieved, also without a waiter
            if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
                raise
            return
        self._on_open(self)
        self.future.set_result(value)
        while not self._closing.is_set():
            try:
                await self._closing.wait()
            except asyncio.CancelledError:
                if self._is_lasting:
                    raise
                # The loop ends. What was opened for a call is closed with the call, in order; where the call was
                # closing already, it was cancelled in the middle of that, and no close follows.
                call_later(_CLOSE_TIMEOUT_S, self._closing.set)
        try:
            await _close_opened(result, self._provider)
        except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            raise Escaped(error) from None  # a `sys.exit` ends no event loop

    def _stopped(self, error: BaseException) -> Exception:
        if isinstance(error, asyncio.CancelledError):
            return ToolError("What the tool needs was closed before it was open. Try again later.", "unavailable")
        return Escaped(error)

    async def _open(self, arguments: dict[str, Any]) -> tuple[Any, Any]:
        """Return what the provider returned, and the value."""
        if is_async(self._provider):
            result = self._provider(**arguments)
        else:
            result, value = await _opened_in_thread(self._provider, arguments)
            if isinstance(result, Generator):
                return result, value
        if inspect.isawaitable(result):
            result = await result
        return result, await anext(result) if isinstance(result, AsyncGenerator) else result


async def _opened_in_thread(provider: Callable[..., Any], arguments: dict[str, Any]) -> tuple[Any, Any]:
    """Return what plain *provider* returned, and its first value.

    Cancelled, what the thread opens all the same is closed.
    """
    turn = threading.Lock()  # taken once: by the thread that hands it over, or by the task that waits no more
    generators: list[Any] = []

    def open_() -> tuple[Any, Any]:
        result = provider(**arguments)
        value = next(result) if isinstance(result, Generator) else result
        generators.append(result)
        if not turn.acquire(blocking=False):
            _end_late(result, provider)
        return result, value

    try:
        return await in_thread(open_)
    except asyncio.CancelledError:
        if not turn.acquire(blocking=False):
            await in_thread(lambda: _end_late(generators[0], provider), is_cleanup=True)
        raise


def overridden(need: Need, overrides: Overrides) -> tuple[Callable[..., Any], Needs]:
    """Return the provider of *need*, or what takes its place, and what that needs."""
    replacement = overrides.get(need.how.provider)
    return (need.how.provider, need.needs) if replacement is None else (replacement, _needs_of(replacement))


@functools.lru_cache(maxsize=256)
def _needs_of(provider: Callable[..., Any]) -> Needs:
    from ..schema import read_signature

    return read_signature(provider, label=f"The override {getattr(provider, '__name__', provider)!r}").needs


def _takes_caller(needs: Needs) -> bool:
    return needs.caller is not None or any(_takes_caller(need.needs) for need in needs.depends)


def is_async(provider: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(provider) or inspect.isasyncgenfunction(provider)


async def _close_opened(opened: Any, provider: Callable[..., Any]) -> None:
    if isinstance(opened, AsyncGenerator):
        async for _ in opened:
            await opened.aclose()
            raise _yields_twice(provider)
    elif isinstance(opened, Generator):
        await in_thread(lambda: end(opened, provider), is_cleanup=True)


def end(opened: Iterator[Any], provider: Callable[..., Any]) -> None:
    if next(opened, _END) is not _END:
        opened.close()  # type: ignore[attr-defined]
        raise _yields_twice(provider)


def _end_late(opened: Any, provider: Callable[..., Any]) -> None:
    """Close what was opened after its call had ended."""
    if isinstance(opened, Generator):
        try:
            end(opened, provider)
        except BaseException as error:
            log_close(provider, error, None)


def _yields_twice(provider: Callable[..., Any]) -> ToolcribError:
    return ToolcribError(f"The provider {provider!r} yields more than once. Yield one value, then clean up.")


def log_close(provider: Callable[..., Any], error: BaseException, redaction: Redaction | None) -> None:
    error = error.error if isinstance(error, Escaped) else error
    log_failure(f"The provider {provider!r} failed to close", error, redaction)


def _keep(task: asyncio.Task[Any]) -> None:
    _running.add(task)
    task.add_done_callback(_forget)


def _forget(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved, also without a waiter


# The work


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
