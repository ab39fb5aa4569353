# ruff: noqa: B006 - AutoGen has these defaults
"""The shapes of AutoGen's model clients, for programs that name them: messages, results, and the abstract client.

There is no client here. `toolcrib.agent` has those of Toolcrib.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Optional

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from ._cancellation_token import CancellationToken
from ._component_config import ComponentBase
from ._image import Image

if TYPE_CHECKING:
    from .tools import Tool, ToolSchema

__all__ = [
    "AssistantMessage",
    "ChatCompletionClient",
    "ChatCompletionTokenLogprob",
    "CreateResult",
    "FinishReasons",
    "FunctionExecutionResult",
    "FunctionExecutionResultMessage",
    "LLMMessage",
    "ModelCapabilities",
    "ModelFamily",
    "ModelInfo",
    "RequestUsage",
    "SystemMessage",
    "TopLogprob",
    "UserMessage",
]


@dataclass
class FunctionCall:
    """One tool call of a model. *arguments* is JSON text, as the model wrote it."""

    id: str
    arguments: str
    name: str


class SystemMessage(BaseModel):
    """A message of the developer to the model."""

    content: str
    type: Literal["SystemMessage"] = "SystemMessage"


class UserMessage(BaseModel):
    """A message of the user to the model. *source* is the name of the agent that passes it on."""

    content: str | list[str | Image]
    source: str
    type: Literal["UserMessage"] = "UserMessage"


class AssistantMessage(BaseModel):
    """An answer of the model: text, or tool calls. *thought* is text beside it, such as its reasoning."""

    content: str | list[FunctionCall]
    thought: str | None = None
    source: str
    type: Literal["AssistantMessage"] = "AssistantMessage"


class FunctionExecutionResult(BaseModel):
    """The result of one call. *call_id* is empty where the model sends none."""

    content: str
    name: str
    call_id: str
    is_error: bool | None = None


class FunctionExecutionResultMessage(BaseModel):
    """The results of the calls of one turn."""

    content: list[FunctionExecutionResult]
    type: Literal["FunctionExecutionResultMessage"] = "FunctionExecutionResultMessage"


LLMMessage = Annotated[
    SystemMessage | UserMessage | AssistantMessage | FunctionExecutionResultMessage, Field(discriminator="type")
]
FinishReasons = Literal["stop", "length", "function_calls", "content_filter", "unknown"]


@dataclass
class RequestUsage:
    """Token counts."""

    prompt_tokens: int
    completion_tokens: int


@dataclass
class TopLogprob:
    """The logarithm of the probability of one of the likeliest tokens."""

    logprob: float
    bytes: Optional[list[int]] = None  # noqa: UP045 - `bytes |` would be read as the field


class ChatCompletionTokenLogprob(BaseModel):
    """The logarithm of the probability of a token of the answer."""

    token: str
    logprob: float
    top_logprobs: list[TopLogprob] | None = None
    bytes: list[int] | None = None


class CreateResult(BaseModel):
    """What a model client returns: text, or tool calls."""

    finish_reason: FinishReasons
    content: str | list[FunctionCall]
    usage: RequestUsage
    cached: bool
    logprobs: list[ChatCompletionTokenLogprob] | None = None
    thought: str | None = None


class ModelFamily:
    """The families of models that AutoGen knows. Any other text is a family too."""

    GPT_5 = "gpt-5"
    GPT_41 = "gpt-41"
    GPT_45 = "gpt-45"
    GPT_4O = "gpt-4o"
    O1 = "o1"
    O3 = "o3"
    O4 = "o4"
    GPT_4 = "gpt-4"
    GPT_35 = "gpt-35"
    R1 = "r1"
    GEMINI_1_5_FLASH = "gemini-1.5-flash"
    GEMINI_1_5_PRO = "gemini-1.5-pro"
    GEMINI_2_0_FLASH = "gemini-2.0-flash"
    GEMINI_2_5_PRO = "gemini-2.5-pro"
    GEMINI_2_5_FLASH = "gemini-2.5-flash"
    CLAUDE_3_HAIKU = "claude-3-haiku"
    CLAUDE_3_SONNET = "claude-3-sonnet"
    CLAUDE_3_OPUS = "claude-3-opus"
    CLAUDE_3_5_HAIKU = "claude-3-5-haiku"
    CLAUDE_3_5_SONNET = "claude-3-5-sonnet"
    CLAUDE_3_7_SONNET = "claude-3-7-sonnet"
    CLAUDE_4_OPUS = "claude-4-opus"
    CLAUDE_4_SONNET = "claude-4-sonnet"
    LLAMA_3_3_8B = "llama-3.3-8b"
    LLAMA_3_3_70B = "llama-3.3-70b"
    LLAMA_4_SCOUT = "llama-4-scout"
    LLAMA_4_MAVERICK = "llama-4-maverick"
    CODESRAL = "codestral"
    OPEN_CODESRAL_MAMBA = "open-codestral-mamba"
    MISTRAL = "mistral"
    MINISTRAL = "ministral"
    PIXTRAL = "pixtral"
    UNKNOWN = "unknown"
    ANY = str


class ModelCapabilities(TypedDict):
    """What a model can do, in the shape of older clients."""

    vision: bool
    function_calling: bool
    json_output: bool


class ModelInfo(ModelCapabilities):
    """What a model can do. *structured_output* is output by a schema, *json_output* any JSON."""

    family: str
    structured_output: bool
    multiple_system_messages: NotRequired[bool | None]


class ChatCompletionClient(ComponentBase[BaseModel], ABC):
    """A client of a model, for annotations and subclasses; its methods are AutoGen's."""

    @abstractmethod
    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: "Sequence[Tool | ToolSchema]" = [],
        tool_choice: 'Tool | Literal["auto", "required", "none"]' = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] = {},
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult: ...
    @abstractmethod
    def create_stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: "Sequence[Tool | ToolSchema]" = [],
        tool_choice: 'Tool | Literal["auto", "required", "none"]' = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] = {},
        cancellation_token: CancellationToken | None = None,
    ) -> AsyncGenerator[str | CreateResult, None]: ...
    @abstractmethod
    async def close(self) -> None: ...
    @abstractmethod
    def actual_usage(self) -> RequestUsage: ...
    @abstractmethod
    def total_usage(self) -> RequestUsage: ...
    @abstractmethod
    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: "Sequence[Tool | ToolSchema]" = []) -> int: ...
    @abstractmethod
    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: "Sequence[Tool | ToolSchema]" = []) -> int: ...
    @property
    @abstractmethod
    def capabilities(self) -> ModelCapabilities: ...
    @property
    @abstractmethod
    def model_info(self) -> ModelInfo: ...
