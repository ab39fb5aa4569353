"""The one place that turns an exception into a ToolError for the model, and keeps the rest for the log."""

import asyncio
import json
import logging
import traceback
from collections.abc import Iterator
from functools import partial
from secrets import token_hex
from typing import Any

from .context import Redaction
from .errors import ToolError
from .threads import Escaped

_log = logging.getLogger("toolcrib")


def to_tool_error(error: BaseException, tool: str, *, show: bool, redaction: Redaction | None) -> ToolError:
    """*error* as a ToolError, secrets redacted.

    A ToolError keeps its message. Of any other exception the message has only the type, and a reference under which its
    traceback is in the log; with *show*, its text too, and both are in `details`. Raises *error* itself where it is
    the caller who gives up: KeyboardInterrupt, GeneratorExit, and the cancellation of the task that waits.
    """
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        raise error
    if isinstance(error, asyncio.CancelledError) and (task := asyncio.current_task()) and task.cancelling():
        raise error
    if isinstance(error, Escaped):
        error = error.error
    own = _tool_errors(error)
    if own:
        return _redacted(own, redaction)
    reference = token_hex(4)
    trace = _text_of(lambda: "".join(traceback.format_exception(error)))
    _log.error("Tool '%s' failed (reference %s):\n%s", tool, reference, redaction.redact(trace) if redaction else trace)
    kind = _kind(error)
    text = _text_of(lambda: str(error)) if show else "The detail is in the log."
    details = {"exception": kind, "text": text} if show else None
    made = ToolError(f"Tool '{tool}' failed: {kind} (reference {reference}). {text}", details=details)
    return _redacted([made], redaction)


def log_failure(what: str, error: BaseException, redaction: Redaction | None) -> None:
    """Log *what* has failed with the traceback of *error*, secrets redacted."""
    trace = _text_of(lambda: "".join(traceback.format_exception(error)))
    _log.error("%s:\n%s", what, trace if redaction is None else redaction.redact(trace))


def _tool_errors(error: BaseException) -> list[ToolError]:
    """The ToolErrors that *error* is, or is a group of; none where anything else is among them."""
    leaves = list(_leaves(error))
    found = [leaf for leaf in leaves if isinstance(leaf, ToolError)]
    return found if len(found) == len(leaves) else []


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _redacted(errors: list[ToolError], redaction: Redaction | None) -> ToolError:
    # A fresh error: the one that was raised holds on to its traceback, and so to every local value on the way.
    first = errors[0]
    message, details = "\n".join(_text_of(partial(str, error.message)) for error in errors), first.details
    if redaction is not None:
        message = redaction.redact(message)
        details = json.loads(redaction.redact(json.dumps(dict(details), default=str))) if details else details
    return ToolError(message, first.code, retry=first.retry, details=details)


def _kind(error: BaseException) -> str:
    name = type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        return f"{name} of {', '.join(sorted({type(leaf).__name__ for leaf in _leaves(error)}))}"
    return name


def _text_of(text: Any) -> str:
    """What *text* gives, even if an exception's own `__str__` raises."""
    try:
        return str(text())
    except Exception as error:
        return f"<its text cannot be read: {type(error).__name__}>"
