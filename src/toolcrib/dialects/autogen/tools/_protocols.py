"""AutoGen's interfaces of tools, and the shape of their schemas."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, NotRequired, Protocol, runtime_checkable

from pydantic import BaseModel
from typing_extensions import TypedDict

from .._cancellation_token import CancellationToken


class ParametersSchema(TypedDict):
    """The arguments of a tool. There are `$defs` as well for models that contain themselves."""

    type: str
    properties: dict[str, Any]
    required: NotRequired[Sequence[str]]
    additionalProperties: NotRequired[bool]


class ToolSchema(TypedDict):
    """A tool as it is described to models."""

    parameters: NotRequired[ParametersSchema]
    name: str
    description: NotRequired[str]
    strict: NotRequired[bool]


class ToolOverride(BaseModel):
    """Override configuration for a tool's name and/or description."""

    name: str | None = None
    description: str | None = None


@runtime_checkable
class Tool(Protocol):
    """What a workbench needs of a tool."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def schema(self) -> ToolSchema: ...
    def args_type(self) -> type[BaseModel]: ...
    def return_type(self) -> type[Any]: ...
    def state_type(self) -> type[BaseModel] | None: ...
    def return_value_as_string(self, value: Any) -> str: ...
    async def run_json(
        self, args: Mapping[str, Any], cancellation_token: CancellationToken, call_id: str | None = None
    ) -> Any: ...
    async def save_state_json(self) -> Mapping[str, Any]: ...
    async def load_state_json(self, state: Mapping[str, Any]) -> None: ...


@runtime_checkable
class StreamTool(Tool, Protocol):
    """A tool that streams."""

    def run_json_stream(
        self, args: Mapping[str, Any], cancellation_token: CancellationToken, call_id: str | None = None
    ) -> AsyncGenerator[Any, None]: ...
