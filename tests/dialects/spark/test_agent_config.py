"""The configuration of an agent, and the memory of a conversation."""

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
def test_an_invalid_choice_is_refused(choice: Any) -> None:
    with pytest.raises(ValueError, match='tool_choice is "auto", "any", "none" or the name of a tool; or'):
        config(tool_choice=choice)


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("output_mode", "json", "system_prompt"),
        ("prompt_template", "{{ x }}", "system_prompt"),
        ("reasoning_strategy", "react", "system_prompt"),
        ("before_llm_hooks", [print], "subclass Model"),
        ("human_policy", {"a": 1}, "Workbench\\(policy"),
        ("policy_set", {"a": 1}, "Workbench\\(policy"),
    ],
)
def test_options_that_do_not_concern_tools_are_refused_with_the_remedy(name: str, value: Any, remedy: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' is not part of this dialect.*{remedy}"):
        config(**{name: value})


def test_empty_options_that_do_not_concern_tools_are_accepted() -> None:
    made = config(output_mode="text", hooks=None, before_llm_hooks=[], human_policy=None, record_direct_tool_call=True)
    assert made.model_dump(exclude={"model"}) == config().model_dump(exclude={"model"})
    with pytest.raises(ValueError, match="paralel_tool_execution"):
        config(paralel_tool_execution=True)
    with pytest.raises(ValueError, match="max_steps"):
        config(max_steps=-1)


@pytest.mark.parametrize("model", ["gpt-4o-mini", object(), EchoModel, OpenAIModel])
def test_what_is_not_a_model_is_refused(model: Any) -> None:
    with pytest.raises(ValueError, match="model is a Model, such as OpenAIModel"):
        AgentConfig(model=model)


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        ([object()], "not a tool specification"),
        ([lambda: 1], "cannot be the name of a tool"),
        (["no.such:tool"], "Invalid tool reference"),
    ],
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


def user_messages(*words: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"text": word}]} for word in words]


def remembered(manager: MemoryManager, *words: str) -> list[dict[str, Any]]:
    for message in user_messages(*words):
        manager.add_message(message)
    return manager.memory


def test_a_window_keeps_the_last_messages() -> None:
    assert remembered(MemoryManager(MemoryConfig(window=2)), "a", "b", "c") == user_messages("b", "c")
    assert remembered(MemoryManager(policy="null"), "a") == []
    assert remembered(MemoryManager(window=0), "a") == []
    assert remembered(MemoryManager(policy="summarize", window=1), "a", "b") == user_messages("b")


def test_a_callable_decides_what_is_kept() -> None:
    assert remembered(MemoryManager(policy="custom", callable=lambda all_: all_[-1:]), "a", "b") == user_messages("b")
    assert remembered(
        MemoryManager(policy="summarize", window=1, callable=lambda all_: all_[:1]), "a", "b"
    ) == user_messages("a")


async def test_an_agents_policy_can_change() -> None:
    agent = Agent(config(memory_config=MemoryConfig(window=4)))
    await agent.process("a")
    agent.set_memory_policy(MemoryPolicyType.ROLLING_WINDOW, memory_window=1)
    await agent.process("b")
    assert agent.get_history() == [{"role": "assistant", "content": [{"text": "b"}]}]
    agent.set_memory_policy(lambda all_: all_[:1])
    agent.add_message_to_history("c")
    assert len(agent.messages) == 1


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
