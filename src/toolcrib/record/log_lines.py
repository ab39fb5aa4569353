"""Redacts known secrets in the lines of Toolcrib's own logs: whatever is logged there, with what it was raised by.

And in those of `asyncio`, which reports there what nobody waited for: the exception of a task that a tool has started.
"""

import logging
import traceback
import weakref

from .redact import Redactor

_LOGS = tuple(map(logging.getLogger, ("toolcrib", "toolcrib.watch", "asyncio")))  # a filter concerns no logs below


def redact_log(redactor: Redactor) -> None:
    """Redact the secrets of *redactor* in the logs of Toolcrib and asyncio as long as it is in use."""
    lines = _Lines(redactor)
    for log in _LOGS:
        log.addFilter(lines)
        weakref.finalize(redactor, log.removeFilter, lines)


class _Lines(logging.Filter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = weakref.ref(redactor)

    def filter(self, record: logging.LogRecord) -> bool:
        redactor = self._redactor()
        if redactor is None:
            return True
        try:
            message = record.getMessage()
            trace = "" if record.exc_info is None else "".join(traceback.format_exception(*record.exc_info)).rstrip()
        except Exception:
            return True  # the handlers report it
        if (shown := redactor.redact(message)) != message:
            record.msg, record.args = shown, ()
        if (shown := redactor.redact(trace)) != trace:
            record.exc_text, record.exc_info = shown, None
        return True
