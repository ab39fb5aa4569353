"""The moment of approval: what the policy decides, and, where it says so, what a person decides."""

import logging
import traceback
from collections.abc import Mapping
from dataclasses import replace
from inspect import isawaitable
from typing import Any

from ..core import Ask, Caller, Decided, Deny, Policy, Redaction, ToolError, ToolSpec
from .waiting import Asking

_log = logging.getLogger("toolcrib")

ALLOWED = Decided("allow")
_DENIED = Decided("deny")
_ASKED = Decided("ask")


async def decide(
    policy: Policy, spec: ToolSpec, arguments: Mapping[str, Any], caller: Caller, redaction: Redaction | None
) -> Decided:
    """What *policy* decides. Where it raises, says nothing or what is no decision: deny."""
    try:
        said: Any = policy(spec, arguments, caller)
        if said == "allow":
            return ALLOWED
        if isawaitable(said):
            said = await said
    except ToolError:
        raise
    except Exception as error:
        trace = "".join(traceback.format_exception(error))
        _log.error("The policy failed over '%s':\n%s", spec.name, redaction.strike(trace) if redaction else trace)
        return Decided("deny", message="the policy failed. The detail is in the log.")
    match said:
        case Decided():
            return said
        case "allow":
            return ALLOWED
        case "deny":
            return _DENIED
        case "ask":
            return _ASKED
        case Ask():
            return Decided("ask", message=said.message, others_only=said.others_only)
        case Deny():
            return Decided("deny", message=said.reason)
        case _:
            pass
    _log.error('The policy answered %s over \'%s\', not "allow", "deny" or "ask"', type(said).__name__, spec.name)
    return Decided("deny", message="the policy gave no decision. The detail is in the log.")


async def approve(decided: Decided, tool: str, asking: Asking | None) -> Decided:
    """*decided*, with who approved. Raises ToolError `denied`, and Waiting where nobody has answered yet."""
    if decided.do == "ask" and asking is not None:
        message = decided.message or f"May '{tool}' run with these arguments?"
        asked = await asking.ask("approval", "", message, others_only=decided.others_only)
        if not isinstance(asked.answer, Deny):
            return replace(decided, by=asked.by)
        raise denied(tool, asked.answer, asked.by)
    reason = decided.message or ("nobody here can be asked." if decided.do == "ask" else "a policy denies it.")
    raise ToolError(f"Tool '{tool}' may not be used here in this way: {reason}", "denied")


def denied(tool: str, answer: Deny, by: str | None) -> ToolError:
    """How a call ends that a person has denied."""
    reason = f": {answer.reason}" if answer.reason else "."
    return ToolError(f"Tool '{tool}' was not let run: '{by}' denied it{reason}", "denied", details={"by": by})


def recorded(decided: Decided, error: ToolError | None) -> dict[str, str]:
    """The decision as JSON data: `do`, and where there are, the `rule` and `by` whom it was approved or denied."""
    said: dict[str, str] = {"do": decided.do}
    if decided.rule is not None:
        said["rule"] = decided.rule
    # Without an approval nothing ran, so the error is that of whoever denied.
    by = decided.by or (error.details.get("by") if error is not None and decided.do == "ask" else None)
    if by is not None:
        said["by"] = by
    return said
