"""What an agent may be made of, and what it keeps of a conversation."""

import json
from pathlib import Path
from typing import Any

import pytest

from toolcrib.dialects.spark.agents import Agent, AgentConfig, MemoryConfig, MemoryManager, MemoryPolicyType
from toolcrib.dialects.spark.models import EchoModel, OpenAIModel
from toolcrib.dialects.spark.nodes.types import ExecutionContext, NodeMessage
from toolcrib.dialects.spark.tools import tool


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def config(**fields: Any) -> AgentConfig:
    return AgentConfig(**{"model": EchoModel(), **fields})


# AgentConfig


def test_a_config_has_sparks_defaults() -> None:
    made = config()
    assert (made.tools, made.tool_choice, made.max_steps, made.parallel_tool_execution) == ([], "auto", 100, False)
    assert made.memory_config == MemoryConfig(policy=MemoryPolicyType.ROLLING_WINDOW, window=10, summary_max_chars=1000)


@pytest.mark.parametrize("choice", ["any", {"any": {}}])
def test_any_without_tools_is_refused(choice: Any) -> None:
    with pytest.raises(ValueError, match="Give tools="):
        config(tool_choice=choice)
    assert config(tool_choice=choice, tools=[add]).tool_choice == choice


@pytest.mark.parametrize("choice", [None, "auto", "none", "add", {"auto": {}}, {"tool": {"name": "add"}}])
def test_choices_are_text_or_dictionaries(choice: Any) -> None:
    assert config(tool_choice=choice).tool_choice == choice


@pytest.mark.parametrize("choice", ["", 1, {}, {"tool": {}}, {"tool": "add"}, {"none": {}}, {"auto": {}, "any": {}}])
def test_what_is_no_choice_is_refused(choice: Any) -> None:
    with pytest.raises(ValueError, match='tool_choice is "auto", "any", "none" or the name of a tool; or'):
        config(tool_choice=choice)


@pytest.mark.parametrize(
    ("name", "value", "way_out"),
    [
        ("output_mode", "json", "answers are text"),
        ("prompt_template", "{{ x }}", "Render the prompt yourself"),
        ("reasoning_strategy", "react", "system_prompt"),
        ("before_llm_hooks", [print], "subclass Model"),
        ("human_policy", {"a": 1}, "Workbench\\(policy"),
        ("policy_set", {"a": 1}, "Workbench\\(policy"),
    ],
)
def test_what_has_nothing_to_do_with_tools_is_refused_with_the_way_out(name: str, value: Any, way_out: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' is no part of this dialect.*{way_out}"):
        config(**{name: value})


def test_who_wants_nothing_of_it_may_say_so() -> None:
    made = config(output_mode="text", hooks=None, before_llm_hooks=[], human_policy=None, record_direct_tool_call=True)
    assert made.model_dump(exclude={"model"}) == config().model_dump(exclude={"model"})
    with pytest.raises(ValueError, match="paralel_tool_execution"):
        config(paralel_tool_execution=True)
    with pytest.raises(ValueError, match="max_steps"):
        config(max_steps=-1)


@pytest.mark.parametrize("model", ["gpt-4o-mini", object(), EchoModel, OpenAIModel])
def test_what_is_no_model_is_refused(model: Any) -> None:
    with pytest.raises(ValueError, match="model is a Model, as OpenAIModel"):
        AgentConfig(model=model)


@pytest.mark.parametrize(
    ("tools", "why"), [([lambda: 1], "no specification of a tool"), (["no.such:tool"], "Invalid tool reference")]
)
def test_tools_that_cannot_be_registered_are_refused_when_the_agent_is_made(tools: list[Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Agent(config(tools=tools))


def test_defect_6_two_tools_of_one_name_are_refused() -> None:
    @tool(name="add")
    def other(a: int) -> int:
        """Another."""
        return a

    with pytest.raises(ValueError, match="already exists"):
        Agent(config(tools=[add, other]))


def test_an_agents_specs_are_its_registrys() -> None:
    agent = Agent(config(tools=[[add]]))
    assert agent.tool_specs == [add.tool_spec]


# Memory


def says(*words: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"text": word}]} for word in words]


def kept(manager: MemoryManager, *words: str) -> list[dict[str, Any]]:
    for message in says(*words):
        manager.add_message(message)
    return manager.memory


def test_a_window_keeps_the_last_messages() -> None:
    assert kept(MemoryManager(MemoryConfig(window=2)), "a", "b", "c") == says("b", "c")
    assert kept(MemoryManager(policy="null"), "a") == []
    assert kept(MemoryManager(window=0), "a") == []


def test_a_summary_takes_the_place_of_older_messages() -> None:
    summary, *recent = kept(MemoryManager(policy="summarize", window=2, summary_max_chars=3), "aa", "bb", "c")
    assert summary == {"role": "system", "content": "What was said before, in short:\n\naa…"}
    assert recent == says("c")


def test_a_callable_decides_what_is_kept() -> None:
    assert kept(MemoryManager(policy="custom", callable=lambda all_: all_[-1:]), "a", "b") == says("b")
    assert kept(MemoryManager(policy="summarize", window=1, callable=lambda all_: all_[:1]), "a", "b") == says("a")


async def test_an_agents_policy_can_change() -> None:
    agent = Agent(config(memory_config=MemoryConfig(window=4)))
    await agent.process("a")
    agent.set_memory_policy(MemoryPolicyType.ROLLING_WINDOW, memory_window=1)
    await agent.process("b")
    assert agent.get_history() == [{"role": "assistant", "content": [{"text": "b"}]}]
    agent.set_memory_policy(lambda all_: all_[:1])
    agent.add_message_to_history("c")
    assert len(agent.messages) == 1


def test_memory_is_saved_and_loaded(tmp_path: Path) -> None:
    manager = MemoryManager(policy="rolling_window", window=3)
    kept(manager, "a", "Zürich")
    file = tmp_path / "deep" / "memory.json"
    manager.save(file)
    assert json.loads(file.read_text(encoding="utf-8")) == manager.export_to_dict()
    other = MemoryManager()
    other.load(file)
    assert other.export_to_dict() == manager.export_to_dict()
    file.write_text(json.dumps(says("b")))
    other.load(file)
    assert (other.memory, other.window) == (says("b"), 3)
    file.write_text('["b"]')
    with pytest.raises(ValueError, match="memory is a list of messages"):
        other.load(file)
    assert other.memory == says("b")


# Nodes


def test_a_context_is_forked_as_far_as_it_can_be_copied() -> None:
    lock = __import__("threading").Lock()
    context: ExecutionContext[Any] = ExecutionContext(NodeMessage(content={"a": [1]}), {"lock": lock, "n": 1})
    other = context.fork()
    other.inputs.content["a"].append(2)
    other.state["n"] = 2
    other.metadata.attempt = 2
    assert (context.inputs.content, context.state["n"], context.metadata.attempt) == ({"a": [1]}, 1, 1)
    assert context.snapshot() == {"lock": lock, "n": 1}
    assert NodeMessage(id=7, extra="kept").model_dump()["extra"] == "kept"  # type: ignore[call-arg, arg-type]
