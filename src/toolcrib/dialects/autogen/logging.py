"""The events that AutoGen logs. The text of each is one JSON object."""

import json
from typing import Any


class ToolCallEvent:
    """A tool call that has ended. It is logged to `EVENT_LOGGER_NAME` at INFO; its `str` is JSON."""

    def __init__(self, *, tool_name: str, arguments: dict[str, Any], result: str) -> None:
        self.kwargs: dict[str, Any] = {
            "type": "ToolCall",
            "tool_name": tool_name,
            "arguments": arguments,
            "result": result,
            "agent_id": None,
        }

    def __str__(self) -> str:
        return json.dumps(self.kwargs)
