"""The ToolCallEvent of each call of a tool."""

import json
import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Literal

from ....core import Redaction, redacted_data
from .._constants import EVENT_LOGGER_NAME
from ..logging import ToolCallEvent

_log = logging.getLogger(EVENT_LOGGER_NAME)

events_redacted_by: ContextVar[Redaction | Literal[False] | None] = ContextVar("toolcrib_autogen_events", default=None)
"""What redacts the events of the running workbench; None for nothing.

False in the workbenches of Toolcrib, for no events: they have their own call log, and secrets that are not known here.
"""


def logs_calls() -> bool:
    """Return whether events are logged at all."""
    return _log.isEnabledFor(logging.INFO)


def log_call(name: str, arguments: Mapping[str, Any], text: str) -> None:
    """Log that the tool *name* returned *text*, with the secrets of the running workbench redacted."""
    redaction, shown = events_redacted_by.get(), dict(arguments)
    if redaction is False:
        return
    if redaction is not None:
        shown = redacted_data(json.loads(json.dumps(shown, default=str)), redaction)
        text = redaction.redact(text)
    _log.info(ToolCallEvent(tool_name=name, arguments=shown, result=text))
