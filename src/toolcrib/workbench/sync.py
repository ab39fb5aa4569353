"""The one way from sync code to async: event loops of our own, each in a thread of its own.

It works from plain code, from a thread, and from inside a running loop, which is blocked meanwhile and never
re-entered.
"""

import asyncio
import functools
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from ..core import NotBegun, ToolError, blocking, is_blocked, run_on

T = TypeVar("T")

_MOST = 64
"""How many loops of our own there may be: one for each loop that is blocked by a call, and one."""


def run(work: Coroutine[Any, Any, T], *, home: asyncio.AbstractEventLoop | None = None) -> T:
    """The value of *work*, run on *home* if that loop is free in another thread, else on a loop of our own.

    Ctrl-C cancels the work, and is raised. Raises ToolError `lost` where the loop ends before the work, and `limited`
    where calls are nested too deep.
    """
    with blocking(_running_here()):
        for loop in _free(home):
            with suppress(NotBegun):
                return run_on(loop, work, or_elsewhere=True)
    work.close()
    raise ToolError(f"Sync calls of async tools are nested more than {_MOST} deep.", "limited", retry="never")


def _running_here() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _free(home: asyncio.AbstractEventLoop | None) -> Iterator[asyncio.AbstractEventLoop]:
    """The loops that do not wait for anything that is called now, *home* first."""
    if home is not None and home.is_running() and not is_blocked(home):
        yield home
    for number in range(_MOST):
        loop = _loop(os.getpid(), number)
        if not is_blocked(loop):
            yield loop


@functools.cache
def _loop(process: int, number: int) -> asyncio.AbstractEventLoop:
    # By process: a thread does not survive a fork.
    loop = asyncio.new_event_loop()

    def serve() -> None:
        asyncio.set_event_loop(loop)
        while True:  # also after somebody's `sys.exit` in a task
            with suppress(SystemExit):
                loop.run_forever()

    threading.Thread(target=serve, name=f"toolcrib-sync-{number}", daemon=True).start()
    return loop


class Startable(ABC):
    """What `async with` and `with` start and stop. `_home` is the event loop on which it was started."""

    _home: asyncio.AbstractEventLoop | None = None

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def stop(self) -> None: ...

    @abstractmethod
    async def _give_up_start(self) -> None:
        """Stop what a start that failed has left, so that the next begins anew."""

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            # Nobody leaves what was not entered.
            await self._give_up_start()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        return run(self.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self.stop(), home=self._home)
