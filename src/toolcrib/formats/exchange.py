"""The order that Anthropic, Bedrock and Gemini demand of a conversation.

The person and the model take turns, no message is empty, and the results of a reply's calls come together, in one
message, next after that reply.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any

from ..core import Call, Result
from .turns import Reply, Results, Turn, User

Blocks = list[dict[str, Any]]


def messages(
    turns: Iterable[Turn],
    *,
    user: Callable[[User], Blocks],
    reply: Callable[[Reply], Blocks],
    results: Callable[[Sequence[Result[Any]]], Blocks],
    model: str,
    under: str,
) -> list[dict[str, Any]]:
    """*turns* as messages, of which the blocks are made by *user*, *reply* and *results*, and stand *under* this key.

    *model* is the role of the model. Raises ValueError where a reply's calls and the results after it do not pair.
    """
    made: list[dict[str, Any]] = []
    asked: Sequence[Call] = ()
    for number, turn in enumerate(map(require_turn, turns)):
        if asked and not isinstance(turn, Results):
            raise ValueError(_unanswered(asked, f"turn {number} comes first"))
        match turn:
            case User():
                _say(made, "user", user(turn), under)
            case Reply():
                _say(made, model, reply(turn), under)
                asked = turn.calls
            case Results():
                if not asked:
                    raise ValueError(f"Turn {number} has results, but the reply before it asked for no calls.")
                _say(made, "user", results(paired(asked, turn.results)), under)
                asked = ()
    if asked:
        raise ValueError(_unanswered(asked, "the conversation ends"))
    return made


def require_turn(turn: Any) -> Turn:
    """*turn*, if it is one. Raises ValueError."""
    if not isinstance(turn, User | Reply | Results):
        raise ValueError(
            f"A conversation is made of User, Reply and Results (toolcrib.formats), not of a {type(turn).__name__}."
        )
    return turn


def paired(calls: Sequence[Call], results: Sequence[Result[Any]]) -> list[Result[Any]]:
    """*results* in the order of *calls*. Raises ValueError where they are not exactly one for each."""
    by_id = {result.call_id: result for result in results}
    wanted = [call.id for call in calls]
    if len(results) != len(calls) or by_id.keys() != set(wanted):
        raise ValueError(
            f"Results have to be one for each call. The calls are {', '.join(wanted)}; "
            f"the results are for {', '.join(result.call_id or '(no call_id)' for result in results) or 'none'}."
        )
    return [by_id[call_id] for call_id in wanted]


def identified(results: Sequence[Result[Any]]) -> Sequence[Result[Any]]:
    """*results*, each of which says the id of its call. Raises ValueError, with the place, where one does not."""
    for number, result in enumerate(results):
        if not result.call_id:
            raise ValueError(
                f"results[{number}] ('{result.tool}') has no call_id, so it answers no call. "
                "Pass the Call itself to the workbench: `await bench.call(call)`."
            )
    return results


def id_within(taken: str, call_id: str) -> str:
    """*call_id* where it is as the pattern *taken* says, else an id that is: always the same one for the same one.

    A conversation may have another provider's ids in it, and call and result have to keep one.
    """
    if re.fullmatch(taken, call_id):
        return call_id
    return f"call_{sha256(call_id.encode(errors='replace')).hexdigest()[:32]}"


def _say(made: list[dict[str, Any]], role: str, blocks: Blocks, under: str) -> None:
    if not blocks:
        return
    if made and made[-1]["role"] == role:
        made[-1][under] += blocks
    else:
        made.append({"role": role, under: [*blocks]})  # never the list of a reply's `native`


def _unanswered(asked: Sequence[Call], then: str) -> str:
    return (
        f"The calls {', '.join(call.id for call in asked)} have no results: {then}. Put their Results after the Reply."
    )
