"""The one place that turns an exception into a ToolError for the model, and keeps the rest for the log."""

import asyncio
import logging
import math
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from opcode import opmap
from types import TracebackType
from typing import Any

from .errors import CODES, StoreError, ToolError
from .redaction import Redaction, redacted, redacted_data
from .threads import Escaped

_log = logging.getLogger("toolcrib")

_DEEPEST = 100
_MOST = 100_000
"""How deep the details of an error go, and of how many values they are."""


def to_tool_error(error: BaseException, tool: str, *, show: bool, redaction: Redaction | None) -> ToolError:
    """*error* as a ToolError whose details are JSON data, secrets redacted.

    A ToolError keeps its message. Of any other exception the message has only the type, and a reference under which its
    traceback is in the log; with *show*, its text too, and both are in `details`. Raises *error* itself where it is
    the caller who gives up: KeyboardInterrupt, the GeneratorExit of a call that is closed, and the cancellation of the
    task that waits.
    """
    if isinstance(error, KeyboardInterrupt) or (isinstance(error, GeneratorExit) and is_thrown(error.__traceback__)):
        raise error
    if isinstance(error, asyncio.CancelledError) and (task := asyncio.current_task()) and task.cancelling():
        raise error
    if isinstance(error, Escaped):
        error = error.error
    found = list(leaves(error))
    own = [leaf for leaf in found if isinstance(leaf, ToolError)]
    if len(own) == len(found):
        return _read(own, redaction)
    reference = os.urandom(4).hex()
    log_failure(f"Tool '{tool}' failed (reference {reference})", error, redaction, reference=reference)
    kind = _kind(error, found)
    text = _text_of(partial(str, error)) if show else "The detail is in the log."
    details = {"exception": kind, "text": text} if show else None
    code = "unavailable" if isinstance(error, StoreError) else "failed"
    made = ToolError(f"Tool '{tool}' failed: {kind} (reference {reference}). {text}", code, details=details)
    return _read([made], redaction)


def log_failure(what: str, error: BaseException, redaction: Redaction | None, *, reference: str | None = None) -> None:
    """Log *what* has failed with the traceback of *error*, secrets redacted.

    The log record's `reference` is that of the result which points to it: None where no result does.
    """
    _log.error("%s", redacted(f"{what}:\n{_trace_of(error)}", redaction), extra={"reference": reference})


def leaves(error: BaseException) -> Iterator[BaseException]:
    """*error*, or the errors that it is a group of, at any depth: each once."""
    seen: set[int] = set()
    left = [error]
    while left:
        error = readable(left.pop())
        if id(error) in seen:
            continue
        seen.add(id(error))
        if isinstance(error, Escaped):
            left.append(error.error)
        elif isinstance(error, BaseExceptionGroup):
            left += reversed(_exceptions_of(error))
        else:
            yield error


_exceptions_of: Callable[[Any], tuple[BaseException, ...]] = vars(BaseExceptionGroup)["exceptions"].__get__
"""Those in a group, also of a class that has another attribute of this name."""


def readable(error: BaseException) -> BaseException:
    """*error*, or one that stands for it where its class lets nobody look at it."""
    try:
        _ = error.__class__, error.__traceback__, type(error).__name__
    except Exception:
        return RuntimeError("an exception whose class raises when it is looked at")
    return error


def is_thrown(trace: TracebackType | None) -> bool:
    """Whether an exception of this *trace* was thrown into a coroutine that waits, and not raised by a statement."""
    if trace is None:
        return True
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] != opmap["RAISE_VARARGS"]


def _read(errors: list[ToolError], redaction: Redaction | None) -> ToolError:
    # A fresh error: the one that was raised holds on to its traceback, and so to every local value on the way. It may
    # also be of a subclass that has set anything.
    first = errors[0]
    message = "\n".join(_text_of(partial(getattr, error, "message")) for error in errors)
    code, retry, details = (_attribute(first, name) for name in ("code", "retry", "details"))
    details = _plain(details, [_MOST]) if isinstance(details, Mapping) and details else {}
    if redaction is not None and details:
        details = redacted_data(details, redaction)
    return ToolError(
        redacted(message, redaction),
        code if isinstance(code, str) and code in CODES else "failed",
        retry=retry if retry in ("changed", "later", "never") else None,
        details=details if isinstance(details, dict) else {},
    )


def _attribute(error: ToolError, name: str) -> Any:
    try:
        return getattr(error, name)
    except Exception:
        return None


def _plain(value: Any, left: list[int], depth: int = 0) -> Any:
    """*value* as JSON data: what is of another kind as its text, and nothing where it never ends."""
    left[0] -= 1
    if value is None or type(value) is str or type(value) is bool:
        return value
    if left[0] < 0 or depth > _DEEPEST:
        return "…"
    if type(value) is int and value.bit_length() < 10_000:
        return value
    if type(value) is float and math.isfinite(value):
        return value
    try:
        if isinstance(value, Mapping):
            return {_text_of(partial(str, name)): _plain(inner, left, depth + 1) for name, inner in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [_plain(inner, left, depth + 1) for inner in value]
    except Exception as error:
        return f"<it cannot be read: {type(error).__name__}>"
    return _text_of(partial(str, value))


def _kind(error: BaseException, found: list[BaseException]) -> str:
    name = type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        return f"{name} of {', '.join(sorted({type(leaf).__name__ for leaf in found}))}"
    return name


def _trace_of(error: BaseException) -> str:
    """The traceback of *error*; of a group, then that of each error in it.

    Python would indent these, also the lines of a secret, and show a group again wherever it is in another one.
    """
    if not isinstance(error, BaseExceptionGroup):
        return _text_of(lambda: "".join(traceback.format_exception(error)))
    trace = "".join(traceback.format_tb(error.__traceback__))
    parts = [f"{trace}{type(error).__name__}: {_text_of(partial(str, error))}", *map(_trace_of, leaves(error))]
    return "\n".join(parts)


def _text_of(text: Callable[[], Any]) -> str:
    """What *text* gives, whatever it raises: an exception's own `__str__` may."""
    try:
        return str(text())
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"<its text cannot be read: {type(error).__name__}>"
