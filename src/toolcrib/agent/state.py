"""The state of a pending run as JSON data, and back. The host keeps it: whoever can change it controls the run.

It cannot grant an approval, though. Only where it is signed do its pendings prove what was answered (`resume.py`), and
only there are answers written to it, and read from it.
"""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core import Answer, AnswerError, Pending, SetupError, answer_from, canonical
from ..formats import Reply, Results, Usage, turn_from_dict, turn_to_dict
from ..formats.reading import json_data
from ..formats.turn_data import pending_from_dict
from .run import Run, RunOptions, checked_turns

VERSION = 2

QuestionKey = tuple[str, str, str]
"""What an answer is bound to: digest, kind and key of a pending."""

_MIN_KEY_LENGTH = 16


@dataclass(frozen=True, slots=True)
class PendingAnswer:
    """An answer to a pending, and who gave it."""

    pending: Pending
    answer: Answer
    by: str


def question_key(pending: Pending) -> QuestionKey:
    return pending.digest, pending.kind, pending.key


def write_state(run: Run, answers: Sequence[PendingAnswer], key: bytes | None) -> dict[str, Any]:
    """The state of *run*, signed with *key*. *answers* are those that its calls have used, and will need again."""
    state: dict[str, Any] = {
        "version": VERSION,
        "turns": [turn_to_dict(turn) for turn in run.turns],
        "began": run.began,
        "steps": run.steps,
        "errors": run.errors,
        "usage": run.usage.to_dict(),
        "answers": [
            {"pending": each.pending.to_dict(), "answer": each.answer.to_dict(), "by": each.by}
            for each in (answers if key else ())
        ],
    }
    try:
        state = json_data(state, "The state of this run")
    except ValueError as error:
        raise SetupError(f"{error} Arguments and answers must be JSON values.") from None
    return {**state, "signature": _signature(state, key)} if key else state


def read_state(
    state: Mapping[str, Any], options: RunOptions, key: bytes | None
) -> tuple[Run, Results, list[PendingAnswer]]:
    """A run without the results of its last turn; these results; and the answers so far. Raises SetupError."""
    try:
        state = json_data(state, "This state of a run")
    except ValueError as error:
        raise SetupError(f"{error} Resume from Outcome.state, unchanged.") from None
    if not isinstance(state, Mapping) or state.get("version") != VERSION:
        found = f"version {state.get('version')!r:.40}" if isinstance(state, Mapping) else f"a {type(state).__name__}"
        raise SetupError(
            f"This is not the state of a run that this version can resume ({found}). Pass Outcome.state, unchanged or "
            "read by json.loads."
        )
    if key and not _is_signed(state, key):
        raise SetupError(
            "This state of a run is not signed with the state_key of this agent: it was changed, or comes from "
            "an agent with another key or none. Resume from Outcome.state, unchanged."
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
            PendingAnswer(pending_from_dict(each["pending"]), answer_from(each["answer"]), str(each["by"]))
            for each in (state["answers"] if key else ())
        ]
    except (AnswerError, ArithmeticError, KeyError, TypeError, ValueError, IndexError, SetupError) as error:
        reason = f"'{error.args[0]}' is missing" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise SetupError(f"This state of a run is malformed: {reason}. Resume from Outcome.state, unchanged.") from None
    return run, last, answers


def checked_key(key: str | bytes | None) -> bytes | None:
    """The key that states are signed with. Raises SetupError for one that is too short."""
    if key is None:
        return None
    value: Any = key
    if not isinstance(value, str | bytes) or len(value) < _MIN_KEY_LENGTH:
        raise SetupError(
            f"state_key is a secret of at least {_MIN_KEY_LENGTH} characters: secrets.token_urlsafe() makes one."
        )
    return value.encode() if isinstance(value, str) else value


def _signature(state: Mapping[str, Any], key: bytes) -> str:
    signed = {name: value for name, value in state.items() if name != "signature"}
    return hmac.digest(key, canonical(signed).encode(), "sha256").hex()


def _is_signed(state: Mapping[str, Any], key: bytes) -> bool:
    return hmac.compare_digest(str(state.get("signature")).encode(), _signature(state, key).encode())


def _count(data: Mapping[str, Any], name: str) -> int:
    value = data[name]
    if type(value) is not int or value < 0:
        raise ValueError(f"'{name}' is not a number of 0 or more")
    return value
