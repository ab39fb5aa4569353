"""Objects and classes whose methods are tools: one instance, one life, one state."""

import functools
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from toolcrib import Call, Registry, SetupError, StatefulTool, ToolcribError, Workbench, tool
from toolcrib.core import DefinitionError, LoadError
from toolcrib.tools import load

events: list[str] = []


@pytest.fixture(autouse=True)
def _no_events() -> None:
    events.clear()


class Count(BaseModel):
    value: int = 0
    names: list[str] = []


class Counter(StatefulTool[Count]):
    state: Count

    @tool
    async def increment(self, by: int = 1) -> int:
        """Count on."""
        self.state.value += by
        return self.state.value

    @tool
    def decrement(self, by: int = 1) -> int:
        """Count back."""
        self.state.value -= by
        return self.state.value


class Living(StatefulTool[Count]):
    async def start(self) -> None:
        events.append("start")
        self.state.value = 10

    def stop(self) -> None:
        events.append(f"stop off the loop: {threading.current_thread() is not threading.main_thread()}")

    async def reset(self) -> None:
        events.append(f"reset at {self.state.value}")

    @tool
    async def add(self, by: int) -> int:
        self.state.value += by
        return self.state.value


class Notes:
    """A plain class."""

    def __init__(self, title: str = "notes") -> None:
        self.title = title
        self.lines: list[str] = []

    @tool
    def note(self, line: str) -> int:
        self.lines.append(line)
        return len(self.lines)

    @tool(name="headline")
    def heading(self) -> str:
        return self.title

    @tool
    @classmethod
    def kind(cls) -> str:
        return cls.__name__

    @tool
    @staticmethod
    def twice(n: int) -> int:
        return 2 * n

    def not_a_tool(self) -> None: ...


def names(bench: Workbench) -> list[str]:
    return [spec.name for spec in bench.specs()]


async def value(bench: Workbench, name: str, **arguments: Any) -> Any:
    return (await bench.call(name, arguments)).unwrap()


# Objects


async def test_the_methods_of_an_object_share_it() -> None:
    counter = Counter()
    async with Workbench([counter]) as bench:
        assert names(bench) == ["increment", "decrement"]
        assert list(bench.specs()[0].input_schema["properties"]) == ["by"]
        assert await value(bench, "increment", by=5) == 5
        assert await value(bench, "decrement") == 4
        assert (await bench.call(counter.increment, by=2)).value == 6
    assert counter.state == Count(value=6)


async def test_a_plain_object_is_a_source_too() -> None:
    notes = Notes("mine")
    async with Workbench([notes]) as bench:
        assert names(bench) == ["note", "headline", "kind", "twice"]
        assert await value(bench, "note", line="a") == 1
        assert await value(bench, "note", line="b") == 2
        assert await value(bench, "headline") == "mine"
        assert await value(bench, "kind") == "Notes"
        assert await value(bench, "twice", n=4) == 8
    assert notes.lines == ["a", "b"]


async def test_start_stop_and_reset_plain_or_async_are_run_with_the_workbench() -> None:
    async with Workbench([Living()]) as bench:
        assert await value(bench, "add", by=5) == 15
        await bench.reset()
        assert await value(bench, "add", by=1) == 11
    assert events == ["start", "reset at 10", "stop off the loop: True"]


async def test_the_hooks_of_a_plain_class_are_run_unless_they_are_tools() -> None:
    class Player:
        def start(self) -> None:
            events.append("start")

        @tool
        def stop(self) -> str:
            """Stop the music."""
            return "silence"

    async with Workbench([Player()]) as bench:
        assert await value(bench, "stop") == "silence"
    assert events == ["start"]


async def test_an_object_in_several_workbenches_is_started_once_and_stopped_with_the_last() -> None:
    living = Living()
    async with Workbench([living]) as one:
        async with Workbench([living]) as other:
            assert await value(one, "add", by=1) == 11
            assert await value(other, "add", by=1) == 12
        assert events == ["start"]
        assert await value(one, "add", by=1) == 13
    assert events == ["start", "stop off the loop: True"]


async def test_an_object_found_through_a_registry_is_started_when_it_is_first_called() -> None:
    registry = Registry(load(Living()).tools)
    async with Workbench(registry) as bench:
        assert events == []
        results = await bench.call_many([Call("add", {"by": 1}), Call("add", {"by": 1})])
        assert sorted(result.value for result in results) == [11, 12]
    assert events == ["start", "stop off the loop: True"]


async def test_an_override_of_a_tool_says_whether_it_is_one() -> None:
    class Better(Counter):
        @tool
        async def increment(self, by: int = 10) -> int:
            self.state.value += by
            return self.state.value

        decrement = None  # type: ignore[assignment]

    async with Workbench([Better()]) as bench:
        assert names(bench) == ["increment"]
        assert await value(bench, "increment") == 10

    class Worse(Counter):
        async def increment(self, by: int = 10) -> int:
            return by

    with pytest.raises(DefinitionError, match=r"^Worse.increment overrides a tool, and is not a tool. Mark it"):
        Workbench([Worse()])


def test_a_hook_takes_no_arguments() -> None:
    class Car:
        def start(self, engine: str) -> None: ...

        @tool
        def drive(self) -> None: ...

    with pytest.raises(DefinitionError, match=r"^Car.start takes arguments \(engine\), and is run without any when"):
        Workbench([Car()])


def test_a_method_cannot_run_in_another_process() -> None:
    class Apart:
        pass

    def work(self: Any) -> None: ...

    work.__qualname__ = "work"
    Apart.work = tool(isolation="process")(work)  # type: ignore[attr-defined]
    for source in (Apart(), Apart):
        with pytest.raises(DefinitionError, match=r"Apart.work is a tool of an object, which stays in this process"):
            Workbench([source])


def test_serial_is_per_object() -> None:
    class One:
        @tool(serial=True)
        def work(self) -> None: ...

    first, second = load(One()).tools[0], load(One()).tools[0]
    assert first.lock is not None
    assert first.lock is not second.lock


# State


def test_state_is_a_pydantic_model_that_is_there() -> None:
    reason = "is a pydantic model, a class that is defined before: StatefulTool[State], not"
    for wrong in (dict, "Count", int | str, Path("x")):
        with pytest.raises(DefinitionError) as caught:

            class Wrong(StatefulTool[wrong]):  # type: ignore[valid-type]
                pass

        assert reason in str(caught.value)
    with pytest.raises(DefinitionError, match=r"^Bare does not declare its state. Write class Bare\(StatefulTool"):

        class Bare(StatefulTool):  # type: ignore[type-arg]
            pass


def test_no_two_objects_have_one_state() -> None:
    class Shared(StatefulTool[Count]):
        state = Count(value=3)

    first, second = Shared(), Shared()
    first.state.value = first.state.value + 1
    first.state.names.append("x")
    assert (first.state.value, second.state) == (4, Count(value=3))
    assert Counter(Count(value=7)).state.value == 7


def test_state_that_needs_values_has_to_be_given() -> None:
    class Needs(BaseModel):
        size: int

    class Sized(StatefulTool[Needs]):
        @tool
        def size(self) -> int:
            return self.state.size

    assert Sized(Needs(size=2)).state.size == 2
    with pytest.raises(DefinitionError) as caught:
        _ = Sized().state
    assert str(caught.value) == (
        "Sized has no state yet, and Needs cannot be made without values (size). "
        "Set self.state in __init__, or give one: Sized(Needs(...))."
    )


async def test_the_state_of_a_plain_object_is_saved_if_it_is_a_model() -> None:
    class Plain:
        def __init__(self) -> None:
            self.state = Count()

        @tool
        def add(self, name: str) -> None:
            self.state.names.append(name)

    class Stateless:
        state = "idle"

        @tool
        def look(self) -> None: ...

    async with Workbench([Plain(), Stateless()]) as bench:
        await bench.call("add", {"name": "a"})
        saved = await bench.save_state()
        assert saved == {"version": 1, "sources": {"Plain": {"value": 0, "names": ["a"]}}}
        await bench.reset()
        assert (await bench.save_state())["sources"] == {"Plain": {"value": 0, "names": []}}
        await bench.load_state(saved)
        assert await bench.save_state() == saved
        with pytest.raises(SetupError, match=r"The state of 'Stateless' cannot be loaded.*It has no state"):
            await bench.load_state({"version": 1, "sources": {"Stateless": {}}})


class Token(BaseModel):
    token: SecretStr = SecretStr("s3cret-value")


class Odd(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    anything: Any = None
    lock: Any = Field(default=None, exclude=True)


@pytest.mark.parametrize(
    ("kind", "changed", "reason"),
    [
        (Token, {}, "its field 'token' would come back as something else"),
        (Odd, {"anything": {1, 2}}, "its field 'anything' would come back as something else"),
        (Odd, {"anything": object()}, "cannot be saved, or not be loaded again"),
        (Count, {"value": "many"}, "It is not a Count: 'value': Input should be a valid integer"),
    ],
    ids=["secret", "set", "object", "wrong"],
)
async def test_what_would_not_survive_is_refused_when_it_is_saved(kind: Any, changed: Any, reason: str) -> None:
    class Keeper(StatefulTool[kind]):
        @tool
        def look(self) -> None: ...

    keeper = Keeper()
    async with Workbench([keeper]) as bench:
        for name, wrong in changed.items():
            setattr(keeper.state, name, wrong)
        with pytest.raises(ToolcribError) as caught:
            await bench.save_state()
    assert reason in str(caught.value)
    assert "s3cret" not in str(caught.value)


async def test_what_is_excluded_is_not_saved_and_what_is_not_json_comes_back() -> None:
    class Rich(BaseModel):
        model_config = ConfigDict(strict=True)
        path: Path = Path("a")
        data: bytes = b""
        tags: frozenset[str] = frozenset()
        cache: Any = Field(default=None, exclude=True)

    class Keeper(StatefulTool[Rich]):
        @tool
        def look(self) -> None: ...

    keeper, other = Keeper(Rich(path=Path("b"), data=b"x", tags=frozenset("t"), cache=object())), Keeper()
    async with Workbench([keeper]) as bench, Workbench([other]) as again:
        await again.load_state(await bench.save_state())
    assert other.state == Rich(path=Path("b"), data=b"x", tags=frozenset("t"))


# Classes


async def test_a_class_is_made_anew_for_each_workbench() -> None:
    source = functools.partial(Notes, "theirs")
    async with Workbench([source]) as one, Workbench([source]) as other:
        assert await value(one, "note", line="a") == 1
        assert await value(other, "note", line="a") == 1
        assert await value(other, "headline") == "theirs"
    registry = Registry(load(Counter).tools)
    async with Workbench([Counter]) as one, Workbench([Counter]) as other, Workbench(registry) as third:
        assert [await value(bench, "increment", by=n) for bench, n in ((one, 1), (other, 2), (third, 3))] == [1, 2, 3]
        assert [await value(bench, "decrement") for bench in (one, other, third)] == [0, 1, 2]


def test_a_class_that_cannot_be_made_is_refused() -> None:
    class Needy:
        def __init__(self, path: str) -> None: ...

        @tool
        def read(self) -> None: ...

    class Abstract(ABC):
        @tool
        @abstractmethod
        def read(self) -> None: ...

    with pytest.raises(LoadError) as caught:
        Workbench([Needy])
    assert str(caught.value) == (
        "An instance of Needy cannot be made without arguments (path). Give an instance, Needy(...), "
        "or, for one in each workbench, functools.partial(Needy, ...)."
    )
    with pytest.raises(LoadError, match="The class Abstract is abstract, so no instance of it can be made"):
        Workbench([Abstract])


async def test_a_class_whose_instance_cannot_be_made_fails_the_start_by_name() -> None:
    class Broken:
        def __init__(self) -> None:
            raise OSError("no disk")

        @tool
        def look(self) -> None: ...

    with pytest.raises(SetupError, match=r"^The source Broken could not be opened: OSError: no disk$"):
        await Workbench([Living(), Broken]).start()
    assert events == ["start", "stop off the loop: True"]
    result = await Workbench(Registry(load(Broken).tools)).call("look")
    assert (result.error.code, result.text) == (
        "unavailable",
        "Tool 'look' is not available now: what it needs could not be started. Try again later.",
    )


# Files

FILE = """
from pydantic import BaseModel
from toolcrib import StatefulTool, tool

class State(BaseModel):
    n: int = 0

class Base(StatefulTool[State]):
    def __init__(self, step: int) -> None:
        self.step = step

    @tool
    def step(self) -> int:
        self.state.n += self.step
        return self.state.n

class Counter(StatefulTool[State]):
    @tool
    def increment(self) -> int:
        self.state.n += 1
        return self.state.n

class Helper:
    @tool
    def no(self) -> None: ...
"""


async def test_a_file_gives_its_stateful_tools(tmp_path: Path) -> None:
    file = tmp_path / "tools.py"
    file.write_text(FILE)
    benches = [Workbench([source]) for source in (file, f"{file}:Counter", f"{file}:Helper")]
    async with benches[0] as one, benches[1] as other, benches[2] as third:
        assert (names(one), names(other), names(third)) == (["increment"], ["increment"], ["no"])
        assert [await value(one, "increment") for _ in range(2)] == [1, 2]
        assert await value(other, "increment") == 1
    file.write_text(FILE + "\nhere = Counter()\n")
    async with Workbench([file]) as one, Workbench([tmp_path]) as other:
        assert await value(one, "increment") == 1
        assert names(other) == ["increment"]


def test_a_file_of_nothing_that_can_be_made_says_why(tmp_path: Path) -> None:
    file = tmp_path / "tools.py"
    file.write_text(FILE.replace("class Counter(StatefulTool[State])", "class Counter"))
    with pytest.raises(LoadError, match=r"tools.py:8: An instance of Base cannot be made without arguments \(step\)"):
        load(file)
