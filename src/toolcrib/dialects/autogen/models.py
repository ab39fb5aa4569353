"""The shapes of AutoGen's model clients, for programs that name them: messages, results, and the abstract client.

No client is here. `toolcrib.agent` has ours.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, Optional, Required

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from ._cancellation_token import CancellationToken
from ._component_config import ComponentBase
from ._image import Image
from ._types import FunctionCall

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
    "validate_model_info",
]


class SystemMessage(BaseModel):
    """What the developer tells the model."""

    content: str
    type: Literal["SystemMessage"] = "SystemMessage"


class UserMessage(BaseModel):
    """What the user tells the model. *source* is the name of the agent that passes it on."""

    content: str | list[str | Image]
    source: str
    type: Literal["UserMessage"] = "UserMessage"


class AssistantMessage(BaseModel):
    """What the model said, or the calls it asked for. *thought* is what it said besides, such as its reasoning."""

    content: str | list[FunctionCall]
    thought: str | None = None
    source: str
    type: Literal["AssistantMessage"] = "AssistantMessage"


class FunctionExecutionResult(BaseModel):
    """What one call gave. *call_id* is empty where the model gives none."""

    content: str
    name: str
    call_id: str
    is_error: bool | None = None


class FunctionExecutionResultMessage(BaseModel):
    """What the calls of one turn gave."""

    content: list[FunctionExecutionResult]
    type: Literal["FunctionExecutionResultMessage"] = "FunctionExecutionResultMessage"


LLMMessage = Annotated[
    SystemMessage | UserMessage | AssistantMessage | FunctionExecutionResultMessage, Field(discriminator="type")
]
FinishReasons = Literal["stop", "length", "function_calls", "content_filter", "unknown"]


@dataclass
class RequestUsage:
    """Counts of tokens."""

    prompt_tokens: int
    completion_tokens: int


@dataclass
class TopLogprob:
    """The logarithm of the probability of one token among the likeliest."""

    logprob: float
    bytes: Optional[list[int]] = None  # noqa: UP045 - `bytes |` would be read as the field


class ChatCompletionTokenLogprob(BaseModel):
    """The logarithm of the probability of a token that was chosen."""

    token: str
    logprob: float
    top_logprobs: list[TopLogprob] | None = None
    bytes: list[int] | None = None


class CreateResult(BaseModel):
    """What a model client gives: text, or calls to make."""

    finish_reason: FinishReasons
    content: str | list[FunctionCall]
    usage: RequestUsage
    cached: bool
    logprobs: list[ChatCompletionTokenLogprob] | None = None
    thought: str | None = None


class ModelFamily:
    """The names of families of models that AutoGen knows. Any other text is a family too."""

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

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"{cls.__name__} is a namespace class and cannot be instantiated.")

    @staticmethod
    def is_claude(family: str) -> bool:
        return family in _families("CLAUDE")

    @staticmethod
    def is_gemini(family: str) -> bool:
        return family in _families("GEMINI")

    @staticmethod
    def is_openai(family: str) -> bool:
        return family in _families("GPT", "O1", "O3", "O4")

    @staticmethod
    def is_llama(family: str) -> bool:
        return family in _families("LLAMA")

    @staticmethod
    def is_mistral(family: str) -> bool:
        return family in _families("CODESRAL", "OPEN_CODESRAL", "MISTRAL", "MINISTRAL", "PIXTRAL")


def _families(*beginnings: str) -> set[str]:
    return {family for name, family in vars(ModelFamily).items() if name.startswith(beginnings)}


class ModelCapabilities(TypedDict, total=False):
    """What a model can do, as older clients say it."""

    vision: Required[bool]
    function_calling: Required[bool]
    json_output: Required[bool]


class ModelInfo(TypedDict, total=False):
    """What a model can do. *structured_output* is output by a schema, *json_output* any JSON."""

    vision: Required[bool]
    function_calling: Required[bool]
    json_output: Required[bool]
    family: Required[str]
    structured_output: Required[bool]
    multiple_system_messages: bool | None


def validate_model_info(model_info: ModelInfo) -> None:
    """Raises ValueError where *model_info* lacks what it must have; warns of what it will have to have."""
    given: set[str] = set(model_info)
    for name in ("vision", "function_calling", "json_output", "family"):
        if name not in given:
            raise ValueError(
                f"Missing required field '{name}' in ModelInfo. Starting in v0.4.7, the required fields are enforced."
            )
    if "structured_output" not in given:
        warnings.warn(
            "Missing required field 'structured_output' in ModelInfo. "
            "This field will be required in a future version of AutoGen.",
            UserWarning,
            stacklevel=2,
        )


class ChatCompletionClient(ComponentBase[BaseModel], ABC):
    """What talks to a model."""

    @abstractmethod
    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: "Sequence[Tool | ToolSchema]" = [],  # noqa: B006 - as AutoGen has it
        tool_choice: 'Tool | Literal["auto", "required", "none"]' = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] = {},
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult:
        """One answer of the model to *messages*.

        *tool_choice* is a tool that it must call, or whether it may, must or must not call one. *json_output* is a
        pydantic model for output by its schema, True for any JSON. *extra_create_args* go to the client as they are.
        """

    @abstractmethod
    def create_stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: "Sequence[Tool | ToolSchema]" = [],  # noqa: B006 - as AutoGen has it
        tool_choice: 'Tool | Literal["auto", "required", "none"]' = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] = {},
        cancellation_token: CancellationToken | None = None,
    ) -> AsyncGenerator[str | CreateResult, None]:
        """As `create`, piece by piece; the last is the CreateResult."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    def actual_usage(self) -> RequestUsage: ...

    @abstractmethod
    def total_usage(self) -> RequestUsage: ...

    @abstractmethod
    def count_tokens(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: "Sequence[Tool | ToolSchema]" = [],  # noqa: B006 - as AutoGen has it
    ) -> int: ...

    @abstractmethod
    def remaining_tokens(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: "Sequence[Tool | ToolSchema]" = [],  # noqa: B006 - as AutoGen has it
    ) -> int: ...

    @property
    @abstractmethod
    def capabilities(self) -> ModelCapabilities:
        """Superseded by `model_info`."""

    @property
    @abstractmethod
    def model_info(self) -> ModelInfo: ...
