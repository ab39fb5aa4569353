"""The one place that turns exceptions into what a model is told, and keeps the rest for the log."""

import asyncio
import json
import logging
import traceback
from collections.abc import Iterator
from functools import partial
from secrets import token_hex
from typing import Any

from ..core import Redaction, ToolError
from .threads import Escaped

_log = logging.getLogger("toolcrib")


def told(error: BaseException, tool: str, *, show: bool, redaction: Redaction | None) -> ToolError:
    """What a model is told of *error*, secrets struck out.

    A ToolError is told as it is. Of any other exception only its type is told, and a reference under which its
    traceback is in the log; with *show*, its text too, and both are in `details`. Raises *error* itself where it is
    the caller who gives up: KeyboardInterrupt, GeneratorExit, and the cancellation of the task that waits.
    """
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        raise error
    if isinstance(error, asyncio.CancelledError) and (task := asyncio.current_task()) and task.cancelling():
        raise error
    if isinstance(error, Escaped):
        error = error.error
    meant = _tool_errors(error)
    if meant:
        return _struck(meant, redaction)
    reference = token_hex(4)
    trace = _text_of(lambda: "".join(traceback.format_exception(error)))
    _log.error("Tool '%s' failed (reference %s):\n%s", tool, reference, redaction.strike(trace) if redaction else trace)
    kind = _kind(error)
    text = _text_of(lambda: str(error)) if show else "The detail is in the log."
    details = {"exception": kind, "text": text} if show else None
    said = ToolError(f"Tool '{tool}' failed: {kind} (reference {reference}). {text}", details=details)
    return _struck([said], redaction)


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


def _struck(errors: list[ToolError], redaction: Redaction | None) -> ToolError:
    # A fresh error: the one that was raised holds on to its traceback, and so to every local value on the way.
    first = errors[0]
    message, details = "\n".join(_text_of(partial(str, error.message)) for error in errors), first.details
    if redaction is not None:
        message = redaction.strike(message)
        details = json.loads(redaction.strike(json.dumps(dict(details), default=str))) if details else details
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
