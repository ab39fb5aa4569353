"""Calls of tools as AutoGen tells of them: a ToolCallEvent to the logger `autogen_core.events`, secrets struck out."""

import json
import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ....core import Redaction
from .._cancellation_token import CancellationToken
from .._constants import EVENT_LOGGER_NAME
from ..logging import ToolCallEvent

if TYPE_CHECKING:
    from ._base import Tool

_log = logging.getLogger(EVENT_LOGGER_NAME)

known: ContextVar[Redaction | None] = ContextVar("toolcrib_autogen_secrets", default=None)
"""What strikes out the secrets of the AutoGen workbench whose call runs."""

token: ContextVar[CancellationToken | None] = ContextVar("toolcrib_autogen_token", default=None)
"""The token that was handed to the AutoGen workbench whose call runs."""

elsewhere: ContextVar[bool] = ContextVar("toolcrib_autogen_elsewhere", default=False)
"""Whether a workbench of the core runs the call: it has a record of its own, and secrets that are not known here."""


def listened() -> bool:
    """Whether anybody wants to know of calls."""
    return _log.isEnabledFor(logging.INFO)


def say(tool: "Tool", arguments: Mapping[str, Any], value: Any) -> None:
    """Tell that *tool* gave *value*."""
    if listened() and not elsewhere.get():
        say_text(tool.name, arguments, tool.return_value_as_string(value))


def say_text(name: str, arguments: Mapping[str, Any], text: str) -> None:
    """Tell that the tool *name* gave what is *text* in words."""
    given, redaction = dict(arguments), known.get()
    if redaction is not None:
        given = json.loads(redaction.strike(json.dumps(given, default=str)))
        text = redaction.strike(text)
    _log.info(ToolCallEvent(tool_name=name, arguments=given, result=text))
