"""Redacts known secrets in the lines of Toolcrib's own logs: whatever is logged there, with what it was raised by.

In the logs of tools (`context.log`) too, and in what is logged beside the message (`extra=`, names of tasks). And in
those of `asyncio`, which reports there exceptions that were never retrieved, as of a task that a tool has started.
"""

import functools
import logging
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Any

from .redact import Redactor, redacted_by

# A filter concerns no logs below.
_LOGS = tuple(map(logging.getLogger, ("toolcrib", "toolcrib.watch", "toolcrib.tool", "asyncio")))
_OWN = vars(logging.makeLogRecord({})).keys() - {"stack_info", "threadName", "processName", "taskName"}
"""What every line has, and no text of a program."""
_MAX_DEPTH = 20

_changing = threading.Lock()
_redactors: tuple[weakref.ref[Redactor], ...] = ()


def redact_log(redactor: Redactor) -> None:
    """Redact the secrets of *redactor* in the logs of Toolcrib and asyncio as long as it is in use."""
    global _redactors
    with _changing:
        _redactors = (*(reference for reference in _redactors if reference() is not None), weakref.ref(redactor))
    for log in _LOGS:
        log.addFilter(_redact_line)  # once


def _redact_line(record: logging.LogRecord) -> bool:
    redactors = [redactor for reference in _redactors if (redactor := reference()) is not None]
    redact = functools.partial(redacted_by, redactors)
    try:
        message = record.getMessage()
        trace = "" if record.exc_info is None else "".join(traceback.format_exception(*record.exc_info)).rstrip()
    except Exception:
        return True  # the handlers report it
    if (text := redact(message)) != message:
        record.msg, record.args = text, ()
    if (text := redact(trace)) != trace:
        record.exc_text, record.exc_info = text, None
    for name in vars(record).keys() - _OWN:
        setattr(record, name, _redacted(getattr(record, name), redact))
    return True


def _redacted(value: Any, redact: Callable[[str], str], depth: int = 0) -> Any:
    """Return *value* itself where no secret shows in it; else its parts without, or where it has none, its text."""
    if isinstance(value, str):
        return redact(value)
    try:
        text = repr(value)
    except Exception:
        return value  # the handlers report it
    if (text_shown := redact(text)) == text:
        return value
    if depth < _MAX_DEPTH and type(value) is dict:
        return {_redacted(key, redact, depth + 1): _redacted(item, redact, depth + 1) for key, item in value.items()}
    if depth < _MAX_DEPTH and type(value) in (list, tuple, set, frozenset):
        return type(value)(_redacted(item, redact, depth + 1) for item in value)
    return text_shown
