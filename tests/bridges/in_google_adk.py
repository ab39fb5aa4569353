"""The ADK's agents with our tools, and its tools with us. It runs where the ADK is: see test_frameworks.py."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from bridged_tools import (  # noqa: F401 - no_events is for each test
    NEEDED,
    PNG,
    add,
    check_needed,
    draw,
    events,
    no_events,
    searched,
    whoami,
    wipe,
)
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool, ToolContext
from google.adk.tools.base_toolset import BaseToolset
from google.genai import types

from toolcrib import Approve, Call, Caller, Crib, Workbench
from toolcrib.bridges import google_adk as bridge


class Scripted(BaseLlm):
    """A model that makes *calls*, one a turn, and then says "done"."""

    model: str = "scripted"
    calls: list[Any] = []
    offered: list[Any] = []
    seen: list[Any] = []

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.offered.append(
            [each for tools in llm_request.config.tools or [] for each in tools.function_declarations or []]
        )
        parts = [part for content in llm_request.contents for part in content.parts or []]
        self.seen[:] = [part.function_response.response for part in parts if part.function_response]
        if len(self.seen) < len(self.calls):
            name, arguments = self.calls[len(self.seen)]
            part = types.Part(function_call=types.FunctionCall(name=name, args=arguments))
        else:
            part = types.Part(text="done")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def scripted(*calls: tuple[str, Any]) -> Scripted:
    return Scripted(calls=list(calls), offered=[], seen=[])


class Session:
    """A conversation with an agent that has *tools*."""

    def __init__(self, model: Scripted, tools: list[Any], user: str = "alice") -> None:
        self.runner = InMemoryRunner(agent=LlmAgent(name="test", model=model, tools=tools), app_name="test")
        self.user = user
        self.id: str | None = None

    async def say(self, *parts: types.Part) -> list[Any]:
        if self.id is None:
            made = await self.runner.session_service.create_session(app_name="test", user_id=self.user)
            self.id = made.id
        message = types.Content(role="user", parts=list(parts))
        return [
            event async for event in self.runner.run_async(user_id=self.user, session_id=self.id, new_message=message)
        ]


GO = types.Part(text="Go.")


async def test_an_agent_calls_through_the_whole_pipeline() -> None:
    model = scripted(("add", {"numbers": '[1, "2"]'}), ("add", {"numbrs": [1]}))
    bench = Workbench([add])
    session = Session(model, [bridge.toolset(bench)])
    found = await session.say(GO)
    assert found[-1].content.parts[0].text == "done"
    (declared,) = model.offered[0]
    assert declared.parameters_json_schema["properties"]["numbers"]["type"] == "array"
    added, misspelt = model.seen
    assert (added["result"], [each["path"] for each in added["repairs"]]) == (3, ["/numbers", "/numbers/1"])
    assert ("Did you mean 'numbers'?" in misspelt["error"], misspelt["code"]) == (True, "invalid_arguments")
    assert bench.is_started
    await session.runner.close()
    assert not bench.is_started


async def test_images_are_parts_of_the_function_response() -> None:
    session = Session(model := scripted(("draw", {})), [bridge.toolset(Workbench([draw]))])
    events = await session.say(GO)
    (response,) = [response for event in events for response in event.get_function_responses()]
    assert model.seen == [{"result": "Here:"}]
    assert [(part.inline_data.mime_type, part.inline_data.data) for part in response.parts] == [("image/png", PNG)]


@pytest.mark.parametrize("is_confirmed", [True, False])
async def test_an_approval_is_a_confirmation(is_confirmed: bool) -> None:
    bench = Workbench([wipe], policy=lambda *_: "ask")
    session = Session(model := scripted(("wipe", {"path": "/"})), [bridge.toolset(bench)])
    calls = [call for event in await session.say(GO) for call in event.get_function_calls()]
    asked = next(call for call in calls if call.name == "adk_request_confirmation")
    assert asked.args is not None
    assert asked.args["toolConfirmation"]["hint"] == "May 'wipe' run with these arguments?"
    assert events == []
    response = types.FunctionResponse(id=asked.id, name=asked.name, response={"confirmed": is_confirmed})
    await session.say(types.Part(function_response=response))
    assert events == (["/"] if is_confirmed else [])
    outcome = {"result": "wiped /"} if is_confirmed else "Tool 'wipe' was not executed: 'local' denied it."
    assert outcome in [each if is_confirmed else each.get("error") for each in model.seen]


async def test_the_caller_of_a_run_comes_from_its_context() -> None:
    async with Crib([whoami]) as crib:
        made = bridge.toolset(crib, caller=lambda context: Caller(context.user_id))
        for user in ("alice", "bob"):
            model = scripted(("whoami", {"caller": "eve"}), ("whoami", {}))
            await Session(model, [made], user).say(GO)
            assert "takes no argument 'caller'" in model.seen[0]["error"]
            assert model.seen[1] == {"result": user}


async def test_what_a_search_or_a_large_result_brings_is_offered_within_the_run() -> None:
    session = Session(model := scripted(*NEEDED), [bridge.toolset(searched())])
    await session.say(GO)
    check_needed([str(each).replace("'", '"').replace(": ", ":") for each in model.seen[:-1]] + [str(model.seen[-1])])


# In


def greet(greeting: str, tool_context: ToolContext, times: int = 1) -> str:
    """Greet the user."""
    tool_context.state["count"] = tool_context.state.get("count", 0) + 1
    return " ".join([f"{greeting}, {tool_context.user_id}!"] * times)


def delete(path: str) -> dict[str, str]:
    """Delete."""
    events.append(path)
    return {"status": "deleted"}


def broken() -> str:
    """Fail."""
    raise KeyError("inside")


class Set(BaseToolset):
    async def get_tools(self, readonly_context: Any = None) -> list[Any]:
        return [FunctionTool(delete)]

    async def close(self) -> None:
        events.append("close")


async def test_their_tools_are_sources() -> None:
    async with Crib([FunctionTool(greet), FunctionTool(broken)]) as crib:
        bench = crib.workbench(Caller("ada"))
        assert [spec.name for spec in bench.specs()] == ["greet", "broken"]
        assert set(bench.specs()[0].input_schema["properties"]) == {"greeting", "times"}
        assert (await bench.call("greet", '{"greeting": "Hi", "times": "2"}')).text == "Hi, ada! Hi, ada!"
        refused = await bench.call("greet", {"greeting": "Hi", "tool_context": 1})
        assert "takes no argument 'tool_context'" in refused.text
        failed = (await bench.call("broken")).shown()
        assert (failed.code, "inside" in failed.text) == ("failed", False)


async def test_a_toolset_lives_with_the_workbench() -> None:
    async with Workbench([Set(tool_name_prefix="my")]) as bench:
        assert [spec.name for spec in bench.specs()] == ["my_delete"]
        assert (await bench.call("my_delete", {"path": "a"})).value == {"status": "deleted"}
    assert events == ["a", "close"]


async def test_their_confirmations_hold() -> None:
    bench = Workbench([FunctionTool(delete, require_confirmation=True)])
    call = Call("delete", {"path": "/"})
    assert ((await bench.call(call)).status, events) == ("pending", [])
    await bench.answer(call_id=call.id, answer=Approve())
    assert ((await bench.call(call)).value, events) == ({"status": "deleted"}, ["/"])
    assert (await bench.call(call)).status == "pending"
