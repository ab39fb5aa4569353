"""`spark.agents.memory`: which messages of a conversation an agent keeps."""

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ..tools._blocks import text_of

Retention = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
"""A callable that returns those of all messages to keep."""


class MemoryPolicyType(StrEnum):
    """Keep nothing; the last messages; the last ones and a summary of the others; those that a callable returns."""

    NULL = "null"
    ROLLING_WINDOW = "rolling_window"
    SUMMARIZE = "summarize"
    CUSTOM = "custom"


class MemoryConfig(BaseModel):
    """How many messages are kept (`window`), and how long their summary may be (`summary_max_chars`).

    With the policies CUSTOM and SUMMARIZE, `callable` replaces the built-in rule.
    """

    model_config = ConfigDict(extra="allow")

    policy: MemoryPolicyType = MemoryPolicyType.ROLLING_WINDOW
    window: int = Field(default=10, ge=0)
    summary_max_chars: int = Field(default=1000, ge=0)
    callable: Retention | None = None


class MemoryManager:
    """The messages of one conversation, `memory`."""

    def __init__(self, config: MemoryConfig | None = None, **kwargs: Any) -> None:
        config = config or MemoryConfig(**kwargs)
        self.policy = config.policy
        self.window = config.window
        self.summary_max_chars = config.summary_max_chars
        self.callable = config.callable
        self.memory: list[dict[str, Any]] = []

    def add_message(self, message: dict[str, Any]) -> None:
        """Add *message*, and forget those that the policy does not keep."""
        if self.policy == MemoryPolicyType.NULL:
            return
        self.memory.append(message)
        is_full = len(self.memory) > self.window
        if self.policy == MemoryPolicyType.ROLLING_WINDOW and is_full:
            del self.memory[: len(self.memory) - self.window]
        elif self.policy == MemoryPolicyType.CUSTOM or (self.policy == MemoryPolicyType.SUMMARIZE and is_full):
            if self.callable is not None:
                self.memory = self.callable(self.memory)
            elif self.policy == MemoryPolicyType.SUMMARIZE:
                self.memory = self._summarized()

    def export_to_dict(self) -> dict[str, Any]:
        """The messages and the policy as JSON data, without the callable."""
        return {
            "policy": str(self.policy),
            "window": self.window,
            "summary_max_chars": self.summary_max_chars,
            "memory": list(self.memory),
        }

    def save(self, file_path: str | Path) -> None:
        """Write `export_to_dict` to a JSON file."""
        path = Path(file_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.export_to_dict(), ensure_ascii=False, indent=2), encoding="utf-8")

    def load(self, file_path: str | Path) -> None:
        """Restore what `save` wrote, or a list of messages. Raises ValueError for anything else."""
        data = json.loads(Path(file_path).read_text(encoding="utf-8"))
        messages = data
        if isinstance(data, dict):
            messages = data.pop("memory", [])
            config = MemoryConfig.model_validate({**self.export_to_dict(), **data})
            self.policy, self.window, self.summary_max_chars = config.policy, config.window, config.summary_max_chars
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise ValueError(f"{file_path}: memory is a list of messages, {{'role': ..., 'content': ...}}.")
        self.memory = messages

    def _summarized(self) -> list[dict[str, Any]]:
        end = len(self.memory) - max(self.window - 1, 0)
        summary = "\n\n".join(filter(None, (text_of(message.get("content")) for message in self.memory[:end])))
        if len(summary) > self.summary_max_chars:
            summary = summary[: self.summary_max_chars].rstrip() + "…"
        return [{"role": "system", "content": f"Summary of the earlier conversation:\n\n{summary}"}, *self.memory[end:]]
