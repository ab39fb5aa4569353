"""One run, from its prompt to its outcome: what to ask the model next, and when it is over. This file does no I/O.

`request` → the model → `add_reply` → the calls → `add_results` → `outcome`, and around again.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ..core import Call, Event, Pending, Result, SetupError, Text, ToolSpec
from ..formats import Choice, Reply, Results, TextDelta, Turn, Usage, User
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
    max_calls: int
    max_calls_per_turn: int
    max_tokens: int | None


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
        options, last = self.options, self.turns[-1]
        if isinstance(last, Reply) and (problem := _problem(last)):
            self.turns.append(User((Text(f"Your last reply could not be used: {problem} Reply again."),)))
        choice = options.choice
        if choice != "auto" and choice != "none" and self.steps:
            choice = "auto"  # a model that must call something at every turn never ends
        return Request(tuple(self.turns), options.instructions, specs, choice, options.parallel)

    def add_reply(self, reply: Reply) -> Sequence[Call]:
        """Add *reply* to the conversation. Return the calls to make, each with a unique id."""
        self.steps += 1
        self.usage += reply.usage
        self.errors += bool(_problem(reply))
        if reply.calls:
            ids = self._ids
            before = len(ids)
            ids.update([call.id for call in reply.calls])
            if len(ids) != before + len(reply.calls) or "" in ids:
                reply = self._with_unique_ids(reply)
        self.turns.append(reply)
        self.reply = reply
        return reply.calls

    def room(self, calls: Sequence[Call]) -> int:
        """Return how many of *calls*, the calls of the last reply, may be made: the first ones.

        None of a refused one.
        """
        if self.reply.stop == "refused":
            return 0
        return max(0, min(len(calls), self.options.max_calls_per_turn, self.options.max_calls - self._calls_before()))

    def _calls_before(self) -> int:
        return sum(len(turn.results) for turn in self.turns[self.began :] if isinstance(turn, Results))

    def add_results(self, results: Sequence[Result[Any]]) -> None:
        """Add the results of the calls of the last reply."""
        calls = self.reply.calls
        self.turns.append(Results(tuple([_paired(*pair) for pair in zip(calls, results, strict=True)])))
        if not any(result.pending is not None for result in results):
            self.errors = self.errors + 1 if all(result.error is not None for result in results) else 0

    def over(self, redact: Callable[[str], str]) -> Outcome | None:
        """Return the outcome, if the last turn ends the run."""
        last, options = self.turns[-1], self.options
        turns = f"{self.errors} turns in a row" if self.errors > 1 else "one turn"
        failure = f"No call succeeded in {turns} (max_errors={options.max_errors})."
        if self.reply.stop == "refused":
            return self.outcome("failed", redact, "The model refused to answer.")
        match last:
            case Reply(stop="length"):
                return self.outcome("stopped", redact, "The answer was cut off at a token limit.")
            case Reply(stop="other", reason=reason) if reason:
                return self.outcome("stopped", redact, f"The model stopped before it was done: {reason}.")
            case Reply() if problem := _problem(last):
                if self.errors >= options.max_errors:
                    return self.outcome("stopped", redact, f"{failure} The last reply could not be used: {problem}")
            case Reply(stop="paused"):
                pass  # it continues when it is sent back
            case Reply() if last.is_empty:
                return self.outcome("stopped", redact, "The model's reply was empty.")
            case Reply():
                return self.outcome("done", redact)
            case Results(results):
                if waiting := [result.pending for result in results if result.pending is not None]:
                    pendings = _each_once(waiting)
                    return self.outcome("pending", redact, _reasons(pendings), pendings=pendings)
                if self.errors >= options.max_errors:
                    return self.outcome("failed", redact, failure)
            case User():
                pass
        if (calls := self._calls_before()) > options.max_calls:
            why = f"The model made {calls} calls, of which {options.max_calls} may run (max_calls={options.max_calls})."
            return self.outcome("stopped", redact, why)
        tokens = self.usage.input + self.usage.output
        if options.max_tokens is not None and tokens >= options.max_tokens:
            why = f"The run has used {tokens} tokens, and was not done (max_tokens={options.max_tokens})."
            return self.outcome("stopped", redact, why)
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
            redact(why),
            tuple(self.turns),
            self.usage,
            traced(self.turns[self.began :], redact),
            tuple(pendings),
        )

    def _with_unique_ids(self, reply: Reply) -> Reply:
        """Return *reply* with new ids for calls that have none, or that of another call."""
        call_ids = {call.id for turn in self.turns if isinstance(turn, Reply) for call in turn.calls} | {""}
        calls: list[Call] = []
        for call in reply.calls:
            unique = replace(call, id=Call(call.tool).id) if call.id in call_ids else call
            call_ids.add(unique.id)
            calls.append(unique)
        self._ids = call_ids - {""}
        ids = iter([(old.id, new.id) for old, new in zip(reply.calls, calls, strict=True)])
        return replace(reply, calls=tuple(calls), native=_with_ids(reply.native, ids))


_IDS = ("id", "call_id", "toolUseId")
"""The members in which the formats have the id of a call."""


def _with_ids(native: Any, ids: Iterator[tuple[str, str]]) -> Any:
    """Return the provider's own message with new ids for its calls: *ids* are the old and the new ones, in order.

    None where not all of the old ones are found: results are paired by the new ones.
    """
    waiting = next(ids, None)

    def copy(part: Any) -> Any:
        nonlocal waiting
        if isinstance(part, list | tuple):
            return [copy(item) for item in part]
        if not isinstance(part, dict):
            return part
        part_copy = dict(part)
        for name in _IDS:
            if waiting is not None and waiting[0] and part_copy.get(name) == waiting[0]:
                part_copy[name], waiting = waiting[1], next(ids, None)
        return {name: value if name in _IDS else copy(value) for name, value in part_copy.items()}

    native_copy = copy(native)
    return native_copy if waiting is None else None


def checked_turns(turns: Sequence[Turn]) -> Sequence[Turn]:
    """Return *turns*, if a run can begin with them. Raises SetupError for none, and for calls without their results."""
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


def _problem(reply: Reply) -> str:
    """Return why *reply* is neither an answer nor calls, as the model reads it; empty where it is one of them."""
    if reply.stop == "malformed":
        return f"the provider could not read it ({reply.reason})."
    # Asked again, a provider's model nearly always answers. Of a model of the host's own nothing is known.
    if reply.native is not None and reply.stop in ("end", "calls") and reply.is_empty:
        return "it was empty."
    return "it announced a call, and had none." if reply.stop == "calls" and not reply.calls else ""


def _calls(turn: Turn) -> Sequence[Call]:
    return turn.calls if isinstance(turn, Reply) else ()


def _paired(call: Call, result: Result[Any]) -> Result[Any]:
    # Middleware may return a result that it has kept from another call.
    return result if result.call_id == call.id else replace(result, call_id=call.id)


def _each_once(waiting: Sequence[Pending]) -> list[Pending]:
    """Return *waiting*, each once: one that several calls wait for says so to the person."""
    calls = Counter(pending.id for pending in waiting)
    notes = {id: f" ({count} calls: an answer counts for one of them)" for id, count in calls.items() if count > 1}  # noqa: A001
    by_id = {pending.id: pending for pending in waiting}
    return [replace(pending, message=pending.message + notes.get(pending.id, "")) for pending in by_id.values()]


def _reasons(pendings: Sequence[Pending]) -> str:
    return "; ".join(dict.fromkeys(f"'{pending.tool}' waits: {pending.message}" for pending in pendings))


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A call of the model starts."""

    call: Call


@dataclass(frozen=True, slots=True)
class CallEvent:
    """An event of a running call: `Progress` or `Emitted`."""

    call: Call
    event: Event


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A call has ended, whether it succeeded or not."""

    call: Call
    result: Result[Any]


RunEvent = TextDelta | CallStarted | CallEvent | CallFinished


class EventSink(Protocol):
    """Takes the events of a run."""

    async def put(self, event: RunEvent, /) -> None: ...
