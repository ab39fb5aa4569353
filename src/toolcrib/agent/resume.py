"""The state of a pending run as JSON data, and how what it waits for is answered, in any process.

The host keeps the state: who can change it controls the run. It cannot grant an approval, though. An answer counts for
what the workbench asks *now*: where the digest or the arguments differ from those in the state, it asks again. Where
the store of the workbench knows a pending, the answer goes there, and one that was used is refused. Where it does not,
since it was in the memory of another process, the state alone shows what was answered. So there an answer counts only
if the state is signed: its pending is stored here first.
"""

import hmac
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import NonNegativeInt, PlainValidator, TypeAdapter

from ..core import Answer, AnswerError, Pending, Result, SetupError, ToolError
from ..formats import Reply, Results, Usage, turn_from_dict, turn_to_dict
from ..formats.reading import json_data
from ..formats.turns import checked
from ..machinery import answer_from, canonical
from ..workbench import Workbench
from .outcome import Outcome, RunStatus
from .run import Run, RunOptions, checked_turns

_log = logging.getLogger("toolcrib")

Answers = Mapping[str, Answer | Mapping[str, Any]]
"""Answers by the ids of pendings: Approve(), Deny("why"), Input(...), or their JSON form."""

Signer = Callable[[bytes], list[str]]
"""Returns the signatures of a text by all keys, the newest first."""

VERSION = 2

_MIN_KEY_LENGTH = 16


@dataclass(frozen=True, slots=True)
class PendingAnswer:
    """An answer to a pending, and the name of the person who gave it."""

    pending: Pending
    answer: Annotated[Answer, PlainValidator(answer_from)]
    by: str


@dataclass(frozen=True, slots=True)
class _State:
    """What `write_state` writes, as it is read back."""

    turns: list[dict[str, Any]]
    began: NonNegativeInt
    steps: NonNegativeInt
    errors: NonNegativeInt
    usage: Usage
    answers: list[PendingAnswer]
    id: str = ""


def write_state(run: Run, answers: Sequence[PendingAnswer], sign: Signer | None) -> dict[str, Any]:
    """Return the state of *run*, signed if *sign* can. *answers* are those that its calls will need again."""
    state: dict[str, Any] = {
        "version": VERSION,
        "turns": [turn_to_dict(turn) for turn in run.turns],
        "id": run.id,
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
) -> tuple[Run, Results, Sequence[PendingAnswer]]:
    """Return a run without the results of its last turn; these results; the answers so far. Raises SetupError."""
    run, answers = _read(state, options, sign)
    last = run.turns.pop()
    if not isinstance(last, Results):
        raise _malformed("the last turn has no calls that wait")
    return run, last, answers


def read_end(
    state: Mapping[str, Any], options: RunOptions, error: ToolError | None, redact: Callable[[str], str]
) -> Outcome:
    """Return the outcome of a stored run that has ended: by itself, or by *error* while it waited."""
    run, _ = _read(state, options, None)
    status: RunStatus = "cancelled" if error is not None and error.code == "cancelled" else "failed"
    why = "" if error is None else error.message
    return run.outcome(state.get("status", status), redact, state.get("why", why))


def _read(state: Mapping[str, Any], options: RunOptions, sign: Signer | None) -> tuple[Run, Sequence[PendingAnswer]]:
    _require_version(state)
    if sign:
        _require_signature(state, sign)
    try:
        data = checked(TypeAdapter(_State), state, "state")
        turns = checked_turns([turn_from_dict(turn) for turn in data.turns])
        reply = next((turn for turn in reversed(turns) if isinstance(turn, Reply)), Reply())
        if len({call.id for call in reply.calls}) < len(reply.calls):
            raise ValueError("two calls of the last turn have the same id")
    except (AnswerError, ValueError, SetupError) as error:
        raise _malformed(str(error).rstrip(".")) from None
    run = Run(turns, options, began=data.began, id=data.id)
    run.steps, run.errors, run.usage, run.reply = data.steps, data.errors, data.usage, reply
    return run, data.answers if sign else ()


def _require_version(state: Any) -> None:
    if not isinstance(state, Mapping) or state.get("version") != VERSION:
        version = f"version {state.get('version')!r:.40}" if isinstance(state, Mapping) else f"a {type(state).__name__}"
        raise SetupError(
            f"This is not the state of a run that this version can resume ({version}). Pass Outcome.state, unchanged "
            "or read by json.loads."
        )


def _malformed(reason: str) -> SetupError:
    return SetupError(f"This state of a run is malformed: {reason}. Resume from Outcome.state, unchanged.")


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


def _require_signature(state: Mapping[str, Any], sign: Signer) -> None:
    signature = str(state.get("signature")).encode()
    with suppress(RecursionError, TypeError, ValueError):  # what is not JSON was never signed
        if any(hmac.compare_digest(signature, valid.encode()) for valid in _signatures(state, sign)):
            return
    raise SetupError(
        "This state of a run is not signed with a key of this store, or of TOOLCRIB_KEY: it was changed, or comes from "
        "an agent with other keys or none. Resume from Outcome.state, unchanged."
    )


async def answer_waiting(
    bench: Workbench,
    waiting: Iterable[Pending],
    old: Sequence[PendingAnswer],
    new: Answers,
    by: str,
    *,
    is_signed: bool,
) -> list[PendingAnswer]:
    """Answer what calls wait for, before any of them is made again. Return the answers that they may use.

    *old* are those that the state has. *is_signed*: whether what *waiting* shows is what the calls waited for.
    Raises AnswerError where one of *new*, given *by* a person, does not count.
    """
    by_id = {pending.id: pending for pending in waiting}
    if unknown := [str(pending_id)[:100] for pending_id in new if pending_id not in by_id]:
        ids = ", ".join(f"'{pending_id}'" for pending_id in by_id)
        raise AnswerError(f"This run does not wait for '{unknown[0]}'. It waits for: {ids}.", "unknown")
    answers = [PendingAnswer(by_id[pending_id], answer_from(answer), by) for pending_id, answer in new.items()]
    for answer in old:
        with suppress(AnswerError):  # it was used, or is too late: the call asks again, and shows why
            await _submit(bench, answer, is_signed=is_signed)
    await _require_unchanged(bench, answers)
    return [*old, *[answer for answer in answers if await _submit(bench, answer, is_signed=is_signed)]]


async def _require_unchanged(bench: Workbench, answers: Iterable[PendingAnswer]) -> None:
    """Raise AnswerError where *bench* asks something else under the id of an answer than the state shows."""
    for answer in answers:
        entry = await bench.crib.store.pendings.get(answer.pending.id)
        if entry is not None and _shown(entry.pending) != _shown(answer.pending):
            raise AnswerError(
                f"What this workbench asks under '{answer.pending.id}' is not what the state shows. Resume without an "
                "answer to be asked again: resume(state).",
                "invalid",
            )


async def _submit(bench: Workbench, answer: PendingAnswer, *, is_signed: bool) -> bool:
    """Return whether *answer* counts. Raises AnswerError where the workbench refuses it."""
    pending, store = answer.pending, bench.crib.store.pendings
    if is_signed and await store.get(pending.id) is None:  # it was in the memory of another process
        pending = await store.open(pending, now=bench.now())
    try:
        await bench.answer(pending.id, answer.answer, by=answer.by)
    except AnswerError as error:
        if error.reason != "unknown":
            raise
        _log.warning(
            "The answer to '%s' does not count, and '%s' is asked for again: set TOOLCRIB_KEY for the agents, or give "
            "their workbenches one store",
            pending.id,
            pending.tool,
        )
        return False
    return True


def still_needed(
    answers: Sequence[PendingAnswer], waiting: Iterable[Pending], results: Sequence[Result[Any]]
) -> list[PendingAnswer]:
    """Return those of *answers* that calls which were *waiting* need again, after they had these *results*.

    An answer is used up where a call with its digest is done, and is void where its question is asked again.
    """
    still_waiting = [result.pending for result in results if result.pending is not None]
    done = {pending.digest for pending, result in zip(waiting, results, strict=True) if result.pending is None}
    digests = {pending.digest for pending in still_waiting} - done
    open_questions = set(map(_question, still_waiting))
    latest = {_question(answer.pending): answer for answer in answers}
    return [answer for key, answer in latest.items() if answer.pending.digest in digests and key not in open_questions]


def _question(pending: Pending) -> tuple[str, str, str]:
    """Return what an answer is bound to."""
    return pending.digest, pending.kind, pending.key


def _shown(pending: Pending) -> Sequence[str]:
    """Return what an answer to *pending*, as it was shown, holds for."""
    return *_question(pending), pending.tool, pending.arguments
