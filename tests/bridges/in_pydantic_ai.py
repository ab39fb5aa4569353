"""Pydantic AI's agents with our tools, and its tools with us. It runs where Pydantic AI is: see test_frameworks.py."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from bridged_tools import (  # noqa: F401 - no_events is for each test
    NEEDED,
    PNG,
    REPORTED,
    Live,
    add,
    asks,
    check_needed,
    draw,
    events,
    index,
    no_events,
    searched,
    whoami,
    wipe,
)
from pydantic_ai import Agent, ApprovalRequired, FunctionToolset, ModelRetry, RunContext, ToolReturn
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, Tool, ToolApproved, ToolDefinition

from toolcrib import Approve, Call, Caller, Crib, Image, Text, ToolError, Workbench, tool
from toolcrib.bridges import pydantic_ai as bridge
from toolcrib.core import Data, Hints
from toolcrib.workbench import Ask


class Scripted:
    """A model that makes *calls*, one a turn, and then says "done"."""

    def __init__(self, *calls: tuple[str, Any]) -> None:
        self.calls = list(calls)
        self.seen: list[Any] = []
        self.tools: list[list[Any]] = []
        self.model = FunctionModel(self._reply)

    def _reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.seen = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        self.tools.append(info.function_tools)
        number = sum(isinstance(message, ModelResponse) for message in messages)
        if number < len(self.calls):
            name, arguments = self.calls[number]
            return ModelResponse([ToolCallPart(name, arguments, tool_call_id=f"call_{number}")])
        return ModelResponse([TextPart("done")])


async def test_an_agent_calls_through_the_whole_pipeline() -> None:
    model = Scripted(
        ("add", '{"numbers": "[1, \\"2\\"]"}'),
        ("add", '{"numbrs": [1]}'),
        ("add", "{not json"),
        ("draw", {}),
        ("wash", {}),
    )
    agent = Agent(model.model, toolsets=[bridge.toolset(Workbench([add, draw]))], retries=2)
    assert (await agent.run("Go.")).output == "done"
    assert [each.name for each in model.tools[0]] == ["add", "draw"]
    assert model.tools[0][0].parameters_json_schema["properties"]["numbers"]["type"] == "array"
    added, misspelt, malformed, drawn, unknown = model.seen
    assert added.content == 3
    assert [each["path"] for each in added.metadata["repairs"]] == ["/numbers", "/numbers/1"]
    assert "Did you mean 'numbers'?" in str(misspelt.content)
    assert "not valid JSON" in str(malformed.content)
    assert isinstance(drawn.content[1], BinaryContent) and drawn.content[1].data == PNG
    assert "wash" in str(unknown.content)


async def test_a_workbench_starts_and_stops_with_each_run_unless_somebody_has_started_it() -> None:
    bench = Workbench([Live()])
    agent = Agent(Scripted(("add", {"numbers": [1]})).model, toolsets=[bridge.toolset(bench)])
    for _ in range(2):
        await agent.run("Go.")
    assert events == ["start", "stop"] * 2
    async with bench:
        await agent.run("Go.")
        assert (await bench.call("add", {"numbers": [1]})).value == 1
    assert events == ["start", "stop"] * 3


async def test_what_a_search_or_a_large_result_brings_is_offered_within_the_run() -> None:
    model = Scripted(*NEEDED)
    await Agent(model.model, toolsets=[bridge.toolset(searched())]).run("Go.")
    check_needed([each.model_response_str() for each in model.seen])


async def waiting(bench: Workbench) -> tuple[Scripted, Agent[Any, Any], Any, DeferredToolRequests]:
    """A run in which 'wipe' waits: its model, its agent, its result, and what is asked."""
    model = Scripted(("wipe", {"path": "/"}))
    agent = Agent(model.model, toolsets=[bridge.toolset(bench)], output_type=[str, DeferredToolRequests])
    waits = await agent.run("Go.")
    assert isinstance(waits.output, DeferredToolRequests)
    return model, agent, waits, waits.output


async def test_an_approval_is_the_frameworks_own() -> None:
    bench = Workbench([wipe], policy=asks)
    for answer, outcome in ((True, "wiped /"), (False, "The tool call was denied.")):
        model, agent, waits, requests = await waiting(bench)
        (asked,) = requests.approvals
        assert requests.metadata[asked.tool_call_id]["toolcrib"]["message"] == "Really?"
        results = DeferredToolResults(approvals={asked.tool_call_id: answer})
        done = await agent.run(message_history=waits.all_messages(), deferred_tool_results=results)
        assert (done.output, model.seen[0].content) == ("done", outcome)
        assert await bench.pendings() == []
    assert events == ["/"]


async def test_a_person_may_override_the_arguments() -> None:
    bench = Workbench([wipe], policy=asks)
    model, agent, waits, requests = await waiting(bench)
    (asked,) = requests.approvals
    results = DeferredToolResults(approvals={asked.tool_call_id: ToolApproved(override_args={"path": "/tmp"})})
    done = await agent.run(message_history=waits.all_messages(), deferred_tool_results=results)
    assert (done.output, events) == ("done", ["/tmp"])
    told = model.seen[0]
    assert told.content == ["wiped /tmp", '\'local\' has changed the arguments of this call to: {"path": "/tmp"}']
    assert json.loads(told.metadata["decision"]["edited"]) == {"path": "/tmp"}
    assert await bench.pendings() == []


async def test_where_others_have_to_approve_the_framework_cannot() -> None:
    bench = Workbench([wipe], policy=lambda *_: Ask("Really?", others_only=True))
    model, agent, waits, requests = await waiting(bench)
    approved = requests.build_results(approve_all=True)
    await agent.run(message_history=waits.all_messages(), deferred_tool_results=approved)
    assert "The caller may not answer it: its rule has `others_only`." in model.seen[0].content
    assert events == []
    await bench.answer(model.seen[0].metadata["pending"]["id"], Approve(), by="bob")
    async with bench:
        assert (await bench.call("wipe", {"path": "/"})).text == "wiped /"


async def test_without_deferring_the_model_learns_that_the_call_waits() -> None:
    model = Scripted(("wipe", {"path": "/"}))
    agent = Agent(model.model, toolsets=[bridge.toolset(Workbench([wipe], policy=asks), defer=False)])
    await agent.run("Go.")
    assert "it waits for approval: Really?" in model.seen[0].content


async def test_the_retries_of_a_tool_end_the_run_as_natively() -> None:
    """Also where the tool's own error says that the model has to change something; other failures are no retries."""

    @tool
    async def pick(number: int) -> str:
        """Pick."""
        raise ToolError("Pick another.", retry="changed") if number else ToolError("It is down.", "unavailable")

    for arguments in ({"numbr": 1}, {"number": 1}):
        agent = Agent(
            Scripted(*[("pick", arguments)] * 9).model, toolsets=[bridge.toolset(Workbench([pick]))], retries=3
        )
        with pytest.raises(UnexpectedModelBehavior, match="'pick' exceeded max retries count of 3"):
            await agent.run("Go.")
    model = Scripted(*[("pick", {"number": 0})] * 9)
    agent = Agent(model.model, toolsets=[bridge.toolset(Workbench([pick]))])
    assert (await agent.run("Go.")).output == "done"
    assert [each.outcome for each in model.seen] == ["failed"] * 9


async def test_what_a_tool_reports_is_among_the_events_of_the_run() -> None:
    model = Scripted(("index", {}))

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        reply = model._reply(messages, info)
        for number, part in enumerate(reply.parts):
            if isinstance(part, ToolCallPart):
                yield {number: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}
            else:
                yield "done"

    agent = Agent(FunctionModel(stream_function=stream), toolsets=[bridge.toolset(Workbench([index]))])
    reports = []
    async with agent.run_stream_events("Go.") as run:
        async for event in run:
            if isinstance(event, bridge.ToolcribReport):
                reports.append((event.tool_call_id, event.report))
    beside = {"tool": "index", "tool_call_id": "call_0"}
    assert reports == [("call_0", beside | report) for report in REPORTED]


async def test_the_caller_of_a_run_comes_from_its_dependencies() -> None:
    async with Crib([whoami]) as crib:
        model = Scripted(("whoami", '{"caller": "eve"}'), ("whoami", "{}"))
        made = bridge.toolset(crib, caller=lambda context: Caller(context.deps))
        agent = Agent(model.model, deps_type=str, toolsets=[made])
        await agent.run("Go.", deps="alice")
        assert "takes no argument 'caller'" in str(model.seen[0].content)
        assert model.seen[1].content == "alice"
        await agent.run("Go.", deps="bob")
        assert model.seen[1].content == "bob"


# In


@dataclass
class Deps:
    user: str


theirs: FunctionToolset[Deps] = FunctionToolset()


@theirs.tool
async def greet(ctx: RunContext[Deps], greeting: str, times: int = 1) -> str:
    """Greet the user."""
    return " ".join([f"{greeting}, {ctx.deps.user}!"] * times)


@theirs.tool_plain
def retry() -> str:
    """Fail."""
    raise ModelRetry("Give another name.")


@theirs.tool_plain
def picture() -> ToolReturn:
    """Draw."""
    return ToolReturn("Here:", content=[BinaryContent(PNG, media_type="image/png")])


@theirs.tool_plain(requires_approval=True)
def delete(path: str) -> str:
    """Delete."""
    events.append(path)
    return "deleted"


@theirs.tool
def guarded(ctx: RunContext[Deps], path: str) -> str:
    """Delete, if it may."""
    if path == "/" and not ctx.tool_call_approved:
        raise ApprovalRequired
    events.append(path)
    return "deleted"


@theirs.tool
async def ask_model(ctx: RunContext[Deps]) -> str:
    """Ask the model."""
    return str(await Agent(ctx.model).run("Hello."))


async def test_a_toolset_is_a_source() -> None:
    async with Workbench([theirs], variables={"deps": Deps("Ada")}) as bench:
        assert [spec.name for spec in bench.specs()] == ["greet", "retry", "picture", "delete", "guarded", "ask_model"]
        assert "ctx" not in bench.specs()[0].input_schema["properties"]
        assert (await bench.call("greet", '{"greeting": "Hi", "times": "2"}')).text == "Hi, Ada! Hi, Ada!"
        assert "takes no argument 'user'" in (await bench.call("greet", {"greeting": "Hi", "user": "eve"})).text
        assert (await bench.call("retry")).shown()[::3] == ("Give another name.", "invalid_arguments")
        shown = (await bench.call("picture")).shown()
        assert (shown.text, [each.data for each in shown.media]) == ("Here:", [PNG])
        assert (await bench.call("ask_model")).shown().code is not None


async def test_what_their_tools_promise_is_taken_over() -> None:
    promising: FunctionToolset[Any] = FunctionToolset()
    running: list[str] = []

    @promising.tool_plain(sequential=True, metadata={"annotations": {"readOnlyHint": True, "title": "Count"}})
    async def count(text: str) -> ToolReturn[dict[str, int]]:
        """Count."""
        running.append(text)
        await asyncio.sleep(0)
        assert running == [text], "alone"
        running.remove(text)
        return ToolReturn({"length": len(text)}, content=["Drawn:", BinaryContent(PNG, media_type="image/png")])

    @promising.tool_plain
    def lie() -> int:
        """Return a text."""
        return "no number"  # type: ignore[return-value]

    @promising.tool_plain
    def drawn() -> BinaryContent:
        """Draw."""
        return BinaryContent(PNG, media_type="image/png")

    async with Workbench([promising]) as bench:
        counts, lies, draws = bench.specs()
        assert (counts.hints, counts.output_schema) == (
            Hints(read_only=True),
            {"type": "object", "additionalProperties": {"type": "integer"}},
        )
        assert (lies.output_schema, draws.output_schema) == ({"type": "integer"}, None)
        one, other = await bench.call_many([Call("count", {"text": "a"}), Call("count", {"text": "four"})])
        assert one.content == (Data('{"length":1}'), Text("Drawn:"), Image(PNG))
        assert other.content[0] == Data('{"length":4}')
        assert (await bench.call("lie")).shown().code == "invalid_result"
        assert (await bench.call("drawn")).content == (Image(PNG),)


@pytest.mark.parametrize("name", ["delete", "guarded"])
async def test_their_approvals_hold(name: str) -> None:
    async with Workbench([theirs]) as bench:
        call = Call(name, {"path": "/"})
        assert (await bench.call(call)).status == "pending"
        assert events == []
        await bench.answer(call_id=call.id, answer=Approve())
        assert ((await bench.call(call)).text, events) == ("deleted", ["/"])
        assert (await bench.call(call)).status == "pending"


async def test_a_tool_alone_is_a_source_and_a_toolset_lives_with_the_workbench() -> None:
    class Connected(FunctionToolset[Any]):
        async def __aenter__(self) -> Any:
            events.append("enter")
            return await super().__aenter__()

        async def __aexit__(self, *args: Any) -> Any:
            events.append("leave")
            return await super().__aexit__(*args)

    def plain(a: int) -> int:
        """Return it."""
        return a

    async with Workbench([Tool(plain), Connected([Tool(retry, name="again")])]) as bench:
        assert [spec.name for spec in bench.specs()] == ["plain", "again"]
        assert (await bench.call("plain", {"a": 1})).value == 1
    assert events == ["enter", "leave"]


@pytest.mark.parametrize("kind", ["unapproved", "external"])
async def test_a_gate_that_a_tool_has_for_some_callers_only_holds_for_them(kind: Any) -> None:
    async def for_alice(ctx: RunContext[Any], of: ToolDefinition) -> ToolDefinition:
        return replace(of, kind=kind) if ctx.deps == "alice" else of

    theirs = FunctionToolset()

    @theirs.tool(prepare=for_alice)
    def erase(ctx: RunContext[Any], path: str) -> str:
        """Delete."""
        events.append(path)
        return "erased"

    for name, status in (("bob", "success"), ("alice", "pending" if kind == "unapproved" else "error")):
        async with Workbench([theirs], variables={"deps": name}) as bench:
            result = await bench.call("erase", {"path": name})
            assert (result.status, events) == (status, ["bob"])
            if result.pending is not None:
                await bench.answer(result.pending.id, Approve())
                assert (await bench.call("erase", {"path": name})).value == "erased"
