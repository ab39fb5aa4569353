"""A crib: what a program has once, and a workbench for each caller."""

import asyncio
import gc
import json
import logging
import random
import weakref
from collections import Counter as Counts
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from toolcrib import (
    Approve,
    Call,
    Caller,
    Context,
    Crib,
    Depends,
    Input,
    SetupError,
    StatefulTool,
    Tool,
    ToolAuth,
    Workbench,
    tool,
)
from toolcrib.core import Credential, NameConflictError
from toolcrib.testing import doubles
from toolcrib.workbench import Ask

from .. import fuzz
from .offering import Offering

events: list[str] = []


@pytest.fixture(autouse=True)
def _no_events() -> None:
    events.clear()


class Count(BaseModel):
    value: int = 0


class Counter(StatefulTool[Count]):
    def start(self) -> None:
        events.append("start counter")

    async def stop(self) -> None:
        events.append(f"stop counter at {self.state.value}")

    @tool
    async def increment(self) -> int:
        self.state.value += 1
        return self.state.value


@tool
async def add(a: int, b: int) -> int:
    return a + b


@tool
def who(ctx: Context) -> str:
    return f"{ctx.caller.principal} {dict(ctx.variables)}"


ALICE, BOB = Caller("alice"), Caller("bob")


async def value(bench: Workbench, name: str, **arguments: Any) -> Any:
    return (await bench.call(name, arguments)).unwrap()


async def test_each_caller_has_a_workbench_and_all_share_the_tools() -> None:
    async with Crib([add, who], variables={"a": 1}) as crib:
        alice, bob = crib.workbench(ALICE, variables={"b": 2}), crib.workbench(BOB)
        assert [await value(bench, "who") for bench in (alice, bob)] == ["alice {'a': 1, 'b': 2}", "bob {'a': 1}"]
        assert await value(crib.workbench(), "who") == "local {'a': 1}"
        assert alice.registry is bob.registry is crib.registry
        assert [spec.name for spec in alice.specs()] == ["add", "who"]
        assert repr(crib) == "<Crib of 2 tools>"


async def test_sources_are_started_once_for_all_and_stopped_with_the_crib() -> None:
    crib = Crib([Counter()])
    benches = [crib.workbench(Caller(f"p{number}")) for number in range(20)]
    values = await asyncio.gather(*[value(bench, "increment") for bench in benches])
    assert sorted(values) == list(range(1, 21))
    for bench in benches:
        await bench.stop()
    assert events == ["start counter"]
    await crib.stop()
    assert events == ["start counter", "stop counter at 20"]


async def test_a_class_gives_each_caller_a_state_of_their_own() -> None:
    async with Crib([Counter, add]) as crib:
        alice, bob, carol = (crib.workbench(Caller(name)) for name in ("alice", "bob", "carol"))
        assert [await value(alice, "increment") for _ in range(3)] == [1, 2, 3]
        assert await value(bob, "increment") == 1
        assert await value(carol, "add", a=1, b=2) == 3
        assert events == ["start counter"] * 2
        await alice.stop()
        assert events[2:] == ["stop counter at 3"]
        assert await value(bob, "increment") == 2
    assert events[2:] == ["stop counter at 3", "stop counter at 2"]


async def test_many_first_calls_of_a_caller_make_one_instance() -> None:
    async with Crib([Counter]) as crib:
        results = await crib.workbench(ALICE).call_many([Call("increment")] * 30)
        assert sorted(result.value for result in results) == list(range(1, 31))
    assert events == ["start counter", "stop counter at 30"]


async def test_reset_of_a_workbench_is_of_what_is_its_own() -> None:
    shared = Counter()

    class Mine(StatefulTool[Count]):
        @tool
        def mine(self) -> int:
            self.state.value += 1
            return self.state.value

    async with Crib([shared, Mine]) as crib:
        alice, bob = crib.workbench(ALICE), crib.workbench(BOB)
        for bench in (alice, bob):
            await value(bench, "increment")
            await value(bench, "mine")
        await alice.reset()
        assert (await value(alice, "mine"), await value(bob, "mine"), shared.state.value) == (1, 2, 2)
        await crib.reset()
        assert (await value(bob, "mine"), shared.state.value) == (3, 0)


# The end


async def test_after_the_stop_of_a_crib_its_workbenches_refuse_calls() -> None:
    crib = Crib([Counter, add])
    used, unused, stopped = crib.workbench(ALICE), crib.workbench(BOB), crib.workbench()
    await value(used, "increment")
    await stopped.stop()
    with pytest.raises(SetupError, match=r"This workbench is stopped. Make a new one: crib.workbench\(caller\)"):
        await stopped.call("add", {"a": 1, "b": 2})
    await crib.stop()
    await crib.stop()
    assert events == ["start counter", "stop counter at 1"]
    message = "The crib is stopped, and its workbenches with it. Make a new Crib."
    for bench in (used, unused, stopped):
        with pytest.raises(SetupError, match=message):
            await bench.call("add", {"a": 1, "b": 2})
        with pytest.raises(SetupError, match=message):
            await bench.save_state()
    for work in (crib.workbench, lambda: asyncio.run(crib.start())):
        with pytest.raises(SetupError, match=message):
            await asyncio.to_thread(work)


@pytest.mark.parametrize("seed", fuzz.seeds(25))
async def test_whatever_fails_is_cancelled_or_stopped_at_any_moment_nothing_is_left_running(seed: int) -> None:
    chance = random.Random(seed)
    running: Counts[Any] = Counts()

    def restless(name: str) -> type[StatefulTool[Count]]:
        class Restless(StatefulTool[Count]):
            async def start(self) -> None:
                await asyncio.sleep(chance.random() * 0.003)
                if chance.random() < 0.1:
                    raise OSError("no")
                running[name] += 1

            async def stop(self) -> None:
                running[name] -= 1
                await asyncio.sleep(chance.random() * 0.002)
                if chance.random() < 0.1:
                    raise OSError("no")

            @tool(name=name)
            async def work(self) -> bool:
                return running[name] > 0

        return Restless

    crib = Crib([restless("a")(), restless("b"), restless("c")])
    before = asyncio.all_tasks()

    async def call(bench: Workbench) -> None:
        with suppress(SetupError, TimeoutError):
            async with asyncio.timeout(chance.choice([None, 0.002])):
                result = await bench.call(chance.choice("abc"))
                assert result.value or (result.error and result.error.code == "unavailable")

    async def session() -> None:
        with suppress(SetupError):
            bench = crib.workbench()
            calls = [asyncio.create_task(call(bench)) for _ in range(4)]
            await asyncio.sleep(chance.random() * 0.005)
            if chance.random() < 0.8:
                await bench.stop()
            await asyncio.gather(*calls)

    async def end() -> None:
        await asyncio.sleep(chance.random() * 0.01)
        await crib.stop()

    await asyncio.gather(*[session() for _ in range(8)], end())
    assert not any(running.values())
    assert asyncio.all_tasks() == before


def test_a_crib_is_refused_what_a_workbench_is() -> None:
    with pytest.raises(NameConflictError):
        Crib([add, Tool(who, name="add")])
    with pytest.raises(SetupError, match=r"A workbench is for a Caller, as in crib.workbench\(Caller\(\"alice\"\)\)"):
        Crib([add]).workbench("alice")  # type: ignore[arg-type]


# What Depends gives


async def of_program() -> AsyncIterator[str]:
    events.append("open program")
    yield "program"
    events.append("close program")


async def of_session(
    ctx_free: Annotated[str, Depends(of_program, scope="program")],
) -> AsyncIterator[str]:
    events.append("open session")
    yield f"session in {ctx_free}"
    events.append("close session")


async def of_call() -> AsyncIterator[str]:
    events.append("open call")
    yield "call"
    events.append("close call")


@tool
async def use(
    program: Annotated[str, Depends(of_program, scope="program")],
    session: Annotated[str, Depends(of_session)],
    call: Annotated[str, Depends(of_call, scope="call")],
) -> list[str]:
    return [program, session, call]


async def test_values_live_as_long_as_their_scope_and_close_in_reverse() -> None:
    async with Crib([use, Counter()]) as crib:
        async with crib.workbench(ALICE) as alice:
            assert await value(alice, "use") == ["program", "session in program", "call"]
        await crib.workbench(BOB).call_many([Call("use")] * 2)
        assert events.count("open program") == 1
    assert [event for event in events if "call" not in event] == [
        *("start counter", "open program", "open session", "close session"),
        *("open session", "close session", "close program", "stop counter at 0"),
    ]
    assert events.count("open call") == events.count("close call") == 3


async def test_overrides_hold_for_the_program_too() -> None:
    with doubles(overrides={of_program: lambda: "other"}):
        crib = Crib([use])
    async with crib:
        assert await value(crib.workbench(), "use") == ["other", "session in other", "call"]


# What is shared


async def test_what_waits_is_shared_and_a_session_has_somebody_of_its_own_to_ask() -> None:
    policy = lambda spec, arguments, caller: Ask("Sure?")  # noqa: E731
    async with Crib([add], policy=policy) as crib:
        alice = crib.workbench(ALICE)
        first = await alice.call("add", {"a": 1, "b": 2})
        assert [pending.id for pending in await crib.pendings()] == [first.pending.id]
        await crib.answer(first.pending.id, Approve(), by="carol")
        again = crib.workbench(ALICE)
        assert await value(again, "add", a=1, b=2) == 3
        assert (await crib.workbench(BOB).call("add", {"a": 1, "b": 2})).status == "pending"

        async def yes(pending: Any) -> Any:
            return Approve() if pending.kind == "approval" else Input(1)

        assert await value(crib.workbench(BOB, ask=yes), "add", a=1, b=2) == 3


async def test_tools_that_change_change_for_all() -> None:
    source = Offering(add)
    async with Crib([source]) as crib:
        alice = crib.workbench(ALICE)
        assert await value(alice, "add", a=1, b=1) == 2
        source.offer(add, who)
        assert await value(alice, "who") == "alice {}"
        source.offer(add, 5)
        assert [spec.name for spec in crib.workbench(BOB).specs()] == ["add", "who"]
        assert len(crib.problems) == len(alice.problems) == 1


# State


async def test_shared_state_is_the_crib_s_and_a_caller_s_is_the_workbench_s() -> None:
    class Mine(StatefulTool[Count]):
        @tool
        def mine(self) -> int:
            self.state.value += 1
            return self.state.value

    async with Crib([Counter(), Mine]) as crib:
        alice = crib.workbench(ALICE)
        await value(alice, "increment")
        await value(alice, "mine")
        states = [json.dumps(await each.save_state()) for each in (crib, alice)]  # for another process
        of_crib, of_alice = map(json.loads, states)
        assert (of_crib["sources"], of_alice["sources"]) == ({"Counter": {"value": 1}}, {"Mine": {"value": 1}})
        bob = crib.workbench(BOB)
        with pytest.raises(SetupError, match=r"The state of 'Counter' is shared by all callers, so the crib loads it"):
            await bob.load_state(of_crib)
        await bob.load_state(of_alice)
        assert (await value(bob, "mine"), await value(alice, "mine")) == (2, 2)
        with pytest.raises(SetupError, match="There is state of 'Mine'"):
            await crib.load_state(of_alice)


# What it costs


async def test_what_somebody_was_given_stays_secret_after_their_workbench_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    key = "key-0123456789"

    class Keys:
        async def authorize(self, *_: Any) -> list[Credential]:
            return [Credential("github", key)]

    @tool(auth=ToolAuth("github"))
    async def use() -> None:
        return None

    async with Crib([use], broker=Keys()) as crib:
        first = crib.workbench(Caller("alice"))
        assert first.redacted(key) == key
        await first.call("use")
        await first.stop()
        kept = weakref.ref(first)
        del first
        gc.collect()
        assert kept() is None
        again = crib.workbench(Caller("alice"))
        assert again.redacted(f"it is {key}") == "it is [secret]"
        logging.getLogger("toolcrib").error("it is %s", key)
        assert caplog.messages == ["it is [secret]"]
        assert crib.workbench(Caller("bob")).redacted(f"it is {key}") == f"it is {key}"
