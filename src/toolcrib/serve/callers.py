"""Who calls: each request runs for the caller that it was identified as, in that caller's workbench."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from inspect import isawaitable

from ..core import Caller, SetupError, ToolcribError
from ..workbench import Crib, Workbench

Identify = Callable[[Mapping[str, str]], Caller | Awaitable[Caller]]
"""The caller of a request, by its HTTP headers (names in lower case; none over stdio). Raises where there is none."""

_MOST = 1000


def local_caller(_headers: Mapping[str, str]) -> Caller:
    """The caller where nobody is identified: the person at this computer."""
    return Caller()


class Callers:
    """The workbenches of *crib* by caller, at most 1,000: the one that was not used for longest is stopped."""

    def __init__(self, crib: Crib, identify: Identify) -> None:
        self.crib = crib
        self._identify = identify
        self._benches: OrderedDict[Caller, Workbench] = OrderedDict()
        self._stopping: set[asyncio.Task[None]] = set()

    async def workbench(self, headers: Mapping[str, str] | None) -> Workbench:
        """The workbench of whoever made a request with *headers*. Raises what `identify` raises, and SetupError."""
        identified = self._identify({name.lower(): value for name, value in (headers or {}).items()})
        caller: object = await identified if isawaitable(identified) else identified
        if not isinstance(caller, Caller):
            # Such as the None of a lookup that found nobody: that is not the person at this computer.
            raise SetupError(f"identify returned {type(caller).__name__}, not a Caller. Raise where there is nobody.")
        if (known := self._benches.get(caller)) is not None:
            self._benches.move_to_end(caller)
            return known
        bench = self._benches[caller] = self.crib.workbench(caller)
        if len(self._benches) > _MOST:
            _, unused = self._benches.popitem(last=False)
            task = asyncio.create_task(unused.stop())
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)
        with suppress(ToolcribError):  # logged, and each call answers for itself
            await bench.start()
        return bench

    def __iter__(self) -> Iterator[Workbench]:
        return iter(tuple(self._benches.values()))
