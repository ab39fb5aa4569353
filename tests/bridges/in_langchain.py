"""LangChain's and LangGraph's agents with our tools, and LangChain's tools with us. See test_frameworks.py."""

import asyncio
import base64
from typing import Annotated, Any

import pytest
from bridged_tools import (  # noqa: F401 - no_events is for each test
    LISTED,
    NEEDED,
    PNG,
    REPORTED,
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
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseToolkit, InjectedToolArg, InjectedToolCallId, ToolException
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode
from langgraph.types import Command
from pydantic import BaseModel

from toolcrib import Caller, Crib, Image, Text, Workbench, tool
from toolcrib.bridges import langchain as bridge
from toolcrib.core import Audio, Data, DefinitionError
from toolcrib.tools import as_tool


class Model(GenericFakeChatModel):
    bound: list[Any] = []

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        self.bound.extend(tools)
        return self


def scripted(*calls: tuple[str, Any]) -> Model:
    """A model that makes *calls*, one a turn, and then says "done"."""
    asked = [
        AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call_{number}"}])
        for number, (name, arguments) in enumerate(calls)
    ]
    return Model(messages=iter([*asked, AIMessage("done")]))


def seen(state: Any) -> list[ToolMessage]:
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


HELLO = {"messages": [("user", "Go.")]}


async def test_an_agent_calls_through_the_whole_pipeline() -> None:
    model = scripted(("add", {"numbers": '[1, "2"]'}), ("add", {"numbrs": [1]}), ("draw", {}), ("wash", {}))
    agent = create_agent(model, tools=bridge.tools(Workbench([add, draw])))
    state = await agent.ainvoke(HELLO)
    added, misspelt, drawn, unknown = seen(state)
    assert state["messages"][-1].content == "done"
    assert [each.name for each in model.bound[:2]] == ["add", "draw"]
    assert (added.content, added.status, added.tool_call_id, added.artifact.value) == ("3", "success", "call_0", 3)
    assert [each["path"] for each in added.response_metadata["toolcrib"]["repairs"]] == ["/numbers", "/numbers/1"]
    assert "Did you mean 'numbers'?" in misspelt.text
    assert (misspelt.status, misspelt.artifact.error.code) == ("error", "invalid_arguments")
    assert drawn.content == [
        {"type": "text", "text": "Here:"},
        {"type": "image", "base64": base64.b64encode(PNG).decode(), "mime_type": "image/png"},
    ]
    assert "wash" in unknown.text


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (True, "wiped /"),
        ({"type": "approve"}, "wiped /"),
        ({"decisions": [{"type": "approve"}]}, "wiped /"),
        (False, "Tool 'wipe' was not executed: 'local' denied it."),
        (
            {"decisions": [{"type": "reject", "message": "no"}]},
            "Tool 'wipe' was not executed: 'local' denied it: no",
        ),
        (
            {"decisions": [{"type": "edit", "edited_action": {"name": "wipe", "args": {"path": "/tmp"}}}]},
            'wiped /tmp\n\'local\' has changed the arguments of this call to: {"path": "/tmp"}',
        ),
        (
            {"decisions": [{"type": "edit", "edited_action": {"name": "drop", "args": {"path": "/tmp"}}}]},
            "Tool 'wipe' was not executed: 'local' denied it: The edit is for 'drop', and the call that waits is of "
            "'wipe'.",
        ),
        (
            {"type": "edit", "edited_action": {"name": "wipe"}},
            "Tool 'wipe' was not executed: 'local' denied it: The edited action has no object of args.",
        ),
        (
            {"decisions": [{"type": "approve"}] * 2},
            "Tool 'wipe' was not executed: 'local' denied it: 2 decisions, and one call.",
        ),
        (
            {"decisions": ["approve"]},
            "Tool 'wipe' was not executed: 'local' denied it: A decision is an object with a type.",
        ),
        ("no", "Tool 'wipe' was not executed: 'local' denied it: no"),
        ({"type": "reject", "message": "no"}, "Tool 'wipe' was not executed: 'local' denied it: no"),
    ],
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_an_approval_interrupts_the_graph(answer: Any, outcome: str, is_async: bool) -> None:
    bench = Workbench([wipe], policy=asks)
    agent = create_agent(scripted(("wipe", {"path": "/"})), tools=bridge.tools(bench), checkpointer=InMemorySaver())
    config: RunnableConfig = {"configurable": {"thread_id": "1"}}
    waits = await agent.ainvoke(HELLO, config) if is_async else agent.invoke(HELLO, config)
    (interrupt,) = waits["__interrupt__"]
    assert (interrupt.value["message"], interrupt.value["arguments"], events) == ("Really?", '{"path": "/"}', [])
    assert interrupt.value["action_requests"] == [{"name": "wipe", "args": {"path": "/"}, "description": "Really?"}]
    assert interrupt.value["review_configs"] == [
        {"action_name": "wipe", "allowed_decisions": ["approve", "edit", "reject"]}
    ]
    resume = Command(resume=answer)
    state = await agent.ainvoke(resume, config) if is_async else agent.invoke(resume, config)
    assert [each.text for each in seen(state)] == [outcome]
    assert events == [outcome.split()[1]] * outcome.startswith("wiped ")


async def test_without_a_checkpointer_the_model_learns_that_the_call_waits() -> None:
    agent = create_agent(scripted(("wipe", {"path": "/"})), tools=bridge.tools(Workbench([wipe], policy=asks)))
    (message,) = seen(await agent.ainvoke(HELLO))
    assert "it waits for approval: Really?" in message.text
    assert message.status == "error"


async def test_the_caller_of_a_run_comes_from_its_config() -> None:
    async with Crib([whoami]) as crib:
        made = bridge.tools(crib, caller=lambda config: Caller(config["configurable"]["user"]))
        agent = create_agent(scripted(("whoami", {"caller": "eve"}), ("whoami", {})), tools=made)
        refused, answered = seen(await agent.ainvoke(HELLO, {"configurable": {"user": "alice"}}))
        assert ("takes no argument 'caller'" in refused.text, answered.text) == (True, "alice")
        agent = create_agent(scripted(("whoami", {})), tools=made)
        (nobody,) = seen(await agent.ainvoke(HELLO))
        assert "Tool 'whoami' is not available now: KeyError" in nobody.text


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("kind", ["tools", "middleware"])
async def test_what_a_search_or_a_large_result_brings_is_offered_within_the_run(kind: str, is_async: bool) -> None:
    model = scripted(*(NEEDED if kind == "middleware" else LISTED))
    made = getattr(bridge, kind)(searched())
    agent = create_agent(model, tools=made) if kind == "tools" else create_agent(model, middleware=[made])
    check_needed([each.text for each in seen(await agent.ainvoke(HELLO) if is_async else agent.invoke(HELLO))])
    if kind == "middleware":
        assert [each.name for each in model.bound[:3]] == ["find_tools", "find_tools", "add"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_what_a_tool_reports_is_in_the_custom_stream_of_the_graph(is_async: bool) -> None:
    agent = create_agent(scripted(("index", {})), tools=bridge.tools(Workbench([index])))
    mode: Any = {"stream_mode": ["custom", "values"]}
    streamed = agent.astream(HELLO, **mode) if is_async else agent.stream(HELLO, **mode)
    items = [item async for item in streamed] if is_async else list(streamed)  # type: ignore[union-attr, call-overload]
    beside = {"tool": "index", "tool_call_id": "call_0"}
    assert [data for kind, data in items if kind == "custom"] == [beside | report for report in REPORTED]
    assert seen(items[-1][1])[0].text == "indexed"


SOUND = base64.b64encode(b"RIFF").decode()


@pytest.mark.parametrize(
    ("block", "content"),
    [
        ({"type": "audio", "base64": SOUND, "mime_type": "audio/wav"}, Audio(b"RIFF", "audio/wav")),
        (
            {"type": "audio", "source_type": "base64", "data": SOUND, "mime_type": "audio/wav"},
            Audio(b"RIFF", "audio/wav"),
        ),
        ({"type": "input_audio", "input_audio": {"data": SOUND, "format": "wav"}}, Audio(b"RIFF", "audio/wav")),
        ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{SOUND}"}}, Image(b"RIFF", "image/png")),
        ({"type": "audio", "base64": "not base64"}, Data('["Here:",{"type":"audio","base64":"not base64"}]')),
        (
            {"type": "image", "url": "https://a.com/b.png"},
            Data('["Here:",{"type":"image","url":"https://a.com/b.png"}]'),
        ),
        ({"type": "dog", "name": "Rex"}, Data('["Here:",{"type":"dog","name":"Rex"}]')),
    ],
)
async def test_media_in_their_results_are_no_text_to_read_in_any_form_of_a_block(block: Any, content: Any) -> None:
    """Blocks of LangChain's older versions and of providers, images among them; data that are no blocks stay data."""

    @langchain_tool
    def play() -> list[Any]:
        """Play."""
        return [{"type": "text", "text": "Here:"}, block]

    assert (await Workbench([play]).call("play")).content == (
        (content,) if isinstance(content, Data) else (Text("Here:"), content)
    )


@langchain_tool
def theirs() -> str:
    """Be one of the agent's own."""
    return "own"


@pytest.mark.parametrize("is_async", [True, False])
async def test_an_agent_with_the_middleware_follows_changes_within_a_run(is_async: bool) -> None:
    @tool
    async def learn() -> str:
        """Learn to draw, and forget to learn."""
        bench.registry.add(as_tool(draw))
        bench.registry.remove("learn")
        return "learned"

    bench = Workbench([learn])
    model = scripted(("learn", {}), ("draw", {}), ("theirs", {}), ("learn", {}))
    agent = create_agent(model, tools=[theirs], middleware=[bridge.middleware(bench)])
    state = await agent.ainvoke(HELLO) if is_async else agent.invoke(HELLO)
    learned, drawn, own, forgotten = seen(state)
    assert (learned.text, drawn.text, own.text, forgotten.status) == ("learned", "Here:", "own", "error")
    offered = [["theirs", "learn"], *[["theirs", "draw"]] * 4]
    assert [each.name for each in model.bound] == [name for names in offered for name in names]


async def test_an_agent_with_the_middleware_alone_has_approvals_and_callers() -> None:
    async with Crib([wipe, whoami], policy=lambda spec, *_: "ask" if spec.name == "wipe" else "allow") as crib:
        tools = bridge.middleware(crib, caller=lambda config: Caller(config["configurable"]["user"]))
        calls = (("whoami", {}), ("wipe", {"path": "/"}))
        agent = create_agent(scripted(*calls), middleware=[tools], checkpointer=InMemorySaver())
        config: RunnableConfig = {"configurable": {"thread_id": "1", "user": "alice"}}
        waits = await agent.ainvoke(HELLO, config)
        assert (waits["__interrupt__"][0].value["tool"], events) == ("wipe", [])
        state = await agent.ainvoke(Command(resume=True), config)
        assert ([each.text for each in seen(state)], events) == (["alice", "wiped /"], ["/"])


# In


@langchain_tool
async def greet(
    greeting: str,
    user: Annotated[str, InjectedToolArg],
    call_id: Annotated[str, InjectedToolCallId],
    config: RunnableConfig,
    times: int = 1,
) -> str:
    """Greet the user."""
    assert call_id.startswith("call_") and "metadata" in config
    return " ".join([f"{greeting}, {user}!"] * times)


@langchain_tool
def stateful(state: Annotated[dict[str, Any], InjectedState]) -> str:
    """Read the state of the graph."""
    return str(state)


@langchain_tool
def measure(text: str) -> dict[str, int]:
    """Measure."""
    if not text:
        raise ToolException("There is no text.")
    return {"length": len(text)}


@langchain_tool
def picture() -> list[dict[str, Any]]:
    """Draw."""
    return [
        {"type": "text", "text": "Here:"},
        {"type": "image", "base64": base64.b64encode(PNG).decode(), "mime_type": "image/png"},
    ]


class Kit(BaseToolkit):
    def get_tools(self) -> list[Any]:
        return [measure, picture]


async def test_their_tools_are_sources() -> None:
    bench = Workbench([greet, Kit()], variables={"user": "Ada"})
    assert [spec.name for spec in bench.specs()] == ["greet", "measure", "picture"]
    assert set(bench.specs()[0].input_schema["properties"]) == {"greeting", "times"}
    assert (await bench.call("greet", '{"greeting": "Hi", "times": "2"}')).text == "Hi, Ada! Hi, Ada!"
    assert (await bench.call("measure", {"text": "four"})).value == {"length": 4}
    assert (await bench.call("measure", {"text": ""})).shown()[::3] == ("There is no text.", "failed")
    shown = (await bench.call("picture")).shown()
    assert (shown.text, [each.data for each in shown.media]) == ("Here:", [PNG])


async def test_what_nobody_gives_is_refused_with_the_reason() -> None:
    bench = Workbench([greet, stateful])
    for name, arguments, parameter in (("greet", {"greeting": "Hi"}, "user"), ("stateful", {}, "state")):
        refused = (await bench.call(name, arguments)).shown()
        assert refused.code == "unavailable"
        assert f"needs '{parameter}' of its agent or host" in refused.text


class Person(BaseModel):
    user: Annotated[str, InjectedToolArg] = "nobody"


@langchain_tool
def visit(people: list[Person] | None = None) -> str:
    """Visit."""
    return str(people)


def test_what_is_injected_deeper_inside_is_refused_since_a_model_could_set_it() -> None:
    with pytest.raises(DefinitionError, match="injected argument 'user' inside another"):
        Workbench([visit])


def wiping(bench: Workbench) -> Any:
    """A graph whose one node has all tools."""
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(bridge.tools(bench)))
    graph.add_edge(START, "tools")
    return graph


@pytest.mark.parametrize("is_sync", [True, False])
@pytest.mark.parametrize("paths", ["abc", "aaa"])
async def test_of_several_calls_in_one_node_each_has_its_own_answer_and_runs_once(is_sync: bool, paths: str) -> None:
    graph = wiping(Workbench([wipe], policy=asks)).compile(checkpointer=InMemorySaver())
    config: RunnableConfig = {"configurable": {"thread_id": "1"}}
    calls = [{"name": "wipe", "args": {"path": path}, "id": f"call_{n}"} for n, path in enumerate(paths)]
    given: Any = {"messages": [AIMessage("", tool_calls=calls)]}
    approved: list[str] = []
    denied: list[str] = []
    while True:
        state = await (asyncio.to_thread(graph.invoke, given, config) if is_sync else graph.ainvoke(given, config))
        assert len(events) == len(approved)
        if "__interrupt__" not in state:
            break
        (waits,) = state["__interrupt__"]
        is_approved = bool(approved) == bool(denied)
        (approved if is_approved else denied).append(waits.value["call_id"])
        given = Command(resume=is_approved) if len(approved) < 2 else Command(resume={waits.id: is_approved})
    assert (sorted(approved + denied), len(denied)) == (["call_0", "call_1", "call_2"], 1)
    statuses = {each.tool_call_id: each.status for each in seen(state)}
    assert statuses == {**dict.fromkeys(approved, "success"), **dict.fromkeys(denied, "error")}
    assert sorted(events) == sorted(paths[int(each[-1])] for each in approved)


async def test_an_answer_counts_after_a_restart() -> None:
    saver, config = InMemorySaver(), {"configurable": {"thread_id": "1"}}
    calls = [{"name": "wipe", "args": {"path": path}, "id": path} for path in "ab"]
    given: Any = {"messages": [AIMessage("", tool_calls=calls)]}
    for expected in ([], ["a"], ["a", "b"]):
        # A process of its own: a workbench that knows nothing of the others, and asks again for what it does not know.
        state = await wiping(Workbench([wipe], policy=asks)).compile(checkpointer=saver).ainvoke(given, config)
        assert events == expected
        assert "__interrupt__" in state
        given = Command(resume=True)
