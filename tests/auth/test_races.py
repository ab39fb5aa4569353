"""What is revoked, granted anew or removed while a refresh is on its way."""

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from toolcrib.auth import DatabaseVault, Grant, Vault
from toolcrib.store import Store

from ..waiting import until
from .conftest import ALICE, ALICES, IDP, NOON, TOKEN, Server, Setup, as_json

OLD = Grant("the-old-access-token", "the-old-refresh-token", ["read"], NOON - timedelta(hours=1))
NEW = {**TOKEN, "access_token": "the-new-access-token", "refresh_token": "the-new-refresh-token", "expires_in": 3600}


async def begun(setup: Setup, server: Server, vault: Vault) -> "tuple[Any, asyncio.Task[Any]]":
    """A crib, and a call of it whose refresh is on its way: the provider has spent the old token."""
    server.answers |= {"/token": as_json(NEW), "/revoke": as_json({})}
    crib = setup.crib(f'{IDP}revoke_url = "SERVER/revoke"\nrefresh = "rotated"\n')
    setup.broker.vault = vault
    await setup.broker.save(ALICES, OLD)
    server.open.clear()
    server.arrived.clear()
    call = asyncio.ensure_future(crib.workbench(ALICE).call("use"))
    assert await asyncio.to_thread(server.arrived.wait, 30)
    return crib, call


async def test_what_a_refresh_brings_after_the_grant_was_revoked_is_revoked_too(
    setup: Setup, server: Server, vault: Vault
) -> None:
    crib, call = await begun(setup, server, vault)
    async with crib:
        revoking = asyncio.ensure_future(setup.broker.revoke(ALICES))
        while await vault.get(ALICES) is not None:  # it is forgotten at once
            await asyncio.sleep(0)
        server.open.set()
        assert await revoking
        assert (await call).pending is not None
        assert await vault.get(ALICES) is None
        assert {sent["token"] for sent in server.sent("/revoke")} == {"the-old-refresh-token", "the-new-refresh-token"}


async def test_a_login_during_a_refresh_is_what_stays(setup: Setup, server: Server, vault: Vault) -> None:
    crib, call = await begun(setup, server, vault)
    async with crib:
        login = Grant("a-token-of-a-login", "a-refresh-token-of-a-login", ["read"], NOON + timedelta(hours=1))
        await setup.broker.save(ALICES, login)
        server.open.set()
        assert (await call).text == "idp read"
        stored = await vault.get(ALICES)
        assert stored.grant == login
        assert server.sent("/revoke") == []


FULL = "CREATE TRIGGER full BEFORE UPDATE ON toolcrib_grants BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"


async def test_what_a_refresh_brought_is_stored_as_soon_as_the_store_can_be_written(
    setup: Setup, server: Server, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    crib, call = await begun(setup, server, DatabaseVault(store))
    async with crib:
        with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as connection:
            connection.execute(FULL)
            server.open.set()
            await until(lambda: "could not be stored yet" in caplog.text)
            connection.execute("DROP TRIGGER full")
        assert (await call).text == "idp read"
        stored = await setup.broker.vault.get(ALICES)
        assert stored.grant.refresh_token == NEW["refresh_token"]
        assert len(server.sent("/token")) == 1
    assert [secret for secret in (NEW["access_token"], NEW["refresh_token"]) if str(secret) in caplog.text] == []
