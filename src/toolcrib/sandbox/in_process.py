"""Guests that run in this process: for modules that the operator trusts, without the way to a worker and back."""

import functools
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ..core import Context, LoadError, SetupError, ToolError, in_thread
from .processes import Codec

if TYPE_CHECKING:
    from .guest import GuestPrograms

_log = logging.getLogger("toolcrib")

_Run = Callable[[str, Context], Awaitable[dict[str, Any]]]


class GuestWork:
    """The work of a module that runs in a thread of this process, and is stopped there at the deadline.

    It is compiled for the first call, which does not count toward the deadline.
    """

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self._run: _Run | None = None

    async def __call__(self, arguments: Mapping[str, Any], context: Context) -> Any:
        run = self._run
        if run is None:
            with nullcontext() if context.deadline is None else context.deadline.paused():
                run = self._run = await in_thread(functools.partial(self._load, context))
        return self.codec.read_value(await run(self.codec.write_arguments(arguments), context))

    def _load(self, context: Context) -> _Run:
        name = context.call.tool
        try:
            with _locks.setdefault(os.getpid(), threading.Lock()):
                programs = _programs(os.getpid())
            return programs.load(self.codec.where, name)
        except (LoadError, SetupError) as error:
            _log.error("Tool '%s' cannot be loaded: %s", name, error)
            detail = str(error) if context.host.show_errors else "The detail is in the log."
            raise ToolError(f"Tool '{name}' cannot be loaded. {detail}", "unavailable") from None


_locks: dict[int, threading.Lock] = {}
"""Of each process, by its id. Threads that made its programs at once would each reserve memory for all its guests."""


@functools.cache
def _programs(process: int) -> "GuestPrograms":
    """Return those of this process: its memory is that of another, after a fork."""
    from .guest import GuestPrograms  # brings wasmtime

    return GuestPrograms(in_host=True)
