"""What a store has of one principal, over the tables of all rooms: counted, exported and forgotten."""

import importlib
import json
import logging
import pkgutil
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

import toolcrib
from toolcrib import Approve, Caller, Crib, Text, core, tool
from toolcrib.auth import DatabaseVault, Grant, Owner
from toolcrib.auth.sealed import AUTH
from toolcrib.auth.vault import Authorization
from toolcrib.core import CallRecord, Pending
from toolcrib.machinery import LedgerEntry, StoredResult
from toolcrib.record import DatabaseCalls
from toolcrib.record.database import RECORD
from toolcrib.serve.access.keys import KEYS
from toolcrib.serve.console.sessions import SESSIONS
from toolcrib.store import Store, principals
from toolcrib.store.events import LOG
from toolcrib.store.tables import STORE, Schema

NOW = datetime.now(UTC)
ALICE, OTHERS = "key:alice\\x", ("key:alice", "bob", "KEY:alice\\x", "")
GRANT = Grant("the-access-token", "the-refresh-token", ("read",), NOW + timedelta(days=1))


def test_every_table_declares_whose_its_rows_are() -> None:
    names = [item.name for item in pkgutil.walk_packages(toolcrib.__path__, "toolcrib.") if "__main__" not in item.name]
    rooms = [name for name in names if re.fullmatch(r"toolcrib\.(store|record|auth|serve|durable)(\.\w+)*", name)]
    modules = [vars(importlib.import_module(name)).values() for name in rooms]
    schemas = {value.room: value for values in modules for value in values if isinstance(value, Schema)}
    assert schemas == {schema.room: schema for schema in (STORE, LOG, RECORD, AUTH, KEYS, SESSIONS)}, (
        "the command opens other ones"
    )
    for schema in schemas.values():
        statements = " ".join(statement for migration in schema.migrations for statement in migration)
        tables = {table.name: table for table in schema.principals}
        assert {*re.findall(r"CREATE TABLE (\w+)", statements)} == {*tables}, schema.room
        for table, column in schema.principals.items():
            assert column is None or column in table.c, table.name
            assert column is not None or "principal" not in table.c, table.name


async def fill(store: Store, principal: str) -> None:
    caller, later = Caller(principal), NOW + timedelta(hours=1)
    for number in range(3):
        name = f"{number}{principal}"
        pending = Pending(f"p{name}", "approval", "?", f"d{name}", "pay", principal, "t", later)
        await store.pendings.open(pending, now=NOW)
    grant = core.Grant(f"g{principal}", principal, "t", "rule 1", {"pay": "d"}, {"/to": "ann"}, "bob", NOW, later)
    await store.pendings.answer(f"p0{principal}", Approve(), by="bob", now=NOW, grant=grant)
    content = (Text("all of it"),)
    await store.results.store(StoredResult(f"result-{principal}", principal, "t", "list", content, NOW))
    vault, owner = DatabaseVault(store), Owner(principal, "default", "idp", "oauth2")
    assert await vault.put(owner, GRANT, version=None)
    asked = Authorization(
        f"a{principal}", owner, "t", ("read",), later, "https://idp/", f"state-{principal}", "the-verifier"
    )
    await vault.open(asked, now=NOW)
    log = DatabaseCalls(store, with_content=True)
    for number in range(45):
        record = CallRecord(f"c{number}", "pay", caller, NOW, id=f"{number}-{principal}", arguments='{"to": "ann"}')
        record.status = "success"
        await log.finished(record)
    await log.flush()
    task = f"task_{principal}"
    entry = LedgerEntry(task, principal, "k", "d", "pay", "t", True, NOW, state="queued", call={}, run_at=NOW)
    await store.ledger.submit(entry, ("d1",))
    assert await store.limits.admit(f"of {principal}", principal, burst=1, per_s=0.001) == 0.0
    (run,) = await store.ledger.take([{"pay": ""}], 10)
    assert await store.ledger.add_step(run, 0, "step one", {"paid": 1})
    await store.ledger.add_event(run, {"progress": [1, 2, "half"]})
    await store.ledger.finish(run, {"text": "paid"})


COUNTS = {
    "pendings": 3,
    "results": 1,
    "ledger": 1,
    "steps": 1,
    "task_events": 1,
    "waits": 1,
    "rates": 1,
    "approvals": 1,
    "events": 50,
    "grants": 1,
    "authorizations": 1,
    "calls": 45,
}


@pytest.fixture
async def filled(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(principals, "BATCH", 20)
    store.use(KEYS)
    for principal in (ALICE, *OTHERS):
        await fill(store, principal)
    return store


async def test_an_export_has_all_of_one_caller_and_no_secret_of_the_vault(filled: Store) -> None:
    seen: list[tuple[str, int]] = []
    tables = await principals.export(filled, ALICE, lambda name, number: seen.append((name, number)))
    assert {name: len(rows) for name, rows in tables.items()} == COUNTS == await principals.count(filled, ALICE)
    assert [number for name, number in seen if name == "calls"] == [20, 40, 45]
    assert {row["principal"] for rows in tables.values() for row in rows} == {ALICE}
    written = json.dumps(tables)
    for secret in ("the-access-token", "the-refresh-token", "the-verifier", f"state-{ALICE}"):
        assert secret not in written
    (grant,) = tables["grants"]
    assert {*grant} == {"principal", "profile", "provider", "handler", "version"}
    assert tables["pendings"][0]["answer"] == {"kind": "approve"}
    assert tables["pendings"][1]["expires_at"] == (NOW + timedelta(hours=1)).isoformat()
    assert tables["results"][0]["content"] == [{"type": "text", "text": "all of it"}]
    assert tables["steps"][0]["value"] == ["step one", {"paid": 1}, False]
    assert tables["calls"][0]["content"]["arguments"] == '{"to": "ann"}'


async def test_a_damaged_row_is_in_the_export_without_what_does_not_open(
    filled: Store, caplog: pytest.LogCaptureFixture
) -> None:
    damage = text(
        "UPDATE toolcrib_pendings SET tool = 'another', expires_at = 9223372036854775807 WHERE digest LIKE 'd1%'"
    )
    await filled.transact(lambda connection: connection.execute(damage).rowcount)
    with caplog.at_level(logging.WARNING):
        rows = (await principals.export(filled, ALICE, lambda *_: None))["pendings"]
    assert [row["body"] is None for row in rows] == [False, True, False]
    assert rows[1]["expires_at"] == "9223372036854775807"
    assert "What is sealed in a row of toolcrib_pendings cannot be opened" in caplog.text


async def test_who_is_forgotten_is_gone_from_all_tables_and_nobody_else(filled: Store) -> None:
    seen: list[tuple[str, int]] = []
    assert await principals.forget(filled, ALICE, lambda name, number: seen.append((name, number))) == COUNTS
    assert [number for name, number in seen if name == "calls"] == [20, 40, 45]
    assert await principals.forget(filled, ALICE, lambda *_: None) == dict.fromkeys(COUNTS, 0)
    assert await principals.export(filled, ALICE, lambda *_: None) == {name: [] for name in COUNTS}
    for other in OTHERS:
        assert await principals.count(filled, other) == COUNTS


async def test_another_process_gives_nothing_of_who_was_forgotten(filled: Store, url: str, tmp_path: Any) -> None:
    serving = Store(url, key=tmp_path / "store.key")
    vault, owner = DatabaseVault(serving), Owner(ALICE, "default", "idp", "oauth2")

    @tool
    def list_all() -> str:
        return "x"

    try:
        async with Crib([list_all], store=serving) as crib:
            assert await vault.get(owner) is await vault.get(owner)  # it is kept in memory
            assert len(await crib.pendings(principal=ALICE)) == 2
            await principals.forget(filled, ALICE, lambda *_: None)
            assert await vault.get(owner) is None
            assert await crib.pendings(principal=ALICE) == []
            assert (
                await crib.workbench(Caller(ALICE)).call("list_all")
            ).value == "x"  # and who calls again begins anew
    finally:
        serving.close()
