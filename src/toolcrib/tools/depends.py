"""What the host provides: opened when first needed, shared within its scope, closed in reverse order.

Each value is opened and closed in one task of its own, on one event loop: what holds a cancel scope or a task group
(most clients do) may only be left by the task that entered it.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any

from ..core import (
    Context,
    Need,
    Needs,
    Overrides,
    Redaction,
    Suspended,
    ToolcribError,
    Work,
    create_lasting_task,
    in_thread,
    log_failure,
)

_open: set[asyncio.Task[None]] = set()


class Dependencies:
    """The values of some *scopes* on one event loop.

    *outer* has the longer-lived scopes; *overrides* puts other providers in the place of some; *redaction* is for what
    is logged.
    """

    def __init__(
        self,
        *scopes: str,
        overrides: Overrides | None = None,
        outer: "Dependencies | None" = None,
        redaction: Redaction | None = None,
    ) -> None:
        self._scopes = frozenset(scopes)
        self._redaction = redaction
        self._overrides = overrides or {}
        self._outer = outer
        self._values: dict[Callable[..., Any], _Value] = {}
        self._opened: list[_Value] = []  # in the order in which they can be relied on

    async def arguments(self, needs: Needs, context: Context | None) -> dict[str, Any]:
        """The values of *needs* by parameter name. Raises what a provider raises."""
        values: dict[str, Any] = {need.name: await self._value(need, context) for need in needs.depends}
        if needs.context is not None:
            values[needs.context] = context
        return values

    async def close(self) -> None:
        """Close what was opened, the newest first. One that fails to close is logged, and the others are closed."""
        opening = [value for value in self._values.values() if value not in self._opened]
        self._values.clear()
        for value in (*opening, *reversed(self._opened)):
            await value.close(self._redaction)
        self._opened.clear()

    async def _value(self, need: Need, context: Context | None) -> Any:
        if need.how.scope not in self._scopes:
            if self._outer is None:
                raise ToolcribError(f"Nothing here holds values for as long as a {need.how.scope}.")
            return await self._outer._value(need, context)
        provider = need.how.provider
        replaced = self._overrides.get(provider)
        value = self._values.get(provider)
        if value is None:
            needs = need.needs if replaced is None else _needs_of(replaced)
            arguments = self.arguments(needs, context)
            # What lives longer than the call does not have its deadline.
            create = asyncio.create_task if need.how.scope == "call" else create_lasting_task
            value = self._values[provider] = _Value(replaced or provider, arguments, self._opened.append, create)
        try:
            return await value.value()
        except BaseException:
            if value.failed and self._values.get(provider) is value:
                del self._values[provider]
            raise


async def with_dependencies(work: Work, needs: Needs, arguments: dict[str, Any], context: Context) -> Any:
    """The value of *work*, with what it *needs* besides its arguments; what is opened for the call is closed."""
    host = context.host
    dependencies = Dependencies("call", overrides=host.overrides, outer=host.session())
    try:
        return await work({**arguments, **await dependencies.arguments(needs, context)}, context)
    finally:
        await dependencies.close()


class _Value:
    """One value: opened, kept and closed by a task of its own."""

    def __init__(
        self,
        provider: Callable[..., Any],
        arguments: Coroutine[Any, Any, dict[str, Any]],
        on_open: Callable[["_Value"], None],
        create_task: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._provider = provider
        self._on_open = on_open
        self._opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._task = create_task(self._live(arguments))
        # Kept alive until it is closed, also where a workbench was dropped without being stopped.
        _open.add(self._task)
        self._task.add_done_callback(_open.discard)

    @property
    def failed(self) -> bool:
        return self._opened.done() and (self._opened.cancelled() or self._opened.exception() is not None)

    async def value(self) -> Any:
        # Shielded: one caller that gives up must not take the value from the others.
        return await asyncio.shield(self._opened)

    async def close(self, redaction: Redaction | None) -> None:
        self._closing.set()
        try:
            await self._task
        except Exception as error:
            log_failure(f"The provider {self._provider!r} failed to close", error, redaction)

    async def _live(self, arguments: Coroutine[Any, Any, dict[str, Any]]) -> None:
        try:
            opened = await self._call(await arguments)
            value = await _first(opened)
        except BaseException as error:
            # A provider may ask too, and then it is the call that waits.
            is_reported = isinstance(error, Exception | Suspended)
            self._opened.set_exception(error if is_reported else RuntimeError(type(error).__name__))
            self._opened.exception()  # seen, also when nobody waits any more
            if not is_reported:
                raise
            return
        self._on_open(self)
        self._opened.set_result(value)
        await self._closing.wait()
        await _last(opened, self._provider)

    async def _call(self, arguments: dict[str, Any]) -> Any:
        provider = self._provider
        if inspect.iscoroutinefunction(provider) or inspect.isasyncgenfunction(provider):
            opened = provider(**arguments)
        else:
            opened = await in_thread(lambda: provider(**arguments))
        return await opened if inspect.isawaitable(opened) else opened


def _needs_of(provider: Callable[..., Any]) -> Needs:
    from ..schema import read_signature

    return read_signature(provider, label=f"The override {getattr(provider, '__name__', provider)!r}").needs


async def _first(opened: Any) -> Any:
    if isinstance(opened, AsyncGenerator):
        return await anext(opened)
    if isinstance(opened, Generator):
        return await in_thread(lambda: next(opened))
    return opened


async def _last(opened: Any, provider: Callable[..., Any]) -> None:
    if isinstance(opened, AsyncGenerator):
        async for _ in opened:
            await opened.aclose()
            raise ToolcribError(f"The provider {provider!r} yields more than once. Yield one value, then clean up.")
    elif isinstance(opened, Generator) and await in_thread(lambda: next(opened, _END)) is not _END:
        opened.close()
        raise ToolcribError(f"The provider {provider!r} yields more than once. Yield one value, then clean up.")


_END = object()
