"""Spark's `@tool`: the spec of a tool, how it is called, and what it receives."""

import asyncio
import functools
import inspect
import threading
from datetime import date
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel

from toolcrib import Context, Data, DefinitionError, Depends, File, Image, Text, Workbench
from toolcrib import tool as native_tool
from toolcrib.dialects.spark.tools import types
from toolcrib.dialects.spark.tools.decorator import DecoratedFunctionTool, ToolContext, tool
from toolcrib.dialects.spark.tools.types import BaseTool, ToolUse


class City(BaseModel):
    name: str
    zip_code: str | None = None


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


def test_a_function_without_a_docstring_is_described_by_its_names() -> None:
    @tool
    def bare(x, y: int):  # type: ignore[no-untyped-def]
        return x

    assert bare.tool_spec == {
        "name": "bare",
        "description": "bare",
        "parameters": {
            "json": {
                "type": "object",
                "properties": {
                    "x": {"description": "Parameter x"},
                    "y": {"type": "integer", "description": "Parameter y"},
                },
                "required": ["x", "y"],
            }
        },
    }


def test_optional_is_shown_as_its_type_and_a_union_keeps_its_branches() -> None:
    @tool
    def f(
        a: int | None = None,
        b: int | str = 1,
        c: Optional[Literal["x", "y"]] = "x",  # noqa: UP045 - as Spark's document writes it
        d: City | None = None,
    ) -> None: ...

    shown = properties(f)
    assert shown["a"] == {"type": "integer", "default": None, "description": "Parameter a"}
    assert shown["b"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert "type" not in shown["b"]
    assert (shown["c"]["enum"], shown["c"]["default"]) == (["x", "y"], "x")
    # Nothing stands beside a reference.
    assert shown["d"]["anyOf"] == [{"$ref": "#/$defs/City"}, {"type": "null"}]
    assert "City" in f.tool_spec["parameters"]["json"]["$defs"]
    assert f.prepare_tool_kwargs(use("f", {"a": None, "d": None})) == {"a": None, "b": 1, "c": "x", "d": None}


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


@pytest.mark.parametrize("context", [True, "ctx"])
async def test_the_context_is_injected_and_no_model_sees_it(context: bool | str) -> None:
    if context is True:

        @tool(context=context)
        def f(q: str, tool_context) -> list[Any]:  # type: ignore[no-untyped-def]
            return [q, tool_context.tool_use, tool_context.invocation_state]
    else:

        @tool(context=context)
        def f(q: str, ctx) -> list[Any]:  # type: ignore[no-untyped-def]
            return [q, ctx.tool_use, ctx.invocation_state]

    assert list(properties(f)) == ["q"]
    tool_use, state = use("f", {"q": "x"}), {"agent": object()}
    kwargs = f.prepare_tool_kwargs(tool_use, state)
    (injected,) = [value for value in kwargs.values() if isinstance(value, ToolContext)]
    assert (injected.tool_use, injected.invocation_state) == (tool_use, state)
    assert injected.invocation_state is state
    assert f(**kwargs)[0] == "x"
    async with Workbench([f], variables={"who": "alice"}) as bench:
        result = await bench.call("f", '{"q": "x"}')
    assert result.value == ["x", {"toolUseId": result.call_id, "name": "f", "input": {"q": "x"}}, {"who": "alice"}]


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


def test_without_context_a_parameter_of_that_name_is_for_the_model() -> None:
    @tool
    def f(tool_context: str) -> str:
        return tool_context

    assert list(properties(f)) == ["tool_context"]
    assert f.prepare_tool_kwargs(use("f", {"tool_context": "x"})) == {"tool_context": "x"}


def test_without_a_state_the_context_has_an_empty_one() -> None:
    @tool(context=True)
    def f(tool_context: ToolContext) -> None: ...

    tool_use = use("f", {})
    assert f.prepare_tool_kwargs(tool_use) == {"tool_context": ToolContext(tool_use, {})}


def test_a_parameter_named_agent_is_for_the_model() -> None:
    @tool
    def f(agent: str) -> str:
        return agent

    assert properties(f) == {"agent": {"type": "string", "description": "Parameter agent"}}
    assert Workbench([f]).call_sync("f", {"agent": "x"}).value == "x"


# Arguments


def test_arguments_are_checked_typed_and_completed() -> None:
    @tool
    def f(a: int, when: date, city: City, tags: list[str] = [], n: int = 3) -> None: ...

    kwargs = f.prepare_tool_kwargs(use("f", {"a": "1", "when": "2025-01-02", "city": {"name": "Bonn"}}))
    assert kwargs == {"a": 1, "when": date(2025, 1, 2), "city": City(name="Bonn"), "tags": [], "n": 3}


@pytest.mark.parametrize("arguments", ["text", "", [1], 3])
def test_input_that_is_not_a_dictionary_is_refused(arguments: Any) -> None:
    @tool
    def f(a: int = 1) -> None: ...

    with pytest.raises(ValueError, match=r"expects object input"):
        f.prepare_tool_kwargs(use("f", arguments))


def test_wrong_arguments_are_refused_by_name() -> None:
    @tool
    def f(a: int) -> None: ...

    with pytest.raises(ValueError, match=r"^Validation failed for input parameters: 'a' is missing"):
        f.prepare_tool_kwargs(use("f", {}))
    with pytest.raises(ValueError, match=r"'a'.*integer"):
        f.prepare_tool_kwargs(use("f", {"a": "many"}))


async def test_unknown_arguments_are_dropped() -> None:
    @tool
    def f(a: int) -> int:
        return a

    assert f.prepare_tool_kwargs(use("f", {"a": 1, "zz": 2})) == {"a": 1}
    async with Workbench([f]) as bench:
        assert (await bench.call("f", '{"a": 1, "zz": 2}')).value == 1


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


def test_hand_written_parameters_may_differ_from_the_signature() -> None:
    @tool(parameters={"properties": {"n": {"type": ["integer", "string"]}, "note": {"type": "string"}}})
    def f(n: int = 0) -> Any:
        return n

    assert f.tool_spec["parameters"]["json"]["required"] == []
    assert Workbench([f]).call_sync("f", {"n": "many", "note": "for nobody"}).value == "many"


# Sync and async


async def test_an_async_tool_is_awaited_by_acall_and_refuses_to_be_called_in_a_loop() -> None:
    @tool
    async def f(x: int) -> int:
        await asyncio.sleep(0)
        return x + 1

    assert f.supports_async
    assert await f.acall(1) == 2
    with pytest.raises(RuntimeError, match=r"Use 'await tool.acall\(...\)' instead"):
        f(1)
    async with Workbench([f]) as bench:
        assert (await bench.call("f", {"x": 1})).value == 2


def test_an_async_tool_is_called_where_no_loop_runs() -> None:
    @tool
    async def f(x: int) -> int:
        return x + 1

    assert f(1) == 2  # type: ignore[comparison-overlap]


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


def test_static_and_class_methods_are_tools() -> None:
    library = Library([])
    assert (Library.outer(), library.outer(), library.inner(3), Library.inner(3), Library.kind(), library.kind()) == (
        *("outer", "outer", 3, 3),
        *("Library", "Library"),
    )
    assert Workbench([library.kind]).call_sync("kind").value == "Library"


def test_a_method_without_its_object_is_refused_with_the_remedy() -> None:
    with pytest.raises(DefinitionError, match=r"Pass it bound: obj\.find"):
        Workbench([Library.find])


# Beside native tools


async def test_it_works_beside_native_tools_and_is_called_by_the_tool_object() -> None:
    @tool
    def spark(x: int) -> int:
        return x

    @native_tool
    def native(x: int) -> int:
        return x + 1

    async with Workbench([spark, native]) as bench:
        assert [spec.name for spec in bench.specs()] == ["spark", "native"]
        assert (await bench.call(spark, 4)).value == 4
        assert (await bench.call(native, 4)).value == 5


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


async def test_a_tool_result_that_is_an_error_fails_the_call() -> None:
    @tool
    def f() -> dict[str, Any]:
        return {"toolUseId": "1", "status": "error", "content": [{"text": "no"}, {"json": {"a": 1}}]}

    @tool
    def g() -> dict[str, Any]:
        return {"status": "error", "content": "no list"}

    async with Workbench([f, g]) as bench:
        failed, other = await bench.call("f"), await bench.call("g")
    assert failed.error is not None
    assert failed.error.message == 'no\n{"a":1}'
    assert other.value == {"status": "error", "content": "no list"}


def test_only_functions_are_decorated() -> None:
    with pytest.raises(ValueError, match="not a int"):
        tool(3)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="not a DecoratedFunctionTool"):
        tool(tool(lambda: None))


def test_partials_and_callable_objects_are_tools() -> None:
    class Adds:
        async def __call__(self, a: int, b: int) -> int:
            return a + b

    made = tool(functools.partial(lambda a, b: a + b, b=2), name="add_two")
    assert made.tool_name == "add_two"
    assert list(properties(made)) == ["a"]
    assert Workbench([made]).call_sync("add_two", {"a": 1}).value == 3
    assert tool(Adds()).supports_async
    assert Workbench([tool(Adds())]).call_sync("Adds", {"a": 1, "b": 2}).value == 3


async def test_the_host_provides_dependencies_and_the_native_context_beside_sparks_own() -> None:
    def connect() -> str:
        return "connected"

    @tool
    async def search(
        query: str,
        spark: ToolContext,
        native: Context,
        connection: Annotated[str, Depends(connect)],
        **rest: Any,
    ) -> list[Any]:
        """Search."""
        return [query, spark.tool_use["name"], native.call.tool, connection, rest]

    @tool(async_execution=True)
    def count(connection: Annotated[str, Depends(connect)]) -> int:
        """Count."""
        return len(connection)

    async with Workbench([search, count]) as bench:
        result = await bench.call("search", {"query": "x", "limit": 2, "connection": "own"})
        assert result.value == ["x", "search", "search", "connected", {"limit": 2}]
        assert (await bench.call("count")).value == 9
    assert list(properties(search)) == ["query"]
