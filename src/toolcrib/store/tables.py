"""The tables of this room: pending calls, large results, leases.

Sealed are what a call would run with and asks, what was answered, and the content of results. In clear are the columns
that rows are found by: names of tools, principals and threads, digests, times and states. Each envelope is bound to
the clear columns of its row, but for the state of a pending call, which an answer that opens must bear out.
"""

from collections.abc import Mapping
from typing import Any

from .rows import table
from .schema import Schema, Sealed

PENDINGS = table(
    "toolcrib_pendings",
    *("number", "id", "digest", "kind", "question", "tool", "principal", "thread", "expires_at", "state"),
    *("answered_by", "size_bytes", "body", "answer"),
    key=("number",),
)
RESULTS = table(
    "toolcrib_results",
    *("number", "handle", "principal", "thread", "tool", "stored_at", "expires_at", "size_bytes", "content"),
    key=("number",),
)
LEASES = table("toolcrib_leases", "name", "owner", "fence", "expires_at", key=("name",))


def of_pending(row: Mapping[str, Any]) -> tuple[str, ...]:
    names = ("id", "digest", "kind", "question", "tool", "principal", "thread", "expires_at")
    return ("pending", *(str(row[name]) for name in names))


def of_answer(row: Mapping[str, Any]) -> tuple[str, ...]:
    return ("answer", str(row["answered_by"]), *of_pending(row))


def of_result(row: Mapping[str, Any]) -> tuple[str, ...]:
    return ("result", *(str(row[name]) for name in ("handle", "principal", "thread", "tool", "stored_at")))


STORE = Schema(
    "store",
    [
        (
            """CREATE TABLE toolcrib_pendings (
                number {number}, id TEXT NOT NULL UNIQUE, digest TEXT NOT NULL, kind TEXT NOT NULL,
                question TEXT NOT NULL, tool TEXT NOT NULL, principal TEXT NOT NULL, thread TEXT NOT NULL,
                expires_at BIGINT NOT NULL, state TEXT NOT NULL, answered_by TEXT, size_bytes BIGINT NOT NULL,
                body {bytes} NOT NULL, answer {bytes})""",
            "CREATE INDEX toolcrib_pendings_question ON toolcrib_pendings (digest, kind, question)",
            "CREATE INDEX toolcrib_pendings_expiry ON toolcrib_pendings (expires_at)",
            """CREATE TABLE toolcrib_results (
                number {number}, handle TEXT NOT NULL UNIQUE, principal TEXT NOT NULL, thread TEXT NOT NULL,
                tool TEXT NOT NULL, stored_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, size_bytes BIGINT NOT NULL,
                content {bytes} NOT NULL)""",
            "CREATE INDEX toolcrib_results_caller ON toolcrib_results (principal, thread)",
            "CREATE INDEX toolcrib_results_expiry ON toolcrib_results (expires_at)",
            """CREATE TABLE toolcrib_leases (
                name TEXT PRIMARY KEY, owner TEXT NOT NULL, fence BIGINT NOT NULL, expires_at BIGINT NOT NULL)""",
        ),
    ],
    sealed=(
        Sealed(PENDINGS, "body", of_pending),
        Sealed(PENDINGS, "answer", of_answer),
        Sealed(RESULTS, "content", of_result),
    ),
)
