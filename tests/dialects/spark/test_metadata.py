"""FunctionToolMetadata, and tools that programs make of it themselves."""

import inspect
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from toolcrib import Workbench
from toolcrib.agent import ScriptedModel
from toolcrib.dialects.spark.agents import Agent, AgentConfig
from toolcrib.dialects.spark.tools.decorator import DecoratedFunctionTool, FunctionToolMetadata, tool
from toolcrib.dialects.spark.tools.types import ToolUse


class City(BaseModel):
    name: str


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
