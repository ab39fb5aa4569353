"""The order of a conversation: which results answer which calls, in what is sent and in what is read back."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from ..core import Call, Content, Result, Text, ToolError
from .turns import Conversation, Reply, Results, Turn, User, text_of

# Turns to send


def ordered(turns: Iterable[Turn]) -> Iterator[Turn]:
    """Return *turns*, with the results of each reply in the order of its calls.

    Raises ValueError, with the place, where a call has no result or a result no call.
    """
    waiting: Sequence[Call] = ()
    for number, turn in enumerate(turns):
        if not isinstance(turn, User | Reply | Results):
            raise ValueError(
                f"A conversation is made of User, Reply and Results (toolcrib.formats), not of a {type(turn).__name__}."
            )
        if isinstance(turn, Results):
            yield Results(tuple(_paired(waiting, turn.results, f"turns[{number}]")))
            waiting = ()
            continue
        if waiting:
            raise ValueError(_unanswered(waiting, f"turns[{number}] comes first"))
        waiting = turn.calls if isinstance(turn, Reply) else ()
        yield turn
    if waiting:
        raise ValueError(_unanswered(waiting, "the conversation ends"))


def identified(results: Sequence[Result[Any]]) -> Sequence[Result[Any]]:
    """Return *results*, each of which must have the id of its call.

    Raises ValueError, with the place, where one has not.
    """
    for number, result in enumerate(results):
        if not result.call_id:
            raise ValueError(
                f"results[{number}] ('{result.tool}') has no call_id, so it answers no call. "
                "Pass the Call itself to the workbench: `await bench.call(call)`."
            )
    return results


def fitting_id(pattern: str, call_id: str) -> str:
    """Return *call_id* where it matches *pattern*, else an id derived from it that does: always the same for the same
    id.

    A conversation may contain another provider's ids, and a call and its result must keep one.
    """
    if re.fullmatch(pattern, call_id):
        return call_id
    return f"call_{sha256(call_id.encode(errors='replace')).hexdigest()[:32]}"


def _paired(calls: Sequence[Call], results: Sequence[Result[Any]], where: str) -> list[Result[Any]]:
    by_id = {result.call_id: result for result in results}
    expected = [call.id for call in calls]
    if len(results) != len(calls) or by_id.keys() != set(expected):
        raise ValueError(
            f"{where}: there must be one result for each call. The calls are {', '.join(expected) or 'none'}; "
            f"the results are for {', '.join(result.call_id or '(no call_id)' for result in results) or 'none'}."
        )
    return [by_id[call_id] for call_id in expected]


def _unanswered(calls: Sequence[Call], reason: str) -> str:
    ids = ", ".join(call.id for call in calls)
    return f"The calls {ids} have no results: {reason}. Put their Results next after the Reply."


# Messages read back


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """One tool's result in a provider's message."""

    where: str
    content: tuple[Content, ...]
    call_id: str
    error: ToolError | None = None


def assemble(instructions: str, entries: Iterable[User | Reply | ToolOutput], *, repair: bool) -> Conversation:
    """Return the conversation that *entries* are, with the results of each reply together.

    The last reply may have calls without results: they are still to be made. With *repair*, a call whose result is
    missing gets the error `lost`, and a result whose call is missing becomes text of the user.
    Without it, both raise ValueError with the place.
    """
    turns: list[Turn] = []
    open_calls: dict[str, Call] = {}
    results: dict[str, Result[Any]] = {}
    strays: list[Content] = []

    def close(reason: str) -> None:
        """Add the results of the last reply, and then what was no result of it."""
        missing = [call for call_id, call in open_calls.items() if call_id not in results]
        if missing and not repair:
            raise ValueError(_unanswered(missing, reason))
        if open_calls:
            turns.append(Results(tuple(results.get(call.id) or _lost(call) for call in open_calls.values())))
        if strays:
            turns.append(User(tuple(strays)))
        for pending in (open_calls, results, strays):
            pending.clear()

    for entry in entries:
        if not isinstance(entry, ToolOutput):
            close("another message comes first")
            if isinstance(entry, Reply):
                open_calls.update({call.id: call for call in entry.calls})
                entry = _with_stop(entry)
            turns.append(entry)
        elif entry.call_id in open_calls and entry.call_id not in results:
            call = open_calls[entry.call_id]
            results[call.id] = Result(None, entry.content, entry.error, call_id=call.id, tool=call.tool)
        elif repair:
            strays.append(Text(f"A tool's result: {text_of(entry.content)}"))
        else:
            raise ValueError(f"{entry.where} is the result of a call '{entry.call_id}' that does not wait for one.")
    if results or repair:
        close("the conversation ends")
    return Conversation(instructions, tuple(turns))


def _with_stop(reply: Reply) -> Reply:
    """Return *reply*, which has been read from a message: that does not have the reason that its answer had."""
    return replace(reply, stop="calls" if reply.calls else "end") if reply.stop == "other" else reply


def _lost(call: Call) -> Result[Any]:
    error = ToolError("The result of this call is not known.", "lost")
    return Result(None, (Text(error.message),), error, call_id=call.id, tool=call.tool)
