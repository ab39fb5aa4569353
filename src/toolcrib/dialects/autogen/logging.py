"""What AutoGen tells its loggers: events whose text is one JSON object."""

import json
from typing import Any


class ToolCallEvent:
    """One call of a tool has ended. It goes to the logger `EVENT_LOGGER_NAME` at INFO; `str` of it is JSON."""

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
