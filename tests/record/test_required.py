"""A call log that is required: a call that changes something runs only where its start is in the log."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Crib, SetupError, Workbench, tool
from toolcrib.core import CallRecord, Recorder
from toolcrib.record import DatabaseCalls
from toolcrib.store import Store

paid: list[int] = []


@tool
async def pay(amount: int) -> int:
    """Pay."""
    paid.append(amount)
    return amount


@tool(read_only=True)
async def look() -> str:
    """Look."""
    return "nothing"


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    paid.clear()


def execute(path: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement).fetchall()


async def test_what_cannot_be_recorded_is_refused_unless_it_only_reads(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = Store(path)
    async with Workbench([pay, look], store=store, recorder=[DatabaseCalls(store, required=True)]) as bench:
        assert (await bench.call("pay", {"amount": 1})).value == 1
        execute(path, "ALTER TABLE toolcrib_calls RENAME TO hidden")
        for key in (None, "k"):
            refused = await bench.call("pay", {"amount": 2}, idempotency_key=key)
            assert (refused.error.code, refused.error.retry, paid) == ("unavailable", "later", [1])
            assert "could not be recorded, which is required" in refused.error.message
        assert (await bench.call("look")).value == "nothing"
        execute(path, "ALTER TABLE hidden RENAME TO toolcrib_calls")
        await bench.crib.recorders[0].flush()
        retry = await bench.call("pay", {"amount": 2}, idempotency_key="k")
        assert (retry.value, retry.metadata, paid) == (2, {}, [1, 2])


async def test_the_end_is_in_the_log_before_the_caller_gets_the_result(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = Store(path)
    async with Workbench([pay], store=store, recorder=[DatabaseCalls(store, required=True)]) as bench:
        for amount in range(5):
            await bench.call("pay", {"amount": amount})
            assert execute(path, "SELECT status FROM toolcrib_calls") == [("success",)] * (amount + 1)


async def test_a_slow_recorder_takes_none_of_the_time_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.call.record.RECORDER_TIMEOUT_S", 0.05)

    class Slow(Recorder):
        async def started(self, record: CallRecord, /) -> None:
            await asyncio.Event().wait()

    class SlowLog(DatabaseCalls):
        async def started(self, record: CallRecord, /) -> None:
            await super().started(record)
            await asyncio.Event().wait()

    store = Store(tmp_path / "s.db")
    for recorders in ([Slow(), DatabaseCalls(store, required=True)], [SlowLog(store)]):
        async with Workbench([pay], store=store, recorder=recorders) as bench, asyncio.timeout(60):
            assert (await bench.call("pay", {"amount": 1})).value == 1


@pytest.mark.parametrize("settings", ["", "enabled = false\n[store]\nurl = 's.db'\n"])
def test_the_setting_needs_a_store_and_a_log(tmp_path: Path, settings: str) -> None:
    (tmp_path / "toolcrib.toml").write_text(f"[calls]\nrequired = true\n{settings}")
    with pytest.raises(SetupError, match=r"'required' in \[calls\] needs a store"):
        Crib.from_config(tmp_path / "toolcrib.toml")


async def test_the_settings_say_how_long_keys_are_known(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("from toolcrib import tool\n\n@tool\ndef pay() -> int:\n    return 1\n")
    settings = "[[source]]\nfrom = 'tools.py'\n[calls]\nkeep_keys_s = 0.001\n[store]\nurl = 's.db'\n"
    (tmp_path / "toolcrib.toml").write_text(settings)
    async with Workbench.from_config(tmp_path / "toolcrib.toml") as bench:
        assert (await bench.call("pay", None, idempotency_key="k")).value == 1
        while "repeated" in (await bench.call("pay", None, idempotency_key="k")).metadata:
            pass  # the key of a call that has ended is forgotten
