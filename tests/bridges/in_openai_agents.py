"""The agents of OpenAI's SDK with our tools, and its function tools with us. See test_frameworks.py."""

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from agents import (
    Agent,
    FunctionTool,
    Model,
    ModelResponse,
    RunContextWrapper,
    Runner,
    ToolGuardrailFunctionOutput,
    ToolOutputFileContent,
    ToolOutputImage,
    Usage,
    function_tool,
    tool_input_guardrail,
)
from bridged_tools import (  # noqa: F401 - no_events is for each test
    NEEDED,
    PNG,
    add,
    asks,
    check_needed,
    draw,
    events,
    no_events,
    searched,
    whoami,
    wipe,
)
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from pydantic import BaseModel

from toolcrib import Approve, Call, Caller, Crib, Image, Workbench, tool
from toolcrib.bridges import openai_agents as bridge
from toolcrib.core import Data, File
from toolcrib.tools import as_tool


class Scripted(Model):
    """A model that makes *calls*, one a turn, and then says "done"."""

    def __init__(self, *calls: tuple[str, str]) -> None:
        self.calls = list(calls)
        self.tools: list[list[Any]] = []
        self.seen: list[Any] = []

    async def get_response(self, *args: Any, input: Any, tools: Any, **_: Any) -> Any:  # type: ignore[override]
        self.tools.append(list(tools))
        outputs = [each for each in input if isinstance(each, dict) and each.get("type") == "function_call_output"]
        self.seen = [each["output"] for each in outputs]
        number = len(self.tools) - 1
        item: Any
        if number < len(self.calls):
            name, arguments = self.calls[number]
            call_id = f"call_{number}"
            item = ResponseFunctionToolCall(arguments=arguments, call_id=call_id, name=name, type="function_call")
        else:
            text = ResponseOutputText(annotations=[], text="done", type="output_text")
            item = ResponseOutputMessage(id="1", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse([item], Usage(), None)

    def stream_response(self, *args: Any, **_: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


async def test_an_agent_calls_through_the_whole_pipeline() -> None:
    model = Scripted(
        ("add", '{"numbers": "[1, \\"2\\"]"}'), ("add", '{"numbrs": [1]}'), ("add", "{not json"), ("draw", "{}")
    )
    agent = Agent("test", model=model, tools=[*bridge.tools(Workbench([add, draw]))])
    assert (await Runner.run(agent, "Go.")).final_output == "done"
    assert [each.name for each in model.tools[0]] == ["add", "draw"]
    added, misspelt, malformed, drawn = model.seen
    assert added == "3"
    assert "Did you mean 'numbers'?" in misspelt
    assert "not valid JSON" in malformed
    assert drawn[0]["text"] == "Here:"
    assert drawn[1]["image_url"] == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


@pytest.mark.parametrize("is_approved", [True, False])
async def test_an_approval_interrupts_the_run(is_approved: bool) -> None:
    model, bench = Scripted(("wipe", '{"path": "/"}')), Workbench([wipe], policy=asks)
    agent = Agent("test", model=model, tools=[*bridge.tools(bench)])
    waits = await Runner.run(agent, "Go.")
    (asked,) = waits.interruptions
    assert (asked.tool_name, events) == ("wipe", [])
    state = waits.to_state()
    if is_approved:
        state.approve(asked)
    else:
        state.reject(asked)
    done = await Runner.run(agent, state)
    assert done.final_output == "done"
    assert model.seen == (["wiped /"] if is_approved else ["Tool execution was not approved."])
    assert events == (["/"] if is_approved else [])
    assert await bench.pendings() == []


async def test_the_caller_of_a_run_comes_from_its_context() -> None:
    async with Crib([whoami]) as crib:
        model = Scripted(("whoami", '{"caller": "eve"}'), ("whoami", "{}"))
        made = bridge.tools(crib, caller=lambda context: Caller(context.context))
        agent: Agent[str] = Agent("test", model=model, tools=[*made])
        await Runner.run(agent, "Go.", context="alice")
        assert ("takes no argument 'caller'" in model.seen[0], model.seen[1]) == (True, "alice")
        model = Scripted(("whoami", "{}"))
        made = bridge.tools(crib, caller=lambda context: Caller(context.context["user"]))
        await Runner.run(Agent("test", model=model, tools=[*made]), "Go.", context={})
        assert "Tool 'whoami' is not available now: KeyError" in model.seen[0]


async def test_changes_of_the_tools_are_followed() -> None:
    bench = Workbench([add])
    made = bridge.tools(bench)
    agent = Agent("test", model=Scripted(), tools=made)  # type: ignore[arg-type]
    bench.registry.add(as_tool(draw))
    await Runner.run(agent, "Go.")
    assert [each.name for each in agent.model.tools[0]] == ["add", "draw"]  # type: ignore[union-attr]


async def test_what_a_search_or_a_large_result_brings_is_offered_within_the_run() -> None:
    model = Scripted(*((name, json.dumps(arguments)) for name, arguments in NEEDED))
    await Runner.run(Agent("test", model=model, tools=bridge.tools(searched())), "Go.")  # type: ignore[arg-type]
    check_needed(model.seen)
    offered = [{each.name for each in tools} for tools in model.tools]
    assert offered[0] == {"find_tools"}
    assert offered[1] == {"find_tools", "add"}
    assert offered[-1] == {"find_tools", "add", "report", "read_result"}


async def test_a_run_is_offered_what_its_caller_may_see() -> None:
    """A tool for administrators only is in the list of a crib, and not among those of a run of anybody else."""

    @tool(available=lambda caller: caller.principal == "admin")
    async def audit() -> str:
        """Audit."""
        return "audited"

    async with Crib([whoami, audit]) as crib:
        made = bridge.tools(crib, caller=lambda context: Caller(context.context))
        for user, expected in (("alice", ["whoami"]), ("admin", ["whoami", "audit"])):
            model = Scripted()
            agent: Agent[str] = Agent("test", model=model, tools=[*made])
            await Runner.run(agent, "Go.", context=user)
            assert [each.name for each in model.tools[0]] == expected


# In


@function_tool
async def greet(ctx: RunContextWrapper[str], greeting: str, times: int = 1) -> str:
    """Greet the user."""
    return " ".join([f"{greeting}, {ctx.context}!"] * times)


@function_tool(needs_approval=True)
def delete(path: str) -> str:
    """Delete."""
    events.append(path)
    return "deleted"


async def is_root(ctx: Any, arguments: dict[str, Any], call_id: str) -> bool:
    return arguments["path"] == "/"


@function_tool(needs_approval=is_root)
def guarded(path: str) -> str:
    """Delete, if it may."""
    events.append(path)
    return "deleted"


@function_tool
def broken() -> str:
    """Fail."""
    raise KeyError("inside")


def explain(ctx: Any, error: Exception) -> str:
    return f"Sorry: {type(error).__name__}."


@function_tool(failure_error_function=explain)
def explained() -> str:
    """Fail."""
    raise KeyError("inside")


@tool_input_guardrail
def no_root(data: Any) -> ToolGuardrailFunctionOutput:
    if "/" in json.loads(data.context.tool_arguments)["path"]:
        return ToolGuardrailFunctionOutput.reject_content("Not the root.")
    return ToolGuardrailFunctionOutput.allow()


@function_tool(tool_input_guardrails=[no_root])
def railed(path: str) -> str:
    """Delete."""
    events.append(path)
    return "deleted"


@function_tool(is_enabled=lambda ctx, agent: False)
def disabled() -> str:
    """Nothing."""
    return "on"


@function_tool
def picture() -> ToolOutputImage:
    """Draw."""
    return ToolOutputImage(image_url=f"data:image/png;base64,{base64.b64encode(PNG).decode()}")


async def test_their_tools_are_sources() -> None:
    assert isinstance(greet, FunctionTool)
    bench = Workbench([greet, broken, explained, railed, disabled, picture], variables={"context": "Ada"})
    assert set(bench.specs()[0].input_schema["properties"]) == {"greeting", "times"}
    assert (await bench.call("greet", '{"greeting": "Hi", "times": "2"}')).text == "Hi, Ada! Hi, Ada!"
    assert "takes no argument 'ctx'" in (await bench.call("greet", {"greeting": "Hi", "times": 1, "ctx": 1})).text
    failed = (await bench.call("broken")).shown()
    assert (failed.code, "KeyError" in failed.text, "inside" in failed.text) == ("failed", True, False)
    assert (await bench.call("explained")).shown()[::3] == ("Sorry: KeyError.", "failed")
    assert (await bench.call("railed", {"path": "/"})).shown()[::3] == ("Not the root.", "denied")
    assert (await bench.call("railed", {"path": "a"})).text == "deleted"
    assert (await bench.call("disabled")).shown().code == "unavailable"
    assert (await bench.call("picture")).shown().media == (Image(PNG),)


async def test_a_file_in_base64_alone_is_one_as_its_name_says() -> None:
    @function_tool
    def play(name: str | None = None) -> ToolOutputFileContent:
        """Play."""
        return ToolOutputFileContent(file_data=base64.b64encode(b"RIFF").decode(), filename=name)

    bench = Workbench([play])
    assert (await bench.call("play", {"name": "a.mp3"})).content == (File(b"RIFF", "audio/mpeg", "a.mp3"),)
    assert (await bench.call("play", {"name": None})).content == (File(b"RIFF", "application/octet-stream"),)


class Length(BaseModel):
    length: int


@function_tool(output_type=Length)
def count(text: str) -> Length:
    """Count."""
    return Length(length=len(text))


async def test_what_their_tools_promise_is_taken_over() -> None:
    bench = Workbench([count, greet])
    counts, greets = bench.specs()
    assert counts.output_schema is not None and counts.output_schema["properties"]["length"]["type"] == "integer"
    assert greets.output_schema is None
    assert (await bench.call("count", {"text": "four"})).content == (Data('{"length":4}'),)
    lying = replace(count, output_json_schema={"type": "object", "required": ["width"]})
    assert (await Workbench([lying]).call("count", {"text": "four"})).shown().code == "invalid_result"


@pytest.mark.parametrize("theirs", [delete, guarded])
async def test_their_approvals_hold(theirs: FunctionTool) -> None:
    bench = Workbench([theirs])
    call = Call(theirs.name, {"path": "/"})
    assert ((await bench.call(call)).status, events) == ("pending", [])
    await bench.answer(call_id=call.id, answer=Approve())
    assert ((await bench.call(call)).text, events) == ("deleted", ["/"])
    assert (await bench.call(call)).status == "pending"
    if theirs is guarded:
        assert (await bench.call("guarded", {"path": "a"})).text == "deleted"
