"""Approvals for more than one call: what a person may grant, and whether a call needs to ask any more."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from secrets import token_urlsafe
from typing import Any

from ..core import AnswerError, Approve, Caller, Decision, Grant, Pending, SetupError, Tool, ToolSpec
from ..machinery import UNNAMED_THREAD, GrantStore, definition_digest, in_thread_if_long, text_digest
from .arguments import CheckedArguments

MAX_DAYS = 30
"""How long a grant until a time may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """The grants of a crib. `store` is None where there is no room for any."""

    store: GrantStore | None
    policy: Any
    tool: Callable[[str], Tool | None]
    specs: Callable[[], Sequence[ToolSpec]]
    clock: Callable[[], datetime]

    async def list(
        self, *, principal: str | None = None, after: int = 0, limit: int = 50
    ) -> tuple[Sequence[Grant], int | None]:
        """Return a page of grants, the oldest first, and the `after` of the next page; None where there is none.

        *principal* takes those that they have, or have given.
        """
        if self.store is None:
            return (), None
        return await self.store.page(now=self.clock(), of=principal, after=after, limit=limit)

    async def revoke(self, id: str, *, principal: str | None = None) -> Grant:  # noqa: A002
        """End a grant: from now on its calls ask. With *principal* only one that they have, or have given.

        Raises AnswerError where there is none.
        """
        grant = None if self.store is None else await self.store.revoke(id, of=principal)
        if grant is None:
            raise AnswerError(f"There is no grant '{str(id)[:100]}'. It may have expired, or been revoked.", "unknown")
        return grant

    async def find(self, decision: Decision, checked: CheckedArguments, caller: Caller) -> Grant | None:
        """Return the grant that lifts *decision*; None where a person has to be asked."""
        if self.store is None or not decision.grantable:
            return None
        rule, tool = bound_rule(decision.grantable, caller), checked.tool
        grants = await self.store.find(caller.principal, caller.thread, rule, now=self.clock())
        for grant in grants:
            is_own = decision.others_only and grant.given_by == caller.principal
            if is_own or grant.tools.get(tool.spec.name) != _definition(tool):
                continue
            meets = partial(self.policy.meets, grant.where, tool.spec, checked)
            if await in_thread_if_long(meets, checked.call.arguments):
                return grant
        return None

    def proposed(self, pending: Pending, answer: Any, by: str) -> Grant | None:
        """Return what *answer* to *pending* grants; None where it is for this call only. Raises AnswerError."""
        if not isinstance(answer, Approve) or (answer.until is None and not answer.where and not answer.tools):
            return None
        if self.store is None or not pending.rule:
            raise _refusal(
                "No grant lifts this question: only one of a rule, in the store of what waits, and not one about what "
                "the thread has seen."
            )
        tool = self.tool(pending.tool)
        if tool is None:
            raise _refusal(f"'{pending.tool}' is not among the tools here, so it cannot be granted.")
        now = self.clock()
        expires_at = self._end(pending, answer, now)
        tools = self._tools(pending, answer, tool.spec)
        new_id = f"grant_{token_urlsafe(16)}"
        return Grant(new_id, pending.principal, pending.thread, pending.rule, tools, answer.where, by, now, expires_at)

    def _tools(self, pending: Pending, answer: Approve, spec: ToolSpec) -> dict[str, str]:
        """Return the tools that *answer* grants, with their definitions: that of *spec*, which asked, among them."""
        specs, globs = (self.specs(), answer.tools) if answer.tools else ([spec], "*")
        try:
            specs_granted = self.policy.grantable(pending.rule.rpartition(" ")[0], globs, answer.where, specs)
        except SetupError as error:
            raise _refusal(str(error)) from None
        if spec not in specs_granted or not self._is_met(pending, answer, spec):
            raise _refusal("This call is not one of those that the grant would be for: see its 'tools' and 'where'.")
        return {spec.name: _definition(tool) for spec in specs_granted if (tool := self.tool(spec.name)) is not None}

    def _end(self, pending: Pending, answer: Approve, now: datetime) -> datetime:
        if answer.until == "conversation":
            if pending.thread == UNNAMED_THREAD:
                raise _refusal("This caller has no conversation, with a thread of its own: give a time as 'until'.")
            return now + timedelta(days=1)
        if not isinstance(answer.until, datetime) or answer.until.utcoffset() is None:
            raise _refusal("A grant has 'until': 'conversation', or a time with its offset.")
        if not now < answer.until <= now + timedelta(days=MAX_DAYS):
            raise _refusal(f"'until' of a grant is a time from now on, at most {MAX_DAYS} days ahead.")
        return answer.until

    def _is_met(self, pending: Pending, answer: Approve, spec: ToolSpec) -> bool:
        from ..schema import parse_json

        arguments = pending.arguments if answer.arguments is None else answer.arguments
        arguments = parse_json(arguments) if isinstance(arguments, str) else arguments
        return isinstance(arguments, Mapping) and self.policy.meets(answer.where, spec, arguments) is True


def bound_rule(rule: str, caller: Caller) -> str:
    """Return *rule* with a digest as a grant has it: for one profile of the caller, which a model may choose."""
    name, _, digest = rule.rpartition(" ")
    return f"{name} {text_digest(digest, ' ', caller.profile)}" if rule else ""


def _definition(tool: Any) -> str:
    body: Callable[[], str] = getattr(tool, "body", str)
    return definition_digest(tool.spec, body())


def _refusal(text: str) -> AnswerError:
    return AnswerError(f"{text} Approve() approves this call alone.", "invalid")
