"""Keys in a real database: who gets in with one, until when, and what is stored of it."""

import asyncio
import re
import sqlite3
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Caller, SetupError
from toolcrib.serve.keys import AccessKeys
from toolcrib.store import Store

from .conftest import MakeStore

FORM = re.compile(r"toolcrib_[a-z0-9]{12}_[A-Za-z0-9]{43}")


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await holds():
            await asyncio.sleep(0.005)


async def test_a_key_lets_its_principal_in_until_it_expires_or_is_revoked_anywhere(make_store: MakeStore) -> None:
    clock = Clock()
    keys, elsewhere = AccessKeys(make_store(), clock=clock), AccessKeys(make_store(), clock=clock)
    until_at = clock.now + timedelta(days=1)
    text, made = await keys.add("alice", groups=["staff", "admins", "staff"], expires_at=until_at)
    other, _ = await keys.add("alice")
    assert FORM.fullmatch(text)
    assert made.id in text
    found = await elsewhere.find(text)
    assert found is not None
    assert found.caller == Caller("key:alice", groups=frozenset({"staff", "admins"}))
    assert found.to_dict() == {
        "id": made.id,
        "name": "alice",
        "principal": "key:alice",
        "groups": ["admins", "staff"],
        "created_at": "2026-01-01T00:00:00+00:00",
        "expires_at": "2026-01-02T00:00:00+00:00",
        "last_used_at": None,
    }
    clock.now = until_at - timedelta(microseconds=1)
    assert await keys.find(text) is not None
    clock.now = until_at
    assert await keys.find(text) is None
    assert await elsewhere.find(other) is not None
    assert await elsewhere.revoke(other.split("_")[1])
    assert not await keys.revoke(other.split("_")[1])
    assert await keys.find(other) is None
    assert [key.id for key in await keys.all()] == [made.id]


async def test_what_is_almost_a_key_lets_nobody_in(make_store: MakeStore) -> None:
    keys = AccessKeys(make_store())
    text, key = await keys.add("alice")
    other, _ = await keys.add("bob")
    secret = text.rpartition("_")[2]
    for wrong in (
        *("", "toolcrib_", text[:-1], f"{text}a", f" {text}", f"{text}\n", f"{text}\0", text.upper(), text.swapcase()),
        f"toolcrib_{key.id}_{other.rpartition('_')[2]}",
        f"toolcrib_{other.split('_')[1]}_{secret}",
        f"toolcrib_{'_' * 12}_{secret}",
        f"toolcrib_{'%' * 12}_{secret}",
        f"toolcrib_{'a' * 12}_{secret}",
        f"toolcrib_{key.id}_{secret[:-1]}\N{FULLWIDTH LATIN SMALL LETTER A}",
        text.replace("toolcrib", "toolcr\u0131b"),
        "toolcrib_" + "a" * 1_000_000,
    ):
        assert await keys.find(wrong) is None
    assert await keys.find(text) is not None


async def test_a_hash_is_stored_and_no_key(sqlite_store: Store, tmp_path: Path) -> None:
    keys = AccessKeys(sqlite_store)
    text, key = await keys.add("alice")
    await keys.find(text)
    shown = f"{key!r} {keys!r} {await keys.all()}"
    assert text.rpartition("_")[2] not in shown
    sqlite_store.close()
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert "store.db" in {each.name for each in files}
    assert not any(text.rpartition("_")[2].encode() in each.read_bytes() for each in files)


@pytest.mark.parametrize(
    "change",
    [
        "name = 'admin'",
        "groups = '[\"admins\"]'",
        "expires_at = NULL",
        "created_at = 0",
        "envelope = (SELECT envelope FROM toolcrib_keys WHERE name = 'bob')",
        "envelope = x''",
        "envelope = NULL",
        "groups = 'x'",
        "expires_at = 'x'",
    ],
)
async def test_a_row_that_is_changed_in_the_database_lets_nobody_in(
    sqlite_store: Store, tmp_path: Path, change: str
) -> None:
    keys = AccessKeys(sqlite_store)
    text, _ = await keys.add("alice", expires_at=datetime.now(UTC) + timedelta(days=1))
    other, _ = await keys.add("bob")
    assert await keys.find(text) is not None
    database = sqlite3.connect(tmp_path / "only" / "store.db")
    with database:
        database.execute("PRAGMA ignore_check_constraints = 1")
        if "NULL" in change and "envelope" in change:
            change = "envelope = 5"
        database.execute(f"UPDATE toolcrib_keys SET {change} WHERE name = 'alice'")
    database.close()
    assert await keys.find(text) is None
    assert await keys.find(other) is not None
    assert len(await keys.all()) in (1, 2)


async def test_keys_outlive_the_key_of_the_store(store: Store) -> None:
    keys = AccessKeys(store)
    text, _ = await keys.add("alice")
    assert await store.rotate_key() == 1
    assert await keys.find(text) is not None


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        "a|b",
        "key:a",
        "\u0430lice",
        "al\u200bice",
        "a" * 65,
        "-a",
        "a\n",
        "*",
        "a?",
        "https://i|a",
        "\ud800",
    ],
)
async def test_names_that_could_be_taken_for_others_are_refused(store: Store, name: str) -> None:
    keys = AccessKeys(store)
    with pytest.raises(SetupError, match="cannot be the name"):
        await keys.add(name)
    assert await keys.all() == []


@pytest.mark.parametrize(
    "options",
    [{"groups": [""]}, {"groups": ["a\n"]}, {"groups": ["x" * 201]}, {"expires_at": datetime(2020, 1, 1, tzinfo=UTC)}],
)
async def test_wrong_groups_and_a_past_expiry_are_refused(store: Store, options: dict[str, Any]) -> None:
    with pytest.raises(SetupError, match="key"):
        await AccessKeys(store).add("alice", **options)
