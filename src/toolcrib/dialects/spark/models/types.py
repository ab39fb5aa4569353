"""`spark.models.types`: the messages of a conversation, their blocks, and the answer of a model.

A dictionary of any of these shapes is accepted wherever the dialect takes one; the classes are for annotations.
"""

from collections.abc import Iterable
from typing import Any, Literal, Required

# Before Python 3.12 pydantic accepts no other TypedDict, and users put these into their own models.
from typing_extensions import TypedDict

from ..tools.types import ToolUse as ToolUse  # Spark has it here, too

Role = Literal["user", "assistant", "system"]


class LlmToolResult(TypedDict):
    """The result of a tool use, as a message carries it."""

    content: list[dict[str, Any]]
    status: Literal["success", "error"]
    toolUseId: str


class ContentBlock(TypedDict, total=False):
    """One block of a message; it has one of the keys. Those with `Any` are as in Amazon Bedrock's Converse."""

    text: str
    toolUse: ToolUse
    toolResult: LlmToolResult
    cachePoint: Any
    document: Any
    guardContent: Any
    image: Any
    reasoningContent: Any
    video: Any


class Message(TypedDict):
    """One message of a conversation."""

    content: list[ContentBlock]
    role: Role


Messages = list[Message]


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
    content: str | Iterable[dict[str, Any]] | None
    name: str | None
    tool_calls: list[ChatCompletionAssistantToolCall] | None
    reasoning_content: str | None
    thinking_blocks: list[str] | None
    stop_reason: str | None
    raw: Any
