"""The table of calls, and records as its rows.

In clear is what rows are found by and counted: who called what, when, and how it ended. Sealed are arguments and
results, where they are recorded at all, bound to the call that they are of.
"""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import text

from ..core import Caller, CallRecord
from ..store import Store, StoreError
from ..store.tables import Schema, Sealed, decode_bytes, decode_name, decode_time, encode_name, encode_time, table

_ROW_BYTES = 300
"""About how much room a row takes without its content."""
_NAMES = ("id", "call_id", "tool", "principal", "profile", "thread")
_TEXTS = ("status", "code", "pending", "decision", "rule", "answered_by", "traceparent")
_NUMBERS = ("repairs", "arguments_bytes", "result_bytes")
_COLUMNS = (
    *(*_NAMES, *_TEXTS, *_NUMBERS),
    *("read_only", "started_at", "duration_us", "owner", "lost_after", "size_bytes", "content"),
)

CALLS = table("toolcrib_calls", "number", *_COLUMNS, key=("number",))


def _of_content(row: Mapping[str, Any]) -> tuple[str, ...]:
    return ("call", *(str(row[name]) for name in (*_NAMES, "started_at")))


RECORD = Schema(
    "record",
    [
        (
            """CREATE TABLE toolcrib_calls (
                number {number}, id TEXT NOT NULL UNIQUE, call_id TEXT NOT NULL, tool TEXT NOT NULL,
                principal TEXT NOT NULL, profile TEXT NOT NULL, thread TEXT NOT NULL, status TEXT NOT NULL, code TEXT,
                pending TEXT, decision TEXT, rule TEXT, answered_by TEXT, traceparent TEXT, repairs BIGINT NOT NULL,
                arguments_bytes BIGINT, result_bytes BIGINT, read_only BIGINT NOT NULL, started_at BIGINT NOT NULL,
                duration_us BIGINT, owner TEXT NOT NULL, lost_after BIGINT NOT NULL, size_bytes BIGINT NOT NULL,
                content {bytes})""",
            "CREATE INDEX toolcrib_calls_principal ON toolcrib_calls (principal, number)",
            "CREATE INDEX toolcrib_calls_time ON toolcrib_calls (started_at)",
            "CREATE INDEX toolcrib_calls_started ON toolcrib_calls (owner) WHERE status = 'started'",
        ),
    ],
    sealed=(Sealed(CALLS, "content", _of_content),),
)

_CHANGING = [name for name in _COLUMNS if name not in _NAMES]
# What is there already is the start of a call, or a commit whose answer was lost.
PUT = text(
    f"INSERT INTO toolcrib_calls ({', '.join(_COLUMNS)}) VALUES ({', '.join(f':{name}' for name in _COLUMNS)}) "  # noqa: S608
    f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _CHANGING)}"
)
STILL_RUNS = text("UPDATE toolcrib_calls SET lost_after = :until WHERE owner = :owner AND status = 'started'")

_ENDED = "NOT (status = 'started' AND lost_after > :now)"
TOO_OLD = text(
    "DELETE FROM toolcrib_calls WHERE number IN (SELECT number FROM toolcrib_calls "  # noqa: S608
    f"WHERE started_at < :oldest AND {_ENDED} LIMIT :most)"
)
TOO_MANY = text(
    "DELETE FROM toolcrib_calls WHERE number IN (SELECT number FROM (SELECT number, status, lost_after, "  # noqa: S608
    "SUM(size_bytes) OVER (ORDER BY number DESC) AS total FROM toolcrib_calls) AS summed "
    f"WHERE total > :max_bytes AND {_ENDED} ORDER BY number LIMIT :most)"
)


def to_row(record: CallRecord, store: Store, *, is_start: bool, owner: str, lost_after: int) -> dict[str, Any]:
    """Return *record* as a row; where it *is_start*, as it is before the work, whatever became of it meanwhile."""
    row: dict[str, Any] = dict.fromkeys((*_TEXTS, *_NUMBERS))
    caller = record.caller
    names = (record.id, record.call_id, record.tool, caller.principal, caller.profile, caller.thread)
    row |= dict(zip(_NAMES, map(encode_name, names), strict=True))
    for name in _TEXTS:
        value = getattr(record, name)
        row[name] = None if value is None else encode_name(value)
    row |= {name: getattr(record, name) for name in _NUMBERS}
    row |= {
        "read_only": int(record.read_only),
        "started_at": encode_time(record.started_at),
        "duration_us": round(record.duration_s * 1e6),
        "owner": owner,
        "lost_after": lost_after,
        "size_bytes": _ROW_BYTES,
        "content": None,
    }
    if is_start:
        row |= {"status": "started", "code": None, "pending": None, "result_bytes": None, "duration_us": None}
    content = {"arguments": record.arguments, "result": None if is_start else record.result}
    if any(value is not None for value in content.values()):
        row["content"] = store.keys.seal(json.dumps(content).encode(), *_of_content(row))
        row["size_bytes"] += len(row["content"])
    return row


def to_record(row: Mapping[Any, Any], store: Store, *, now: int) -> CallRecord:
    """Return the record in *row*; `lost` is the status of a call that no process runs any more. Raises StoreError."""
    try:
        id, call_id, tool, principal, profile, thread = (decode_name(row[name]) for name in _NAMES)  # noqa: A001
        record = CallRecord(call_id, tool, Caller(principal, profile, thread), decode_time(row["started_at"]), id=id)
        for name in _TEXTS:
            if row[name] is not None:
                setattr(record, name, decode_name(row[name]))
        for name in _NUMBERS:
            if row[name] is not None:
                setattr(record, name, int(row[name]))
        record.read_only = bool(row["read_only"])
        record.duration_s = int(row["duration_us"] or 0) / 1e6
        if record.status == "started" and int(row["lost_after"]) <= now:
            record.status = "lost"
        if row["content"] is not None:
            content = json.loads(store.keys.unseal(decode_bytes(row["content"]), *_of_content(row)))
            record.arguments, record.result = content["arguments"], content["result"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise StoreError(f"A call in the store {store.place} is damaged.") from None
    return record
