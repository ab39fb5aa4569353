"""How a workbench holds its sources: started in order, stopped in reverse, followed as they change, saved."""

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import BaseModel

from toolcrib import Caller, Registry, SetupError, StatefulTool, ToolcribError, Workbench, tool
from toolcrib.core import NameConflictError
from toolcrib.tools import load
from toolcrib.workbench import filtered, joined, prefixed, renamed

from .offering import Offering

events: list[str] = []


@pytest.fixture(autouse=True)
def _no_events() -> None:
    events.clear()


def named(name: str, value: Any = None) -> Any:
    @tool(name=name)
    async def work() -> Any:
        return name if value is None else value

    return work


class Live(Offering):
    """An offering that says what is done with it, and may fail."""

    def __init__(self, *tools: Any, label: str = "live", fails: str = "") -> None:
        super().__init__(*tools)
        self.label = label
        self.fails = fails
        self.task: Any = None

    async def start(self) -> None:
        events.append(f"start {self.label}")
        self.task = asyncio.current_task()
        if self.fails == "start":
            raise OSError("no route, password s3cret-value")

    async def stop(self) -> None:
        events.append(f"stop {self.label}{'' if asyncio.current_task() is self.task else ' elsewhere'}")
        if self.fails == "stop":
            raise OSError("cannot")

    async def reset(self) -> None:
        events.append(f"reset {self.label}")
        if self.fails == "reset":
            raise OSError("cannot")

    def __str__(self) -> str:
        return self.label


def names(bench: Workbench) -> list[str]:
    return [spec.name for spec in bench.specs()]


# Life


async def test_sources_start_in_order_and_stop_in_reverse_each_in_one_task() -> None:
    sources = [Live(named("a"), label="one"), named("f"), [Live(label="two"), Live(label="three")]]
    async with Workbench(sources) as bench:
        assert names(bench) == ["a", "f"]
        await bench.start()
        assert (await bench.call("a")).value == "a"
    assert events == ["start one", "start two", "start three", "stop three", "stop two", "stop one"]


async def test_a_failed_start_leaves_nothing_running_and_names_the_source() -> None:
    late = Live(label="late")
    broken = Live(label="broken", fails="start")
    bench = Workbench([Live(label="one"), Live(label="two"), broken, late], secrets=["s3cret-value"])
    with pytest.raises(SetupError) as caught:
        await bench.start()
    assert str(caught.value).startswith("The source broken could not be started: OSError: no route, password ")
    assert "s3cret-value" not in str(caught.value)
    assert events == ["start one", "start two", "start broken", "stop two", "stop one"]
    events.clear()
    broken.fails = ""
    async with bench:
        pass
    assert events == [
        *("start one", "start two", "start broken", "start late"),
        *("stop late", "stop broken", "stop two", "stop one"),
    ]


async def test_a_stop_that_fails_is_logged_and_the_others_are_stopped(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "toolcrib"):
        async with Workbench([Live(label="one"), Live(label="two", fails="stop"), Live(label="three")]):
            pass
    assert events[3:] == ["stop three", "stop two", "stop one"]
    assert [record.getMessage() for record in caplog.records] == ["The source two failed to stop: OSError: cannot"]


async def test_reset_resets_every_source_and_names_those_that_fail() -> None:
    async with Workbench([Live(label="one", fails="reset"), Live(label="two")]) as bench:
        with pytest.raises(SetupError, match="The source one could not be reset: OSError: cannot"):
            await bench.reset()
    assert events[2:4] == ["reset one", "reset two"]


async def test_what_start_enters_stop_may_leave() -> None:
    class Scoped(Live):
        @asynccontextmanager
        async def scope(self) -> Any:
            async with asyncio.timeout(60):  # refuses to be left by another task
                yield

        async def start(self) -> None:
            self.held = self.scope()
            await self.held.__aenter__()

        async def stop(self) -> None:
            await self.held.__aexit__(None, None, None)
            events.append("left")

    bench = Workbench([Scoped()])
    await asyncio.create_task(bench.start())
    await asyncio.create_task(bench.stop())
    assert events == ["left"]


async def test_what_starts_while_its_workbench_stops_is_stopped() -> None:
    class Slow:
        async def start(self) -> None:
            events.append("start")
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                events.append("given up")
                raise

        def stop(self) -> None:
            events.append("stop")

        @tool
        async def work(self) -> None: ...

    for delay_s in (0, 0.001, 0.01, 0.02):
        events.clear()
        bench = Workbench(Workbench([Slow]).registry)
        await bench.start()
        call = asyncio.create_task(bench.call("work"))
        await asyncio.sleep(delay_s)
        await bench.stop()
        await asyncio.wait({call})
        assert events in ([], ["start", "given up"], ["start", "stop"])
        with pytest.raises(SetupError):
            await bench.call("work")


async def test_a_class_that_is_no_subclass_is_a_source_if_it_has_what_is_needed() -> None:
    class Bare:
        def start(self) -> None:
            events.append("start")

        async def stop(self) -> None:
            events.append("stop")

        def tools(self) -> Any:
            return (named("a"), named("b")) if events else (named("a"),)

    class Half:
        async def start(self) -> None: ...

        def tools(self) -> Any: ...

    async with Workbench([Bare()]) as bench:
        assert len(bench.specs()) == 2
        assert await bench.save_state() == {"version": 1, "sources": {}}
        await bench.reset()
    assert events == ["start", "stop"]
    with pytest.raises(ToolcribError, match="A value of type Half is not a source of tools"):
        Workbench([Half()])


# Change


async def test_the_tools_of_a_workbench_are_those_its_source_has() -> None:
    source = Live(named("a"), named("b"))
    async with Workbench([named("first"), source, named("last")]) as bench:
        changes: list[list[str]] = []
        bench.registry.on_change(lambda: changes.append(names(bench)))
        source.offer(named("b", "new"), named("c"))
        assert sorted(names(bench)) == ["b", "c", "first", "last"]
        assert (await bench.call("b")).value == "new"
        assert (await bench.call("a")).text.startswith("There is no tool 'a'.")
        source.offer()
        assert names(bench) == ["first", "last"]
        assert len(changes) == 2
    source.offer(named("late"))
    assert names(bench) == ["first", "last"]


@pytest.mark.parametrize(
    ("offered", "reason"),
    [
        ([named("b"), named("mine")], "there is a tool 'mine'"),
        ([named("b"), named("mi-ne"), named("mi_ne")], "there is a tool 'mi-ne'"),
        ([named("b"), 5], "returned a int among its tools"),
        ([lambda: 1], "cannot be the name of a tool"),
    ],
)
async def test_a_change_that_cannot_be_made_keeps_the_old_tools_and_is_reported(
    offered: list[Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = Live(named("a"))
    async with Workbench([source, named("mine")]) as bench:
        with caplog.at_level(logging.WARNING, "toolcrib"):
            source.offer(*offered)
        assert names(bench) == ["a", "mine"]
        assert [problem.place for problem in bench.problems] == ["live"]
        assert reason in bench.problems[0].reason
        assert "The tools of live stay as they were" in caplog.text
        source.offer(named("b"))
        assert sorted(names(bench)) == ["b", "mine"]
        assert bench.problems == []


async def test_a_source_that_raises_at_the_start_is_stopped() -> None:
    class Asleep(Live):
        def tools(self) -> Any:
            if events:
                raise RuntimeError("asleep")
            return []

    with pytest.raises(SetupError, match="The tools of live could not be listed: RuntimeError: asleep"):
        await Workbench([Asleep()]).start()
    assert events == ["start live", "stop live"]


async def test_a_conflict_at_the_start_stops_everything() -> None:
    class Connected(Live):
        async def start(self) -> None:
            await super().start()
            self.offered = [named("mine")]

    bench = Workbench([named("mine"), Connected()])
    with pytest.raises(NameConflictError):
        await bench.start()
    assert events == ["start live", "stop live"]


async def test_views_follow_what_they_show() -> None:
    source, other = Live(named("get"), named("drop")), Live(named("get"))
    view = joined(filtered(prefixed(source, "a_"), "a_get*"), renamed(other, {"get": "b"}))
    async with Workbench([view]) as bench:
        assert names(bench) == ["a_get", "b"]
        source.offer(named("get_more"), named("get"))
        assert sorted(names(bench)) == ["a_get", "a_get_more", "b"]
        other.offer(named("found"))  # its view wants a `get`
        assert sorted(names(bench)) == ["a_get", "a_get_more", "b"]
        assert "There is no tool 'get'" in bench.problems[0].reason
        assert (await bench.call("a_get_more")).value == "get_more"
    assert events == ["start live", "start live", "stop live", "stop live"]


async def test_an_object_whose_tools_are_gone_stops_before_the_one_in_its_place_starts() -> None:
    def counter(label: str) -> StatefulTool[Count]:
        class Counter(StatefulTool[Count]):
            def start(self) -> None:
                events.append(f"start {label}")

            def stop(self) -> None:
                events.append(f"stop {label}")

            @tool
            async def increment(self) -> int:
                self.state.value += 1
                return self.state.value

        return Counter()

    source = Live(*load(counter("old")).tools)
    async with Workbench([source]) as bench:
        assert [(await bench.call("increment")).value for _ in range(2)] == [1, 2]
        source.offer(*load(counter("new")).tools)
        assert (await bench.call("increment")).value == 1
        assert await bench.save_state() == {"version": 1, "sources": {"Counter": {"value": 1}}}
    assert events == ["start live", "start old", "stop old", "start new", "stop new", "stop live"]


# State


class Count(BaseModel):
    value: int = 0


class Counter(StatefulTool[Count]):
    @tool
    async def increment(self) -> int:
        self.state.value += 1
        return self.state.value


class Keeper(Live):
    state_key = "keeper"  # type: ignore[assignment]

    def __init__(self, *tools: Any, **options: Any) -> None:
        super().__init__(*tools, **options)
        self.kept: Any = "first"

    async def save_state(self) -> Any:
        return {"kept": self.kept}

    async def load_state(self, state: Any, /) -> None:
        if state["kept"] == "unreadable":
            raise ValueError("cannot be read")
        self.kept = state["kept"]


async def test_state_goes_from_one_workbench_to_another() -> None:
    keeper = Keeper()
    async with Workbench([Counter(), keeper, named("a")]) as bench:
        await bench.call_many([("increment", None)] * 3)
        keeper.kept = [1, None]
        saved = await bench.save_state()
    assert saved == {"version": 1, "sources": {"Counter": {"value": 3}, "keeper": {"kept": [1, None]}}}
    counter, again = Counter(), Keeper()
    async with Workbench([again, counter]) as bench:
        await bench.load_state(json.loads(json.dumps(saved)))
    assert (counter.state.value, again.kept) == (3, [1, None])


V1 = {"version": 1}


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("{}", "not str. Read it first: json.loads(text)."),
        (None, "A saved state is the mapping that save_state returned, not NoneType."),
        ({}, "The state is of version none, and version 1 is read here."),
        ({"version": 2, "sources": {}}, "The state is of version 2, and version 1 is read here."),
        ({**V1, "sources": []}, "The sources of a saved state are a mapping"),
        (
            {**V1, "sources": {"keeper": {"kept": 1}, "Countr": {}}},
            "There is state of 'Countr', and no such source here. Did you mean 'Counter'? There are: keeper, Counter.",
        ),
        (
            {**V1, "sources": {"keeper": {"kept": 1}, "Counter": {"value": "s3cret"}}},
            "The state of 'Counter' cannot be loaded, so none is: ValueError: It is not a Count: 'value': Input should "
            "be "
            "a valid integer",
        ),
        ({**V1, "sources": {"keeper": {"kept": 1}, "Counter": None}}, "It is not a Count: Input should be"),
        ({**V1, "sources": {"Counter": {"value": 5}, "keeper": {"kept": "unreadable"}}}, "ValueError: cannot be read"),
        ({**V1, "sources": {"Counter": {"value": 5}, "keeper": 7}}, "TypeError"),
    ],
    ids=range(10),
)
async def test_state_that_does_not_fit_is_refused_and_nothing_is_half_loaded(state: Any, reason: str) -> None:
    keeper, counter = Keeper(), Counter(Count(value=2))
    async with Workbench([keeper, counter]) as bench:
        before = await bench.save_state()
        with pytest.raises(SetupError) as caught:
            await bench.load_state(state)
        assert reason in str(caught.value)
        assert "s3cret" not in str(caught.value)
        assert (
            await bench.save_state()
            == before
            == {
                "version": 1,
                "sources": {"keeper": {"kept": "first"}, "Counter": {"value": 2}},
            }
        )


async def test_two_sources_of_one_key_are_refused_when_state_is_saved() -> None:
    one, other = Counter(), Counter()
    bench = Workbench([prefixed(one, "a_"), prefixed(other, "b_")])
    for work in (bench.save_state, lambda: bench.load_state({"version": 1, "sources": {"Counter": {"value": 1}}})):
        with pytest.raises(SetupError, match="Two sources save their state under one name, 'Counter'"):
            await work()
    other.state_key = "other"
    await bench.call("b_increment")
    assert (await bench.save_state())["sources"] == {"Counter": {"value": 0}, "other": {"value": 1}}
    await bench.stop()


async def test_a_state_that_is_no_json_is_refused() -> None:
    keeper = Keeper()
    async with Workbench([keeper]) as bench:
        for wrong in (object(), float("nan"), {1, 2}):
            keeper.kept = wrong
            with pytest.raises(SetupError, match="The state of live is not JSON data"):
                await bench.save_state()


async def test_the_state_of_what_was_not_called_yet_can_be_loaded() -> None:
    registry = Workbench([Counter]).registry
    for source in (registry, Registry(Workbench([Counter()]).registry)):
        bench = Workbench(source, caller=Caller("alice"))
        with pytest.raises(SetupError, match=r"There is state of 'Other'.* There are: Counter\."):
            await bench.load_state({"version": 1, "sources": {"Counter": {"value": 4}, "Other": 1}})
        await bench.load_state({"version": 1, "sources": {"Counter": {"value": 4}}})
        assert (await bench.call("increment")).value == 5
        await bench.stop()
