from collections.abc import AsyncGenerator
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

import toolcrib.dialects.autogen as autogen
from toolcrib.dialects.autogen import FunctionCall, models
from toolcrib.workbench.settings import unknown_variables


def test_the_root_has_the_names_of_autogens() -> None:
    ours = {"UntrustedError", "allow_source_code", "trust_namespaces"}
    assert set(autogen.__all__) - ours == {
        "CancellationToken",
        "Component",
        "ComponentBase",
        "ComponentFromConfig",
        "ComponentLoader",
        "ComponentModel",
        "ComponentSchemaType",
        "ComponentToConfig",
        "ComponentType",
        "EVENT_LOGGER_NAME",
        "FunctionCall",
        "Image",
        "ROOT_LOGGER_NAME",
        "TRACE_LOGGER_NAME",
        "is_component_class",
        "is_component_instance",
        "trace_tool_span",
    }
    assert all(hasattr(autogen, name) for name in autogen.__all__)


def test_the_span_of_a_tool_is_left_to_toolcrib() -> None:
    with autogen.trace_tool_span("add", tool_call_id="c1") as span:
        assert span is None


def test_the_variable_for_source_code_is_a_known_setting() -> None:
    assert unknown_variables({"TOOLCRIB_ALLOW_SOURCE_CODE": "1"}) == []


# Models


class Echo(models.ChatCompletionClient):
    """A client that repeats the last message."""

    component_type = "model"
    component_provider_override = "echo.Echo"

    async def create(self, messages: Any, **_: Any) -> models.CreateResult:
        return models.CreateResult(
            finish_reason="stop", content=messages[-1].content, usage=self.total_usage(), cached=False
        )

    async def create_stream(self, messages: Any, **_: Any) -> AsyncGenerator[str | models.CreateResult, None]:
        yield await self.create(messages)

    async def close(self) -> None: ...

    def actual_usage(self) -> models.RequestUsage:
        return models.RequestUsage(0, 0)

    def total_usage(self) -> models.RequestUsage:
        return models.RequestUsage(1, 2)

    def count_tokens(self, messages: Any, **_: Any) -> int:
        return len(messages)

    def remaining_tokens(self, messages: Any, **_: Any) -> int:
        return 0

    @property
    def capabilities(self) -> models.ModelCapabilities:
        return {"vision": False, "function_calling": True, "json_output": False}

    @property
    def model_info(self) -> models.ModelInfo:
        return {**self.capabilities, "family": "echo", "structured_output": False}

    def _to_config(self) -> BaseModel:
        return models.SystemMessage(content="c")


async def test_a_client_can_subclass_the_abstract_one() -> None:
    client = Echo()
    result = await client.create([models.UserMessage(content="hello", source="user")])
    assert result.model_dump() == {
        "finish_reason": "stop",
        "content": "hello",
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
        "cached": False,
        "logprobs": None,
        "thought": None,
    }
    assert client.dump_component().model_dump(include={"provider", "component_type", "label"}) == {
        "provider": "echo.Echo",
        "component_type": "model",
        "label": "Echo",
    }
    abstract: Any = models.ChatCompletionClient
    with pytest.raises(TypeError, match="abstract"):
        abstract()


def test_messages_are_distinguished_by_their_type() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(models.LLMMessage)
    call = FunctionCall("1", "{}", "add")
    done = models.FunctionExecutionResult(content="3", name="add", call_id="1", is_error=False)
    messages = [
        models.SystemMessage(content="Be brief."),
        models.UserMessage(content="1+2?", source="user"),
        models.AssistantMessage(content=[call], source="agent"),
        models.FunctionExecutionResultMessage(content=[done]),
    ]
    for message in messages:
        assert adapter.validate_json(message.model_dump_json()) == message
    with pytest.raises(ValidationError):
        adapter.validate_python({"type": "Message", "content": "x"})


def test_families_are_names() -> None:
    family = models.ModelFamily
    predicates = (family.is_claude, family.is_openai, family.is_gemini, family.is_llama, family.is_mistral)
    names = ("claude-4-opus", "o3", "gemini-2.5-pro", "llama-4-scout", "open-codestral-mamba", "r1", "unknown")
    assert [[is_one(name) for is_one in predicates] for name in names] == [
        *([number == column for column in range(5)] for number in range(5)),
        [False] * 5,
        [False] * 5,
    ]
