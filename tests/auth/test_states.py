"""What is done about a grant before it can be used."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, text

from toolcrib import Call, Caller, Pending, ToolAuth
from toolcrib.auth import Client, CredentialBroker, DatabaseVault, Grant, Owner, Provider
from toolcrib.auth.vault import Step, StoredGrant, step_for
from toolcrib.store import Store

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SOON, LATER, OVER = NOW + timedelta(seconds=30), NOW + timedelta(hours=1), NOW - timedelta(seconds=1)
ALICE = Caller("alice")
OWNER = Owner.of(ALICE, "example", "oauth2")
TABLE = Provider.model_validate(
    {
        "title": "Example",
        "source": "https://example.com",
        "checked": date(2026, 1, 1),
        "oauth2": {"authorize_url": "https://p.example/a", "token_url": "https://p.example/t"},
    }
)
_ROWS = select(text("state")).select_from(text("toolcrib_authorizations"))
LASTING = Grant("a-token", "a-refresh-token", ("read",), LATER)


@pytest.mark.parametrize(
    ("grant", "is_refreshed", "step"),
    [
        (None, False, "ask"),
        (LASTING, False, "give"),
        (replace(LASTING, expires_at=None), False, "give"),
        (replace(LASTING, scopes=("write",)), False, "ask"),
        (replace(LASTING, expires_at=NOW + timedelta(seconds=61)), False, "give"),
        (replace(LASTING, expires_at=NOW + timedelta(seconds=60)), False, "refresh"),
        (replace(LASTING, expires_at=OVER), False, "refresh"),
        (replace(LASTING, expires_at=NOW), True, "ask"),
        (replace(LASTING, expires_at=SOON), True, "give"),
        (replace(LASTING, expires_at=SOON, refresh_token=None), False, "give"),
        (replace(LASTING, expires_at=OVER, refresh_token=None), False, "ask"),
    ],
)
def test_a_grant_is_asked_for_refreshed_or_given(grant: Grant | None, is_refreshed: bool, step: Step) -> None:
    stored_grant = None if grant is None else StoredGrant(grant, 1)
    assert step_for(stored_grant, ["read"], NOW, is_refreshed=is_refreshed) == step


async def test_who_has_been_asked_waits_for_the_same_and_nothing_is_written(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    broker = CredentialBroker(
        clients={"example": Client("id", "client-secret")},
        catalogue={"example": TABLE},
        vault=DatabaseVault(store),
        redirect_uri="http://127.0.0.1:1/auth/callback",
        clock=lambda: NOW,
    )
    read, write = ToolAuth("example", scopes=["read"]), ToolAuth("example", scopes=["write"])

    async def given(required: ToolAuth) -> Pending | str:
        found = await broker.authorize([required], ALICE, Call("tool"))
        if isinstance(found, Pending):
            return found
        (one,) = found
        return one.secret

    first = await given(read)
    other = Store(tmp_path / "store.db")
    await other.read(_ROWS)
    before = other.changes()
    assert await given(read) == first  # pending
    assert other.changes() == before
    more = await given(write)
    assert more.id != first.id
    await broker.save(OWNER, LASTING)
    assert await given(read) == "a-token"  # ready
    asked = await given(write)  # needs scopes
    assert "scope=read+write" in (asked.url or "")
    assert await given(write) == asked  # pending again
    await broker.save(OWNER, replace(LASTING, expires_at=SOON, refresh_token=None))
    assert await given(read) == "a-token"  # resolved
    ended = replace(LASTING, expires_at=OVER, refresh_token=None)
    await broker.save(OWNER, ended)
    again = await given(read)
    assert again.message.startswith("Your grant at Example has ended.")
    assert await given(read) == again
    assert await other.read(_ROWS)
    store.close()
    other.close()
