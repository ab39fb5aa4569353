"""One run, from its prompt to its outcome: what to ask the model next, and when it is over. This file does no I/O.

`request` → the model → `take` → the calls → `took` → `outcome`, and around again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core import Call, Pending, Result, SetupError, ToolSpec
from ..formats import Choice, Reply, Results, Turn, Usage
from .model import Request
from .outcome import Outcome, RunStatus, traced

FIXED: Sequence[Choice] = ("auto", "any", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What holds for every run of an agent."""

    instructions: str
    choice: Choice
    parallel: bool
    max_steps: int
    max_errors: int


class Run:
    """A conversation that goes on. Every reply with calls in it has its results, in their order and under their ids."""

    __slots__ = ("_ids", "began", "errors", "reply", "steps", "terms", "turns", "usage")

    def __init__(self, turns: Sequence[Turn], terms: Terms, *, began: int | None = None) -> None:
        self.turns = list(turns)
        self.terms = terms
        self.began = len(self.turns) if began is None else began
        self.usage = Usage()
        self.steps = 0
        self.errors = 0
        self.reply = Reply()
        self._ids = {call.id for turn in turns if isinstance(turn, Reply) for call in turn.calls}

    def request(self, specs: Sequence[ToolSpec]) -> Request:
        terms = self.terms
        choice = terms.choice
        if choice != "auto" and choice != "none" and self.steps:
            choice = "auto"  # a model that has to call something at every turn never ends
        return Request(tuple(self.turns), terms.instructions, specs, choice, terms.parallel)

    def take(self, reply: Reply) -> Sequence[Call]:
        """*reply* is in the conversation now. Gives the calls to make, each with an id of its own."""
        self.steps += 1
        self.usage += reply.usage
        if reply.calls:
            ids = self._ids
            before = len(ids)
            ids.update([call.id for call in reply.calls])
            if len(ids) != before + len(reply.calls) or "" in ids:
                reply = self._with_own_ids(reply)
        self.turns.append(reply)
        self.reply = reply
        return reply.calls

    def took(self, results: Sequence[Result[Any]]) -> None:
        """The calls of the last reply have ended with *results*."""
        calls = self.reply.calls
        self.turns.append(Results(tuple([_paired(*pair) for pair in zip(calls, results, strict=True)])))
        if not any(result.pending is not None for result in results):
            self.errors = self.errors + 1 if all(result.error is not None for result in results) else 0

    def over(self, strike: Callable[[str], str]) -> Outcome | None:
        """The outcome, where the last turn ends the run."""
        last, terms = self.turns[-1], self.terms
        if isinstance(last, Reply):
            match last.stop:
                case "length":
                    return self.outcome("stopped", strike, "The answer was cut: it reached a limit of tokens.")
                case "refused":
                    return self.outcome("failed", strike, "The model refused to answer.")
                case _:
                    return self.outcome("done", strike)
        assert isinstance(last, Results)
        if waiting := [result.pending for result in last.results if result.pending is not None]:
            return self.outcome("pending", strike, _waits(waiting), pendings=waiting)
        if self.errors >= terms.max_errors:
            times = f"{self.errors} turns one after the other" if self.errors > 1 else "one turn"
            return self.outcome("failed", strike, f"No call succeeded in {times} (max_errors={terms.max_errors}).")
        if self.steps >= terms.max_steps:
            times = f"{self.steps} times" if self.steps > 1 else "once"
            why = f"The model was asked {times}, and was not done (max_steps={terms.max_steps})."
            return self.outcome("stopped", strike, why)
        return None

    def outcome(
        self, status: RunStatus, strike: Callable[[str], str], why: str = "", *, pendings: Sequence[Pending] = ()
    ) -> Outcome:
        return Outcome(
            status,
            self.reply.text,
            why,
            tuple(self.turns),
            self.usage,
            traced(self.turns[self.began :], strike),
            tuple({pending.id: pending for pending in pendings}.values()),
        )

    def _with_own_ids(self, reply: Reply) -> Reply:
        """*reply* with new ids for calls that have none, or that of another call."""
        known = {call.id for turn in self.turns if isinstance(turn, Reply) for call in turn.calls} | {""}
        calls: list[Call] = []
        for call in reply.calls:
            own = replace(call, id=Call(call.tool).id) if call.id in known else call
            known.add(own.id)
            calls.append(own)
        self._ids = known - {""}
        # The provider's own message has the old ids, and results are paired by the new ones.
        return replace(reply, calls=tuple(calls), native=None)


def opened(turns: Sequence[Turn]) -> Sequence[Turn]:
    """*turns* as a run may begin with them. Raises SetupError for none, and for calls without their results."""
    if not turns:
        raise SetupError('A run begins with something to say: agent.run("What time is it?").')
    for number, turn in enumerate(turns):
        if isinstance(turn, Results) != (number > 0 and bool(_calls(turns[number - 1]))):
            raise SetupError(
                f"turns[{number - 1 if number else 0}] and what follows do not fit: after a Reply with calls come "
                "their Results, and only there. Outcome.turns has them."
            )
        if isinstance(turn, Results):
            asked = [call.id for call in _calls(turns[number - 1])]
            if [result.call_id for result in turn.results] != asked:
                raise SetupError(
                    f"turns[{number}]: these are not the results of the calls before them, in their order."
                )
    if _calls(turns[-1]):
        raise SetupError("The last turn is a Reply whose calls have no Results. Make the calls, and add their Results.")
    return turns


def _calls(turn: Turn) -> Sequence[Call]:
    return turn.calls if isinstance(turn, Reply) else ()


def _paired(call: Call, result: Result[Any]) -> Result[Any]:
    # What wraps calls may give a result that it has kept from another call.
    return result if result.call_id == call.id else replace(result, call_id=call.id)


def _waits(waiting: Sequence[Pending]) -> str:
    return "; ".join(dict.fromkeys(f"'{pending.tool}' waits: {pending.message}" for pending in waiting))
