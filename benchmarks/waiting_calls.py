"""Answers to questions of tasks, where 100,000 tasks wait, beside transactions that change one row."""

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from time import perf_counter

from cases import Loop
from report import ANSWER
from sqlalchemy import Connection, text

from toolcrib import Approve, Pending
from toolcrib.machinery import LedgerEntry
from toolcrib.store import DatabasePendings, Store
from toolcrib.store.tables import LEDGER, PENDINGS, WAITS

TITLE = ANSWER
_TASKS, _PRINCIPALS = 100_000, 1_000
_CHANGE = text("UPDATE toolcrib_leases SET fence = fence + 1 WHERE name = 'bench'")


@asynccontextmanager
async def waiting() -> AsyncGenerator[tuple[Loop, Loop, Loop]]:
    """Return loops of answers, of bare transactions, and of looking for what is due where nothing is."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store.db")
        pendings = DatabasePendings(store, size=10 * _TASKS, per_principal=_TASKS, size_bytes=1 << 32)
        await store.transact(lambda connection: _fill(connection, store, pendings))
        numbers = count()

        async def answer(times: int) -> str:
            for _ in range(times):
                id_ = f"pending_{next(numbers) * 7 % _TASKS}"
                assert await pendings.answer(id_, Approve(), by="bench", now=datetime.now(UTC))
            return ""

        async def change(times: int) -> str:
            for _ in range(times):
                await store.transact(lambda connection: connection.execute(_CHANGE).rowcount)
            return ""

        async def look(times: int) -> str:
            for _ in range(times):
                assert not await store.ledger.take([{"another": ""}], 32)
            return ""

        yield answer, change, look
        store.close()


async def look_us(look: Loop) -> float:
    await look(1)
    began = perf_counter()
    await look(100)
    return (perf_counter() - began) * 1e4


def _fill(connection: Connection, store: Store, pendings: DatabasePendings) -> None:
    """Insert the tasks and their questions, as they are stored one by one: that would take minutes."""
    now = datetime.now(UTC)
    later = now + timedelta(days=3)
    tasks, questions, waits = [], [], []
    for number in range(_TASKS):
        name, principal, digest = f"task_{number}", f"user_{number % _PRINCIPALS}", f"digest_{number}"
        entry = LedgerEntry(name, principal, name, digest, "job", "", True, now, state="waiting", call={}, run_at=later)
        row = store.ledger._row(entry, "") | {"lease_until": 0, "expires_at": 1 << 62}
        tasks.append({column: row[column] for column in LEDGER.columns.keys() & row.keys()})
        question = Pending(f"pending_{number}", "approval", "Go on?", digest, "job", principal, "", later)
        questions.append(pendings._row(question, "") | {"opened_at": 0})
        waits.append({"task": name, "principal": principal, "subject": question.id})
    for table, rows in ((LEDGER, tasks), (PENDINGS, questions), (WAITS, waits)):
        connection.execute(table.insert(), rows)
    connection.execute(text("INSERT INTO toolcrib_leases VALUES ('bench', '', 0, 0)"))
