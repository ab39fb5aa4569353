"""What may be seen of a call: known secrets redacted, calls recorded."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..core import raise_missing_extra
from .log import CallLog

if TYPE_CHECKING:
    from .call_lines import CallLines
    from .calls import DatabaseCalls
    from .metrics import Metrics
    from .redact import Redactor
    from .spans import Spans

__all__ = ["CallLines", "CallLog", "DatabaseCalls", "Metrics", "Redactor", "Spans"]

# Each needs an extra, or is seldom needed: imported when it is first asked for.
_IN_FILE = {
    "CallLines": (".call_lines", ""),
    "DatabaseCalls": (".calls", "store"),
    "Metrics": (".metrics", "metrics"),
    "Redactor": (".redact", ""),
    "Spans": (".spans", "otel"),
}


def __getattr__(name: str) -> Any:
    if name not in _IN_FILE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    file, extra = _IN_FILE[name]
    try:
        value = globals()[name] = getattr(import_module(file, __name__), name)
    except ModuleNotFoundError as missing:
        raise_missing_extra(missing, f"{name} needs", extra)
    return value
