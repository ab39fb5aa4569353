"""A name has one holder, over all processes; a holder that is gone loses it, and one that is late is refused."""

import asyncio
import signal

import pytest

from toolcrib import SetupError
from toolcrib.store import Lease, Leases, Store

from .conftest import StartWorker, let_go


async def held(store: Store, lease: Lease) -> bool:
    return await store.transact(lambda connection: Leases.still_held(connection, lease))


async def test_a_lease_has_one_holder_until_it_is_released(store: Store) -> None:
    leases = Leases(store)
    first = await leases.acquire("github\x00", "ann", for_s=600)
    assert first == Lease("github\x00", "ann", 1)
    assert await leases.acquire("github\x00", "bob", for_s=600) is None
    assert await leases.acquire("github\x00", "ann", for_s=600) is None
    assert await leases.acquire("github", "bob", for_s=600) == Lease("github", "bob", 1)
    assert await held(store, first)
    assert await leases.renew(first, for_s=600)
    await leases.release(first)
    assert not await held(store, first)
    assert not await leases.renew(first, for_s=600)
    second = await leases.acquire("github\x00", "bob", for_s=600)
    assert second == Lease("github\x00", "bob", 2)
    await leases.release(first)  # too late: it is another's
    assert await held(store, second)


async def test_a_lease_ends_by_itself_and_a_late_holder_is_refused(store: Store) -> None:
    leases = Leases(store)
    late = await leases.acquire("github", "ann", for_s=0.05)
    async with leases.hold("github", "bob", for_s=600, wait_s=30) as lease:
        assert lease == Lease("github", "bob", 2)
        assert not await held(store, late)
        assert not await leases.renew(late, for_s=600)
        async with leases.hold("github", "carl", for_s=600, wait_s=0.05) as none:
            assert none is None
    assert not await held(store, lease)


async def test_a_holder_that_is_killed_loses_it(start: StartWorker, store: Store) -> None:
    process = start("hold", "killed")
    let_go(process)
    assert process.stdout.readline() == "True\n"
    process.send_signal(signal.SIGKILL)
    async with Leases(store).hold("github", "me", for_s=600, wait_s=60) as lease:
        assert lease == Lease("github", "me", 2)


async def test_tasks_hold_it_one_after_the_other(store: Store) -> None:
    leases, inside, most = Leases(store), 0, 0

    async def work(number: int) -> int:
        nonlocal inside, most
        async with leases.hold("github", f"task-{number}", for_s=60, wait_s=60) as lease:
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1
            return lease.fence

    assert sorted(await asyncio.gather(*map(work, range(10)))) == list(range(1, 11))
    assert most == 1


@pytest.mark.parametrize("for_s", [0, -1, 86_400, float("nan")])
async def test_a_lease_is_for_some_time(for_s: float, store: Store) -> None:
    with pytest.raises(SetupError, match="more than 0 seconds"):
        await Leases(store).acquire("github", "ann", for_s=for_s)
