"""Finds tools that hold up the event loop past their deadline, and names them in the log, from a thread of its own.

Nothing on a blocked loop can say so, and the call itself is answered only when the loop lives again.
"""

import functools
import itertools
import logging
import os
import sys
import threading
import traceback
from time import monotonic

_log = logging.getLogger("toolcrib")

_LOOK_S = 0.25
_GRACE_S = 0.5


class _Watchdog:
    def __init__(self) -> None:
        # Plain dictionary operations only: each is atomic, and this is on the road of every call with a deadline.
        self._watched: dict[int, tuple[str, float, int]] = {}
        self._keys = itertools.count()
        self._some = threading.Event()
        threading.Thread(target=self._look, name="toolcrib-watchdog", daemon=True).start()

    def watch(self, tool: str, deadline_s: float) -> int:
        key = next(self._keys)
        self._watched[key] = (tool, deadline_s, threading.get_ident())
        if not self._some.is_set():
            self._some.set()
        return key

    def release(self, key: int) -> None:
        self._watched.pop(key, None)

    def _look(self) -> None:
        while True:
            self._some.wait()
            threading.Event().wait(_LOOK_S)
            if not self._watched:
                self._some.clear()
                # Whoever came between the look and the clearing is seen at the next look.
                if self._watched:
                    self._some.set()
                continue
            now = monotonic()
            for key, (tool, deadline_s, thread) in list(self._watched.items()):
                if now > deadline_s + _GRACE_S and self._watched.pop(key, None) is not None:
                    frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
                    line = traceback.format_stack(frame)[-1] if frame else "an unknown place"
                    where = line.strip().partition("\n")[0]
                    _log.error(
                        "The event loop is blocked, and tool '%s' is %.1f s past its deadline. The loop is at: %s",
                        tool,
                        now - deadline_s,
                        where,
                    )


@functools.cache
def _watchdog(process: int) -> _Watchdog:
    return _Watchdog()


def watch(tool: str, deadline_s: float) -> int:
    """Watch a call of *tool* on this thread's loop, until `release`. *deadline_s* is on `time.monotonic()`."""
    return _watchdog(os.getpid()).watch(tool, deadline_s)


def release(key: int) -> None:
    """The loop has come round: the call needs no watching any more."""
    _watchdog(os.getpid()).release(key)
