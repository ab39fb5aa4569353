"""Exceptions as errors for a model."""

import math
from typing import Any

import pytest

from toolcrib import ToolError
from toolcrib.core import StoreError
from toolcrib.machinery import to_tool_error
from toolcrib.record import Redactor


def details_of(details: Any) -> Any:
    return to_tool_error(ToolError("no", details={"of": details}), "t", show=False, redaction=None).details["of"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ([None, "a", True, 1, 1.5], [None, "a", True, 1, 1.5]),
        ((1, (2,)), [1, [2]]),
        ({3}, "{3}"),
        (math.inf, "inf"),
        ({1: {None: 2}}, {"1": {"null": 2}}),
        (b"a", "b'a'"),
    ],
)
def test_details_become_json_data(value: Any, shown: Any) -> None:
    assert details_of(value) == shown


def test_secrets_of_details_are_redacted_and_of_no_more_than_that_the_message_speaks() -> None:
    error = ToolError("at hunter2-secret", details={"a": ["hunter2-secret"]})
    shown = to_tool_error(error, "t", show=False, redaction=Redactor(["hunter2-secret"]))
    assert (shown.message, shown.details) == ("at [secret]", {"a": ["[secret]"]})


@pytest.mark.parametrize(
    ("raised", "code", "kind"),
    [
        (StoreError("down"), "unavailable", "StoreError"),
        (OSError("down"), "failed", "OSError"),
        (
            ExceptionGroup("g", [OSError("down"), ExceptionGroup("h", [KeyError()])]),
            "failed",
            "ExceptionGroup of KeyError, OSError",
        ),
    ],
)
def test_what_is_shown_of_another_exception(raised: Exception, code: str, kind: str) -> None:
    hidden = to_tool_error(raised, "t", show=False, redaction=None)
    assert (hidden.code, hidden.details) == (code, {})
    assert hidden.message.startswith(f"Tool 't' failed: {kind} (reference ")
    assert hidden.message.endswith("). The detail is in the log.")
    shown = to_tool_error(raised, "t", show=True, redaction=None)
    assert shown.details == {"exception": kind, "text": str(raised)}
    assert shown.message.endswith(f"). {raised}")
