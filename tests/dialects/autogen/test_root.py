from collections.abc import AsyncGenerator
from typing import Any

from pydantic import BaseModel

import toolcrib.dialects.autogen as autogen
from toolcrib.dialects.autogen import models
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
