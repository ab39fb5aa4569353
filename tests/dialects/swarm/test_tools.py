"""The ways in which a tool may be written, and the errors for what cannot be a tool."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Call, Caller, Crib, SetupError, Workbench, tool
from toolcrib.core import DefinitionError, LoadError, NameConflictError, UnknownToolError
from toolcrib.dialects.swarm import (
    IAgentTool,
    IToolCallDto,
    IToolValidateDto,
    add_tool,
    agent_tool,
    commit_tool_output,
    execute_tools,
    get_tool,
    override_tool,
    resolve_tools,
)

FUNCTION = {
    "name": "calculate",
    "description": "Calculate.",
    "parameters": {
        "type": "object",
        "properties": {"terms": {"type": "array", "items": {"type": "number"}}},
        "required": ["terms"],
    },
}


async def total(dto: Any) -> float:
    return sum(dto["params"]["terms"])


class Calculate(IAgentTool):
    tool_name = "calculate-tool"
    function = FUNCTION
    refuses = 100.0

    async def call(self, dto: IToolCallDto) -> float:
        return sum(dto.params["terms"])

    async def validate(self, dto: IToolValidateDto) -> bool:
        return sum(dto.params["terms"]) < self.refuses


SNAKE = {"tool_name": "calculate-tool", "type": "function", "function": FUNCTION, "call": total}
CAMEL = {"toolName": "calculate-tool", "type": "function", "function": FUNCTION, "call": total}


@pytest.mark.parametrize(
    "written",
    [
        Calculate(),
        IAgentTool(tool_name="calculate-tool", function=FUNCTION, call=total),
        IAgentTool(tool_name="calculate-tool", type="function", function=lambda client, agent: FUNCTION, call=total),
        agent_tool(SNAKE),
        agent_tool(CAMEL),
    ],
    ids=["class", "object", "factory", "snake_case", "camelCase"],
)
async def test_every_way_of_writing_a_tool_is_the_same_tool_beside_native_ones(written: Any) -> None:
    @tool
    async def double(n: int) -> int:
        return 2 * n

    async with Workbench([written, double]) as bench:
        spec = bench.specs()[0]
        assert (spec.name, spec.description, spec.input_schema) == ("calculate", "Calculate.", FUNCTION["parameters"])
        results = await bench.call_many([("calculate", {"terms": [1, 2]}), ("double", {"n": 4})])
        assert [result.value for result in results] == [3, 8]
        missing = await bench.call("calculate", {})
        assert (missing.error and missing.error.code, missing.text) == (
            "invalid_arguments",
            "Tool 'calculate': 'terms' is missing. Expected array of number.",
        )
    done = await execute_tools(
        "c", "a", [{"function": {"name": "calculate", "arguments": {"terms": [1, 2]}}}], [written]
    )
    assert list(done.outputs.values()) == ["3"]


async def test_in_a_workbench_a_call_has_its_whole_life() -> None:
    seen: list[Any] = []

    async def call(dto: Any) -> str:
        seen.append(("call", dto.client_id, dto.agent_name, dto.tool_id, dto.is_last, len(dto.tool_calls)))
        await commit_tool_output(dto.tool_id, "committed", dto.client_id, dto.agent_name)
        if dto.params["terms"] == [0]:
            await asyncio.Event().wait()
        return "returned"

    names = ("on_validate", "on_before_call", "on_after_call", "on_call_error")
    written = IAgentTool(
        tool_name="calculate-tool",
        function=FUNCTION,
        call=call,
        validate=lambda dto: dto.params["terms"] != [],
        callbacks={name: lambda *arguments, name=name: seen.append(name) for name in names},
    )
    crib = Crib([written])
    bench = crib.workbench(Caller("alice"))
    assert (await bench.call(Call("calculate", {"terms": [1]}, "1"))).value == "committed"
    assert seen == ["on_validate", "on_before_call", ("call", "alice", "default", "1", True, 1), "on_after_call"]
    seen.clear()
    assert (await bench.call("calculate", {"terms": []})).text == "Tool 'calculate' does not accept these arguments."
    assert seen == ["on_validate"]
    seen.clear()
    late = await bench.call(Call("calculate", {"terms": [0]}, "2", timeout_s=0.05))
    assert (late.error and late.error.code, seen[-1]) == ("timeout", "on_call_error")
    await crib.stop()


async def test_two_tools_of_one_tool_name_are_refused_in_a_turn_too() -> None:
    other = {**SNAKE, "function": {**FUNCTION, "name": "other"}}
    with pytest.raises(NameConflictError, match="Two tools are named 'calculate-tool'"):
        await resolve_tools("c", "a", [SNAKE, other])
    assert len(await resolve_tools("c", "a", [SNAKE, dict(SNAKE)])) == 1


async def test_an_added_tool_is_found_and_its_parts_are_replaced() -> None:
    add_tool({**CAMEL, "toolName": "replaced-tool", "docNote": "Adds up."})
    assert (get_tool("replaced-tool").call, get_tool("replaced-tool").doc_note) == (total, "Adds up.")

    async def double(dto: Any) -> float:
        return 2 * sum(dto["params"]["terms"])

    name = override_tool({"toolName": "replaced-tool", "call": double})
    assert (name, get_tool("replaced-tool").call, get_tool("replaced-tool").doc_note) == (
        "replaced-tool",
        double,
        "Adds up.",
    )
    calls = [{"function": {"name": "calculate", "arguments": {"terms": [1, 2]}}}]
    assert list((await execute_tools("c", "a", calls, [name])).outputs.values()) == ["6"]
    with pytest.raises(DefinitionError, match="is written with 'toolName'"):
        override_tool({"tool_name": "replaced-tool", "call": total})
    with pytest.raises(DefinitionError, match="'call' is not a function"):
        override_tool({"toolName": "replaced-tool", "call": 3})
    with pytest.raises(DefinitionError, match="has no 'cal'"):
        override_tool({"toolName": "replaced-tool", "cal": total})
    assert get_tool("replaced-tool").call is double
    for unknown in (get_tool, lambda name: override_tool({"toolName": name})):
        with pytest.raises(UnknownToolError, match="There is no tool 'nowhere'"):
            unknown("nowhere")


async def test_only_available_tools_are_resolved_in_order_and_the_first_of_one_name() -> None:
    def available(answer: Any) -> Any:
        def is_available(client_id: str, agent_name: str, tool_name: str) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer if (client_id, agent_name) == ("ann", "sales") else False

        return is_available

    async def later(client_id: str, agent_name: str, tool_name: str) -> bool:
        await asyncio.sleep(0)
        return True

    def of(name: str, tool_name: str, is_available: Any) -> IAgentTool:
        return IAgentTool(tool_name=tool_name, function={"name": name}, call=total, is_available=is_available)

    tools = [
        of("a", "1", available(False)),
        of("b", "2", later),
        of("c", "3", available(RuntimeError())),
        of("a", "4", available(True)),
        of("b", "5", available(True)),
    ]
    assert [(each.tool_name, each.spec.name) for each in await resolve_tools("ann", "sales", tools)] == [
        ("2", "b"),
        ("4", "a"),
    ]
    assert [each.tool_name for each in await resolve_tools("bob", "sales", tools)] == ["2"]


async def test_a_factory_that_does_not_answer_is_not_waited_for() -> None:
    async def never(client_id: str, agent_name: str) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    with pytest.raises(SetupError, match=r"The function of tool 'made' was not returned within 0.05 s."):
        await execute_tools("c", "a", [], [IAgentTool(tool_name="made", function=never, call=total)], timeout_s=0.05)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({**SNAKE, "type": "api"}, "Tool 'calculate-tool': 'api' is not a type of tool. The types are: 'function'."),
        ({**CAMEL, "doc_note": ""}, "A tool is written in one spelling, and this one has 'toolName' and 'doc_note'."),
        ({**CAMEL, "isAvaliable": total}, "A tool has no 'isAvaliable'. Did you mean 'isAvailable'?"),
        ({"type": "function"}, "A tool needs a 'tool_name', its name in the swarm."),
        ({"toolName": "x", "function": FUNCTION}, "Tool 'x' has no 'call'."),
        ({**SNAKE, "call": "total"}, "Tool 'calculate-tool': 'call' is not a function."),
        ({**CAMEL, "isAvailable": True}, "Tool 'calculate-tool': 'isAvailable' is not a function."),
        ({**SNAKE, "function": {"description": ""}}, "function.name: None cannot be the name of a tool"),
        ({**SNAKE, "function": {"name": "a b"}}, "function.name: 'a b' cannot be the name of a tool"),
        ({**SNAKE, "function": "calculate"}, "'function' is a dictionary with name, description and parameters"),
        ({**SNAKE, "function": {"name": "a", "parameters": {"type": "array"}}}, "the root of function.parameters has"),
        ({**SNAKE, "callbacks": {"onCall": total}}, "has no callback 'onCall'."),
        ({**CAMEL, "callbacks": {"onCall": total}}, "It has: onBeforeCall, onAfterCall, onValidate, onCallError."),
        ({**SNAKE, "callbacks": {"onAfterCall": 1}}, "callback 'onAfterCall' is not a function."),
        (Calculate, "Calculate is a class, not a tool. Make a tool of it: Calculate()."),
        (5, "A tool is an IAgentTool, or a dictionary like one; not int."),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_the_way_out(wrong: Any, message: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        add_tool(wrong)
    assert message in str(raised.value)


def test_a_file_that_is_loaded_again_replaces_its_tools(tmp_path: Path) -> None:
    file = tmp_path / "adds.py"
    text = """
from toolcrib.dialects.swarm import add_tool

ECHO = add_tool({
    "toolName": "echo-of-a-file",
    "type": "function",
    "function": {"name": "echo", "description": "Echo.", "parameters": {"type": "object", "properties": {}}},
    "call": lambda dto: "FIRST",
})
"""
    file.write_text(text)
    assert Workbench([f"{file}:ECHO"]).call_sync("echo").text == "FIRST"
    file.write_text(text.replace("FIRST", "second"))
    assert Workbench([f"{file}:ECHO"]).call_sync("echo").text == "second"
    file.write_text(text + text.partition("ECHO = ")[2])
    with pytest.raises(LoadError, match="already exists"):
        Workbench([f"{file}:ECHO"])
