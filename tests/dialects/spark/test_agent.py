"""Spark's agent: what tools and the model receive, and what it remembers. Each known defect of Spark has a test."""

import asyncio
import logging
import threading
from typing import Any

import pytest

from toolcrib import Context
from toolcrib.agent import Outcome, ScriptedModel
from toolcrib.dialects.spark.agents import Agent, AgentConfig, MemoryConfig, MemoryPolicyType
from toolcrib.dialects.spark.agents.agent import ToolExecutionError
from toolcrib.dialects.spark.models import EchoModel, OpenAIModel
from toolcrib.dialects.spark.nodes.types import ExecutionContext, NodeMessage
from toolcrib.dialects.spark.tools import ToolContext, tool


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def later(word: str) -> str:
    """Say a word, later."""
    await asyncio.sleep(0)
    return f"{word}, later"


@tool
def fail(why: str) -> str:
    """Fail."""
    raise OSError(why)


def agent_with(script: Any, tools: list[Any], **options: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(script)
    return Agent(AgentConfig(model=model, tools=tools, **options)), model


def last_results(model: ScriptedModel, request: int = -1) -> list[tuple[str, str, str]]:
    """The results that a request ended with."""
    return [(r.call_id, r.status, r.text) for r in model.requests[request].turns[-1].results]  # type: ignore[union-attr]


def calls(*requested: Any) -> dict[str, Any]:
    return {"calls": list(requested)}


ADD = calls(("add", {"a": 1, "b": 2}))


# Inputs and outputs


@pytest.mark.parametrize(
    "context",
    [
        "What is 1 + 2?",
        NodeMessage(content="What is 1 + 2?"),
        ExecutionContext(inputs=NodeMessage(content="What is 1 + 2?")),
        {"messages": [{"role": "user", "content": "What is 1 + 2?"}]},
        ExecutionContext(inputs=NodeMessage(content={"messages": ["What is 1 + 2?"]})),
        [{"text": "What is 1 + 2?"}],
    ],
)
async def test_the_input_may_have_any_of_sparks_forms(context: Any) -> None:
    agent, model = agent_with([ADD, "It is 3."], [add], system_prompt="Be short.")
    result = await agent.process(context)
    assert isinstance(result, NodeMessage)
    assert (result.content, result.type) == ("It is 3.", "text")
    assert result.metadata == {
        "status": "done",
        "usage": {"input": 0, "output": 0, "cached": 0, "cache_writes": 0, "reasoning": 0},
    }
    assert isinstance(result.raw, Outcome)
    assert agent.result is result
    assert model.requests[0].instructions == "Be short."
    assert [part.text for part in model.requests[0].turns[0].content] == ["What is 1 + 2?"]  # type: ignore[union-attr]
    assert last_results(model) == [("call_1", "success", "3")]


async def test_without_a_model_an_agent_echoes() -> None:
    assert (await Agent().process("Hello?")).content == "Hello?"
    assert (await Agent(tools=[add], name="adder").process("Hello?")).content == "Hello?"


# What tools receive


async def test_a_tool_receives_the_agent_the_state_of_process_and_its_own_tool_use() -> None:
    seen: list[ToolContext] = []

    @tool(context="ctx")
    def look(word: str, ctx: ToolContext) -> str:
        """Look."""
        seen.append(ctx)
        return word

    script = [calls({"tool": "look", "arguments": {"word": "a"}, "id": "c9"}), "1", calls(("look", {"word": "b"})), "2"]
    agent, _ = agent_with(script, [look])
    await agent.process("Look.", user="ann", agent="somebody else")
    await agent.process("Again.")
    assert seen == [
        ToolContext({"toolUseId": "c9", "name": "look", "input": {"word": "a"}}, {"user": "ann", "agent": agent}),
        ToolContext({"toolUseId": "call_2", "name": "look", "input": {"word": "b"}}, {"agent": agent}),
    ]


async def test_concurrent_runs_each_have_their_own_state() -> None:
    both = threading.Barrier(2, timeout=30)

    @tool(context=True)
    def who(tool_context: ToolContext) -> str:
        """Say who asks."""
        both.wait()
        return str(tool_context.invocation_state["user"])

    agent, _ = agent_with(
        lambda request: calls(("who", {})) if len(request.turns) < 2 else request.turns[-1].results[0].text, [who]
    )
    agent.memory_manager.policy = "null"  # type: ignore[assignment]
    results = await asyncio.gather(agent.process("Who?", user="ann"), agent.process("Who?", user="bob"))
    assert [result.content for result in results] == ["ann", "bob"]


async def test_a_tool_reads_the_history_with_the_current_input() -> None:
    @tool(context=True)
    def recall(tool_context: ToolContext) -> list[Any]:
        """Recall."""
        history: list[Any] = tool_context.invocation_state["agent"].get_history()
        return history

    agent, _ = agent_with(["Hello.", calls(("recall", {})), "Done."], [recall])
    await agent.process("Hi.")
    await agent.process("What was it?")
    trace = agent.get_last_tool_trace()
    assert trace is not None
    assert trace["output"] == [
        {"role": "user", "content": [{"text": "Hi."}]},
        {"role": "assistant", "content": [{"text": "Hello."}]},
        {"role": "user", "content": [{"text": "What was it?"}]},
    ]


# Known defects


async def test_defect_2_parallel_calls_run_at_the_same_time_and_others_one_after_the_other() -> None:
    all_three = threading.Barrier(3, timeout=30)

    @tool
    def meet(n: int) -> int:
        """Wait for the others."""
        all_three.wait()
        return n

    running: list[int] = []

    @tool
    def alone(n: int) -> int:
        """Say how many others run."""
        running.append(n)
        others = len(running) - 1
        threading.Event().wait(0.01)
        running.remove(n)
        return others

    agent, model = agent_with(
        [calls(*(("meet", {"n": n}) for n in (1, 2, 3))), "Done."], [meet], parallel_tool_execution=True
    )
    await agent.process("Meet.")
    assert [text for _, _, text in last_results(model)] == ["1", "2", "3"]

    agent, model = agent_with([calls(*(("alone", {"n": n}) for n in (1, 2, 3))), "Done."], [alone])
    await agent.process("Go.")
    assert [text for _, _, text in last_results(model)] == ["0", "0", "0"]


# tool_choice


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", ["auto", "auto"]),
        ({"auto": {}}, ["auto", "auto"]),
        ("any", ["any", "auto"]),
        ({"any": {}}, ["any", "auto"]),
        ("add", ["add", "auto"]),
        ({"tool": {"name": "add"}}, ["add", "auto"]),
    ],
)
async def test_a_choice_holds_for_the_first_turn(choice: Any, sent: list[str]) -> None:
    agent, model = agent_with([ADD, "3"], [add], tool_choice=choice)
    await agent.process("Add.")
    assert [request.choice for request in model.requests] == sent


@pytest.mark.parametrize("choice", ["sub", {"tool": {"name": "sub"}}])
async def test_a_choice_that_is_not_a_tool_is_auto_with_a_warning(
    choice: Any, caplog: pytest.LogCaptureFixture
) -> None:
    agent, model = agent_with([ADD, "3"], [add], tool_choice=choice)
    with caplog.at_level(logging.WARNING):
        assert (await agent.process("Add.")).content == "3"
    assert [request.choice for request in model.requests] == ["auto", "auto"]
    assert "tool_choice 'sub' is not a tool of this agent, so 'auto' is used. Its tools: add" in caplog.text


# Traces


async def test_traces_have_the_tool_the_arguments_and_the_result() -> None:
    turn = calls(("add", {"a": 1, "b": 2}), ("fail", {"why": "no disk"}), ("add", "{"))
    agent, _ = agent_with([turn, ADD, "Done."], [add, fail], parallel_tool_execution=True)
    assert (agent.get_tool_traces(), agent.get_last_tool_trace()) == ([], None)
    await agent.process("Go.")
    traces = agent.get_tool_traces()
    assert [trace["tool_use_id"] for trace in traces][3] == "call_4"  # those of one turn are in order of their ends
    traces.sort(key=lambda trace: trace["tool_use_id"])
    times = ("start_time", "end_time", "duration_ms")
    assert all(trace["start_time"] <= trace["end_time"] for trace in traces)
    assert all(trace["duration_ms"] == (trace["end_time"] - trace["start_time"]) * 1000 for trace in traces)
    shown = [{name: value for name, value in trace.items() if name not in times} for trace in traces]
    outputs = [trace.pop("output") for trace in shown]
    errors = [trace.pop("error") for trace in shown]
    assert shown == [
        {"tool_name": "add", "tool_use_id": "call_1", "input_params": {"a": 1, "b": 2}},
        {"tool_name": "fail", "tool_use_id": "call_2", "input_params": {"why": "no disk"}},
        {"tool_name": "add", "tool_use_id": "call_3", "input_params": "{"},
        {"tool_name": "add", "tool_use_id": "call_4", "input_params": {"a": 1, "b": 2}},
    ]
    assert (outputs[0], outputs[3], errors[0], errors[1], errors[3]) == (3, 3, None, "no disk", None)
    assert "not valid JSON" in errors[2]
    assert agent.get_last_tool_trace() == traces[3]
    assert agent.get_tool_traces_by_name("add") == [traces[0], traces[2], traces[3]]
    assert agent.get_failed_tool_traces() == [traces[1], traces[2]]
    assert agent.state["tool_traces"] == traces
    agent.clear_tool_traces()
    assert (agent.get_tool_traces(), agent.get_last_tool_trace()) == ([], None)


async def test_a_pending_call_ends_the_run_with_an_error() -> None:
    @tool
    async def buy(item: str, ctx: Context) -> str:
        """Buy."""
        await ctx.ask("sure", {"type": "boolean"}, "Sure?")
        return item

    agent, _ = agent_with([calls(("buy", {"item": "a"})), "Done."], [buy])
    result = await agent.process("Buy.")
    assert isinstance(result.raw, ToolExecutionError)
    assert result.content["error"] == "'buy' waits: Sure?"
    assert agent.get_tool_traces_by_name("buy")[0]["error"] is None


# AgentConfig


@pytest.mark.parametrize("choice", ["", 1, {}, {"tool": {}}, {"tool": "add"}, {"none": {}}, {"auto": {}, "any": {}}])
def test_an_invalid_choice_is_refused(choice: Any) -> None:
    with pytest.raises(ValueError, match='tool_choice is "auto", "any", "none" or the name of a tool; or'):
        AgentConfig(model=EchoModel(), tool_choice=choice)


@pytest.mark.parametrize("model", ["gpt-4o-mini", object(), EchoModel, OpenAIModel])
def test_what_is_not_a_model_is_refused(model: Any) -> None:
    with pytest.raises(ValueError, match="model is a Model, such as OpenAIModel"):
        AgentConfig(model=model)


# Memory


async def test_an_agents_policy_can_change() -> None:
    agent = Agent(model=EchoModel(), memory_config=MemoryConfig(window=4))
    await agent.process("a")
    agent.set_memory_policy(MemoryPolicyType.ROLLING_WINDOW, memory_window=1)
    await agent.process("b")
    assert agent.get_history() == [{"role": "assistant", "content": [{"text": "b"}]}]
    agent.set_memory_policy(lambda all_: all_[:1])
    agent.add_message_to_history("c")
    assert len(agent.messages) == 1
