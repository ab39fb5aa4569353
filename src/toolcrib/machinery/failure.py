"""The one place that turns an exception into a ToolError for the model, and keeps the rest for the log."""

import asyncio
import json
import logging
import os
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

from ..core import CODES, Redaction, StoreError, ToolError
from .loops import Escaped
from .redaction import redacted, redacted_data

_log = logging.getLogger("toolcrib")


def to_tool_error(
    error: BaseException, tool: str, *, show: bool, redaction: Redaction | None, cut_short: ToolError | None = None
) -> ToolError:
    """Return *error* as a ToolError whose details are JSON data, secrets redacted.

    A ToolError keeps its message. Of any other exception the message has only the type, and a reference under which its
    traceback is in the log; with *show*, its text too, and both are in `details`. Raises *error* itself where it is
    the caller who gives up: KeyboardInterrupt, the GeneratorExit of a call that is closed, and the cancellation of the
    task that waits. Of a call that was *cut_short*, that is the error, whatever its work has made of it.
    """
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        raise error
    if isinstance(error, asyncio.CancelledError) and (task := asyncio.current_task()) and task.cancelling():
        raise error
    if cut_short is not None:
        return _fresh([cut_short], redaction)
    if isinstance(error, Escaped):
        error = error.error
    causes = list(leaves(error))
    own = [cause for cause in causes if isinstance(cause, ToolError)]
    return _fresh(own if len(own) == len(causes) else [_unexpected(error, causes, tool, show, redaction)], redaction)


def _unexpected(
    error: BaseException, causes: list[BaseException], tool: str, show: bool, redaction: Redaction | None
) -> ToolError:
    """Log *error* under a reference. Return what the model reads of it."""
    reference = os.urandom(4).hex()
    log_failure(f"Tool '{tool}' failed (reference {reference})", error, redaction, reference=reference)
    kind = type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        kind = f"{kind} of {', '.join(sorted({type(cause).__name__ for cause in causes}))}"
    text = _text_of(error) if show else "The detail is in the log."
    details = {"exception": kind, "text": text} if show else None
    code = "unavailable" if isinstance(error, StoreError) else "failed"
    message = f"Tool '{tool}' failed: {kind} (reference {reference}). {text}"
    return ToolError(message, code, details=details)


def log_failure(what: str, error: BaseException, redaction: Redaction | None, *, reference: str | None = None) -> None:
    """Log *what* has failed with the traceback of *error*, secrets redacted.

    The log record's `reference` is that of the result which points to it: None where no result does.
    """
    _log.error("%s", redacted(f"{what}:\n{_trace_of(error)}", redaction), extra={"reference": reference})


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield *error*, or the errors that it is a group of, at any depth."""
    errors = [error]
    while errors:
        error = errors.pop()
        if isinstance(error, Escaped):
            errors.append(error.error)
        elif isinstance(error, BaseExceptionGroup):
            errors += reversed(error.exceptions)
        else:
            yield error


def _fresh(errors: list[ToolError], redaction: Redaction | None) -> ToolError:
    """Return one new error for *errors*: those that were raised hold on to every local value on their way."""
    first = errors[0]  # of a subclass, it may have set anything
    message = "\n".join(str(error.message) for error in errors)
    details = first.details if isinstance(first.details, Mapping) else {}
    plain = {str(name): _plain(value) for name, value in details.items()}
    return ToolError(
        redacted(message, redaction),
        first.code if isinstance(first.code, str) and first.code in CODES else "failed",
        retry=first.retry if isinstance(first.retry, str) and first.retry in ("changed", "later", "never") else None,
        details=redacted_data(plain, redaction) if plain else {},
    )


def _plain(value: Any) -> Any:
    """Return *value* as JSON data: what is of another kind as its text."""
    try:
        return json.loads(json.dumps(value, default=str, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return _text_of(value)


def _trace_of(error: BaseException) -> str:
    """Return the traceback of *error*; of a group, then that of each error in it.

    Python would indent these, also the lines of a secret, and show a group again wherever it is in another one.
    """
    if not isinstance(error, BaseExceptionGroup):
        return "".join(traceback.format_exception(error))
    trace = "".join(traceback.format_tb(error.__traceback__))
    parts = [f"{trace}{type(error).__name__}: {_text_of(error)}", *map(_trace_of, leaves(error))]
    return "\n".join(parts)


def _text_of(value: Any) -> str:
    """Return the text of *value*, also where its `__str__` raises."""
    try:
        return str(value)
    except Exception as error:
        return f"<its text cannot be read: {type(error).__name__}>"
