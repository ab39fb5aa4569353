"""Keys of principals: who gets one, until when it lets them in, and what a changed row of the store does."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from toolcrib import SetupError
from toolcrib.serve.access.keys import AccessKeys
from toolcrib.store import Store

from ..waiting import until

BEGIN = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Keys(AccessKeys):
    """Keys whose time is `now`."""

    def __init__(self, store: Store) -> None:
        self.now = BEGIN
        super().__init__(store, clock=lambda: self.now)

    async def used_at(self, moment: datetime) -> bool:
        """Whether the use of the only key is noted as of *moment*, in the end."""
        async with asyncio.timeout(60):
            while [key.last_used_at for key in await self.all()] != [moment]:
                await asyncio.sleep(0.01)
        return True


@pytest.fixture
async def keys(tmp_path: Path) -> AsyncIterator[Keys]:
    store = Store(tmp_path / "store.db")
    yield Keys(store)
    store.close()


async def test_a_use_is_noted_once_a_minute_also_by_another_process(keys: Keys, tmp_path: Path) -> None:
    text, _ = await keys.add("alice")
    await keys.find(text)
    assert await keys.used_at(BEGIN)
    store = Store(tmp_path / "store.db")
    other = Keys(store)
    for seconds, noted_at in ((59, 0), (60, 60), (119, 60), (120, 120)):
        keys.now = other.now = BEGIN + timedelta(seconds=seconds)
        assert await other.find(text)
        assert await keys.used_at(BEGIN + timedelta(seconds=noted_at))
    store.close()


async def test_a_use_that_cannot_be_noted_is_logged_once_a_minute_and_keeps_nobody_out(
    keys: Keys, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text, _ = await keys.add("alice")
    with closing(sqlite3.connect(tmp_path / "store.db")) as database, database:
        refuse = "BEGIN SELECT RAISE(ABORT, 'read only'); END"
        database.execute(f"CREATE TRIGGER refuse BEFORE UPDATE ON toolcrib_keys {refuse}")
    for seconds, count in ((0, 1), (59, 1), (60, 2)):
        keys.now = BEGIN + timedelta(seconds=seconds)
        assert await keys.find(text)
        await until(lambda: not keys._noting)
        assert caplog.text.count("The last use of a key could not be noted") == count


@pytest.mark.parametrize("name", ["a", "a" * 64, "0A._@+-z"])
async def test_a_name_and_groups_are_what_they_may_be(keys: Keys, name: str) -> None:
    groups = ["x" * 200, *(f"{number:02}" for number in range(99))]
    assert (await keys.add(name, groups=groups))[1].groups == tuple(sorted(groups))


@pytest.mark.parametrize("groups", [[""], ["x" * 201], ["a\n"], [str(number) for number in range(101)]])
async def test_groups_that_cannot_be_are_refused(keys: Keys, groups: list[str]) -> None:
    with pytest.raises(SetupError, match="at most 100 groups"):
        await keys.add("alice", groups=groups)


@pytest.mark.parametrize(("groups", "listed"), [('["admins"]', ["alice", "bob"]), ("admins", ["bob"])])
async def test_a_row_that_somebody_has_changed_lets_nobody_in(
    keys: Keys, tmp_path: Path, caplog: pytest.LogCaptureFixture, groups: str, listed: list[str]
) -> None:
    text, made = await keys.add("alice")
    keys.now += timedelta(seconds=1)
    other, _ = await keys.add("bob")
    with closing(sqlite3.connect(tmp_path / "store.db")) as database, database:
        database.execute("UPDATE toolcrib_keys SET groups = ? WHERE id = ?", (groups, made.id))
    assert await keys.find(text) is None
    assert f"The key {made.id} in the store cannot be opened" in caplog.text
    assert await keys.find(other)
    assert [key.name for key in await keys.all()] == listed
    assert ("A key in the store is damaged" in caplog.text) == (len(listed) == 1)
