"""The one event loop that a crib and its workbenches live on, and the one way from sync code to it.

A crib that was not started lives on the loop of its first `await`. While that loop runs, calls from other loops and
threads are handed over to it; when it has ended, the next call starts the crib anew, on its own loop. Sync code is on
no loop, so its calls run where the crib lives, or on the portal: a loop of ours in a thread of its own.
"""

import asyncio
import functools
import os
import threading
from abc import ABC, abstractmethod
from asyncio import _get_running_loop  # pyright: ignore[reportPrivateUsage] - None where none runs
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from ..core import SetupError
from ..machinery import Handed, LoopEnded, NeverBegun

P = ParamSpec("P")
S = TypeVar("S", bound="Startable")
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T], *, home: asyncio.AbstractEventLoop | None = None) -> T:
    """Return the value of *work*, run on *home* if that loop runs, else on the portal.

    Ctrl-C cancels the work, and is raised. Raises SetupError on that loop itself, where the work could never begin, and
    ToolError `lost` where the loop ends before the work.
    """
    running, handover = _get_running_loop(), None
    try:
        while True:
            loop = home if home is not None and home.is_running() else _portal(os.getpid())
            if loop is running:
                raise SetupError(
                    "A sync call blocks the event loop that it is made on, and this is the loop that would run it. "
                    "Await the call here: `await bench.call(...)` in place of `bench.call_sync(...)`. Or make the tool "
                    "that calls it a plain function, which gets a thread."
                )
            handover = Handed(loop, lambda: work)
            with suppress(NeverBegun):
                return handover.wait()
    finally:
        if handover is None or handover.is_void:
            work.close()


@functools.cache
def _portal(process: int) -> asyncio.AbstractEventLoop:
    # By process: a thread does not survive a fork.
    loop = asyncio.new_event_loop()

    def serve() -> None:
        asyncio.set_event_loop(loop)
        while True:  # also after a `sys.exit` in a task
            with suppress(SystemExit):
                loop.run_forever()

    threading.Thread(target=serve, name="toolcrib-portal", daemon=True).start()
    return loop


class Home:
    """The loop that a crib and its workbenches live on. *on_end* forgets what ran on a loop that has ended."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._on_end = on_end
        self._lock = threading.Lock()

    def enter(self, owner: "Startable") -> asyncio.AbstractEventLoop | None:
        """Return None if the running loop is the home, also from now on; else the home, to hand the work over to.

        Raises SetupError where *owner* was started by `async with` on a loop that has ended.
        """
        running = asyncio.get_running_loop()
        if self.loop is running:
            return None
        with self._lock:
            if self.loop is not None and self.loop.is_running():
                return self.loop
            if self.loop is not None:
                owner._require_loop()  # pyright: ignore[reportPrivateUsage] - a friend
                self._on_end()
            self.loop = running
            return None

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call *callback* on the home, from any thread, if that runs."""
        loop = self.loop
        if loop is not None and loop.is_running():
            loop.call_soon_threadsafe(callback)

    def is_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        return self.loop is loop

    async def items(self, owner: "Startable", items: AsyncGenerator[T]) -> AsyncGenerator[T]:
        """Yield *items*, each made on the loop that is the home of *owner* when the first is."""
        loop: asyncio.AbstractEventLoop | None = None

        async def step() -> T | None:
            nonlocal loop
            loop = asyncio.get_running_loop()
            return await anext(items, None)

        try:
            item = await value_at_home(owner, step)
            while item is not None:
                yield item
                item = await _value_on(loop, step)
        finally:
            with suppress(LoopEnded):
                await _value_on(loop, items.aclose)


async def value_at_home(owner: "Startable", begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    home = owner._home  # pyright: ignore[reportPrivateUsage] - a friend
    while (loop := home.enter(owner)) is not None:
        with suppress(NeverBegun):  # where that loop has ended, this one may be the next home
            return await Handed(loop, begin, partial(home.is_on, loop)).value()
    return await begin()


async def _value_on(loop: asyncio.AbstractEventLoop | None, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    if loop is None or loop is asyncio.get_running_loop():
        return await begin()
    return await Handed(loop, begin).value()


def at_home(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Run an async method of a Startable on the loop that it lives on."""

    @functools.wraps(method)
    async def moved(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await value_at_home(self, partial(method, self, *args, **kwargs))

    return moved


class Startable(ABC):
    """What `async with` and `with` start and stop."""

    _home: Home
    _is_entered = False
    """Whether it was started by `async with`, and so lives on that loop alone."""

    @abstractmethod
    def start(self) -> Coroutine[Any, Any, None]: ...

    @abstractmethod
    async def stop(self) -> None: ...

    @abstractmethod
    def _give_up_start(self) -> Coroutine[Any, Any, None]:
        """Stop what a start that failed has left, so that the next begins anew."""

    def _require_loop(self) -> None:
        """Raise SetupError where it was started by `async with` on a loop that has ended."""
        if self._is_entered:
            raise SetupError(
                f"This {type(self).__name__} was started by `async with` on an event loop that has ended. Use it "
                "inside of that block, or without `async with`: then it starts itself, on the loop of its first call."
            )

    async def __aenter__(self) -> Self:
        self._is_entered = False
        try:
            await self.start()
        except BaseException:
            # What was not entered is not left.
            await self._give_up_start()
            raise
        self._is_entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_entered = False
        await self.stop()

    def __enter__(self) -> Self:
        return run(self.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self.__aexit__(kind, error, trace), home=self._home.loop)
