"""AgentChat's agents with our tools and the dialect's, and AutoGen's tools with us. See test_frameworks.py."""

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import TextMessage, ToolCallExecutionEvent
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import CreateResult, ModelFamily, RequestUsage
from autogen_core.tools import BaseToolWithState, FunctionTool, StaticWorkbench
from autogen_ext.models.replay import ReplayChatCompletionClient
from bridged_tools import (  # noqa: F401 - no_events is for each test
    LISTED,
    NEEDED,
    PNG,
    add,
    check_needed,
    events,
    no_events,
    searched,
    wipe,
)
from pydantic import BaseModel

from toolcrib import Context, Image, Workbench, tool
from toolcrib.bridges import autogen as bridge
from toolcrib.dialects.autogen import tools as dialect
from toolcrib.tools import as_tool


@tool
async def draw(is_broken: bool = False) -> list[Any]:
    """Draw."""
    return ["Here:", Image(b"no image" if is_broken else PNG)]


@tool
async def endless(context: Context) -> None:
    """Wait."""
    events.append("begun")
    try:
        await asyncio.Event().wait()
    finally:
        events.append("ended")


def scripted(*calls: tuple[str, str]) -> ReplayChatCompletionClient:
    """A model that makes *calls*, one a turn, and then says "done"."""
    replies: list[Any] = [
        CreateResult(
            finish_reason="function_calls",
            content=[FunctionCall(id=f"call_{number}", name=name, arguments=arguments)],
            usage=RequestUsage(prompt_tokens=0, completion_tokens=0),
            cached=False,
        )
        for number, (name, arguments) in enumerate(calls)
    ]
    info: Any = {
        "vision": True,
        "function_calling": True,
        "json_output": True,
        "family": ModelFamily.UNKNOWN,
        "structured_output": True,
    }
    return ReplayChatCompletionClient([*replies, "done"], model_info=info)


async def run(model: ReplayChatCompletionClient, token: CancellationToken | None = None, **options: Any) -> list[Any]:
    """What the calls of an agent came to, as (text, is_error)."""
    agent = AssistantAgent("test", model_client=model, max_tool_iterations=10, **options)
    async with asyncio.timeout(60):
        done = await agent.run(task="Go.", cancellation_token=token)
    executed = [each for each in done.messages if isinstance(each, ToolCallExecutionEvent)]
    assert done.messages[-1].content == "done"  # type: ignore[union-attr]
    return [(each.content, each.is_error) for event in executed for each in event.content]


@pytest.mark.parametrize("kind", ["workbench", "tools"])
async def test_an_agent_calls_through_the_whole_pipeline(kind: str) -> None:
    calls = ('{"numbers": "[1, \\"2\\"]"}', '{"numbrs": [1]}', "[1]")
    bench = Workbench([add])
    results = await run(scripted(*(("add", each) for each in calls)), **{kind: getattr(bridge, kind)(bench)})
    assert results[0] == ("3", False)
    assert [is_error for _, is_error in results] == [False, True, True]
    assert "Did you mean 'numbers'?" in results[1][0]
    assert "object" in results[2][0]


async def test_images_reach_the_agent_and_a_broken_one_harms_nobody() -> None:
    results = await run(
        scripted(("draw", "{}"), ("draw", '{"is_broken": true}')), workbench=bridge.workbench(Workbench([draw]))
    )
    assert results[0][0].startswith("Here:\n[Image: iVBOR")
    assert results[1] == ("Here:\n[image: image/png, 8 bytes] (it cannot be decoded)", False)


@pytest.mark.parametrize("kind", ["workbench", "tools"])
async def test_what_a_search_or_a_large_result_brings_is_offered_within_the_run(kind: str) -> None:
    calls = [(name, json.dumps(arguments)) for name, arguments in (NEEDED if kind == "workbench" else LISTED)]
    results = await run(scripted(*calls), **{kind: getattr(bridge, kind)(searched())})
    check_needed([text for text, _ in results])


async def test_a_call_that_waits_says_so() -> None:
    bench = Workbench([wipe], policy=lambda *_: "ask")
    ((text, is_error),) = await run(scripted(("wipe", '{"path": "/"}')), workbench=bridge.workbench(bench))
    assert ("it waits for approval" in text, is_error, events) == (True, True, [])


async def test_cancelling_the_token_cancels_the_tool() -> None:
    theirs, token = bridge.workbench(Workbench([endless])), CancellationToken()
    call = asyncio.create_task(theirs.call_tool("endless", {}, token))
    while not events:
        await asyncio.sleep(0)
    token.cancel()
    result = await call
    assert (result.is_error, result.to_text()) == (True, "Tool 'endless' was cancelled.")
    assert events == ["begun", "ended"]


async def test_a_workbench_starts_and_stops_and_follows_changes() -> None:
    bench = Workbench([add])
    theirs = bridge.workbench(bench)
    for _ in range(2):
        async with theirs:
            assert bench.is_started
        assert not bench.is_started
    bench.registry.add(as_tool(wipe))
    assert [each["name"] for each in await theirs.list_tools()] == ["add", "wipe"]


# The dialect


def plus(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


class Args(BaseModel):
    a: int


class Doubled(dialect.BaseTool[Args, Any]):
    def __init__(self) -> None:
        super().__init__(Args, int, "double", "Double.")  # type: ignore[arg-type]

    async def run(self, args: Args, cancellation_token: Any) -> Any:
        return args.a * 2


async def test_the_real_agent_accepts_the_dialects_tools() -> None:
    model = scripted(("plus", '{"a": 1}'), ("double", '{"a": 4}'), ("plus", "{}"))
    results = await run(model, tools=[dialect.FunctionTool(plus, "Add."), Doubled()])
    assert results[:2] == [("2", False), ("8", False)]
    assert results[2][1] is True


async def test_the_real_agent_accepts_the_dialects_workbenches() -> None:
    for kind in (dialect.StaticWorkbench, dialect.StaticStreamWorkbench):
        bench: Any = kind([dialect.FunctionTool(plus, "Add.")])
        assert await run(scripted(("plus", '{"a": 1}')), workbench=bench) == [("2", False)]


async def gives_up() -> str:
    raise asyncio.CancelledError


def gives_up_in_its_thread() -> str:
    raise asyncio.CancelledError


async def stops_the_run(cancellation_token: CancellationToken) -> str:
    cancellation_token.cancel()
    await asyncio.Event().wait()
    return "never"


class Nothing(BaseModel): ...


class Telling(dialect.BaseStreamTool[Nothing, Any, Any]):
    def __init__(self, *, gives_up: bool = False) -> None:
        super().__init__(Nothing, str, "tell", "Tell.")  # type: ignore[arg-type]
        self._gives_up = gives_up

    async def run(self, args: Nothing, cancellation_token: Any) -> Any: ...

    async def run_stream(self, args: Nothing, cancellation_token: Any) -> Any:
        yield TextMessage(content="half way", source="tell")
        if self._gives_up:
            raise asyncio.CancelledError
        yield "told"


@pytest.mark.parametrize(
    "tool",
    [
        *map(partial(dialect.FunctionTool, description=""), [gives_up, gives_up_in_its_thread, stops_the_run]),
        Telling(gives_up=True),
    ],
    ids=lambda tool: tool.name,
)
async def test_a_cancelled_call_of_the_dialects_tools_is_an_error_result_and_the_agent_goes_on(tool: Any) -> None:
    """The user: an AssistantAgent waits for ever where a tool cancels its own task, its token or its run."""
    results = await run(scripted((tool.name, "{}")), CancellationToken(), tools=[tool])
    assert results == [(f"Tool '{tool.name}' was cancelled.", True)]


async def test_a_call_whose_token_was_cancelled_before_it_began_is_an_error_result() -> None:
    """Second case: then AutoGen cancels the task of the call before its first step."""
    token = CancellationToken()
    token.cancel()
    results = await run(scripted(("plus", '{"a": 1}')), token, tools=[dialect.FunctionTool(plus, "Add.")])
    assert results == [("Tool 'plus' was cancelled.", True)]


async def test_a_cancelled_run_of_the_real_agent_ends() -> None:
    """The other way round: the task of the agent is cancelled, and so is its call."""
    begun = asyncio.Event()

    async def waits() -> None:
        begun.set()
        await asyncio.Event().wait()

    model = scripted(("waits", "{}"))
    task = asyncio.create_task(run(model, tools=[dialect.FunctionTool(waits, "Wait.")]))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("kind", ["tools", "workbench"])
async def test_the_real_agent_keeps_what_a_tool_tells_on_its_way(kind: str) -> None:
    tools = [Telling(), dialect.FunctionTool(plus, "Add.")]
    agent = AssistantAgent(
        "test",
        model_client=scripted(("tell", "{}"), ("plus", '{"a": 1}')),
        max_tool_iterations=10,
        **({"tools": tools} if kind == "tools" else {"workbench": dialect.StaticStreamWorkbench(tools)}),  # type: ignore[arg-type]
    )
    response = await agent.on_messages([TextMessage(content="Go.", source="user")], CancellationToken())
    inner = [message for message in response.inner_messages or () if isinstance(message, TextMessage)]
    executed = [message for message in response.inner_messages or () if isinstance(message, ToolCallExecutionEvent)]
    assert [message.content for message in inner] == ["half way"]
    assert [(each.content, each.is_error) for event in executed for each in event.content] == [
        ("told", False),
        ("2", False),
    ]


# In


class State(BaseModel):
    count: int = 0


class Counter(BaseToolWithState[Args, Any, State]):
    def __init__(self) -> None:
        super().__init__(Args, int, State, "count", "Count.")  # type: ignore[arg-type]
        self.count = 0

    async def run(self, args: Args, cancellation_token: CancellationToken) -> Any:
        self.count += args.a
        return self.count

    def save_state(self) -> State:
        return State(count=self.count)

    def load_state(self, state: State) -> None:
        self.count = state.count


async def test_their_tools_are_sources_with_their_state() -> None:
    async with Workbench([FunctionTool(plus, "Add."), Counter()]) as bench:
        assert [spec.name for spec in bench.specs()] == ["plus", "count"]
        assert (await bench.call("plus", '{"a": "1"}')).value == 2
        assert "takes no argument 'c'" in (await bench.call("plus", {"a": 1, "c": 1})).text
        assert [(await bench.call("count", {"a": 2})).value for _ in range(2)] == [2, 4]
        saved = json.loads(json.dumps(await bench.save_state()))
    async with Workbench([Counter()]) as bench:
        await bench.load_state({"version": saved["version"], "sources": {"count": saved["sources"]["count"]}})
        assert (await bench.call("count", {"a": 1})).value == 5


class Growing(StaticWorkbench):
    async def start(self) -> None:
        events.append("start")

    async def stop(self) -> None:
        events.append("stop")

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None, *args: Any, **_: Any) -> Any:
        if len(self._tools) == 1:
            self._tools = [*self._tools, FunctionTool(fail, "Fail.")]
        return await super().call_tool(name, arguments, *args, **_)


def fail() -> None:
    raise ValueError("The reason.")


async def test_their_workbenches_are_sources_whose_tools_may_change() -> None:
    async with Workbench([Growing([FunctionTool(plus, "Add.")])]) as bench:
        assert [spec.name for spec in bench.specs()] == ["plus"]
        assert (await bench.call("plus", {"a": 1})).text == "2"
        assert [spec.name for spec in bench.specs()] == ["plus", "fail"]
        assert (await bench.call("fail")).shown()[::3] == ("The reason.", "failed")
    assert events == ["start", "stop"]


async def test_arguments_that_are_not_json_raise_nothing() -> None:
    theirs: Any = bridge.workbench(Workbench([add]))
    for arguments in ([object()], "x", {"numbers": object()}, {1: 2}):
        assert (await theirs.call_tool("add", arguments)).is_error
