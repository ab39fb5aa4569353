"""What vaults promise brokers: of both kinds, by any number of threads, and over processes that share a store."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Connection

from toolcrib.auth import DatabaseVault, Grant, Owner, Vault, sealed
from toolcrib.auth.vault import Authorization
from toolcrib.core import StoreError
from toolcrib.store import Store
from toolcrib.store.tables import Schema, table

NOW = datetime(2040, 1, 1, tzinfo=UTC)
ALICES, BOBS = (Owner(name, "default", "idp", "oauth2") for name in ("alice", "bob"))
GRANT, OTHER = Grant("the-first-token", scopes=["read"]), Grant("the-other-token")
ASKED = Authorization(
    "pending_1", ALICES, "t", ("read",), NOW, "https://idp.example/", "state-1", "verifier", "http://h/"
)


async def test_a_grant_is_changed_by_whoever_knows_its_version(vault: Vault) -> None:
    assert await vault.put(ALICES, GRANT, version=None)
    assert not await vault.put(ALICES, OTHER, version=None)
    stored = await vault.get(ALICES)
    assert stored.grant == GRANT
    assert not await vault.put(BOBS, OTHER, version=stored.version)
    assert await vault.put(ALICES, OTHER, version=stored.version)
    assert not await vault.put(ALICES, GRANT, version=stored.version)
    assert await vault.owned_by("alice") == [(ALICES, OTHER)]
    assert await vault.owned_by("bob") == []
    assert not await vault.remove(ALICES, version=stored.version)
    assert await vault.get(ALICES) is not None
    assert await vault.remove(ALICES)
    assert not await vault.remove(ALICES)
    assert await vault.get(ALICES) is None
    # What is granted again after it was removed is another grant.
    assert await vault.put(ALICES, GRANT, version=None)
    again = await vault.get(ALICES)
    assert again.version != stored.version


async def test_an_authorization_is_open_until_it_ends_or_is_closed(vault: Vault) -> None:
    before = NOW - timedelta(seconds=1)
    first = await vault.open(ASKED, now=before)
    same = replace(ASKED, id="pending_2", state="state-2", thread="another")
    assert await vault.open(same, now=before) == first == ASKED
    others = [
        replace(ASKED, id="pending_3", state="state-3", scopes=("write", "read")),
        replace(ASKED, id="pending_4", state="state-4", redirect_uri="http://other/"),
        replace(ASKED, id="pending_5", state="state-5", owner=BOBS),
    ]
    for each in others:
        assert await vault.open(each, now=before) == each
    again = replace(others[0], id="pending_6", state="state-6", scopes=("read", "write"))
    assert await vault.open(again, now=before) == others[0]
    assert sorted(each.id for each in await vault.authorizations(ALICES, now=before)) == [
        "pending_1",
        "pending_3",
        "pending_4",
    ]
    assert await vault.find("state-5", now=before) == others[2]
    assert await vault.find("state-2", now=before) is None
    for state in ("state-1", "state-5"):
        assert await vault.find(state, now=NOW) is None
    assert await vault.authorizations(ALICES, now=NOW) == []
    assert await vault.close(ASKED)
    assert not await vault.close(ASKED)
    assert await vault.find("state-1", now=before) is None
    late = replace(same, expires_at=NOW + timedelta(seconds=1))
    assert await vault.open(late, now=NOW) == late
    assert await vault.find("state-3", now=before) is None  # what has ended is forgotten where another begins


async def test_one_at_a_time_does_something_for_an_owner(vault: Vault) -> None:
    inside, most = 0, 0

    async def turn(owner: Owner) -> None:
        nonlocal inside, most
        async with vault.alone(owner):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.01)
            inside -= 1

    await asyncio.gather(*(turn(ALICES) for _ in range(4)))
    assert most == 1
    with pytest.raises(ZeroDivisionError):
        async with vault.alone(ALICES), vault.alone(BOBS):  # others do not wait for it
            raise ZeroDivisionError
    async with asyncio.timeout(30), vault.alone(ALICES):
        pass


@pytest.fixture
def shared(url: str, tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """Two processes' stores of one database."""
    stores = Store(url, key=tmp_path / "store.key"), Store(url, key=tmp_path / "store.key")
    yield stores
    for store in stores:
        store.close()


async def test_what_was_decrypted_is_kept_until_any_process_changes_that_grant(shared: tuple[Store, Store]) -> None:
    (store, other), notes = shared, table("toolcrib_notes", "n", key=("n",))
    for used in shared:
        used.use(Schema("notes", [("CREATE TABLE toolcrib_notes (n BIGINT PRIMARY KEY)",)]))
    vault, others = DatabaseVault(store), DatabaseVault(other)
    assert await vault.put(ALICES, GRANT, version=None)
    assert await vault.get(BOBS) is None
    stored = await vault.get(ALICES)
    for number, writer in enumerate((other, store)):  # as the call log of this process, or of another one
        await writer.transact(partial(Connection.execute, statement=notes.insert().values(n=number)))
        assert await vault.get(ALICES) is stored
    assert await others.put(BOBS, OTHER, version=None)
    assert await vault.get(ALICES) is stored
    assert await store.rotate_key() == 2
    assert await vault.get(ALICES) is stored
    assert await others.put(ALICES, OTHER, version=stored.version)
    changed = await vault.get(ALICES)
    assert changed.grant == OTHER
    assert await others.remove(ALICES)
    assert await vault.get(ALICES) is None


async def test_a_grant_that_was_revoked_while_the_store_was_closed_is_not_given(shared: tuple[Store, Store]) -> None:
    store, other = shared
    vault, others = DatabaseVault(store), DatabaseVault(other)
    for owner in (ALICES, BOBS):
        await vault.put(owner, GRANT, version=None)
    for owner in (BOBS, ALICES):
        assert await vault.get(owner) is not None
    store.close()
    assert await others.remove(ALICES)
    assert await vault.get(BOBS) is not None  # opens the store again
    assert await vault.get(ALICES) is None


async def test_the_cache_of_a_vault_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed, "MAX_CACHED", 5)
    vault, owners = DatabaseVault(store), [replace(ALICES, principal=f"user-{number}") for number in range(12)]
    for owner in owners:
        await vault.put(owner, GRANT, version=None)
    for owner in owners:
        stored = await vault.get(owner)
        assert await vault.get(owner) is stored  # the newest always fits
        assert len(vault._cached) <= 5  # pyright: ignore[reportPrivateUsage]


async def test_who_refreshes_holds_a_grant_for_as_long_as_it_takes(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda pause_s: sleep(min(pause_s, 0.01)))  # a minute passes quickly
    monkeypatch.setattr(sealed, "_REFRESH_TIMEOUT_S", 0.0)
    vault, other = DatabaseVault(store, lease_s=60.0), DatabaseVault(store)

    def ends_at() -> list[int]:
        with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
            return [row[0] for row in connection.execute("SELECT expires_at FROM toolcrib_leases")]

    async with vault.alone(ALICES):
        seen = {*ends_at()}
        async with asyncio.timeout(60):
            while len(seen) < 3:
                await asyncio.sleep(0.01)
                seen |= {*ends_at()}
    assert ends_at() == [0]
    held = DatabaseVault(store)
    async with held.alone(ALICES):
        with pytest.raises(StoreError, match="Another process has been refreshing this grant for too long"):
            async with other.alone(ALICES):
                raise AssertionError("Two hold it.")
