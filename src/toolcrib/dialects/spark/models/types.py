"""`spark.models.types`: the messages of a conversation, their blocks, and the answer of a model.

A dictionary of any of these shapes is accepted wherever the dialect takes one; the classes are for annotations.
"""

from collections.abc import Iterable
from typing import Any, Literal, NotRequired, Required

# Before Python 3.12 pydantic accepts no other TypedDict, and users put these into their own models.
from typing_extensions import TypedDict

from ..tools.types import ToolUse as ToolUse  # Spark has it here, too

Role = Literal["user", "assistant", "system"]
DocumentFormat = Literal["pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"]
ImageFormat = Literal["png", "jpeg", "gif", "webp"]
VideoFormat = Literal["flv", "mkv", "mov", "mpeg", "mpg", "mp4", "three_gp", "webm", "wmv"]
ToolResultStatus = Literal["success", "error"]

# Files


class DocumentSource(TypedDict):
    bytes: bytes


class DocumentContent(TypedDict):
    """A document; `context` says what it is for."""

    format: DocumentFormat
    name: str
    source: DocumentSource
    metadata: NotRequired[dict[str, str]]
    context: NotRequired[str]


class ImageSource(TypedDict):
    bytes: bytes


class ImageContent(TypedDict):
    format: ImageFormat
    source: ImageSource


class VideoSource(TypedDict):
    bytes: bytes


class VideoContent(TypedDict):
    format: VideoFormat
    source: VideoSource


# Blocks


class GuardContentText(TypedDict):
    """Text to be evaluated by a provider's guardrail, and as what."""

    qualifiers: list[Literal["grounding_source", "query", "guard_content"]]
    text: str


class GuardContent(TypedDict):
    text: GuardContentText


class ReasoningTextBlock(TypedDict, total=False):
    """The model's reasoning; *signature* is the provider's proof of it."""

    signature: str | None
    text: str


class ReasoningContentBlock(TypedDict, total=False):
    reasoningText: ReasoningTextBlock
    redactedContent: bytes


class CachePoint(TypedDict):
    """Where a provider may cache the conversation up to; *type* is "default"."""

    type: str


class ToolResultContent(TypedDict, total=False):
    """One part of a tool's result; it has one of the keys."""

    document: DocumentContent
    image: ImageContent
    json: Any
    text: str


class LlmToolResult(TypedDict):
    """The result of a tool use, as a message carries it."""

    content: list[ToolResultContent]
    status: ToolResultStatus
    toolUseId: str


class ContentBlock(TypedDict, total=False):
    """One block of a message; it has one of the keys."""

    cachePoint: CachePoint
    document: DocumentContent
    guardContent: GuardContent
    image: ImageContent
    reasoningContent: ReasoningContentBlock
    text: str
    toolResult: LlmToolResult
    toolUse: ToolUse
    video: VideoContent


class SystemContentBlock(TypedDict, total=False):
    """One block of a system prompt."""

    guardContent: GuardContent
    text: str


class Message(TypedDict):
    """One message of a conversation."""

    content: list[ContentBlock]
    role: Role


Messages = list[Message]

# A model's answer


class ChatCompletionTextObject(TypedDict):
    type: Literal["text"]
    text: str


class ChatCompletionThinkingBlock(TypedDict, total=False):
    type: Required[Literal["thinking"]]
    thinking: str
    signature: str


class ChatCompletionToolCallFunctionChunk(TypedDict, total=False):
    """The tool that a model calls. *arguments* are a dictionary, or their text where that is not valid JSON."""

    name: str | None
    arguments: dict[str, Any] | str | None


class ChatCompletionAssistantToolCall(TypedDict):
    id: str | None
    type: Literal["function"]
    function: ChatCompletionToolCallFunctionChunk


class ChatCompletionAssistantMessage(TypedDict, total=False):
    """A model's answer. `stop_reason` is "tool_use" if it calls tools, and "end_turn" if it is done.

    `raw` is the provider's own message; Spark does not have it.
    """

    role: Required[Literal["assistant"]]
    content: str | Iterable[ChatCompletionTextObject | ChatCompletionThinkingBlock] | None
    name: str | None
    tool_calls: list[ChatCompletionAssistantToolCall] | None
    reasoning_content: str | None
    thinking_blocks: list[str] | None
    stop_reason: str | None
    raw: Any
