"""One run, from its prompt to its outcome: what to ask the model next, and when it is over. This file does no I/O.

`request` → the model → `add_reply` → the calls → `add_results` → `outcome`, and around again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core import Call, Pending, Result, SetupError, ToolSpec
from ..formats import Choice, Reply, Results, Turn, Usage
from .model import Request
from .outcome import Outcome, RunStatus, traced

CHOICES: Sequence[Choice] = ("auto", "any", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What applies to every run of an agent."""

    instructions: str
    choice: Choice
    parallel: bool
    max_steps: int
    max_errors: int


class Run:
    """A conversation in progress. Every reply with calls has its results, in their order and under their ids."""

    __slots__ = ("_ids", "began", "errors", "options", "reply", "steps", "turns", "usage")

    def __init__(self, turns: Sequence[Turn], options: RunOptions, *, began: int | None = None) -> None:
        self.turns = list(turns)
        self.options = options
        self.began = len(self.turns) if began is None else began
        self.usage = Usage()
        self.steps = 0
        self.errors = 0
        self.reply = Reply()
        self._ids = {call.id for turn in turns if isinstance(turn, Reply) for call in turn.calls}

    def request(self, specs: Sequence[ToolSpec]) -> Request:
        options = self.options
        choice = options.choice
        if choice != "auto" and choice != "none" and self.steps:
            choice = "auto"  # a model that must call something at every turn never ends
        return Request(tuple(self.turns), options.instructions, specs, choice, options.parallel)

    def add_reply(self, reply: Reply) -> Sequence[Call]:
        """Add *reply* to the conversation. Returns the calls to make, each with a unique id."""
        self.steps += 1
        self.usage += reply.usage
        if reply.calls:
            ids = self._ids
            before = len(ids)
            ids.update([call.id for call in reply.calls])
            if len(ids) != before + len(reply.calls) or "" in ids:
                reply = self._with_unique_ids(reply)
        self.turns.append(reply)
        self.reply = reply
        return reply.calls

    def add_results(self, results: Sequence[Result[Any]]) -> None:
        """Add the results of the calls of the last reply."""
        calls = self.reply.calls
        self.turns.append(Results(tuple([_paired(*pair) for pair in zip(calls, results, strict=True)])))
        if not any(result.pending is not None for result in results):
            self.errors = self.errors + 1 if all(result.error is not None for result in results) else 0

    def over(self, redact: Callable[[str], str]) -> Outcome | None:
        """The outcome, if the last turn ends the run."""
        last, options = self.turns[-1], self.options
        if isinstance(last, Reply):
            match last.stop:
                case "length":
                    return self.outcome("stopped", redact, "The answer was cut off at a token limit.")
                case "refused":
                    return self.outcome("failed", redact, "The model refused to answer.")
                case _:
                    return self.outcome("done", redact)
        assert isinstance(last, Results)
        if waiting := [result.pending for result in last.results if result.pending is not None]:
            return self.outcome("pending", redact, _reasons(waiting), pendings=waiting)
        if self.errors >= options.max_errors:
            turns = f"{self.errors} turns in a row" if self.errors > 1 else "one turn"
            return self.outcome("failed", redact, f"No call succeeded in {turns} (max_errors={options.max_errors}).")
        if self.steps >= options.max_steps:
            times = f"{self.steps} times" if self.steps > 1 else "once"
            why = f"The model was asked {times} and was not done (max_steps={options.max_steps})."
            return self.outcome("stopped", redact, why)
        return None

    def outcome(
        self, status: RunStatus, redact: Callable[[str], str], why: str = "", *, pendings: Sequence[Pending] = ()
    ) -> Outcome:
        return Outcome(
            status,
            self.reply.text,
            why,
            tuple(self.turns),
            self.usage,
            traced(self.turns[self.began :], redact),
            tuple({pending.id: pending for pending in pendings}.values()),
        )

    def _with_unique_ids(self, reply: Reply) -> Reply:
        """*reply* with new ids for calls that have none, or that of another call."""
        known = {call.id for turn in self.turns if isinstance(turn, Reply) for call in turn.calls} | {""}
        calls: list[Call] = []
        for call in reply.calls:
            unique = replace(call, id=Call(call.tool).id) if call.id in known else call
            known.add(unique.id)
            calls.append(unique)
        self._ids = known - {""}
        # The provider's own message has the old ids, and results are paired by the new ones.
        return replace(reply, calls=tuple(calls), native=None)


def checked_turns(turns: Sequence[Turn]) -> Sequence[Turn]:
    """*turns*, if a run can begin with them. Raises SetupError for none, and for calls without their results."""
    if not turns:
        raise SetupError('A run needs a prompt: agent.run("What time is it?").')
    for number, turn in enumerate(turns):
        if isinstance(turn, Results) != (number > 0 and bool(_calls(turns[number - 1]))):
            raise SetupError(
                f"turns[{number - 1 if number else 0}] and the next do not match: after a Reply with calls come "
                "their Results, and nowhere else. Outcome.turns has them."
            )
        if isinstance(turn, Results):
            ids = [call.id for call in _calls(turns[number - 1])]
            if [result.call_id for result in turn.results] != ids:
                raise SetupError(
                    f"turns[{number}]: these are not the results of the calls before them, in their order."
                )
    if _calls(turns[-1]):
        raise SetupError("The last turn is a Reply whose calls have no Results. Make the calls, and add their Results.")
    return turns


def _calls(turn: Turn) -> Sequence[Call]:
    return turn.calls if isinstance(turn, Reply) else ()


def _paired(call: Call, result: Result[Any]) -> Result[Any]:
    # Middleware may return a result that it has kept from another call.
    return result if result.call_id == call.id else replace(result, call_id=call.id)


def _reasons(waiting: Sequence[Pending]) -> str:
    return "; ".join(dict.fromkeys(f"'{pending.tool}' waits: {pending.message}" for pending in waiting))
