"""One run, from its prompt to its outcome: what to ask the model next, and when it is over. This file does no I/O.

`request` → the model → `add_reply` → the calls → `add_results` → `outcome`, and around again.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from secrets import token_hex
from typing import Annotated, Any

from annotated_types import Ge

from ..core import Call, Event, Pending, Result, SetupError, Text, ToolSpec
from ..formats import Choice, Reply, Results, TextDelta, Turn, Usage, User
from ..formats.history import ordered
from ..machinery import in_thread_if_long
from .model import Request
from .outcome import Outcome, RunStatus, traced

_Count = Annotated[int, Ge(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What applies to every run of an agent."""

    instructions: str
    tool_choice: Choice
    parallel: bool
    max_steps: _Count
    max_errors: _Count
    max_calls: _Count
    max_calls_per_turn: _Count
    max_tokens: _Count | None


_End = tuple[RunStatus, str]
"""How a run ends, and why."""


class Run:
    """A conversation in progress. Every reply with calls has its results, in their order and under their ids."""

    __slots__ = ("_ids", "began", "errors", "id", "options", "reply", "steps", "turns", "usage")

    def __init__(self, turns: Sequence[Turn], options: RunOptions, *, began: int | None = None, id: str = "") -> None:  # noqa: A002
        self.id = id or token_hex(16)
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
        choice = options.tool_choice
        if choice != "auto" and choice != "none" and self.steps:
            choice = "auto"  # a model that must call something at every turn never ends
        return Request(tuple(self.turns), options.instructions, specs, choice, options.parallel)

    def add_reply(self, reply: Reply) -> Sequence[Call]:
        """Add *reply* to the conversation. Return the calls to make, each with a unique id."""
        self.steps += 1
        self.usage += reply.usage
        self.errors += bool(_problem(reply))
        calls = tuple(map(self._with_unique_id, reply.calls))
        if calls != tuple(reply.calls):
            reply = replace(reply, calls=calls, native=None)  # the provider's own message has the old ids
        self.turns.append(reply)
        self.reply = reply
        return reply.calls

    def _with_unique_id(self, call: Call) -> Call:
        """Return *call*, with a new id if it has none, or that of an earlier call."""
        unique = call if call.id and call.id not in self._ids else replace(call, id=Call(call.tool).id)
        self._ids.add(unique.id)
        return unique

    def key(self, call: Call) -> str:
        """Return the idempotency key of *call*, one of the last reply: by its place, since models repeat ids."""
        return f"{self.id}-{self.steps}-{[own.id for own in self.reply.calls].index(call.id)}"

    def room(self, calls: Sequence[Call]) -> int:
        """Return how many of *calls*, of the last reply, may be made: the first ones, and none of a refused one."""
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

    async def over(self, redact: Callable[[str], str]) -> Outcome | None:
        """Return the outcome, if the last turn ends the run."""
        end = self._end_by_turn() or self._end_by_limit()
        if end is None:
            return None
        turns = self.turns[self.began :]
        data = [call.arguments for turn in turns if isinstance(turn, Reply) for call in turn.calls]
        data += [result.text for turn in turns if isinstance(turn, Results) for result in turn.results]
        return await in_thread_if_long(partial(self.outcome, end[0], redact, end[1]), data)

    def _end_by_turn(self) -> _End | None:
        if self.reply.stop == "refused":
            return "failed", "The model refused to answer."
        match self.turns[-1]:
            case Reply() as last:
                return self._end_by_reply(last)
            case Results() as last if pendings := _pendings(last):
                reasons = (f"'{pending.tool}' waits: {pending.message}" for pending in pendings)
                return "pending", "; ".join(dict.fromkeys(reasons))
            case _:
                failure = self._failure()
                return ("failed", failure) if failure else None

    def _failure(self) -> str:
        """Return why the run has failed; empty where there are fewer errors than it may have."""
        most = self.options.max_errors
        turns = f"{self.errors} turns in a row" if self.errors > 1 else "one turn"
        return f"No call succeeded in {turns} (max_errors={most})." if self.errors >= most else ""

    def _end_by_reply(self, last: Reply) -> _End | None:
        match last:
            case Reply(stop="length"):
                return "stopped", "The answer was cut off at a token limit."
            case Reply(stop="other", reason=reason) if reason:
                return "stopped", f"The model stopped before it was done: {reason}."
            case _ if problem := _problem(last):
                failure = self._failure()
                return ("stopped", f"{failure} The last reply could not be used: {problem}") if failure else None
            case Reply(stop="paused"):
                return None  # it continues when it is sent back
            case _:
                return ("stopped", "The model's reply was empty.") if last.is_empty else ("done", "")

    def _end_by_limit(self) -> _End | None:
        options, calls, tokens = self.options, self._calls_before(), self.usage.input + self.usage.output
        if calls > options.max_calls:
            most = options.max_calls
            limit = f"The model made {calls} calls, of which {most} may run (max_calls={most})."
        elif options.max_tokens is not None and tokens >= options.max_tokens:
            limit = f"The run has used {tokens} tokens, and was not done (max_tokens={options.max_tokens})."
        elif self.steps >= options.max_steps:
            times = f"{self.steps} times" if self.steps > 1 else "once"
            limit = f"The model was asked {times} and was not done (max_steps={options.max_steps})."
        else:
            return None
        return "stopped", limit

    def outcome(self, status: RunStatus, redact: Callable[[str], str], why: str = "") -> Outcome:
        last = self.turns[-1]
        return Outcome(
            status,
            self.reply.text,
            redact(why),
            tuple(self.turns),
            self.usage,
            traced(self.turns[self.began :], redact),
            tuple(_pendings(last)) if status == "pending" and isinstance(last, Results) else (),
        )


def checked_turns(turns: Sequence[Turn]) -> Sequence[Turn]:
    """Return *turns*, if a run can begin with them. Raises SetupError for none, and for calls without their results."""
    if not turns:
        raise SetupError('A run needs a prompt: agent.run("What time is it?").')
    try:
        return [*ordered(turns)]
    except ValueError as error:
        raise SetupError(f"A run cannot begin with these turns. {error} Outcome.turns has both.") from None


def _problem(reply: Reply) -> str:
    """Return why *reply* is neither an answer nor calls, as the model reads it; empty where it is one of them."""
    if reply.stop == "malformed":
        return f"the provider could not read it ({reply.reason})."
    # Asked again, a provider's model nearly always answers. Of a model of the host's own nothing is known.
    if reply.native is not None and reply.stop in ("end", "calls") and reply.is_empty:
        return "it was empty."
    return "it announced a call, and had none." if reply.stop == "calls" and not reply.calls else ""


def _paired(call: Call, result: Result[Any]) -> Result[Any]:
    # Middleware may return a result that it has kept from another call.
    return result if result.call_id == call.id else replace(result, call_id=call.id)


def _pendings(turn: Results) -> Sequence[Pending]:
    """Return what the calls of *turn* wait for, each once: one that several wait for says so to the person."""
    waiting = [result.pending for result in turn.results if result.pending is not None]
    calls = Counter(pending.id for pending in waiting)
    notes = {id: f" ({count} calls: an answer counts for one of them)" for id, count in calls.items() if count > 1}  # noqa: A001
    by_id = {pending.id: pending for pending in waiting}
    return [replace(pending, message=pending.message + notes.get(pending.id, "")) for pending in by_id.values()]


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
"""What a streamed run yields before its outcome."""
