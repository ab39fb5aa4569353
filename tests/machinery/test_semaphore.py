"""Who is admitted to a semaphore, and when."""

import asyncio

import pytest

from toolcrib.machinery.semaphore import Deadlock, Semaphore, SemaphoreFull


async def test_a_short_patience_is_waited_for_and_none_is_not() -> None:
    semaphore = Semaphore(1)
    permit = await semaphore.acquire()
    with pytest.raises(SemaphoreFull):
        await semaphore.acquire(patience_s=0)
    asyncio.get_running_loop().call_soon(semaphore.release, permit)
    semaphore.release(await semaphore.acquire(patience_s=0.5))
    assert semaphore.is_idle()


async def test_whom_a_rate_cannot_serve_in_time_is_refused_at_once_and_keeps_no_place() -> None:
    now = 0.0
    semaphore = Semaphore(burst=2, per_s=0.1, clock=lambda: now)
    for _ in range(2):
        semaphore.release(await semaphore.acquire(patience_s=0))
    with pytest.raises(SemaphoreFull) as refused:
        await semaphore.acquire(patience_s=9.9)
    assert refused.value.retry_after_s == 10.0
    assert not semaphore.is_idle()
    now = 10.0
    semaphore.release(await semaphore.acquire(patience_s=0))
    with pytest.raises(SemaphoreFull):
        await semaphore.acquire(patience_s=0)
    now = 1000.0
    assert semaphore.is_idle()
    for _ in range(2):  # no more than the burst is saved up
        semaphore.release(await semaphore.acquire(patience_s=0))
    with pytest.raises(SemaphoreFull):
        await semaphore.acquire(patience_s=0)


async def test_what_never_began_does_not_count_in_a_rate() -> None:
    semaphore = Semaphore(burst=1, per_s=0.001)
    semaphore.release(await semaphore.acquire(patience_s=0), unused=True)
    semaphore.release(await semaphore.acquire(patience_s=0))
    with pytest.raises(SemaphoreFull):
        await semaphore.acquire(patience_s=0)


async def test_a_permit_that_is_shared_is_free_when_the_last_has_released_it() -> None:
    semaphore = Semaphore(1)
    permit = await semaphore.acquire()
    assert semaphore.share(permit)
    semaphore.release(permit)
    with pytest.raises(SemaphoreFull):
        await semaphore.acquire(patience_s=0)
    semaphore.release(permit)
    assert not semaphore.share(permit)
    semaphore.release(await semaphore.acquire(patience_s=0))


async def test_who_stops_waiting_leaves_the_place_to_the_next_in_order() -> None:
    semaphore = Semaphore(1)
    permit = await semaphore.acquire()
    admitted: list[str] = []

    async def come(name: str) -> None:
        mine = await semaphore.acquire()
        admitted.append(name)
        semaphore.release(mine)

    waiting = {name: asyncio.create_task(come(name)) for name in ("first", "second", "third")}
    await asyncio.sleep(0)
    waiting["first"].cancel()
    semaphore.release(permit)
    await asyncio.gather(*waiting.values(), return_exceptions=True)
    assert admitted == ["second", "third"]
    assert semaphore.is_idle()


async def test_a_cycle_of_waits_is_a_deadlock_and_a_chain_is_none() -> None:
    first, second, third = (Semaphore(1) for _ in range(3))
    permits = [await semaphore.acquire() for semaphore in (first, second, third)]
    waiting = [
        asyncio.create_task(second.acquire(outer=(permits[0],))),
        asyncio.create_task(third.acquire(outer=(permits[1],))),
    ]
    await asyncio.sleep(0)
    with pytest.raises(Deadlock):
        await first.acquire(outer=(permits[2],), patience_s=5)
    third.release(permits[2])
    third.release(await waiting[1])
    second.release(permits[1])
    second.release(await waiting[0])
    first.release(permits[0])
    assert all(semaphore.is_idle() for semaphore in (first, second, third))


async def test_who_has_waited_and_gone_on_keeps_nobody_from_waiting() -> None:
    first, second = Semaphore(1), Semaphore(1)
    outer, before = await first.acquire(), await second.acquire()
    waiting = asyncio.create_task(second.acquire(outer=(outer,)))
    await asyncio.sleep(0)
    second.release(before)
    second.release(await waiting)
    inner = await second.acquire()
    waiting = asyncio.create_task(first.acquire(outer=(inner,)))
    await asyncio.sleep(0)
    first.release(outer)
    first.release(await waiting)
    second.release(inner)
