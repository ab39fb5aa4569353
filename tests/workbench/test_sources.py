"""How a workbench holds its sources: started in order, stopped in reverse, followed as they change, saved."""

import asyncio
import gc
import json
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from toolcrib import (
    Caller,
    NameConflictError,
    Registry,
    SetupError,
    Source,
    StatefulTool,
    ToolcribError,
    UnknownToolError,
    Workbench,
    tool,
)
from toolcrib.tools import load
from toolcrib.workbench import filtered, joined, prefixed, renamed

events: list[str] = []


@pytest.fixture(autouse=True)
def _no_events() -> None:
    events.clear()


def named(name: str, value: Any = None) -> Any:
    @tool(name=name)
    async def work() -> Any:
        return name if value is None else value

    return work


class Live(Source):
    """A source whose tools the test decides."""

    def __init__(self, *tools: Any, label: str = "live", fails: str = "") -> None:
        self.offered: list[Any] = list(tools)
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

    def tools(self) -> Sequence[Callable[..., Any]]:
        return self.offered

    def offer(self, *tools: Any) -> None:
        self.offered = list(tools)
        self.changed()

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


async def test_many_first_calls_start_once() -> None:
    class Slow(Live):
        async def start(self) -> None:
            await asyncio.sleep(0.01)
            await super().start()

    bench = Workbench([Slow(named("a"))])
    results = await bench.call_many([("a", None)] * 50)
    assert {result.value for result in results} == {"a"}
    await asyncio.gather(bench.stop(), bench.stop())
    assert events == ["start live", "stop live"]


async def test_first_calls_from_several_threads_start_once() -> None:
    bench = Workbench([Live(named("a"))])
    values = await asyncio.gather(*[asyncio.to_thread(lambda: bench.call_sync("a").value) for _ in range(8)])
    assert values == ["a"] * 8
    await bench.stop()
    assert events == ["start live", "stop live"]


async def test_a_start_that_nobody_waits_for_any_more_is_given_up() -> None:
    class Hung(Live):
        async def start(self) -> None:
            await super().start()
            try:
                await asyncio.Event().wait()
            finally:
                events.append("given up")

    bench = Workbench([Live(label="one"), Hung(label="hung")])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), bench:
            pass
    assert events == ["start one", "start hung", "given up", "stop one"]
    one, other = asyncio.create_task(bench.start()), asyncio.create_task(bench.start())
    await asyncio.sleep(0.01)
    one.cancel()
    await asyncio.wait({one})
    assert not other.done()
    await bench.stop()
    with pytest.raises(SetupError):
        await other
    assert events[4:] == ["start one", "start hung", "given up", "stop one"]


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


def test_what_a_dropped_workbench_has_started_is_stopped_with_the_event_loop() -> None:
    async def main() -> Any:
        result = await Workbench([Live(named("a"))]).call("a")
        gc.collect()
        await asyncio.sleep(0)
        return result.value

    assert asyncio.run(main()) == "a"
    assert events == ["start live", "stop live"]


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


async def test_a_stopped_workbench_starts_nothing() -> None:
    bench = Workbench([Live(named("a"))])
    await bench.start()
    await bench.stop()
    with pytest.raises(SetupError, match="This workbench is stopped"):
        await bench.call("a")
    assert events == ["start live", "stop live"]


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


@pytest.mark.parametrize(
    ("offered", "reason"),
    [(None, "Odd.tools() returned a NoneType. It returns a list"), ([5], "Odd.tools() returned a int among its tools")],
)
def test_a_source_that_offers_something_else_is_refused(offered: Any, reason: str) -> None:
    class Odd(Source):
        def tools(self) -> Any:
            return offered

    with pytest.raises(ToolcribError) as caught:
        Workbench([Odd()])
    assert reason in str(caught.value)


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


async def test_what_a_source_has_when_it_is_started_is_there() -> None:
    class Connected(Live):
        async def start(self) -> None:
            self.offered = [named("remote")]

    async with Workbench([Connected()]) as bench:
        assert (await bench.call("remote")).value == "remote"


async def test_a_change_while_calls_run_harms_none_of_them() -> None:
    go_on = asyncio.Event()

    @tool
    async def slow() -> str:
        await go_on.wait()
        return "old"

    source = Live(slow)
    async with Workbench([source]) as bench:
        running = asyncio.create_task(bench.call("slow"))
        await asyncio.sleep(0)
        source.offer(named("slow", "new"))
        go_on.set()
        assert [(await running).value, (await bench.call("slow")).value] == ["old", "new"]


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


async def test_a_source_that_raises_when_asked_keeps_its_old_tools() -> None:
    class Moody(Live):
        def tools(self) -> Any:
            if self.fails == "tools":
                raise RuntimeError("asleep")
            return self.offered

    source = Moody(named("a"))
    async with Workbench([source]) as bench:
        source.fails = "tools"
        source.offer(named("b"))
        assert names(bench) == ["a"]
        assert [str(problem) for problem in bench.problems] == ["live: RuntimeError: asleep"]


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


async def test_changes_from_any_thread_are_taken_over() -> None:
    source = Live()
    async with Workbench([source]) as bench:
        specs = asyncio.Event()

        def change() -> None:
            for number in range(200):
                source.offer(*[named(f"t{n}") for n in range(number % 7)])

        thread = threading.Thread(target=change)
        thread.start()
        while thread.is_alive():
            bench.specs()
            await asyncio.sleep(0)
        specs.set()
        assert len(bench.specs()) == 199 % 7
        assert bench.problems == []


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


async def test_a_view_may_name_what_is_there_only_after_the_start() -> None:
    class Connected(Live):
        async def start(self) -> None:
            self.offered = [named("get"), named("put")]

    async with Workbench([filtered(Connected(), "get")]) as bench:
        assert names(bench) == ["get"]
    with pytest.raises(UnknownToolError):
        await Workbench([filtered(Connected(), "fetch")]).start()
    with pytest.raises(UnknownToolError):
        Workbench([filtered([named("a")], "fetch")])


async def test_a_view_loads_a_file_once(tmp_path: Path) -> None:
    file = tmp_path / "tools.py"
    file.write_text(
        "from toolcrib import tool\nimport time\nmade = time.perf_counter_ns()\n@tool\ndef when(): return made\n"
    )
    source = Live()
    async with Workbench([joined(str(file), source)]) as bench:
        before = (await bench.call("when")).value
        source.offer(named("more"))
        assert names(bench) == ["when", "more"]
        assert (await bench.call("when")).value == before


async def test_a_source_is_found_by_its_reference(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from toolcrib import Source, tool\n"
        "@tool\ndef a(): return 1\n@tool\ndef b(): return 2\n"
        "class Mine(Source):\n    def tools(self): return self.now\n    now = [a]\n"
        "@tool\ndef change():\n    mine.now = [a, b, change]\n    mine.changed()\n"
        "mine = Mine()\nmine.now = [a, change]\n"
    )
    async with Workbench([f"{tmp_path}/mine.py:mine"]) as bench:
        assert names(bench) == ["a", "change"]
        await bench.call("change")
        assert sorted(names(bench)) == ["a", "b", "change"]


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


async def test_what_a_person_did_to_the_registry_stays() -> None:
    source = Live(named("a"), named("b"))
    async with Workbench([source]) as bench:
        bench.registry.add(named("own"))
        bench.registry.replace(named("a", "patched"))
        source.offer(named("c"))
        assert sorted(names(bench)) == ["a", "c", "own"]
        assert (await bench.call("a")).value == "patched"


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


async def test_a_saved_state_does_not_change_with_what_it_was_saved_of() -> None:
    keeper = Keeper()
    async with Workbench([keeper]) as bench:
        keeper.kept = []
        saved = await bench.save_state()
        keeper.kept.append(1)
        assert saved["sources"]["keeper"] == {"kept": []}


V1 = {"version": 1}


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("{}", "not str. Read it first: json.loads(text)."),
        (None, "A saved state is the mapping that save_state returned, not NoneType."),
        ({}, "has a version"),
        ({"version": True, "sources": {}}, "has a version"),
        ({"version": "1", "sources": {}}, "has a version"),
        ({"version": 2, "sources": {}}, "The state is of version 2, and version 1 is read here."),
        (V1, "The sources of a saved state are a mapping"),
        ({**V1, "sources": []}, "The sources of a saved state are a mapping"),
        ({**V1, "sources": {}, "more": 1}, "only, not 'more'"),
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
    ids=range(14),
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


async def test_what_is_not_named_stays_as_it_is() -> None:
    keeper, counter = Keeper(), Counter(Count(value=2))
    async with Workbench([keeper, counter]) as bench:
        await bench.load_state({"version": 1, "sources": {"keeper": {"kept": 9}}})
    assert (keeper.kept, counter.state.value) == (9, 2)


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


async def test_state_starts_a_workbench_and_is_refused_after_its_stop() -> None:
    bench = Workbench([Counter])
    await bench.load_state({"version": 1, "sources": {"Counter": {"value": 4}}})
    assert (await bench.call("increment")).value == 5
    await bench.stop()
    for work in (bench.save_state(), bench.load_state({"version": 1, "sources": {}})):
        with pytest.raises(SetupError, match="This workbench is stopped"):
            await work


async def test_the_state_of_what_was_not_called_yet_can_be_loaded() -> None:
    registry = Workbench([Counter]).registry
    for source in (registry, Registry(Workbench([Counter()]).registry)):
        bench = Workbench(source, caller=Caller("alice"))
        with pytest.raises(SetupError, match=r"There is state of 'Other'.* There are: Counter\."):
            await bench.load_state({"version": 1, "sources": {"Counter": {"value": 4}, "Other": 1}})
        await bench.load_state({"version": 1, "sources": {"Counter": {"value": 4}}})
        assert (await bench.call("increment")).value == 5
        await bench.stop()


PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from pydantic import BaseModel
from toolcrib import StatefulTool, Workbench, tool

class Count(BaseModel):
    value: int = 0

class Counter(StatefulTool[Count]):
    @tool
    def increment(self) -> int:
        self.state.value += 1
        return self.state.value

async def main(file):
    async with Workbench([Counter]) as bench:
        if file.exists():
            await bench.load_state(json.loads(file.read_text()))
        print((await bench.call("increment")).value)
        file.write_text(json.dumps(await bench.save_state()))

asyncio.run(main(Path(sys.argv[1])))
"""
