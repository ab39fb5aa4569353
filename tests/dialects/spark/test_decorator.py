"""Spark's `@tool`: the spec of a tool, how it is called, and what it receives."""

import asyncio
import inspect
import threading
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from toolcrib import File, Image, Text, Workbench
from toolcrib.agent import ScriptedModel
from toolcrib.core import Data, DefinitionError
from toolcrib.dialects.spark.agents import Agent, AgentConfig
from toolcrib.dialects.spark.tools import types
from toolcrib.dialects.spark.tools.decorator import DecoratedFunctionTool, FunctionToolMetadata, ToolContext, tool
from toolcrib.dialects.spark.tools.types import BaseTool, ToolUse


class City(BaseModel):
    name: str


def use(name: str, arguments: Any) -> ToolUse:
    return {"toolUseId": "u1", "name": name, "input": arguments}


def properties(of: DecoratedFunctionTool[..., Any]) -> dict[str, Any]:
    found: dict[str, Any] = of.tool_spec["parameters"]["json"]["properties"]
    return found


def test_a_decorated_function_is_a_tool_and_still_the_function_it_was() -> None:
    @tool
    def add(a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    assert isinstance(add, DecoratedFunctionTool)
    assert isinstance(add, BaseTool)
    assert (add(1), add(1, b=5), add.__name__, add.__doc__) == (3, 6, "add", "Add.")
    assert add.tool_func(1, 1) == 2
    assert str(inspect.signature(add)) == "(a: int, b: int = 2) -> int"
    assert (add.tool_name, add.tool_type, add.supports_hot_reload) == ("add", "function", True)
    assert repr(add) == "<DecoratedFunctionTool add>"


def test_name_and_description_are_overridden_by_position_and_by_name() -> None:
    def plain() -> None:
        """Described."""

    made = tool(plain, "Other words", None, "other")
    assert (made.tool_spec["name"], made.tool_spec["description"]) == ("other", "Other words")
    assert tool(name="x", description="y")(plain).tool_spec["description"] == "y"
    assert tool(plain).tool_spec["description"] == "Described."


def test_the_return_type_is_the_response_schema() -> None:
    @tool
    def f() -> City: ...  # type: ignore[empty-body]

    @tool
    def g() -> None: ...

    @tool
    def h() -> threading.Lock: ...  # type: ignore[empty-body]

    assert f.tool_spec["response_schema"]["properties"]["name"] == {"type": "string"}
    assert "response_schema" not in g.tool_spec
    assert "response_schema" not in h.tool_spec


def test_hints_are_in_the_spec_and_the_display_properties() -> None:
    @tool(long_running=True)
    async def slow() -> None: ...

    @tool
    def quick() -> None: ...

    assert slow.tool_spec["x_spark"] == {"supports_async": True, "long_running": True}
    assert slow.get_display_properties() == {
        "Name": "slow",
        "Type": "function",
        "Async": "yes",
        "Long Running": "yes",
        "Function": "slow",
    }
    assert Workbench([slow]).specs()[0].hints.long_running is True
    assert "x_spark" not in quick.tool_spec
    assert quick.get_display_properties()["Async"] == "no"
    quick.mark_supports_async()
    quick.mark_long_running()
    quick.mark_dynamic()
    assert quick.tool_spec["x_spark"] == {"supports_async": True, "long_running": True}
    assert (quick.is_dynamic, quick.is_long_running, quick.supports_async) == (True, True, True)


# Context


def test_a_context_under_any_name_stays_out_of_the_schema() -> None:
    @tool(context=True)
    def f(q: str, other: ToolContext | None = None) -> bool:
        return other is not None

    @tool
    def g(q: str, context: ToolContext) -> bool:
        return context is not None

    for each in (f, g):
        assert list(properties(each)) == ["q"]
        assert Workbench([each]).call_sync(each.tool_name, {"q": ""}).value is True
    assert types.ToolContext is ToolContext


def test_an_empty_context_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^Context parameter name cannot be empty"):
        tool(context=" ")(lambda: None)


def test_a_parameter_named_agent_is_for_the_model() -> None:
    @tool
    def f(agent: str) -> str:
        return agent

    assert properties(f) == {"agent": {"type": "string", "description": "Parameter agent"}}
    assert Workbench([f]).call_sync("f", {"agent": "x"}).value == "x"


# Arguments


def test_wrong_arguments_are_refused_by_name() -> None:
    @tool
    def f(a: int) -> None: ...

    with pytest.raises(ValueError, match=r"^Validation failed for input parameters: 'a' is missing"):
        f.prepare_tool_kwargs(use("f", {}))
    with pytest.raises(ValueError, match=r"'a'.*integer"):
        f.prepare_tool_kwargs(use("f", {"a": "many"}))


def test_keyword_arguments_are_not_required_and_cannot_set_hidden_parameters() -> None:
    @tool(context=True)
    def f(a: int, tool_context: ToolContext, **kwargs: Any) -> list[Any]:
        return [a, isinstance(tool_context, ToolContext), kwargs]

    assert f.tool_spec["parameters"]["json"]["required"] == ["a"]
    assert list(properties(f)) == ["a"]
    arguments = {"a": 1, "b": 2, "tool_context": "forged"}
    assert Workbench([f]).call_sync("f", arguments).value == [1, True, {"b": 2}]
    assert f(**f.prepare_tool_kwargs(use("f", arguments))) == [1, True, {"b": 2}]


@pytest.mark.parametrize("wrapped", [True, False])
def test_hand_written_parameters_are_checked(wrapped: bool) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 5}}, "required": ["n"]}

    @tool(parameters={"json": schema} if wrapped else schema)
    def f(n, other: int = 7):  # type: ignore[no-untyped-def]
        return [n, other]

    assert f.tool_spec["parameters"] == {"json": schema}
    assert Workbench([f]).call_sync("f", {"n": 5}).value == [5, 7]
    refused = Workbench([f]).call_sync("f", {"n": 6})
    assert refused.error is not None
    assert refused.error.code == "invalid_arguments"
    with pytest.raises(ValueError, match="Validation failed"):
        f.prepare_tool_kwargs(use("f", {"n": 6}))


# Sync and async


async def test_a_sync_tool_does_not_block_the_loop() -> None:
    home = threading.current_thread()

    @tool
    def f() -> bool:
        return threading.current_thread() is not home

    assert await f.acall() is True
    async with Workbench([f]) as bench:
        assert (await bench.call("f")).value is True
    assert f() is False


async def test_async_execution_decides_how_a_function_runs() -> None:
    async def work(x: int) -> int:
        return x + 1

    def hidden(x: int) -> Any:
        asyncio.get_running_loop()  # raises in a thread
        return work(x)

    on_loop, in_thread = tool(hidden, async_execution=True), tool(work, async_execution=False)
    assert (on_loop.supports_async, in_thread.supports_async) == (True, False)
    assert await on_loop.acall(1) == 2
    assert await in_thread.acall(1) == 2
    async with Workbench([on_loop, in_thread]) as bench:
        assert [(await bench.call(name, {"x": 1})).value for name in ("hidden", "work")] == [2, 2]
    with pytest.raises(RuntimeError, match="acall"):
        in_thread(1)


# Methods


class Library:
    def __init__(self, books: list[str]) -> None:
        self.books = books

    @tool
    def find(self, word: str) -> list[str]:
        """Find books.

        Args:
            word: A part of the title
        """
        return [book for book in self.books if word in book]

    @tool(context=True)
    async def add(self, book: str, tool_context: ToolContext) -> str:
        self.books.append(book)
        return f"{book} {tool_context.tool_use['toolUseId']}"

    @staticmethod
    @tool
    def outer() -> str:
        return "outer"

    @tool
    @staticmethod
    def inner(x: int) -> int:
        return x

    @tool
    @classmethod
    def kind(cls) -> str:
        return cls.__name__


async def test_a_method_is_a_tool_of_its_object() -> None:
    first, second = Library(["red", "green"]), Library(["blue"])
    assert first.find("re") == ["red", "green"]
    assert (second.find("re"), Library.find.tool_name) == ([], "find")
    assert properties(first.find) == {"word": {"type": "string", "description": "A part of the title"}}
    assert properties(Library.find) == properties(first.find)
    assert first.find.prepare_tool_kwargs(use("find", {"word": "x"})) == {"word": "x"}
    async with Workbench([first.find, second.add]) as bench:
        assert (await bench.call("find", {"word": "gr"})).value == ["green"]
        added = await bench.call("add", {"book": "grey"})
        assert added.value == f"grey {added.call_id}"
    assert second.books == ["blue", "grey"]


def test_a_method_without_its_object_is_refused_with_the_remedy() -> None:
    with pytest.raises(DefinitionError, match=r"Pass it bound: obj\.find"):
        Workbench([Library.find])


# Beside native tools


async def test_a_workbench_shows_the_content_of_a_tool_result_and_keeps_the_whole_as_the_value() -> None:
    content = [
        {"text": "a key: hunter2"},
        {"json": {"n": 1}},
        {"image": {"format": "png", "source": {"bytes": "aGk="}}},
        {"document": {"name": "all", "format": "pdf", "source": {"bytes": b"%PDF"}}},
        {"image": {"format": "png", "source": {"bytes": "no base64"}}},
        "plain",
        {"odd": [1]},
    ]

    @tool
    def f(count: int) -> dict[str, Any]:
        return {"toolUseId": "1", "status": "success", "content": content[:count], "metadata": {"ms": 3}}

    async with Workbench([f], secrets=["hunter2"]) as bench:
        whole, empty = await bench.call("f", {"count": 7}), await bench.call("f", {"count": 0})
    assert whole.content == (
        Text("a key: [secret]"),
        Data('{"n":1}'),
        Image(b"hi", "image/png"),
        File(b"%PDF", "application/pdf", "all"),
        Text('{"image":{"format":"png","source":{"bytes":"no base64"}}}'),
        Text("plain"),
        Text('{"odd":[1]}'),
    )
    assert whole.value == {"toolUseId": "1", "status": "success", "content": content, "metadata": {"ms": 3}}
    assert (empty.status, empty.text) == ("success", "")


# FunctionToolMetadata, and tools that programs make of it themselves


def find(city: City, word: Annotated[str, Field(min_length=1)], limit: int = 3, tool_context: Any = None) -> list[str]:
    """Find things in a city.

    Things are found
    by their names.

    Args:
        city: Where.
        word: What.
    """
    return [f"{word} in {city.name}"] * limit


USE: ToolUse = {"toolUseId": "1", "name": "find", "input": {"city": {"name": "Bonn"}, "word": "bolt"}}


def test_the_parts_of_a_function_are_read() -> None:
    metadata = FunctionToolMetadata(find, "tool_context")
    assert metadata.func is find
    assert metadata.signature == inspect.signature(find)
    assert metadata.type_hints == {
        "city": City,
        "word": str,
        "limit": int,
        "tool_context": Any,
        "return": list[str],
    }
    assert metadata.param_descriptions == {"city": "Where.", "word": "What."}


def test_the_input_model_has_the_parameters_that_a_model_fills_in() -> None:
    model = FunctionToolMetadata(find, "tool_context").input_model
    assert (model.__name__, list(model.model_fields)) == ("FindTool", ["city", "word", "limit"])
    made = model(city={"name": "Bonn"}, word="bolt", unknown=1)
    assert made.model_dump() == {"city": {"name": "Bonn"}, "word": "bolt", "limit": 3}


async def test_a_tool_made_of_its_parts_has_the_name_and_spec_that_it_was_given() -> None:
    metadata = FunctionToolMetadata(find, "tool_context")
    spec = metadata.extract_metadata()
    spec["name"], spec["description"] = "search", "Search."
    made = DecoratedFunctionTool("search", spec, find, metadata, long_running=True)
    assert made.tool_name == "search"
    assert made.tool_spec is spec
    assert spec["x_spark"] == {"long_running": True}
    assert made.get_display_properties() == {
        "Name": "search",
        "Type": "function",
        "Async": "no",
        "Long Running": "yes",
        "Function": "find",
    }
    assert made.prepare_tool_kwargs(USE)["city"] == City(name="Bonn")
    async with Workbench([made]) as bench:
        assert [(each.name, each.description) for each in bench.specs()] == [("search", "Search.")]
        called = await bench.call("search", {"city": {"name": "Bonn"}, "word": "bolt", "limit": 1})
        assert called.value == ["bolt in Bonn"]
        assert (await bench.call("search", {"city": {"name": "Bonn"}, "word": ""})).status == "error"


async def test_a_given_spec_is_the_schema_that_is_checked() -> None:
    metadata = FunctionToolMetadata(find)
    schema = {"type": "object", "properties": {"word": {"type": "string", "enum": ["nut"]}}, "required": ["word"]}
    spec: Any = {"name": "find", "description": "Find.", "parameters": {"json": schema}}
    made = DecoratedFunctionTool("find", spec, lambda word: f"{word}!", metadata)  # type: ignore[misc]
    assert (made.is_long_running, made.supports_async) == (False, False)
    async with Workbench([made]) as bench:
        assert (await bench.call("find", {"word": "nut"})).value == "nut!"
        assert (await bench.call("find", {"word": "bolt"})).error is not None


@pytest.mark.parametrize("annotation", [inspect.Parameter.empty, Any, object, "Agent", Agent | None])
async def test_a_parameter_named_agent_receives_the_agent_that_runs_the_tool(annotation: Any) -> None:
    seen: list[Any] = []

    def look(word: str, agent=None) -> str:  # type: ignore[no-untyped-def]
        seen.append(agent)
        return word

    look.__annotations__ = {**look.__annotations__, "agent": annotation}
    if annotation is inspect.Parameter.empty:
        del look.__annotations__["agent"]
    looking = tool(look)
    assert list(looking.tool_spec["parameters"]["json"]["properties"]) == ["word"]
    assert looking.prepare_tool_kwargs({"toolUseId": "1", "input": {"word": "a"}}, {"agent": "me"})["agent"] == "me"
    agent = Agent(AgentConfig(model=ScriptedModel([{"calls": [("look", {"word": "a"})]}, "Done."]), tools=[looking]))
    assert (await agent.run("Look.")).content == "Done."
    assert seen == [agent]
    async with Workbench([looking]) as bench:
        assert (await bench.call("look", {"word": "b"})).value == "b"
    assert seen == [agent, None]
