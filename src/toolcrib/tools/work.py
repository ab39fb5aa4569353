"""How the work of a function is done: on the event loop, in a thread, or as a generator, with what it needs besides."""

import asyncio
import copy
import functools
import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..core import CancellationToken, Context, DefinitionError, Needs, Port, Work, in_thread, run_on
from .depends import provided, with_dependencies
from .one_thread import Body, in_one_thread

if TYPE_CHECKING:
    from ..schema import Signature

Runs = Literal["async", "sync", "async_generator", "generator"]
"""How a function runs: awaited on the event loop or called in a thread; and whether it yields its results."""


def work_of(fn: Callable[..., Any], runs: Runs, needs: Needs | None) -> Work:
    """Return the work that calls *fn* with checked arguments by name, and with its *needs*."""
    body = _BODIES.get(runs)
    if body is not None and needs is not None and needs.depends:
        return partial(in_one_thread, body(fn), needs)
    work = _KINDS[runs](fn)
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


def _async(fn: Callable[..., Any]) -> Work:
    return lambda arguments, _: fn(**arguments)


def _sync(fn: Callable[..., Any]) -> Work:
    async def work(arguments: dict[str, Any], _: Context | None) -> Any:
        value = await in_thread(partial(fn, **arguments))
        # A plain function may still return an awaitable: a wrapper around a coroutine function does.
        return await value if hasattr(type(value), "__await__") else value

    return work


def _async_generator(fn: Callable[..., Any]) -> Work:
    return lambda arguments, context: _last(fn(**arguments), context.port)


def _generator(fn: Callable[..., Any]) -> Work:
    body = _generator_body(fn)

    async def work(arguments: dict[str, Any], context: Context) -> Any:
        return await in_thread(partial(body, arguments, context))

    return work


def _generator_body(fn: Callable[..., Any]) -> Body:
    return lambda arguments, context: _last_in_thread(fn(**arguments), context.port, context.loop, context.cancellation)


_KINDS: dict[Runs, Callable[[Callable[..., Any]], Work]] = {
    "async": _async,
    "sync": _sync,
    "async_generator": _async_generator,
    "generator": _generator,
}

_BODIES: dict[Runs, Callable[[Callable[..., Any]], Body]] = {
    "sync": lambda fn: lambda arguments, _: fn(**arguments),
    "generator": _generator_body,
}


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


def _last_in_thread(items: Any, port: Port, loop: asyncio.AbstractEventLoop, cancellation: CancellationToken) -> Any:
    last: Any = None
    is_first = True
    try:
        for item in items:
            if cancellation.is_cancelled():
                break  # nobody waits for the rest of it
            if not is_first:
                run_on(loop, port.emit(last))
            last, is_first = item, False
    finally:
        items.close()
    return last


def by_name(fn: Callable[..., Any], signature: "Signature", label: str) -> Callable[..., Any]:
    """Return what takes checked arguments by name and calls *fn* with them: *fn* itself wherever that does."""
    rest = next((p.name for p in signature.written if p.kind is inspect.Parameter.VAR_POSITIONAL), None)
    # What stands before *args can only be given by position once *args has anything in it.
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)[: 1 if rest is None else 2]
    firsts = [p for p in signature.written if p.kind in by_place]
    fresh = {p.name: p.default for p in signature.parameters if _mutable(p.default)}
    for name, default in fresh.items():
        try:
            copy.deepcopy(default)
        except Exception as error:
            raise DefinitionError(
                f"{label}: the default of '{name}' cannot be copied, so all calls would share it ({error}). "
                "Take None as the default and make the value in the function, or let the host provide it with Depends."
            ) from error
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


def generates(fn: Any) -> Runs | None:
    while isinstance(fn, functools.partial):
        fn = fn.func
    plain = fn if inspect.isroutine(fn) else type(fn).__call__
    if inspect.isasyncgenfunction(plain):
        return "async_generator"
    return "generator" if inspect.isgeneratorfunction(plain) else None
