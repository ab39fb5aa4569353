"""Large results in a database: for their caller alone, bounded for each principal, there after a restart."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from toolcrib import Caller, File, Image, SetupError, Text, Workbench, tool
from toolcrib.core import Audio, Data, StoreError
from toolcrib.machinery import ResultStore, StoredResult
from toolcrib.store import DatabaseResults, Store

from .conftest import MakeStore, execute

NOW = datetime.fromtimestamp(1000, UTC)
CONTENT = (Text("\ud800 text"), Data('{"a": 1.0}'), Image(b"i"), Audio(b"a", "audio/x"), File(b"f", "x/y", "name"))


def result(handle: str, *content: Any, principal: str = "bob", thread: str = "t") -> StoredResult:
    return StoredResult(handle, principal, thread, "list", content or (Text("x" * 100),), NOW)


async def test_a_result_is_found_as_it_was_by_its_caller_alone(store: Store) -> None:
    results: ResultStore = DatabaseResults(store)
    for name in ("plain", "n\x00l", "%_.*", "\\u0000"):
        stored = replace(result(f"h-{name}", *CONTENT, principal=name, thread=name), tool=name)
        assert await results.store(stored)
        assert await results.find(f"h-{name}", name, name) == stored
        for principal, thread in (("eve", name), (name, "eve"), (name.lower() + "\x00", name)):
            assert await results.find(f"h-{name}", principal, thread) is None
    assert await results.find("h-other", "plain", "plain") is None


async def test_a_principals_oldest_make_room_for_their_newest_and_for_nobody_elses(store: Store) -> None:
    results = DatabaseResults(store, max_bytes=350, max_count=3)
    await results.store(result("other", principal="ann"))

    async def there() -> list[str]:
        return [name for name in "1234567" if await results.find(name, "bob", "t")]

    for name in "1234":
        await results.store(result(name))
    assert await there() == ["2", "3", "4"]
    await results.store(result("5", Text("x" * 250)))
    assert await there() == ["4", "5"]
    assert not await results.store(result("6", Text("x" * 351)))
    await results.store(result("5", Text("again")))
    assert await there() == ["4", "5"]
    assert await results.find("other", "ann", "t") is not None
    for name in ("max_bytes", "max_count", "max_age_s"):
        with pytest.raises(SetupError, match="above 0"):
            DatabaseResults(store, **{name: 0})


async def test_a_result_is_there_for_so_long(store: Store) -> None:
    now = NOW
    results = DatabaseResults(store, max_age_s=60, clock=lambda: now)
    await results.store(result("1"))
    now += timedelta(seconds=59)
    assert await results.find("1", "bob", "t") is not None
    now += timedelta(seconds=1)
    assert await results.find("1", "bob", "t") is None
    await results.store(result("2", principal="ann"))
    count = await store.read(text("SELECT count(*) AS count FROM toolcrib_results"))
    assert count[0]["count"] == 1


async def test_a_row_that_was_moved_does_not_open(store: Store) -> None:
    results = DatabaseResults(store)
    await results.store(result("1", Text("canary")))
    rows = await store.read(text("SELECT * FROM toolcrib_results"))
    assert "canary" not in repr(rows)
    await execute(store, "UPDATE toolcrib_results SET principal = 'eve'")
    with pytest.raises(StoreError, match="cannot be opened"):
        await results.find("1", "eve", "t")


@pytest.mark.parametrize(("column", "value"), [("content", "x"), ("content", 7), ("stored_at", "x"), ("tool", b"\xff")])
async def test_a_damaged_row_is_an_error(column: str, value: Any, sqlite_store: Store) -> None:
    results = DatabaseResults(sqlite_store)
    await results.store(result("1"))
    await execute(sqlite_store, f"UPDATE toolcrib_results SET {column} = :value", value=value)
    with pytest.raises(StoreError):
        await results.find("1", "bob", "t")


async def test_a_handle_works_after_a_restart(make_store: MakeStore) -> None:
    @tool
    def numbers() -> list[int]:
        return list(range(100_000))

    def bench(principal: str) -> Workbench:
        return Workbench([numbers], store=make_store(), caller=Caller(principal, thread="t"))

    async with bench("bob") as before:
        handle = (await before.call("numbers")).metadata["handle"]
    async with bench("bob") as after:
        read = await after.call("read_result", {"handle": handle, "pointer": "/99999"})
    assert read.text.startswith("99999") or "99999" in read.text
    async with bench("eve") as another:
        other = await another.call("read_result", {"handle": handle, "pointer": "/99999"})
    assert other.error is not None
