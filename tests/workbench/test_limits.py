"""Limits hold for whoever shares them, wherever they call from; who waits keeps nothing when leaving."""

import asyncio
import random
import threading
import time
from collections.abc import Iterable
from typing import Any

import pytest

from toolcrib import Call, Caller, Context, Result, SetupError, Tool, Workbench, tool
from toolcrib.core import CancellationToken
from toolcrib.record import CallLog
from toolcrib.workbench import Limit, Limiter, limits_from_data, renamed, retries_from_data

from .. import fuzz


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Door:
    """A tool's body that counts who is inside, and lets them go when it is opened."""

    def __init__(self) -> None:
        self.inside = self.most = self.begun = 0
        self.order: list[int] = []
        self.open = asyncio.Event()

    async def pass_through(self, number: int) -> int:
        self.begun += 1
        self.order.append(number)
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.open.wait()
        finally:
            self.inside -= 1
        return number


def door_tool(door: Door, name: str = "enter", **options: Any) -> Any:
    @tool(name=name, **options)
    async def enter(number: int = 0) -> int:
        return await door.pass_through(number)

    return enter


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def codes(results: list[Result[Any]]) -> list[str | None]:
    return [result.error and result.error.code for result in results]


async def test_no_more_calls_of_a_tool_run_at_a_time_than_its_limit_says_and_they_come_in_order() -> None:
    door = Door()
    bench = Workbench([door_tool(door)], limits=[Limit("ent*", concurrency=3, wait_s=60)])
    calls = [asyncio.create_task(bench.call("enter", {"number": n})) for n in range(10)]
    await settle()
    assert (door.inside, door.begun) == (3, 3)
    door.open.set()
    assert [(await call).value for call in calls] == list(range(10))
    assert (door.most, door.order) == (3, list(range(10)))


async def test_workbenches_with_one_limiter_count_together_for_each_principal() -> None:
    door = Door()
    limiter = Limiter([Limit(per="principal", concurrency=2, wait_s=60), Limit(per="workbench", concurrency=9)])
    enter = door_tool(door)
    benches = [Workbench([enter], caller=Caller(who), limits=limiter) for who in ("alice", "alice", "bob")]
    calls = [asyncio.create_task(bench.call("enter")) for bench in benches for _ in range(3)]
    await settle()
    assert door.inside == 4, "two for Alice in her two workbenches, and two for Bob"
    door.open.set()
    assert codes(await asyncio.gather(*calls)) == [None] * 9
    assert len(limiter) == 0, "nothing is kept of what is over"


async def test_above_a_rate_a_call_is_refused_and_the_error_says_when_to_call_again() -> None:
    clock, log = Clock(), CallLog()

    async def look() -> str:
        return "seen"

    limiter = Limiter([Limit(rate="2/10s", wait_s=0)], clock=clock)
    bench = Workbench([look], limits=limiter, recorder=log)
    results = [await bench.call("look") for _ in range(3)]
    assert codes(results) == [None, None, "limited"]
    error = results[2].error
    assert error.to_dict() == {
        "code": "limited",
        "message": "Tool 'look' is at its limit of 2/10s. Try again in 5 s.",
        "retry": "later",
        "details": {"retry_after_s": 5.0},
    }
    assert [entry.code for entry in log] == [None, None, "limited"]
    clock.now_s += 4.9
    assert codes([await bench.call("look")]) == ["limited"]
    clock.now_s += 0.1
    assert codes([await bench.call("look") for _ in range(2)]) == [None, "limited"]
    clock.now_s += 1000
    assert codes([await bench.call("look") for _ in range(3)]) == [None, None, "limited"], "it fills up to 2, no more"


async def test_what_comes_too_fast_waits_for_its_turn_in_order() -> None:
    order: list[int] = []

    async def look(number: int) -> None:
        order.append(number)

    bench = Workbench([look], limits=[Limit(rate="20/s", wait_s=1)])
    started = time.monotonic()
    results = await asyncio.gather(*(bench.call("look", {"number": n}) for n in range(26)))
    assert codes(results) == [None] * 26
    assert order == list(range(26))
    assert 0.25 <= time.monotonic() - started < 20, "six had to wait, for 1/20 s each"
    late = await asyncio.gather(*(bench.call("look", {"number": n}) for n in range(60)))
    refused = [result.error for result in late if result.error]
    assert 25 < len(refused) < 55, "only as many wait as will have their turn in 1 s"
    assert all(error.details["retry_after_s"] > 0.5 for error in refused)


async def test_a_call_that_was_given_up_while_it_waited_is_cancelled_and_not_begun() -> None:
    door = Door()
    bench = Workbench([door_tool(door)], limits=[Limit(concurrency=1, wait_s=600)])
    holder = asyncio.create_task(bench.call("enter"))
    token = CancellationToken()
    waiting = asyncio.create_task(bench.call(Call("enter", cancellation=token)))
    await settle()
    threading.Thread(target=token.cancel).start()
    result = await asyncio.wait_for(waiting, 30)
    assert (result.status, result.text) == ("error", "Tool 'enter' was cancelled.")
    assert codes([result]) == ["cancelled"]
    door.open.set()
    await holder
    assert door.begun == 1


@pytest.mark.parametrize("seed", fuzz.seeds(20))
async def test_leaving_at_any_moment_leaves_no_slot_taken(seed: int) -> None:
    chance = random.Random(seed)
    inside = most = 0

    @tool(serial=chance.random() < 0.3)
    async def work(turns: int) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        try:
            for _ in range(turns):
                await asyncio.sleep(0)
        finally:
            inside -= 1

    size = chance.randint(1, 4)
    limits = [Limit(concurrency=size, wait_s=60), Limit(per="principal", concurrency=size + 1, rate="5000/s")]
    limiter = Limiter(limits)
    bench = Workbench([work], limits=limiter)
    tokens = [CancellationToken() for _ in range(100)]
    calls = [
        asyncio.create_task(bench.call(Call("work", {"turns": chance.randint(0, 3)}, cancellation=token)))
        for token in tokens
    ]
    for _ in range(120):
        number = chance.randrange(100)
        chance.choice([calls[number].cancel, tokens[number].cancel, lambda: None])()
        for _ in range(chance.randint(0, 2)):
            await asyncio.sleep(0)
    await asyncio.wait(calls, timeout=60)
    assert all(call.done() for call in calls)
    assert (inside, most <= size) == (0, True)

    door = Door()
    for again in (Workbench([door_tool(door, "work")], limits=limiter), bench):
        if again is bench:
            assert codes([await again.call("work", {"turns": 0})]) == [None], "the turn of a serial tool is free too"
            continue
        after = [asyncio.create_task(again.call("work")) for _ in range(size)]
        await settle()
        assert door.inside == size, "every slot is free again"
        door.open.set()
        assert codes(await asyncio.gather(*after)) == [None] * size


async def test_a_serial_tool_is_one_for_all_workbenches_and_under_every_name() -> None:
    door = Door()
    enter = door_tool(door, serial=True)
    benches = [Workbench([enter]), Workbench([enter]), Workbench([renamed(enter, {"enter": "go_in"})])]
    calls = [asyncio.create_task(bench.call(bench.specs()[0].name)) for bench in benches]
    await settle()
    assert door.inside == 1
    door.open.set()
    assert codes(await asyncio.gather(*calls)) == [None] * 3
    assert door.most == 1


@pytest.mark.parametrize("options", [{"serial": True}, {}], ids=["serial", "limit per tool"])
async def test_who_floods_a_tool_that_runs_one_call_at_a_time_waits_behind_others(options: dict[str, Any]) -> None:
    door, benches = Door(), list[Workbench]()
    limiter = Limiter([] if options else [Limit(concurrency=1, wait_s=60)])
    enter = door_tool(door, **options)
    benches = [Workbench([enter], caller=Caller(who), limits=limiter) for who in ("mallory", "alice", "bob")]
    calls = [asyncio.create_task(benches[0].call("enter", {"number": n})) for n in range(20)]
    await settle()
    calls += [asyncio.create_task(bench.call("enter", {"number": 100})) for bench in benches[1:]]
    await settle()
    door.open.set()
    assert codes(await asyncio.gather(*calls)) == [None] * 22
    assert door.order[:4] == [0, 100, 100, 1]


async def test_a_serial_tool_is_not_begun_while_a_thread_that_was_given_up_still_runs() -> None:
    leave = threading.Event()
    running = most = 0

    @tool(serial=True)
    def stay(wait: bool) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if wait:
            assert leave.wait(60)
        running -= 1
        return "left"

    bench = Workbench([stay])
    late = await bench.call(Call("stay", {"wait": True}, timeout_s=0.5))
    assert codes([late]) == ["timeout"]
    blocked = await bench.call(Call("stay", {"wait": False}, timeout_s=0.1))
    assert blocked.error.code == "timeout"
    assert blocked.error.message == "Tool 'stay' has not run: its deadline passed before it could begin."
    waiting = asyncio.create_task(bench.call("stay", {"wait": False}))
    await settle()
    leave.set()
    assert (await asyncio.wait_for(waiting, 30)).value == "left"
    assert most == 1


@pytest.mark.parametrize("timeout_s", [None, 60.0])
@pytest.mark.parametrize("sync", [False, True])
async def test_serial_tools_that_wait_for_each_other_are_a_conflict(sync: bool, timeout_s: float | None) -> None:
    begun: dict[str, asyncio.Event] = {name: asyncio.Event() for name in "abc"}
    inner: list[Result[Any]] = []

    def serial(name: str, other: str) -> Any:
        async def enter(ctx: Context, deep: bool = True) -> str:
            if deep:
                begun[name].set()
                await asyncio.gather(*(each.wait() for each in begun.values()))
                inner.append(await bench.call(other, {"deep": False}))
            return name

        def enter_in_thread(ctx: Context, deep: bool = True) -> str:
            if deep:
                ctx.wait(_all(begun.values(), begun[name]))
                inner.append(bench.call_sync(other, {"deep": False}))
            return name

        return Tool(enter_in_thread if sync else enter, name=name, serial=True)

    bench = Workbench([serial("a", "b"), serial("b", "c"), serial("c", "a")], timeout_s=timeout_s)
    results = await asyncio.wait_for(bench.call_many([(name, None) for name in "abc"]), 30)
    assert codes(results) == [None, None, None]
    conflicts = [result.error for result in inner if result.error is not None]
    assert [(error.code, error.retry) for error in conflicts] == [("conflict", "later")]
    assert codes(await bench.call_many([(name, {"deep": False}) for name in "abc"])) == [None, None, None]


async def _all(events: Iterable[asyncio.Event], first: asyncio.Event) -> None:
    first.set()
    for event in events:
        await event.wait()


async def test_a_serial_tool_that_calls_itself_fails_at_once() -> None:
    inner: list[Result[Any]] = []

    @tool(serial=True)
    async def recurse(deep: bool) -> str:
        if deep:
            inner.append(await bench.call("recurse", {"deep": False}))
        return "done"

    @tool(serial=True)
    def recurse_in_thread() -> str:
        inner.append(bench.call_sync("recurse_in_thread"))
        return "done"

    bench = Workbench([recurse, recurse_in_thread])
    outer = await asyncio.wait_for(bench.call("recurse", {"deep": True}), 30)
    assert outer.value == "done"
    assert (await asyncio.wait_for(bench.call("recurse_in_thread"), 30)).value == "done"
    for result in inner:
        assert (result.error.code, result.error.retry) == ("limited", "never")
        assert "was called from within such a call" in result.text


async def test_what_is_kept_for_principals_does_not_grow_with_their_number() -> None:
    clock = Clock()

    async def look() -> None: ...

    limiter = Limiter([Limit(per="principal", concurrency=1), Limit(per="principal", rate="1/s")], clock=clock)
    for number in range(100):
        clock.now_s += 0.1
        bench = Workbench([look], caller=Caller(f"user-{number}"), limits=limiter)
        assert codes([await bench.call("look")]) == [None]
        assert len(limiter) <= 65


async def test_a_call_refused_by_one_limit_costs_nothing_at_the_others() -> None:
    clock = Clock()
    door = Door()
    limits = [Limit(rate="2/h", wait_s=0), Limit(concurrency=1, wait_s=0)]
    bench = Workbench([door_tool(door)], limits=Limiter(limits, clock=clock))
    holder = asyncio.create_task(bench.call("enter"))
    await settle()
    refused = [await bench.call("enter") for _ in range(5)]
    assert {result.error.message.partition(". Try")[0] for result in refused if result.error} == {
        "Tool 'enter' is at its limit of 1 at a time"
    }
    door.open.set()
    await holder
    assert codes([await bench.call("enter"), await bench.call("enter")]) == [None, "limited"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"concurency": 2},
            "There is no key 'concurency'. Did you mean 'concurrency'? It takes: tools, per,",
        ),
        ({"tools": "db_*"}, 'A limit needs a concurrency, as in 4, a rate, as in "10/s", or a budget'),
        ({"concurrency": 1, "per": "user"}, '\'per\': expected one of "tool", "principal", "workbench".'),
        ({"concurrency": 0}, "'concurrency': expected at least 1."),
        *(
            ({"rate": bad}, "'rate' of a limit is a number of calls per time, as in '10/s'")
            for bad in ("10", "10/day", "0/s", "1/0s", "1.5/s", "/s", "", "9" * 5000 + "/s", "\u0661/s")
        ),
        ({"rate": "1/s", "wait_s": -1}, "'wait_s': expected at least 0."),
        ({"rate": "1/s", "tools": []}, "tools is a pattern of names"),
    ],
)
def test_an_invalid_limit_is_refused_with_its_number_and_key(row: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError) as refused:
        limits_from_data([{"concurrency": 1}, row])
    assert str(refused.value).startswith(f"Limit 2: {message}")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (3, "Retry 1 is not a table of tools, times, first_s, most_s."),
        ({"times": -1}, "Retry 1: 'times': expected at least 0."),
        ({"first_s": -1}, "Retry 1: 'first_s': expected at least 0."),
        ({"most_s": float("inf")}, "Retry 1: 'most_s': expected number (at least 0), got"),
        ({"tools": []}, "Retry 1: tools is a pattern of names"),
    ],
)
def test_an_invalid_retry_is_refused_with_its_number_and_key(row: Any, message: str) -> None:
    with pytest.raises(SetupError) as refused:
        retries_from_data([row])
    assert str(refused.value).startswith(message)
