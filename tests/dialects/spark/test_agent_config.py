"""The configuration of an agent, and the memory of a conversation."""

from typing import Any

import pytest

from toolcrib.dialects.spark.agents import Agent, AgentConfig, MemoryConfig, MemoryPolicyType
from toolcrib.dialects.spark.models import EchoModel, OpenAIModel


def config(**fields: Any) -> AgentConfig:
    return AgentConfig(**{"model": EchoModel(), **fields})


# AgentConfig


@pytest.mark.parametrize("choice", ["", 1, {}, {"tool": {}}, {"tool": "add"}, {"none": {}}, {"auto": {}, "any": {}}])
def test_an_invalid_choice_is_refused(choice: Any) -> None:
    with pytest.raises(ValueError, match='tool_choice is "auto", "any", "none" or the name of a tool; or'):
        config(tool_choice=choice)


@pytest.mark.parametrize("model", ["gpt-4o-mini", object(), EchoModel, OpenAIModel])
def test_what_is_not_a_model_is_refused(model: Any) -> None:
    with pytest.raises(ValueError, match="model is a Model, such as OpenAIModel"):
        AgentConfig(model=model)


# Memory


async def test_an_agents_policy_can_change() -> None:
    agent = Agent(config(memory_config=MemoryConfig(window=4)))
    await agent.process("a")
    agent.set_memory_policy(MemoryPolicyType.ROLLING_WINDOW, memory_window=1)
    await agent.process("b")
    assert agent.get_history() == [{"role": "assistant", "content": [{"text": "b"}]}]
    agent.set_memory_policy(lambda all_: all_[:1])
    agent.add_message_to_history("c")
    assert len(agent.messages) == 1
