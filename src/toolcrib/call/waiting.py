"""Calls that wait for a person: the questions a call asks, and the desk where they are kept and answered.

An answer is taken from the store before it is used, so no two calls use the same one, and given back only when the
call ends waiting for something else. Whatever goes wrong in between, an answer is lost rather than used twice.
"""

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from secrets import token_urlsafe
from time import time
from typing import TYPE_CHECKING, Any

from ..core import (
    Answer,
    AnswerError,
    Approve,
    Asked,
    Asker,
    Call,
    Caller,
    Deny,
    Input,
    MayAnswer,
    Pending,
    PendingKind,
    PendingStore,
    Redaction,
    StillPending,
    Tool,
    ToolError,
    Waiting,
    call_digest,
)
from .threads import Escaped

if TYPE_CHECKING:
    from ..schema import Question

_log = logging.getLogger("toolcrib")

_TRIES = 3
"""How often somebody is asked at once for an input, when what they give is not what was asked for."""
_QUESTIONS = 1000


@dataclass(slots=True, kw_only=True)
class Desk:
    """Where the calls of a workbench wait, and are answered. *within_s* is how long, in seconds, on *clock*."""

    store: PendingStore
    ask: Asker | None = None
    may_answer: MayAnswer | None = None
    within_s: float = 900.0
    clock: Callable[[], float] = time
    # What was asked for in this process: its JSON Schema, which the pending has, may say less.
    _questions: "OrderedDict[str, Question]" = field(default_factory=lambda: OrderedDict())

    async def answer(self, id: str, answer: Answer, *, by: str) -> Pending:  # noqa: A002
        """Record *answer* to what is pending under *id*, given *by* somebody. Raises AnswerError."""
        if not isinstance(by, str) or not by:
            raise AnswerError('Nobody is said to answer. Say who: answer(id, Approve(), by="alice").', "foreign")
        asked = await self.store.get(id)
        if asked is None:
            raise AnswerError(
                f"Nothing waits under '{str(id)[:100]}'. It may have expired long ago; `pendings()` lists what waits.",
                "unknown",
            )
        pending = asked.pending
        self._require_open(asked)
        if not await self._may_answer(pending, by):
            own = " Whoever made the call may not answer it." if pending.others_only and by == pending.principal else ""
            raise AnswerError(
                f"'{by}' may not answer '{pending.id}'.{own} Let somebody answer whom the host allows to.", "foreign"
            )
        if (problem := self._misfit(pending, answer)) is not None:
            raise AnswerError(f"'{pending.id}' waits for something else. {problem}", "invalid")
        if not await self.store.answer(pending.id, answer, by=by, now_s=self.clock()):
            self._require_open(await self.store.get(id) or asked)
            raise AnswerError(f"'{pending.id}' was answered in the same moment; that answer counts.", "replayed")
        return pending

    async def ask_now(self, pending: Pending) -> Asked | None:
        """The answer of whoever can be asked at once, in the caller's name; None where nobody can."""
        if self.ask is None or not await self._may_answer(pending, pending.principal):
            return None
        shown = pending
        for _ in range(_TRIES):
            try:
                answer = await self.ask(shown)
            except Exception:
                _log.exception("Nobody could be asked whether '%s' may run; the call waits", pending.tool)
                return None
            if answer is None:
                return None
            problem = self._misfit(pending, answer)
            if self.clock() >= pending.expires_s:
                return None
            if problem is None:
                return Asked(pending, "taken", answer, pending.principal)
            shown = replace(pending, message=f"{problem}\n{pending.message}")
        _log.warning("What was answered to '%s' is not what was asked for; the call waits", pending.tool)
        return None

    def remember(self, id: str, question: "Question | None") -> None:  # noqa: A002
        if question is not None:
            self._questions[id] = question
            while len(self._questions) > _QUESTIONS:
                self._questions.popitem(last=False)

    async def _may_answer(self, pending: Pending, by: str) -> bool:
        if pending.others_only and by == pending.principal:
            return False
        if self.may_answer is None:
            return True
        try:
            said = self.may_answer(pending, by)
            return (await said if isawaitable(said) else said) is True
        except Exception:
            _log.exception("Whether '%s' may answer could not be decided; they may not", by)
            return False

    def _require_open(self, asked: Asked) -> None:
        pending = asked.pending
        if asked.state != "open":
            was = "answered" if asked.state == "answered" else "answered and used"
            raise AnswerError(
                f"'{pending.id}' is {was} already, by '{asked.by}'. An answer counts once: call again, and answer what "
                "is then asked.",
                "replayed",
            )
        if self.clock() >= pending.expires_s:
            raise AnswerError(
                f"'{pending.id}' has expired, at {pending.expires_at:%Y-%m-%d %H:%M:%S} UTC. "
                "Call again to be asked anew.",
                "expired",
            )

    def _misfit(self, pending: Pending, answer: Any) -> str | None:
        if isinstance(answer, Deny) and pending.kind in ("approval", "input"):
            return None
        if pending.kind == "approval":
            return None if isinstance(answer, Approve) else 'It is an approval: answer Approve() or Deny("why").'
        if pending.kind != "input":
            return f"It is a{'n' if pending.kind == 'authorization' else ''} {pending.kind}, which nobody answers here."
        if not isinstance(answer, Input):
            return 'It asks for something: answer Input(...) or Deny("why").'
        from ..schema import Question

        question = self._questions.get(pending.id) or Question(pending.schema or {})
        return question.problems(answer.value)


class Asking:
    """The questions of one call, and the answers it has taken."""

    __slots__ = ("_call", "_caller", "_desk", "_digest", "_redaction", "_repair", "_shown", "_taken", "_tool")

    def __init__(
        self, desk: Desk, tool: Tool, call: Call, caller: Caller, *, repair: bool, redaction: Redaction | None
    ) -> None:
        self._desk = desk
        self._tool = tool
        self._call = call
        self._caller = caller
        self._repair = repair
        self._redaction = redaction
        self._digest = ""
        self._shown = ""
        self._taken: dict[tuple[str, str], Asked] = {}

    async def ask(
        self,
        kind: PendingKind,
        key: str,
        message: str,
        question: "Question | None" = None,
        *,
        others_only: bool = False,
    ) -> Asked:
        """An answer, which is this call's alone. Raises Waiting where there is none yet."""
        desk = self._desk
        if not self._digest:
            self._bind()
        asked = self._taken.get((kind, key)) or await desk.store.take(self._digest, kind, key, now_s=desk.clock())
        unfit = ""
        if asked is not None and isinstance(asked.answer, Input) and question is not None:
            # Answered where only the JSON Schema was known, or asked for something else by now.
            unfit = question.problems(asked.answer.value) or ""
        if asked is None or unfit or (others_only and asked.by == self._caller.principal):
            asked = await self._anew(kind, key, f"{unfit}\n{message}".strip(), question, others_only)
        self._taken[kind, key] = asked
        return asked

    async def give_back(self) -> None:
        """The call ends waiting: what it had taken is there for it when it is made again."""
        while self._taken:
            _, asked = self._taken.popitem()
            await self._desk.store.give_back(replace(asked, state="answered"))

    async def _anew(
        self, kind: PendingKind, key: str, message: str, question: "Question | None", others_only: bool
    ) -> Asked:
        desk = self._desk
        pending = Pending(
            id=f"pending_{token_urlsafe(16)}",
            kind=kind,
            message=self._struck(message),
            digest=self._digest,
            tool=self._tool.spec.name,
            principal=self._caller.principal,
            thread=self._caller.thread,
            expires_s=desk.clock() + desk.within_s,
            arguments=self._shown,
            key=key,
            schema=None if question is None else json.loads(self._struck(json.dumps(question.schema))),
            others_only=others_only,
        )
        if desk.ask is not None and (asked := await self._unless_cancelled(desk.ask_now(pending))) is not None:
            return asked
        now_s = desk.clock()
        kept = await desk.store.open(replace(pending, expires_s=now_s + desk.within_s), now_s=now_s)
        desk.remember(kept.id, question)
        raise Waiting(kept)

    async def _unless_cancelled(self, work: Any) -> Asked | None:
        token = self._call.cancellation
        if token is None:
            return await work  # type: ignore[no-any-return]
        task: asyncio.Task[Asked | None] = token.link_future(asyncio.ensure_future(work))  # type: ignore[assignment]
        try:
            return await task
        except asyncio.CancelledError:
            if token.is_cancelled():
                raise ToolError(f"Tool '{self._tool.spec.name}' was cancelled.", "cancelled") from None
            task.cancel()
            raise

    def _bind(self) -> None:
        from ..schema import exact, shown

        # Checked anew, from what was written: the tool may have changed its arguments since, and looking at some
        # (iterators) uses them up.
        written = self._call.arguments
        arguments, _ = self._tool.check(written, self._repair)
        self._digest = call_digest(self._caller, self._tool.spec, exact(arguments, written))
        arguments, _ = self._tool.check(written, self._repair)
        left_out = {name: value for name, value in self._tool.spec.defaults().items() if name not in arguments}
        self._shown = self._struck(shown(arguments | left_out))

    def _struck(self, text: str) -> str:
        return text if self._redaction is None else self._redaction.strike(text)


def waits_for(raised: BaseException) -> Pending | None:
    """What a call that ended with *raised* waits for: also from a thread, a task group, or a call of its own."""
    if isinstance(raised, Waiting | StillPending):
        return raised.pending
    if isinstance(raised, Escaped):
        return waits_for(raised.error)
    if isinstance(raised, BaseExceptionGroup):
        return next((pending for inner in raised.exceptions if (pending := waits_for(inner)) is not None), None)
    return None


def in_words(tool: str, pending: Pending) -> str:
    """What a model is told of a call that waits."""
    message = pending.message.strip()
    message = message if message.endswith((".", "?", "!")) else f"{message}."
    what = {"approval": "approval", "input": "an answer", "authorization": "authorization"}.get(pending.kind, "a task")
    where = f" ({pending.url})" if pending.url else ""
    return (
        f"Tool '{tool}' has not run: it waits for {what}: {message}{where} "
        "Call it again with the same arguments when that is done."
    )
