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


# Principals


async def test_the_principal_with_the_fewest_permits_is_next_and_equal_ones_take_turns() -> None:
    semaphore, order = Semaphore(2), list[str]()
    held = [await semaphore.acquire(principal="flooder") for _ in range(2)]

    async def enter(principal: str) -> None:
        permit = await semaphore.acquire(principal=principal)
        order.append(principal[0])
        await asyncio.sleep(0)
        semaphore.release(permit)

    tasks = [asyncio.create_task(enter(name)) for name in ["flooder"] * 5 + ["alice"] * 3 + ["bob"] * 2]
    await asyncio.sleep(0)
    semaphore.release(held.pop())
    while len(order) < 5:
        await asyncio.sleep(0)
    assert order[:5] == [*"ababa"], "one place is held by the flooder all the time"
    semaphore.release(held.pop())
    await asyncio.gather(*tasks)
    assert semaphore.is_idle()


async def test_who_holds_nothing_has_a_spare_place_also_where_others_wait() -> None:
    semaphore = Semaphore(2, spare=2)
    held = [await semaphore.acquire(principal="flooder") for _ in range(2)]
    waiting = asyncio.create_task(semaphore.acquire(principal="flooder"))
    await asyncio.sleep(0)
    alice, bob = [await asyncio.wait_for(semaphore.acquire(principal=name), 10) for name in ("alice", "bob")]
    with pytest.raises(SemaphoreFull):
        await semaphore.acquire(principal="carol", patience_s=0.01)
    for permit in (alice, held.pop()):
        semaphore.release(permit)
    assert not waiting.done(), "three were inside, and it is nobody's first"
    for permit in (bob, held.pop()):
        semaphore.release(permit)
    semaphore.release(await waiting)
    assert semaphore.is_idle()


async def test_a_rate_serves_who_comes_later_before_the_rest_of_a_flood() -> None:
    """A case of its own: it is known when there are tokens, and a flood before one's turn is not waited for."""
    now = 0.0
    semaphore = Semaphore(burst=1, per_s=1000.0, clock=lambda: now)
    semaphore.release(await semaphore.acquire(principal="flooder"))
    flood = [asyncio.create_task(semaphore.acquire(principal="flooder")) for _ in range(50)]
    await asyncio.sleep(0)
    later = asyncio.create_task(semaphore.acquire(principal="alice", patience_s=0.01))
    await asyncio.sleep(0)
    assert not later.done(), "51 tokens come within 0.051 s, and the second one within 0.002 s"
    for task in (later, *flood):
        task.cancel()
    await asyncio.gather(later, *flood, return_exceptions=True)
    assert semaphore._waiters == {}
