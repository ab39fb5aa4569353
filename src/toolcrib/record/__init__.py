"""What may be seen of a call: known secrets struck out, calls kept."""

from .log import CallLog, CallRecord
from .redact import Redactor

__all__ = ["CallLog", "CallRecord", "Redactor"]
