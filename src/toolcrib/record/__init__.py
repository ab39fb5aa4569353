"""What may be seen of a call: known secrets redacted, calls recorded."""

from typing import TYPE_CHECKING

from ..machinery import lazy_names
from .calls import CallLines, CallLog

if TYPE_CHECKING:
    from .database import DatabaseCalls
    from .metrics import Metrics
    from .redact import Redactor
    from .spans import Spans

__all__ = ["CallLines", "CallLog", "DatabaseCalls", "Metrics", "Redactor", "Spans"]

# Each needs an extra, or is seldom needed: imported when it is first asked for.
__getattr__ = lazy_names(
    __name__,
    {"DatabaseCalls": ".database", "Metrics": ".metrics", "Redactor": ".redact", "Spans": ".spans"},
    extras={"DatabaseCalls": "store", "Metrics": "telemetry", "Spans": "telemetry"},
)
