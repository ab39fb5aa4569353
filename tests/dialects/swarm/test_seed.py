"""agent-swarm-kit's document on IAgentTool, item by item. Its tools are in tests/seeds/swarm."""

import inspect
import runpy
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from toolcrib import CancellationToken
from toolcrib.core import DefinitionError
from toolcrib.dialects.swarm import (
    IAgentTool,
    IAgentToolCallbacks,
    ITool,
    IToolCall,
    IToolCallDto,
    IToolCallFunction,
    IToolFunction,
    IToolParameters,
    IToolProperty,
    IToolValidateDto,
    ToolValue,
    agent_tool,
    execute_tools,
    resolve_tools,
)

SEED = Path(__file__).parents[2] / "seeds" / "swarm" / "search.py"


@pytest.fixture
def names() -> dict[str, Any]:
    return runpy.run_path(str(SEED))


def call(name: str, tool_id: str, **arguments: Any) -> IToolCall:
    return {"id": tool_id, "type": "function", "function": {"name": name, "arguments": arguments}}


async def test_the_documents_tools_run_and_get_all_that_it_lists(names: dict[str, Any]) -> None:
    calls = [call("search", "1", query="bolts", scope="new"), call("calculate", "2", a=1, b=2)]
    tools = [names["search_tool"], names["Calculate"]()]
    done = await execute_tools("client", "agent", calls, tools, call_reason="because")
    assert (done.status, dict(done.outputs)) == ("success", {"1": "results for bolts", "2": "3"})
    before, first, second, after = names["seen"]
    assert (before, after) == (("before", "1"), ("after", "2"))
    assert set(first) == {
        *("toolId", "clientId", "agentName", "toolName", "params", "toolCalls", "abortSignal", "callReason", "isLast")
    }
    signal = first.pop("abortSignal")
    assert (signal.aborted, isinstance(signal, CancellationToken)) == (False, True)
    assert {**first, "toolCalls": list(first["toolCalls"])} == {
        "toolId": "1",
        "clientId": "client",
        "agentName": "agent",
        "toolName": "search-tool",
        "params": {"query": "bolts", "scope": "new"},
        "toolCalls": calls,
        "callReason": "because",
        "isLast": False,
    }
    assert isinstance(second, IToolCallDto)
    assert (second.tool_id, second.client_id, second.agent_name, second.tool_name) == (
        *("2", "client"),
        *("agent", "calculate-tool"),
    )
    assert (second.params, list(second.tool_calls), second.call_reason, second.is_last) == (
        *({"a": 1, "b": 2}, calls),
        *("because", True),
    )
    assert second.abort_signal.aborted is False


async def test_a_model_sees_the_documented_parts_of_a_function(names: dict[str, Any]) -> None:
    resolved = await resolve_tools("client", "agent", [names["search_tool"], names["Calculate"]()])
    assert [tool.to_dict() for tool in resolved] == [
        {"type": "function", "function": names["search_tool"]["function"]},
        {"type": "function", "function": names["Calculate"].function},
    ]
    spec = resolved[0].__toolcrib__().spec
    assert (spec.name, spec.description) == ("search", "Performs a search query")
    assert spec.input_schema == names["search_tool"]["function"]["parameters"]


def test_notes_for_documentation_are_kept_and_optional(names: dict[str, Any]) -> None:
    assert agent_tool(names["search_tool"]).doc_note == "Searches the catalogue."
    assert agent_tool(names["Calculate"]()).doc_note == "Adds numbers."
    without = {key: value for key, value in names["search_tool"].items() if key != "docNote"}
    assert agent_tool(without).doc_note is None


async def test_callbacks_and_validate_are_optional(names: dict[str, Any]) -> None:
    bare = {key: value for key, value in names["search_tool"].items() if key not in ("callbacks", "validate")}
    done = await execute_tools("client", "agent", [call("search", "1", query="")], [bare])
    assert (done.status, dict(done.outputs)) == ("success", {"1": "results for "})
    assert [getattr(IAgentToolCallbacks(), name) for name in IAgentToolCallbacks.__slots__] == [None] * 4


def test_the_interfaces_have_the_documented_members() -> None:
    assert issubclass(IAgentTool, ITool)
    assert set(get_type_hints(ITool)) == {"type", "function"}
    assert set(inspect.signature(IAgentTool).parameters) == {
        *("tool_name", "function", "call", "validate", "is_available", "callbacks", "doc_note", "type")
    }
    assert (IToolFunction.__required_keys__, IToolFunction.__optional_keys__) == (
        {"name"},
        {"description", "parameters"},
    )
    assert IToolParameters.__optional_keys__ == {"type", "properties", "required"}
    assert IToolProperty.__optional_keys__ == {"type", "description", "enum"}
    assert (IToolCall.__required_keys__, IToolCall.__optional_keys__) == ({"function"}, {"id", "type"})
    assert IToolCallFunction.__required_keys__ == {"name", "arguments"}
    assert IToolValidateDto.__match_args__ == ("client_id", "agent_name", "tool_calls", "params")
    assert set(get_args(ToolValue)) == {str, int, float, bool, type(None)}
    dto: IToolValidateDto = IToolValidateDto("client", "agent", (), {"a": 1})
    assert dict(dto) == {"client_id": "client", "agent_name": "agent", "tool_calls": (), "params": {"a": 1}}
    with pytest.raises(KeyError):
        dto["tool_id"]


def test_the_parameters_are_a_record_of_tool_values_by_default() -> None:
    assert ToolValue == str | int | float | bool | None
    for interface in (IAgentTool, IToolCallDto, IToolValidateDto, IAgentToolCallbacks):
        [parameter] = interface.__parameters__  # type: ignore[attr-defined]
        assert parameter.__default__ == dict[str, ToolValue]


def test_a_tool_may_be_subclassed_or_made_with_its_parts(names: dict[str, Any]) -> None:
    made = IAgentTool(tool_name="t", type="function", function={"name": "f"}, call=lambda dto: 1)
    assert (agent_tool(made).tool_name, agent_tool(names["Calculate"]()).tool_name) == ("t", "calculate-tool")
    with pytest.raises(DefinitionError, match="'call'"):
        IAgentTool(tool_name="t", function={"name": "f"})
    with pytest.raises(DefinitionError, match="'tool_name'"):
        IAgentTool(function={"name": "f"}, call=lambda dto: 1)
    with pytest.raises(DefinitionError, match="'function'"):
        IAgentTool(tool_name="t", call=lambda dto: 1)
