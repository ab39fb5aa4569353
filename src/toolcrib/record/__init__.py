"""What may be seen of a call: known secrets redacted, calls recorded."""

from .log import CallLog
from .redact import Redactor

__all__ = ["CallLog", "Redactor"]
