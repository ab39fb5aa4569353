"""Plain tools with plain providers: what these open for one call is opened, used and closed in the call's thread."""

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import Any

from ..core import Context, Need, Needs, ToolError, in_thread, run_on
from .depends import Dependencies, end, is_async, log_close, overridden, provided, until_closed

Body = Callable[[dict[str, Any], Context], Any]
"""Plain work: checked arguments and the Context → the value, in a thread."""


async def in_one_thread(body: Body, needs: Needs, arguments: dict[str, Any], context: Context) -> Any:
    """Do the same as `with_dependencies` for plain *body*.

    What plain providers open for the call, they open in its thread.
    """
    host = context.host
    outside = Dependencies("call", overrides=host.overrides, outer=host.session(), redaction=host.redaction)
    inside = _Thread(outside, context)
    is_left = False

    async def close() -> None:
        await inside.ended()
        await outside.close()

    try:
        await inside.prepare(needs)
        return await in_thread(lambda: inside.run(body, needs, arguments))
    except GeneratorExit:
        is_left = True
        raise
    finally:
        if outside.is_used():
            await until_closed(close, context, is_left=is_left)


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
        """On the event loop: open what does not depend on the thread."""
        for need in needs.depends:
            if self._is_inside(need):
                await self.prepare(overridden(need, self._overrides)[1])
            elif need.how.provider not in self._values:
                self._values[need.how.provider] = await self._outside.value(need, self._context)

    def run(self, body: Body, needs: Needs, arguments: dict[str, Any]) -> Any:
        """In the thread: the value of *body*. What was opened here is closed, whether anybody waits or not."""
        if not self._turn.acquire(blocking=False):
            raise RuntimeError("the call has ended before its work began")
        try:
            with self._stack:
                values = self._arguments(needs)
                if self._context.cancellation.is_cancelled():
                    raise ToolError("The call was given up before its work began.", "cancelled")
                value = body({**arguments, **values}, self._context)
                return run_on(self._context.loop, _awaited(value)) if inspect.isawaitable(value) else value
        finally:
            self._ended.set_result(None)

    async def ended(self) -> None:
        """Wait until the thread is done, if it has begun. It does not begin any more."""
        if not self._turn.acquire(blocking=False):
            await asyncio.wrap_future(self._ended)

    def _is_inside(self, need: Need) -> bool:
        """Return whether *need* is opened in the thread, or is made of what is."""
        if need.how.scope != "call":
            return False
        provider, needs = overridden(need, self._overrides)
        return not is_async(provider) or any(map(self._is_inside, needs.depends))

    def _arguments(self, needs: Needs) -> dict[str, Any]:
        values = {need.name: self._value(need) for need in needs.depends}
        return {**values, **provided(needs, self._context)}

    def _value(self, need: Need) -> Any:
        key = need.how.provider
        if key not in self._values:
            provider, needs = overridden(need, self._overrides)
            self._values[key] = self._open(provider, self._arguments(needs))
        return self._values[key]

    def _open(self, provider: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        if not is_async(provider):
            opened = provider(**arguments)
            if isinstance(opened, Generator):
                value = next(opened)
                self._stack.callback(self._close, provider, partial(end, opened, provider))
                return value
            if not (inspect.isawaitable(opened) or isinstance(opened, AsyncGenerator)):
                return opened
            provider, arguments = (lambda: opened), {}
        loop = self._context.loop
        value = run_on(loop, self._outside.open_for_call(provider, arguments))
        self._stack.callback(self._close, provider, lambda: run_on(loop, value.close(self._redaction)))
        return run_on(loop, value.value())

    def _close(self, provider: Callable[..., Any], close: Callable[[], None]) -> None:
        try:
            close()
        except BaseException as error:
            log_close(provider, error, self._redaction)


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work
