"""LlamaIndex's agents with our tools, and its tools with us. It runs where LlamaIndex is: see test_frameworks.py."""

from collections.abc import Sequence
from typing import Any

import pytest
from bridged_tools import (  # noqa: F401 - no_events is for each test
    LISTED,
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
from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.tools import FunctionTool, ToolOutput
from llama_index.core.tools.tool_spec.base import BaseToolSpec
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent

from toolcrib import Caller, Crib, Workbench, tool
from toolcrib.bridges import llamaindex as bridge
from toolcrib.tools import as_tool


class Scripted:
    """A model that makes *calls*, one a turn, and then says "done"."""

    def __init__(self, *calls: tuple[str, Any]) -> None:
        self.calls = list(calls)
        self.offered: list[Any] = []
        self.llm = MockFunctionCallingLLM(response_generator=self._reply, is_chat_model=True)

    def _reply(self, messages: Sequence[ChatMessage], **options: Any) -> ChatMessage:
        self.offered.append(options.get("tools"))
        number = sum(message.role == "tool" for message in messages)
        if number < len(self.calls):
            name, arguments = self.calls[number]
            block = ToolCallBlock(tool_call_id=f"call_{number}", tool_name=name, tool_kwargs=arguments)
            return ChatMessage(role="assistant", blocks=[block])
        return ChatMessage(role="assistant", content="done")


async def run(model: Scripted, tools: Any, answer: str | None = None, **options: Any) -> list[ToolOutput]:
    agent = FunctionAgent(tools=tools, llm=model.llm, streaming=False, **options)
    handler = agent.run("Go.")
    results: list[ToolOutput] = []
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            events.append(f"asked: {event.prefix} {event.get('arguments')}")
            response = HumanResponseEvent(response=answer, pending_id=event.get("pending_id"))  # type: ignore[arg-type]
            handler.ctx.send_event(response)
        if isinstance(event, ToolCallResult):
            results.append(event.tool_output)
    assert str(await handler) == "done"
    return results


async def test_an_agent_calls_through_the_whole_pipeline() -> None:
    model = Scripted(("add", {"numbers": '[1, "2"]'}), ("add", {"numbrs": [1]}), ("draw", {}), ("wash", {}))
    added, misspelt, drawn, unknown = await run(model, bridge.tools(Workbench([add, draw])))
    assert (added.content, added.is_error, added.raw_output.value) == ("3", False, 3)
    assert ("Did you mean 'numbers'?" in misspelt.content, misspelt.is_error) == (True, True)
    assert misspelt.raw_output.error.code == "invalid_arguments"
    text, picture = drawn.blocks
    assert isinstance(text, TextBlock)
    assert isinstance(picture, ImageBlock)
    assert (text.text, picture.resolve_image().read()) == ("Here:", PNG)
    assert "wash" in unknown.content


def test_the_schema_is_that_of_the_tool_and_long_descriptions_pass() -> None:
    async def long() -> None: ...

    long.__doc__ = "x" * 2000
    made = bridge.tools(Workbench([add, tool(long)]))
    first = made[0].metadata.to_openai_tool()["function"]
    assert first["parameters"]["properties"]["numbers"]["type"] == "array"
    assert first["parameters"]["additionalProperties"] is False
    assert len(made[1].metadata.to_openai_tool()["function"]["description"]) == 2000


@pytest.mark.parametrize(
    ("answer", "outcome"), [("yes", "wiped /"), ("no", "Tool 'wipe' was not executed: 'local' denied it: no")]
)
async def test_an_approval_is_an_event_of_the_workflow(answer: str, outcome: str) -> None:
    bench = Workbench([wipe], policy=lambda *_: "ask")
    (result,) = await run(Scripted(("wipe", {"path": "/"})), bridge.tools(bench, wait=True), answer)
    assert result.content == outcome
    asked = """asked: May 'wipe' run with these arguments? {"path": "/"}"""
    assert events == ([asked, "/"] if answer == "yes" else [asked])


async def test_without_waiting_the_model_learns_that_the_call_waits() -> None:
    (result,) = await run(Scripted(("wipe", {"path": "/"})), bridge.tools(Workbench([wipe], policy=lambda *_: "ask")))
    assert ("it waits for approval" in result.content, result.is_error, events) == (True, True, [])


async def test_the_caller_of_a_run_comes_from_its_context() -> None:
    async with Crib([whoami]) as crib:
        made = bridge.tools(crib, caller=lambda context: Caller(type(context).__name__))
        results = await run(Scripted(("whoami", {"caller": "eve"}), ("whoami", {})), made)
        assert "takes no argument 'caller'" in results[0].content
        assert results[1].content == "Context"
        (nobody,) = await run(Scripted(("whoami", {})), bridge.tools(crib, caller=lambda context: context["user"]))
        assert ("Tool 'whoami' is not available now" in nobody.content, nobody.is_error) == (True, True)


@pytest.mark.parametrize("kind", ["tools", "retriever"])
async def test_what_a_search_or_a_large_result_brings_is_offered_within_the_run(kind: str) -> None:
    model = Scripted(*(NEEDED if kind == "retriever" else LISTED))
    made = getattr(bridge, kind)(searched())
    results = await run(
        model, *([made] if kind == "tools" else [None]), **({} if kind == "tools" else {"tool_retriever": made})
    )
    check_needed([each.content for each in results])


async def test_an_agent_with_the_retriever_follows_changes_within_a_run() -> None:
    @tool
    async def learn() -> str:
        """Learn to add, and forget to learn."""
        bench.registry.add(as_tool(add))
        bench.registry.remove("learn")
        return "learned"

    bench = Workbench([learn])
    model = Scripted(("learn", {}), ("add", {"numbers": [1, 2]}), ("learn", {}))
    learned, added, forgotten = await run(model, None, tool_retriever=bridge.retriever(bench))
    assert (learned.content, added.content, forgotten.is_error) == ("learned", "3", True)
    assert [[each.metadata.name for each in tools] for tools in model.offered] == [["learn"], *[["add"]] * 3]


# In


async def greet(ctx: Context, greeting: str, times: int = 1) -> str:
    """Greet the user."""
    return " ".join([f"{greeting}, {ctx}!"] * times)


def measure(text: str) -> dict[str, int]:
    """Measure."""
    if not text:
        raise ValueError("inside")
    return {"length": len(text)}


def picture() -> list[Any]:
    """Draw."""
    return [TextBlock(text="Here:"), ImageBlock(image=PNG, image_mimetype="image/png")]


class Spec(BaseToolSpec):
    spec_functions = ["shout"]

    def shout(self, text: str) -> str:
        """Shout."""
        return text.upper()


async def test_their_tools_are_sources() -> None:
    theirs = [FunctionTool.from_defaults(each) for each in (greet, measure, picture)]
    bench = Workbench([*theirs, Spec()], variables={"ctx": "Ada"})
    assert [spec.name for spec in bench.specs()] == ["greet", "measure", "picture", "shout"]
    assert set(bench.specs()[0].input_schema["properties"]) == {"greeting", "times"}
    assert (await bench.call("greet", '{"greeting": "Hi", "times": "2"}')).text == "Hi, Ada! Hi, Ada!"
    assert "takes no argument 'ctx'" in (await bench.call("greet", {"greeting": "Hi", "ctx": 1})).text
    assert (await bench.call("measure", {"text": "four"})).value == {"length": 4}
    failed = (await bench.call("measure", {"text": ""})).shown()
    assert (failed.code, "inside" in failed.text) == ("failed", False)
    shown = (await bench.call("picture")).shown()
    assert (shown.text, [each.data for each in shown.media]) == ("Here:", [PNG])
    assert (await bench.call("shout", {"text": "a"})).text == "A"


async def test_what_nobody_gives_is_refused_with_the_reason() -> None:
    refused = (await Workbench([FunctionTool.from_defaults(greet)]).call("greet", {"greeting": "Hi"})).shown()
    assert (refused.code, "needs 'ctx' of its agent or host" in refused.text) == ("unavailable", True)


async def test_a_model_cannot_write_the_context_of_a_run() -> None:
    crib = Crib([whoami])
    made, _ = bridge.tools(crib, caller=lambda context: Caller(context["user"] if context else "nobody"), wait=True)
    refused = await made.acall(toolcrib_context={"user": "admin"})
    assert (refused.is_error, "takes no argument 'toolcrib_context'" in refused.content) == (True, True)
    assert (await made.acall()).content == "nobody"
    await crib.stop()


async def test_a_workflow_can_be_saved_whatever_a_call_has_brought() -> None:
    @tool
    async def give(what: str) -> Any:
        """Give."""
        return {"bytes": b"\xff", "object": {1}, "half": "\ud800"}[what]

    model = Scripted(*(("give", {"what": what}) for what in ("bytes", "object", "half", "nothing")))
    agent = FunctionAgent(tools=bridge.tools(Workbench([give])), llm=model.llm, streaming=False)
    handler = agent.run("Go.")
    async for event in handler.stream_events():
        handler.ctx.to_dict()
        if isinstance(event, ToolCallResult):
            saved = event.model_dump(mode="json")["tool_output"]["raw_output"]
            assert saved["status"] == event.tool_output.raw_output.status
    assert str(await handler) == "done"
