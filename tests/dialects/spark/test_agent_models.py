"""Spark's models: OpenAI's over its own SDK against a server on 127.0.0.1, the echo, and custom models."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from toolcrib import tool
from toolcrib.agent import Agent as NativeAgent
from toolcrib.agent import ModelError
from toolcrib.dialects.spark.agents import Agent, AgentConfig
from toolcrib.dialects.spark.models import EchoModel, Model, OpenAIModel
from toolcrib.dialects.spark.tools import tool as spark_tool
from toolcrib.formats import TextDelta

from ...agent.wire import Wire, answer, refusal, wire

KEY = "sk-test-0123456789"
SPEC: Any = {
    "name": "add",
    "description": "Add.",
    "parameters": {"json": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}},
}
TOOL_CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


def completion(message: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": None, **message}}
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    return {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}


def model_at(provider: Wire, **config: Any) -> OpenAIModel:
    client = {"base_url": f"{provider.url}/v1", "api_key": KEY, "max_retries": 0}
    return OpenAIModel(client_args=client, **{"model_id": "m", **config})


@spark_tool
def add(a: int) -> int:
    """Add one."""
    return a + 1


# OpenAI


async def test_openais_model_answers_and_asks_for_tools() -> None:
    message = {"content": "I add.", "tool_calls": [TOOL_CALL]}
    with wire(answer(completion(message, "tool_calls")), answer(completion({"content": "2"}))) as provider:
        model = model_at(provider, params={"temperature": 0.5, "top_p": 1})
        messages: list[Any] = [{"role": "user", "content": [{"text": "Add 1."}]}]
        reply = await model.get_text(messages, "Be exact.", [SPEC], {"tool": {"name": "add"}}, temperature=0)
        messages += [
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "add", "input": {"a": 1}}}]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "2"}]}}]},
        ]
        again = await model.get_text(messages, tool_specs=[SPEC])
    assert {**reply, "raw": None} == {
        "role": "assistant",
        "content": "I add.",
        "stop_reason": "tool_use",
        "tool_calls": [{**TOOL_CALL, "function": {"name": "add", "arguments": {"a": 1}}}],
        "raw": None,
    }
    assert (again["content"], again["stop_reason"], "tool_calls" in again) == ("2", "end_turn", False)
    first, second = (request.body for request in provider.requests)
    assert {name: value for name, value in first.items() if name != "tools"} == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be exact."}, {"role": "user", "content": "Add 1."}],
        "tool_choice": {"type": "function", "function": {"name": "add"}},
        "temperature": 0,
        "top_p": 1,
    }
    assert first["tools"][0]["function"]["parameters"] == SPEC["parameters"]["json"]
    assert second["temperature"] == 0.5
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "tool"]
    assert second["messages"][2] == {"role": "tool", "tool_call_id": "c1", "content": "2"}


async def test_a_refused_key_is_a_message_without_the_key() -> None:
    error = {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}}
    with wire(refusal(401, error)) as provider:
        model = model_at(provider)
        result = await Agent(AgentConfig(model=model)).process("Hello")
    assert result.content["category"] == "model_call"
    assert "401" in result.content["error"]
    assert KEY not in json.dumps(result.content) + repr(result) + repr(model) + json.dumps(model.get_config())


async def test_without_a_key_no_request_is_sent_and_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ModelError, match="Set OPENAI_API_KEY") as raised:
        await OpenAIModel(model_id="m").get_text([{"role": "user", "content": "Hello"}])
    assert raised.value.problem == "unauthorized"


def test_unknown_options_of_openais_model_are_refused_with_the_right_place() -> None:
    with pytest.raises(TypeError, match=r"takes no 'seed'.*params"):
        OpenAIModel(model_id="m", seed=0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="name of a model"):
        OpenAIModel()  # type: ignore[call-arg]
    model = OpenAIModel(model_id="m", enable_cache=True)
    model.update_config(model_id="n", params={"seed": 1})
    assert model.get_config() == {"model_id": "n", "params": {"seed": 1}, "enable_cache": True}
    assert model.name == "openai:n"


# Echo, and users' own


class CustomModel(Model):
    """Plays a script, and records its requests."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.requests: list[Any] = []

    async def get_text(
        self, messages: Any, system_prompt: Any = None, tool_specs: Any = None, tool_choice: Any = None, **kwargs: Any
    ) -> Any:
        self.requests.append((messages, system_prompt, tool_specs, tool_choice))
        reply = self.script.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


TOOL_USE = {"role": "assistant", "content": None, "stop_reason": "tool_use", "tool_calls": [TOOL_CALL]}


async def test_every_spark_model_is_a_model_of_a_native_agent() -> None:
    @tool
    def add(a: int) -> int:
        """Add one."""
        return a + 1

    model = CustomModel(TOOL_USE, {"role": "assistant", "content": "2"})
    assert (await NativeAgent(model, [add]).run("Add 1.")).text == "2"
    events = [event async for event in NativeAgent(EchoModel()).stream("Hello")]
    assert events[0] == TextDelta("Hello")


# The complete example of Spark's document, in tests/seeds/spark

EXAMPLE = Path(__file__).parents[2] / "seeds" / "spark" / "complete_example.py"


def asked(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


THREE = completion(
    {
        "tool_calls": [
            asked("search_database", "c1", query="Zürich", limit=2),
            asked("contextual_search", "c2", query="Zürich"),
            asked("async_api_call", "c3", endpoint="/customers"),
        ]
    },
    "tool_calls",
)


async def test_the_complete_example_runs_its_three_tools_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    took_s = []
    while not took_s or (min(took_s) >= 0.6 and len(took_s) < 4):  # one after the other they take 0.6 s
        took_s.append(await complete_example(monkeypatch))
    assert 0.2 <= min(took_s) < 0.6


async def complete_example(monkeypatch: pytest.MonkeyPatch) -> float:
    """Runs it, and gives the time from the first tool's beginning to the last one's end."""
    with wire(answer(THREE), answer(completion({"content": "There are two."}))) as provider:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
        names = runpy.run_path(str(EXAMPLE), run_name="spark_complete_example")
        result = await names["main"]()
    assert result.content == "There are two."
    first, second = (request.body for request in provider.requests)
    assert (first["model"], first["messages"]) == ("gpt-4o-mini", [{"role": "user", "content": names["context"]}])
    assert "parallel_tool_calls" not in first
    assert [tool["function"]["name"] for tool in first["tools"]] == [
        *("search_database", "contextual_search", "async_api_call")
    ]
    assert list(first["tools"][1]["function"]["parameters"]["properties"]) == ["query"]
    assert second["messages"][2:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "Found 2 results: ['Zürich', 'Zürich']"},
        {"role": "tool", "tool_call_id": "c2", "content": "Zürich after 'Who are our customers in Zürich?'"},
        {"role": "tool", "tool_call_id": "c3", "content": '{"endpoint":"/customers","ok":true}'},
    ]
    traces = names["agent"].get_tool_traces()
    assert [trace["error"] for trace in traces] == [None, None, None]
    ended_s: float = max(trace["end_time"] for trace in traces)
    return ended_s - min(trace["start_time"] for trace in traces)
