"""Keys in a real database: who gets in with one, until when, and what is stored of it."""

import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Approve, Caller, Context, Crib, SetupError, ToolError, Workbench, tool
from toolcrib.auth import DatabaseVault, Grant, Owner
from toolcrib.serve.access.keys import AccessKey, AccessKeys
from toolcrib.store import Store
from toolcrib.workbench import Rule, Rules

from .conftest import MakeStore

FORM = re.compile(r"toolcrib_[a-z0-9]{12}_[A-Za-z0-9]{43}")


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


async def test_a_key_lets_its_principal_in_until_it_expires_or_is_revoked_anywhere(make_store: MakeStore) -> None:
    clock = Clock()
    keys, elsewhere = AccessKeys(make_store(), clock=clock), AccessKeys(make_store(), clock=clock)
    until_at = clock.now + timedelta(days=1)
    text, made = await keys.add("alice", groups=["staff", "admins", "staff"], expires_at=until_at)
    other, _ = await keys.add("alice")
    assert FORM.fullmatch(text)
    assert made.id in text
    found = await elsewhere.find(text)
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


async def test_a_new_key_of_a_name_whose_keys_were_revoked_is_of_somebody_else(make_store: MakeStore) -> None:
    """The case of a name that is given away, and a second one: keys of one name at a time stay one principal."""
    keys, elsewhere = AccessKeys(make_store()), AccessKeys(make_store())
    _, first = await keys.add("alice")
    _, second = await keys.add("alice")
    assert await elsewhere.revoke(first.id)
    text, third = await elsewhere.add("alice")
    assert {key.principal for key in (first, second, third)} == {"key:alice"}
    for key in (second, third):
        assert await keys.revoke(key.id)
    text, other = await elsewhere.add("alice", groups=["staff"])
    _, beside = await keys.add("alice")
    assert (other.name, other.principal, beside.principal) == ("alice", *[f"key:alice#{other.id}"] * 2)
    assert (await keys.find(text)) == other
    assert [key.principal for key in await keys.all()] == [other.principal] * 2
    assert [await keys.revoke(key.id) for key in (other, beside, beside)] == [True, True, False]
    _, last = await keys.add("alice")
    assert last.principal == f"key:alice#{last.id}" != other.principal
    assert (await keys.add("bob"))[1].principal == "key:bob"


async def test_a_new_owner_of_a_name_inherits_no_grant_approval_or_result(make_store: MakeStore) -> None:
    store = make_store()
    keys = AccessKeys(store)
    vault, ran = DatabaseVault(store), list[str]()

    @tool(destructive=True)
    async def wipe(ctx: Context) -> str:
        ran.append(ctx.caller.principal)
        return "x" * 5_000

    @tool
    async def read() -> str:
        return "read"

    rules = Rules([Rule(do="deny", tools="read", principals="key:alice"), Rule(do="ask", tools="wipe")])
    async with Crib([wipe, read], policy=rules, store=store, max_result_chars=1_000) as crib:

        async def bench() -> tuple[AccessKey, Workbench]:
            _, key = await keys.add("alice")
            return key, crib.workbench(key.caller)

        async def approve(bench: Workbench) -> None:
            pending = (await bench.call("wipe")).pending
            await bench.answer(pending.id, Approve())

        key, alice = await bench()
        await approve(alice)
        handle = (await alice.call("wipe")).metadata["handle"]
        await approve(alice)
        await vault.put(Owner(alice.caller.principal, "default", "p", "oauth2"), Grant("token-1"), version=None)
        assert await keys.revoke(key.id)

        key, other = await bench()
        assert (await other.call("wipe")).status == "pending"
        with pytest.raises(ToolError):
            await other.stored_result(handle)
        assert await vault.owned_by(other.caller.principal) == []
        assert len(ran) == 1
        # Rules know both by the name.
        assert [(await one.call("read")).shown().code for one in (alice, other)] == ["denied", "denied"]
        assert (await crib.workbench(Caller("key:alicia")).call("read")).text == "read"


async def test_keys_of_a_store_of_before_stay_who_they_are(sqlite_store: Store, tmp_path: Path) -> None:
    keys = AccessKeys(sqlite_store)
    text, _ = await keys.add("alice")
    sqlite_store.close()
    with closing(sqlite3.connect(tmp_path / "only" / "store.db")) as database:
        database.executescript(
            "ALTER TABLE toolcrib_keys DROP COLUMN origin; DROP TABLE toolcrib_key_names;"
            "UPDATE toolcrib_versions SET version = 1 WHERE room = 'keys'"
        )
    found = await keys.find(text)
    assert found is not None and found.principal == "key:alice"
    assert await keys.revoke(found.id)
    assert (await keys.add("alice"))[1].principal.startswith("key:alice#")


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
        "origin = 'aaaaaaaaaaaa'",
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


async def test_a_key_is_not_given_the_place_of_another_principal_of_its_name(
    sqlite_store: Store, tmp_path: Path
) -> None:
    keys = AccessKeys(sqlite_store)
    _, first = await keys.add("alice")
    assert await keys.revoke(first.id)
    text, later = await keys.add("alice")
    assert later.origin is not None
    with closing(sqlite3.connect(tmp_path / "only" / "store.db")) as database, database:
        database.execute(f"UPDATE toolcrib_keys SET origin = '{first.id}'")
    assert await keys.find(text) is None


async def test_keys_outlive_the_key_of_the_store(store: Store) -> None:
    keys = AccessKeys(store)
    text, _ = await keys.add("alice")
    assert await store.rotate_key() == 1
    assert await keys.find(text) is not None


@pytest.mark.parametrize(
    "name",
    ["", "a b", "a|b", "key:a", "\u0430lice", "al\u200bice", "a" * 65, "-a", "a\n", "*", "\ud800"],
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
