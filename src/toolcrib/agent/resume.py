"""Goes on with calls that waited, in whatever process: makes them again, with the answers that were given.

An answer counts for what the workbench asks *now*: where the digest is another one, or the arguments are not those that
the state shows, it asks anew. So a state that was tampered with cannot lend an approval to another call. Where the
store of the workbench knows a pending, the answer goes there, and one that was used is refused. Where it does not, for
it was in the memory of another process, the call is made again first, and what it then waits for is compared.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ..core import Answer, AnswerError, Call, Pending, Result
from ..workbench import Workbench
from .state import Given, Question, answer_of, question

Make = Callable[[Sequence[Call]], Awaitable[Sequence[Result[Any]]]]
Waiting = tuple[Call, Pending]


class Resumed:
    """Calls that waited, made again. `results` are theirs, by id; `answers` what those that still wait have taken."""

    def __init__(self, bench: Workbench, waiting: Sequence[Waiting], make: Make) -> None:
        self._bench = bench
        self._waiting = waiting
        self._make = make
        self._old: dict[Question, Given] = {}
        self._new: dict[Question, Given] = {}
        self._given: list[Given] = []
        self.results: dict[str, Result[Any]] = {}

    async def run(self, old: Sequence[Given], answers: Mapping[str, Answer | Mapping[str, Any]], by: str) -> None:
        """Raises AnswerError where one of *answers* does not count, before any call is made that could run by them."""
        new = self._read(answers, by)
        for given in old:
            await self._keep_old(given)
        await self._hand_in(new)
        # What was waiting elsewhere is asked for here first.
        asked = [call for call, pending in self._waiting if question(pending) in self._new]
        await self._through(asked)
        ready = await self._answer_new()
        await self._through([call for call, _ in self._waiting if call.id in ready or call.id not in self.results])

    @property
    def answers(self) -> list[Given]:
        """What a call that still waits needs again: not what was used up, and nothing that is asked for anew."""
        ended = {pending.digest for call, pending in self._waiting if self.results[call.id].pending is None}
        still = [result.pending for result in self.results.values() if result.pending is not None]
        digests, asked = {pending.digest for pending in still} - ended, {question(pending) for pending in still}
        latest = {question(given.pending): given for given in self._given}
        return [given for of, given in latest.items() if given.pending.digest in digests and of not in asked]

    def _read(self, answers: Mapping[str, Answer | Mapping[str, Any]], by: str) -> list[Given]:
        waiting = {pending.id: pending for _, pending in self._waiting}
        for id in answers:  # noqa: A001
            if id not in waiting:
                known = ", ".join(f"'{known}'" for known in waiting)
                raise AnswerError(f"This run does not wait for '{str(id)[:100]}'. It waits for: {known}.", "unknown")
        if answers and not by:
            raise AnswerError('Nobody is said to answer. Say who: resume(state, answers, by="alice").', "foreign")
        return [Given(waiting[id], answer_of(answer), by) for id, answer in answers.items()]  # noqa: A001

    async def _keep_old(self, given: Given) -> None:
        self._given.append(given)
        try:
            await self._bench.answer(given.pending.id, given.answer, by=given.by)
        except AnswerError as error:
            # Where the store knows of it, the store decides whether it still counts.
            if error.reason == "unknown" and given.pending.expires_s > self._bench.now_s():
                self._old[question(given.pending)] = given

    async def _hand_in(self, new: Sequence[Given]) -> None:
        open_here = {pending.id: pending for pending in await self._bench.pendings()} if new else {}
        for given in new:
            pending = given.pending
            if pending.id in open_here and not _shows(open_here[pending.id], pending):
                raise AnswerError(
                    f"What this workbench asks under '{pending.id}' is not what the state shows. Resume without an "
                    "answer to be asked anew: resume(state).",
                    "invalid",
                )
        for given in new:
            pending = given.pending
            try:
                await self._bench.answer(pending.id, given.answer, by=given.by)
                self._given.append(given)
            except AnswerError as error:
                if error.reason != "unknown":
                    raise
                if pending.expires_s <= self._bench.now_s():
                    raise AnswerError(
                        f"'{pending.id}' has expired, at {pending.expires_at:%Y-%m-%d %H:%M:%S} UTC. Resume without an "
                        "answer to be asked anew: resume(state).",
                        "expired",
                    ) from None
                self._new[question(pending)] = given

    async def _through(self, calls: Sequence[Call]) -> None:
        """Make *calls*, and again where what they wait for was answered before, in another process."""
        while calls:
            for call, result in zip(calls, await self._make(calls), strict=True):
                self.results[call.id] = result
            ready: set[str] = set()
            for call in calls:
                pending = self.results[call.id].pending
                given = self._matching(self._old, pending)
                if pending is None or given is None:
                    continue
                try:
                    await self._bench.answer(pending.id, given.answer, by=given.by)
                except AnswerError:
                    continue  # it is asked for again, and whoever answers now is told why it does not count
                self._given.append(Given(pending, given.answer, given.by))
                ready.add(pending.id)
            calls = [call for call in calls if (now := self.results[call.id].pending) is not None and now.id in ready]

    async def _answer_new(self) -> set[str]:
        """The ids of the calls that are to be made again, since somebody has answered them now."""
        ready: set[str] = set()
        for result in list(self.results.values()):
            given = self._matching(self._new, result.pending)
            if given is not None and result.pending is not None:
                await self._bench.answer(result.pending.id, given.answer, by=given.by)
                self._given.append(Given(result.pending, given.answer, given.by))
                ready.add(result.pending.id)
        return {id for id, result in self.results.items() if result.pending is not None and result.pending.id in ready}  # noqa: A001

    @staticmethod
    def _matching(held: dict[Question, Given], pending: Pending | None) -> Given | None:
        """The answer to *pending*, which then is held no more."""
        if pending is None or (given := held.get(question(pending))) is None or not _shows(given.pending, pending):
            return None
        return held.pop(question(pending))


def _shows(one: Pending, other: Pending) -> bool:
    """Whether somebody who was shown *one* knows what they answer with *other*."""
    if (question(one), one.tool) != (question(other), other.tool):
        return False
    return one.arguments == other.arguments or _in_any_order(one.arguments) == _in_any_order(other.arguments)


def _in_any_order(arguments: str) -> str:
    """*arguments* with lists sorted: a set is shown in another order by each process. The digest knows the order."""

    def walk(value: Any) -> Any:
        if isinstance(value, list):
            return sorted((walk(inner) for inner in value), key=lambda inner: json.dumps(inner, sort_keys=True))
        return {name: walk(inner) for name, inner in value.items()} if isinstance(value, dict) else value

    try:
        return json.dumps(walk(json.loads(arguments)), sort_keys=True)
    except ValueError:
        return arguments  # a secret that was struck out may leave what is no JSON
