"""The step of approval, where the policy does not just allow: what a person decides."""

from contextlib import nullcontext
from dataclasses import replace

from ..core import Decision, Deny, ToolError, current_deadline
from .accepted import CheckedArguments
from .pending import Questions, denied
from .runtime import Runtime


async def approve(
    decision: Decision, arguments: CheckedArguments, runtime: Runtime, asked: list[Questions]
) -> Decision:
    """Return *decision*, with who approved; *arguments* become those that were shown.

    What is asked is added to *asked*.

    The deadline of the call stands still while a person thinks. Raises ToolError `denied`, and Suspended where nobody
    has answered yet.
    """
    name, deadline = arguments.tool.spec.name, current_deadline.get()
    if decision.do != "ask":
        reason = decision.message or "a policy denies it."
        raise ToolError(f"Tool '{name}' is not allowed to run with these arguments: {reason}", "denied")
    questions = runtime.questions(arguments.tool, arguments.call)
    asked.append(questions)
    questions.bind(arguments)
    message = decision.message or f"May '{name}' run with these arguments?"
    with nullcontext() if deadline is None else deadline.paused():
        stored = await questions.ask("approval", "", message, others_only=decision.others_only)
    if isinstance(stored.answer, Deny):
        raise denied(name, stored.answer, stored.by)
    if questions.approved is not None:
        arguments.become(questions.approved)
    return replace(decision, by=stored.by)
