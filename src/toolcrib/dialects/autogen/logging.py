"""The events that AutoGen logs. The text of each is one JSON object."""

import json
from typing import Any


class _Event:
    """An event with its fields in `kwargs`. It is logged to `EVENT_LOGGER_NAME` at INFO; its `str` is JSON."""

    def __init__(self, kind: str, **fields: Any) -> None:
        self.kwargs: dict[str, Any] = {"type": kind, **fields, "agent_id": None}

    def __str__(self) -> str:
        return json.dumps(self.kwargs)


class _Tokens(_Event):
    """An event with the token counts of a request and its answer."""

    @property
    def prompt_tokens(self) -> int:
        tokens: int = self.kwargs["prompt_tokens"]
        return tokens

    @property
    def completion_tokens(self) -> int:
        tokens: int = self.kwargs["completion_tokens"]
        return tokens


class ToolCallEvent(_Event):
    """A tool call that has ended."""

    def __init__(self, *, tool_name: str, arguments: dict[str, Any], result: str) -> None:
        super().__init__("ToolCall", tool_name=tool_name, arguments=arguments, result=result)


class LLMCallEvent(_Tokens):
    """A request to a model and its answer, for model clients to log. The dialect itself logs none."""

    def __init__(
        self,
        *,
        messages: list[dict[str, Any]],
        response: dict[str, Any],
        prompt_tokens: int,
        completion_tokens: int,
        **kwargs: Any,
    ) -> None:
        counted = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        super().__init__("LLMCall", **kwargs, messages=messages, response=response, **counted)


class LLMStreamStartEvent(_Event):
    """The start of a streamed answer."""

    def __init__(self, *, messages: list[dict[str, Any]], **kwargs: Any) -> None:
        super().__init__("LLMStreamStart", **kwargs, messages=messages)


class LLMStreamEndEvent(_Tokens):
    """The end of a streamed answer."""

    def __init__(self, *, response: dict[str, Any], prompt_tokens: int, completion_tokens: int, **kwargs: Any) -> None:
        counted = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        super().__init__("LLMStreamEnd", **kwargs, response=response, **counted)
