"""Tasks whose process loses PostgreSQL in the middle of a transaction: what it has begun or locked becomes free."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from toolcrib import Crib
from toolcrib.store import Store
from toolcrib.store.tasks import DatabaseTasks

from ..cli.conftest import WAIT_S
from ..waiting import until
from .test_task_faults import LEASE_S, Journeys, check, end_of, has_line, is_in, submitted, worker
from .wires import Wire, wire

pytestmark = [pytest.mark.full, pytest.mark.parametrize("url", ["postgresql"], indirect=True)]

BUSY_S = 5.0
"""What a busy machine adds to the second within which a task is taken over."""


class Places:
    """A crib that only submits, and what others start from."""

    def __init__(self, url: str, folder: Path, stack: AsyncExitStack) -> None:
        self.key, self.stack, self.journeys = folder / "store.key", stack, Journeys()
        self.store = self.opened(url)
        self.server = Crib(self.journeys.tools(), store=self.store, tasks=0)

    def opened(self, url: str) -> Store:
        store = Store(url, key=self.key)
        store.ledger = DatabaseTasks(store, lease_s=LEASE_S)
        self.stack.callback(store.close)
        return store

    async def worker(self, url: str) -> Crib:
        crib = Crib(self.journeys.tools(), store=self.opened(url))
        await self.stack.enter_async_context(crib)
        await crib.tasks.list()
        return crib


@pytest.fixture
async def places(url: str, tmp_path: Path) -> AsyncIterator[Places]:
    async with AsyncExitStack() as stack:
        places = Places(url, tmp_path, stack)
        await stack.enter_async_context(places.server)
        await places.server.tasks.list()
        yield places


@pytest.fixture
async def own(url: str, places: Places) -> AsyncIterator[Wire]:
    async with wire(url, "worker") as own:
        yield own


@pytest.mark.parametrize("loses", [False, True], ids=["taken", "not taken"])
@pytest.mark.parametrize("name", ["book", "plan"])
async def test_a_task_of_which_a_process_did_not_learn_whether_it_has_taken_it_runs(
    places: Places, own: Wire, name: str, loses: bool
) -> None:
    places.journeys.may_go_on.set()
    await places.worker(own.url)
    own.trap, own.loses = b"SET state=", loses
    id = await submitted(places.server, name, "k", "end")
    async with asyncio.timeout(WAIT_S):
        await own.is_sprung.wait()
    assert await end_of(places.server, id) == "nobody"
    await check(places.store, places.journeys.effects, ["k"])


async def test_a_process_that_is_cut_off_in_a_transaction_holds_its_task_no_longer_than_a_lease(
    places: Places, url: str, own: Wire
) -> None:
    """As where its host loses power: the server keeps the connection, with all that it has locked."""
    worker = await places.worker(own.url)
    id = await submitted(places.server, "plan", "k", "step")
    await until(partial(is_in, worker, id, "running"))
    own.trap, own.holds = b"INSERT INTO toolcrib_steps", True
    places.journeys.may_go_on.set()
    async with asyncio.timeout(WAIT_S):
        await own.is_sprung.wait()
    for connection in own.connections:
        connection.may_pass.clear()
    await places.worker(url)
    async with asyncio.timeout(LEASE_S + 15):
        assert (await places.server.tasks.wait(id)).error is None
    task = await places.server.tasks.get(id)
    assert task.attempts == 1
    own.cut()


async def test_what_a_killed_process_ran_is_taken_over_when_its_lease_is_over(
    places: Places, url: str, tmp_path: Path
) -> None:
    (tmp_path / "hold k").touch()
    places.journeys.may_go_on.set()
    async with worker(url, tmp_path, LEASE_S, 0.0, "submit", "plan", "k", "step") as (process, id):
        await until(partial(has_line, tmp_path, "first k"))
        process.kill()
        await process.wait()
    killed_at = await places.store.ledger.now()  # by the clock of the database, which leases go by
    await places.worker(url)

    async def is_taken() -> bool:
        return (await places.server.tasks.get(id)).attempts == 1

    await until(is_taken)
    late_s = (await places.store.ledger.now() - killed_at).total_seconds() - LEASE_S
    print(f"taken {late_s:.2f} s after a whole lease")
    assert late_s < 1 + BUSY_S
    assert await end_of(places.server, id) == "nobody"


async def test_a_database_whose_host_is_gone_is_given_up_after_seconds(places: Places, own: Wire) -> None:
    store = places.opened(own.url)

    def options(connection: object) -> list[int]:
        driver = connection.connection.dbapi_connection  # type: ignore[attr-defined]
        with socket.socket(fileno=os.dup(driver.fileno())) as copy:
            return [copy.getsockopt(socket.IPPROTO_TCP, option) for option in OPTIONS]

    OPTIONS = (socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    assert await store.transact(options) == [10_000, 10, 5, 2]
