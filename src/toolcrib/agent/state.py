"""A run that waits, as JSON data, and back. The host keeps it: whoever can change it can change what the run does next.

But not what was approved. What it says of pendings is only compared with what the workbench asks for, when the calls
are made again (`resume.py`); and answers are in it, and are read from it, only where it is signed.
"""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core import Answer, Approve, Deny, Input, Pending, Result, SetupError, canonical
from ..formats import Reply, Results, Turn, Usage
from ..formats.answers import plain
from ..formats.turns import from_data, to_data
from .run import Run, Terms, opened

VERSION = 1

Question = tuple[str, str, str]
"""What an answer is bound to: digest, kind and key of a pending."""


@dataclass(frozen=True, slots=True)
class Given:
    """An answer that was given to a question, and by whom."""

    pending: Pending
    answer: Answer
    by: str


def question(pending: Pending) -> Question:
    return pending.digest, pending.kind, pending.key


def written(run: Run, answers: Sequence[Given], key: bytes | None) -> dict[str, Any]:
    """The state of *run*, signed with *key*. *answers* are those its calls have taken so far, and will need again."""
    state: dict[str, Any] = {
        "version": VERSION,
        "turns": [to_data(turn) for turn in run.turns],
        "began": run.began,
        "steps": run.steps,
        "errors": run.errors,
        "usage": {"input": run.usage.input, "output": run.usage.output, "cached": run.usage.cached},
        "answers": [
            {"pending": _pending_data(given.pending), "answer": answer_data(given.answer), "by": given.by}
            for given in (answers if key else ())
        ],
    }
    try:
        state = plain(state, "The state of this run")
    except ValueError as error:
        raise SetupError(f"{error} Arguments and answers have to be JSON values.") from None
    return {**state, "signature": _signature(state, key)} if key else state


def read(state: Mapping[str, Any], terms: Terms, key: bytes | None) -> tuple[Run, Results, list[Given]]:
    """A run, without the results of its last turn; those; and the answers so far. SetupError for what is no state."""
    try:
        state = plain(state, "This state of a run")
    except ValueError as error:
        raise SetupError(f"{error} Resume from Outcome.state as it was given.") from None
    if not isinstance(state, Mapping) or state.get("version") != VERSION:
        found = f"version {state.get('version')!r:.40}" if isinstance(state, Mapping) else f"a {type(state).__name__}"
        raise SetupError(
            f"This is no state of a run that this version can go on from ({found}). It is Outcome.state, as it was "
            "given, or read by json.loads."
        )
    if key and not _is_signed(state, key):
        raise SetupError(
            "This state of a run is not signed with the state_key of this agent: it was changed since, or comes from "
            "an agent with another key or none. Resume from Outcome.state as it was given."
        )
    try:
        turns = [from_data(turn) for turn in state["turns"]]
        *before, last = opened(turns)
        reply = before[-1]
        if not isinstance(reply, Reply) or not isinstance(last, Results):
            raise ValueError("the last turn has no calls that wait")
        if len({call.id for call in reply.calls}) < len(reply.calls):
            raise ValueError("two calls of the last turn have one id")
        run = Run(before, terms, began=_count(state, "began"))
        run.steps, run.errors, run.reply = _count(state, "steps"), _count(state, "errors"), reply
        usage = state["usage"]
        run.usage = Usage(_count(usage, "input"), _count(usage, "output"), _count(usage, "cached"))
        answers = [
            Given(_pending(given["pending"]), answer_of(given["answer"]), str(given["by"]))
            for given in (state["answers"] if key else ())
        ]
    except (ArithmeticError, KeyError, TypeError, ValueError, IndexError, SetupError) as error:
        said = f"'{error.args[0]}' is missing" if isinstance(error, KeyError) else str(error)
        raise SetupError(f"This state of a run is broken: {said}. Resume from Outcome.state as it was given.") from None
    return run, last, answers


def key_of(key: str | bytes | None) -> bytes | None:
    """What states are signed with. Raises SetupError for what somebody could guess."""
    if key is None:
        return None
    given: Any = key
    if not isinstance(given, str | bytes) or len(given) < _SHORTEST:
        raise SetupError(
            f"state_key is a secret of at least {_SHORTEST} characters: secrets.token_urlsafe() makes one."
        )
    return given.encode() if isinstance(given, str) else given


_SHORTEST = 16


def _signature(state: Mapping[str, Any], key: bytes) -> str:
    signed = {name: value for name, value in state.items() if name != "signature"}
    return hmac.digest(key, canonical(signed).encode(), "sha256").hex()


def _is_signed(state: Mapping[str, Any], key: bytes) -> bool:
    return hmac.compare_digest(str(state.get("signature")).encode(), _signature(state, key).encode())


def answer_data(answer: Answer) -> dict[str, Any]:
    match answer:
        case Approve():
            return {"kind": "approve"}
        case Deny(reason):
            return {"kind": "deny", "reason": reason}
        case Input(value):
            return {"kind": "input", "value": value}


def answer_of(given: Answer | Mapping[str, Any]) -> Answer:
    """An answer, or its JSON form. Raises SetupError for anything else."""
    if isinstance(given, Approve | Deny | Input):
        return given
    data: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {}
    kind = data.pop("kind", None)
    match kind:
        case "approve" if not data:
            return Approve()
        case "deny" if data.keys() <= {"reason"} and isinstance(data.get("reason", ""), str):
            return Deny(**data)
        case "input" if data.keys() == {"value"}:
            return Input(data["value"])
        case str() if kind not in _KINDS:
            from ..schema import nearest, spoken

            meant = nearest(kind, _KINDS)
            hint = f" Did you mean '{meant}'?" if meant else ""
            raise SetupError(f"There is no answer of kind '{spoken(kind)}'.{hint} The kinds are: {', '.join(_KINDS)}.")
        case _:
            # Not what it is: it may be a password.
            raise SetupError(
                'An answer is Approve(), Deny("why") or Input(...), or as JSON {"kind": "approve"}, {"kind": "deny", '
                f'"reason": "why"}} or {{"kind": "input", "value": ...}}. This one is a {type(given).__name__}.'
            )


_KINDS = ("approve", "deny", "input")


def _count(data: Mapping[str, Any], name: str) -> int:
    value = data[name]
    if type(value) is not int or value < 0:
        raise ValueError(f"'{name}' is no number of 0 or more")
    return value


# As it stands in a result: so there is one form of a pending in a state.
def _pending_data(pending: Pending) -> Any:
    return to_data(Results((Result(None, (), pending=pending),)))


def _pending(data: Mapping[str, Any]) -> Pending:
    turn: Turn = from_data(data)
    if not isinstance(turn, Results) or len(turn.results) != 1 or (pending := turn.results[0].pending) is None:
        raise ValueError("an answer has no pending")
    return pending
