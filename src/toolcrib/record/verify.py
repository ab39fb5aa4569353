"""Verify the call log: its events, and that the calls that are listed are as their last event says."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, text

from ..store import Store
from ..store.audit import Audit, Verifier
from ..store.events import CHECKPOINTS
from ..store.tables import encode_name
from .database import CALLS

_SKEW_US = 60_000_000
"""By how much the clocks of two machines may differ."""
_NAMES = ("call_id", "tool", "profile", "thread")
_FIELDS = {name: name for name in ("decision", "rule", "code", "pending", "duration_us")} | {"by": "answered_by"}
"""The fields of an event that a row has, too, and by which names."""


def verify(store: Store, connection: Connection, public_keys: Sequence[bytes]) -> Audit:
    """Verify the log in *store*, in a transaction that has not read yet, with the *public_keys* that may sign."""
    if connection.dialect.name == "postgresql":  # elsewhere a transaction sees one moment in any case
        connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
    verifier, calls, begins_at = Verifier(public_keys), dict[str, tuple[Any, ...]](), None
    is_empty, call_count = True, 0
    for row in store.events.exported(connection, None):
        is_empty = False
        verifier.add(row)
        if _note(row, calls) and begins_at is None:
            begins_at = row["at"]
    audit = verifier.finished()
    query = CALLS.select().execution_options(stream_results=True, yield_per=1_000)
    for call in connection.execute(query).mappings():
        call_count += 1
        if problem := _problem(call, calls.get(call["id"]), begins_at):
            verifier.problem(f"The call {str(call['id'])[:60]} is listed{problem}")
    if is_empty and call_count:
        verifier.problem(
            f"Calls are listed ({call_count:,}), and there is no event at all: all were removed, or no call was made "
            "since an update from a version without events"
        )
    return audit


def _note(row: Mapping[Any, Any], calls: dict[str, tuple[Any, ...]]) -> bool:
    """Note what the event in *row* says of its call. Return whether it is an event with a time, and no stub."""
    if row["chain"] == CHECKPOINTS or row["stub"] is not None or not isinstance(row["at"], int):
        return False
    try:
        fields = json.loads(row["fields"])
        if fields["kind"] in ("started", "ended"):
            names = (encode_name(fields[name]) for name in _NAMES)
            state = (fields.get("status", "started"), fields.get("repeated", False))
            values = (fields.get(name) for name in (*_FIELDS, "started_at"))
            calls[encode_name(fields["id"])] = (row["principal"], *names, *state, *values)
    except (ValueError, TypeError, KeyError, RecursionError):  # one that is damaged is a problem already
        pass
    return True


def _problem(call: Mapping[Any, Any], expected: tuple[Any, ...] | None, begins_at: int | None) -> str:
    """Return how the listed *call* differs from its event; empty where it does not."""
    if expected is not None:
        return "" if expected == _facts_of(call, expected) else " with other values than its event has"
    # A call may be older than the first event that is left, at *begins_at*. What is not a number is not.
    if begins_at is None or (isinstance(call["started_at"], int) and call["started_at"] <= begins_at + _SKEW_US):
        return ""
    return ", and there is no event of it"


def _facts_of(row: Mapping[Any, Any], expected: tuple[Any, ...]) -> tuple[Any, ...]:
    started_at = None if expected[-1] is None else row["started_at"]  # the event of a start has none
    return (*(row[name] for name in ("principal", *_NAMES, "status", "repeated", *_FIELDS.values())), started_at)
