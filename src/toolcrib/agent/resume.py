"""The state of a pending run as JSON data, and how its waiting calls are made again, in any process.

The host keeps the state: who can change it controls the run. It cannot grant an approval, though. An answer counts for
what the workbench asks *now*: where the digest or the arguments differ from those in the state, it asks again. Where
the store of the workbench knows a pending, the answer goes there, and one that was used is refused. Where it does not,
since it was in the memory of another process, the state alone shows what was answered. So there an answer counts only
if the state is signed: the call is made again first, and the pending that it then has is compared.
"""

import hmac
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ..core import Answer, AnswerError, Call, Pending, Result, SetupError, answer_from
from ..formats import Reply, Results, Usage, turn_from_dict, turn_to_dict
from ..formats.reading import json_data
from ..formats.turn_data import pending_from_dict
from ..machinery import canonical
from ..workbench import Workbench
from .run import Run, RunOptions, checked_turns

_log = logging.getLogger("toolcrib")

MakeCalls = Callable[[Sequence[Call]], Awaitable[Sequence[Result[Any]]]]

Signer = Callable[[bytes], list[str]]
"""Returns the signatures of a text by all keys, the newest first."""

VERSION = 2

QuestionKey = tuple[str, str, str]
"""What an answer is bound to: digest, kind and key of a pending."""

_MIN_KEY_LENGTH = 16


@dataclass(frozen=True, slots=True)
class PendingAnswer:
    """An answer to a pending, and the name of the person who gave it."""

    pending: Pending
    answer: Answer
    by: str


def question_key(pending: Pending) -> QuestionKey:
    return pending.digest, pending.kind, pending.key


def write_state(run: Run, answers: Sequence[PendingAnswer], sign: Signer | None) -> dict[str, Any]:
    """Return the state of *run*, signed if *sign* can. *answers* are those that its calls will need again."""
    state: dict[str, Any] = {
        "version": VERSION,
        "turns": [turn_to_dict(turn) for turn in run.turns],
        "began": run.began,
        "steps": run.steps,
        "errors": run.errors,
        "usage": run.usage.to_dict(),
        "answers": [
            {"pending": answer.pending.to_dict(), "answer": answer.answer.to_dict(), "by": answer.by}
            for answer in (answers if sign else ())
        ],
    }
    try:
        state = json_data(state, "The state of this run")
    except ValueError as error:
        raise SetupError(f"{error} Arguments and answers must be JSON values.") from None
    return {**state, "signature": _signatures(state, sign)[0]} if sign else state


def read_state(
    state: Mapping[str, Any], options: RunOptions, sign: Signer | None
) -> tuple[Run, Results, list[PendingAnswer]]:
    """Return a run without the results of its last turn; these results; the answers so far. Raises SetupError."""
    try:
        state = json_data(state, "This state of a run")
    except ValueError as error:
        raise SetupError(f"{error} Resume from Outcome.state, unchanged.") from None
    if not isinstance(state, Mapping) or state.get("version") != VERSION:
        version = f"version {state.get('version')!r:.40}" if isinstance(state, Mapping) else f"a {type(state).__name__}"
        raise SetupError(
            f"This is not the state of a run that this version can resume ({version}). Pass Outcome.state, unchanged "
            "or read by json.loads."
        )
    if sign and not any(
        hmac.compare_digest(str(state.get("signature")).encode(), signature.encode())
        for signature in _signatures(state, sign)
    ):
        raise SetupError(
            "This state of a run is not signed with a key of this store, or of TOOLCRIB_KEY: it was changed, or comes "
            "from an agent with other keys or none. Resume from Outcome.state, unchanged."
        )
    try:
        *before, last = checked_turns([turn_from_dict(turn) for turn in state["turns"]])
        reply = before[-1]
        if not isinstance(reply, Reply) or not isinstance(last, Results):
            raise ValueError("the last turn has no calls that wait")
        if len({call.id for call in reply.calls}) < len(reply.calls):
            raise ValueError("two calls of the last turn have the same id")
        run = Run(before, options, began=_count(state, "began"))
        run.steps, run.errors, run.reply = _count(state, "steps"), _count(state, "errors"), reply
        usage = state["usage"]
        run.usage = Usage(*(_count(usage, name) if name in usage else 0 for name in Usage.__slots__))
        answers = [
            PendingAnswer(pending_from_dict(item["pending"]), answer_from(item["answer"]), str(item["by"]))
            for item in (state["answers"] if sign else ())
        ]
    except (AnswerError, ArithmeticError, KeyError, TypeError, ValueError, IndexError, SetupError) as error:
        reason = f"'{error.args[0]}' is missing" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise SetupError(f"This state of a run is malformed: {reason}. Resume from Outcome.state, unchanged.") from None
    return run, last, answers


def signer(store: Any) -> Signer | None:
    """Return what signs the states of a workbench with *store*: its keys, or those in TOOLCRIB_KEY."""
    if (keys := getattr(store, "keys", None)) is not None:
        return cast(Signer, keys.signatures)
    keys = os.environ.get("TOOLCRIB_KEY", "").encode(errors="replace").split()
    if any(len(key) < _MIN_KEY_LENGTH for key in keys):
        raise SetupError(f"A key in TOOLCRIB_KEY has at least {_MIN_KEY_LENGTH} characters: 32 bytes in base64.")
    return (lambda data: [hmac.digest(key, data, "sha256").hex() for key in keys]) if keys else None


def _signatures(state: Mapping[str, Any], sign: Signer) -> list[str]:
    return sign(canonical({name: value for name, value in state.items() if name != "signature"}).encode())


def _count(data: Mapping[str, Any], name: str) -> int:
    value = data[name]
    if type(value) is not int or value < 0:
        raise ValueError(f"'{name}' is not a number of 0 or more")
    return value


class Resumption:
    """Waiting calls, made again. `results` has their results by id, `answers` what those still waiting have used.

    *is_signed*: whether what *waiting* shows is what the calls waited for.
    """

    def __init__(
        self, bench: Workbench, waiting: Sequence[tuple[Call, Pending]], make: MakeCalls, *, is_signed: bool
    ) -> None:
        self._bench = bench
        self._waiting = waiting
        self._make = make
        self._is_signed = is_signed
        self._old: dict[QuestionKey, PendingAnswer] = {}
        self._new: dict[QuestionKey, PendingAnswer] = {}
        self._used: list[PendingAnswer] = []
        self.results: dict[str, Result[Any]] = {}

    async def run(
        self, old: Sequence[PendingAnswer], answers: Mapping[str, Answer | Mapping[str, Any]], by: str
    ) -> None:
        """Raise AnswerError where one of *answers* does not count, before any call is made that could run by them."""
        new = self._read(answers, by)
        for answer in old:
            await self._add_old(answer)
        await self._submit(new)
        # What another process waited for has no pending here yet.
        unknown = [call for call, pending in self._waiting if question_key(pending) in self._new]
        await self._make_calls(unknown)
        ready = await self._answer_new()
        await self._make_calls([call for call, _ in self._waiting if call.id in ready or call.id not in self.results])

    @property
    def answers(self) -> list[PendingAnswer]:
        """The answers that a call that still waits needs again: not those used up, nor those asked for again."""
        digests_done = {pending.digest for call, pending in self._waiting if self.results[call.id].pending is None}
        still = [result.pending for result in self.results.values() if result.pending is not None]
        digests, open_keys = {pending.digest for pending in still} - digests_done, {question_key(p) for p in still}
        latest = {question_key(use.pending): use for use in self._used}
        return [use for key, use in latest.items() if use.pending.digest in digests and key not in open_keys]

    def _read(self, answers: Mapping[str, Answer | Mapping[str, Any]], by: str) -> list[PendingAnswer]:
        waiting = {pending.id: pending for _, pending in self._waiting}
        for pending_id in answers:
            if pending_id not in waiting:
                ids = ", ".join(f"'{known}'" for known in waiting)
                raise AnswerError(
                    f"This run does not wait for '{str(pending_id)[:100]}'. It waits for: {ids}.", "unknown"
                )
        if answers and not by:
            raise AnswerError('An answer needs a name: resume(state, answers, by="alice").', "foreign")
        return [PendingAnswer(waiting[pending_id], answer_from(answer), by) for pending_id, answer in answers.items()]

    async def _add_old(self, each: PendingAnswer) -> None:
        self._used.append(each)
        try:
            await self._bench.answer(each.pending.id, each.answer, by=each.by)
        except AnswerError as error:
            # Where the store knows of it, the store decides whether it still counts.
            if error.reason == "unknown" and not self._expired(each.pending):
                self._old[question_key(each.pending)] = each

    async def _submit(self, new: Sequence[PendingAnswer]) -> None:
        open_here = {pending.id: pending for pending in await self._bench.pendings()} if new else {}
        for submission in new:
            pending = submission.pending
            if pending.id in open_here and not _same_question(open_here[pending.id], pending):
                raise AnswerError(
                    f"What this workbench asks under '{pending.id}' is not what the state shows. Resume without an "
                    "answer to be asked again: resume(state).",
                    "invalid",
                )
        for submission in new:
            pending = submission.pending
            try:
                await self._bench.answer(pending.id, submission.answer, by=submission.by)
                self._used.append(submission)
            except AnswerError as error:
                if error.reason != "unknown":
                    raise
                if not self._is_signed:
                    _log.warning(
                        "The answer to '%s' does not count, and '%s' is asked for again: set TOOLCRIB_KEY for the "
                        "agents, or give their workbenches one store",
                        pending.id,
                        pending.tool,
                    )
                    continue
                if self._expired(pending):
                    raise AnswerError(
                        f"'{pending.id}' expired at {pending.expires_at:%Y-%m-%d %H:%M:%S} UTC. Resume without an "
                        "answer to be asked again: resume(state).",
                        "expired",
                    ) from None
                self._new[question_key(pending)] = submission

    def _expired(self, pending: Pending) -> bool:
        return pending.expires_at <= self._bench.now()

    async def _make_calls(self, calls: Sequence[Call]) -> None:
        """Make *calls*, and again where what they wait for was answered before, in another process."""
        while calls:
            for call, result in zip(calls, await self._make(calls), strict=True):
                self.results[call.id] = result
            ready: set[str] = set()
            for call in calls:
                pending = self.results[call.id].pending
                match = self._take(self._old, pending)
                if pending is None or match is None:
                    continue
                try:
                    await self._bench.answer(pending.id, match.answer, by=match.by)
                except AnswerError:
                    continue  # it is asked again; who answers it then learns why this does not count
                self._used.append(PendingAnswer(pending, match.answer, match.by))
                ready.add(pending.id)
            calls = [call for call in calls if (now := self.results[call.id].pending) is not None and now.id in ready]

    async def _answer_new(self) -> set[str]:
        """Return the ids of the calls that are to be made again, since they are answered now."""
        ready: set[str] = set()
        for result in list(self.results.values()):
            match = self._take(self._new, result.pending)
            if match is not None and result.pending is not None:
                await self._bench.answer(result.pending.id, match.answer, by=match.by)
                self._used.append(PendingAnswer(result.pending, match.answer, match.by))
                ready.add(result.pending.id)
        return {
            call_id
            for call_id, result in self.results.items()
            if result.pending is not None and result.pending.id in ready
        }

    @staticmethod
    def _take(answers: dict[QuestionKey, PendingAnswer], pending: Pending | None) -> PendingAnswer | None:
        """Return the answer to *pending*, removed from *answers*."""
        match = None if pending is None else answers.get(question_key(pending))
        if pending is None or match is None or not _same_question(match.pending, pending):
            return None
        return answers.pop(question_key(pending))


def _same_question(one: Pending, other: Pending) -> bool:
    """Return whether an answer to *one*, as it was shown, is one to *other*."""
    return (question_key(one), one.tool, one.arguments) == (question_key(other), other.tool, other.arguments)
