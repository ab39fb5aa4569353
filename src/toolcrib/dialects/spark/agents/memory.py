"""`spark.agents.memory`: which messages of a conversation an agent keeps."""

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ..tools._content import words_of

Forget = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
"""Given all messages, gives those to keep."""


class MemoryPolicyType(StrEnum):
    """What is kept: nothing; the last ones; the last ones and a summary of the others; what a callable says."""

    NULL = "null"
    ROLLING_WINDOW = "rolling_window"
    SUMMARIZE = "summarize"
    CUSTOM = "custom"


class MemoryConfig(BaseModel):
    """`window` is how many messages are kept, `summary_max_chars` how long their summary may be.

    `callable` decides in place of the built-in rule, with the policies CUSTOM and SUMMARIZE.
    """

    model_config = ConfigDict(extra="allow")

    policy: MemoryPolicyType = MemoryPolicyType.ROLLING_WINDOW
    window: int = Field(default=10, ge=0)
    summary_max_chars: int = Field(default=1000, ge=0)
    callable: Forget | None = None


class MemoryManager:
    """The messages of one conversation: `memory`."""

    def __init__(self, config: MemoryConfig | None = None, **kwargs: Any) -> None:
        config = MemoryConfig(**kwargs) if config is None else config
        self.policy = config.policy
        self.window = config.window
        self.summary_max_chars = config.summary_max_chars
        self.callable = config.callable
        self.memory: list[dict[str, Any]] = []

    def add_message(self, message: dict[str, Any]) -> None:
        """Add *message*, and forget what the policy does not keep."""
        if self.policy == MemoryPolicyType.NULL:
            return
        self.memory.append(message)
        match self.policy:
            case MemoryPolicyType.ROLLING_WINDOW:
                del self.memory[: max(len(self.memory) - self.window, 0)]
            case MemoryPolicyType.SUMMARIZE if len(self.memory) > self.window:
                self.memory = self._summarized() if self.callable is None else self.callable(self.memory)
            case MemoryPolicyType.CUSTOM if self.callable is not None:
                self.memory = self.callable(self.memory)
            case _:
                pass

    def export_to_dict(self) -> dict[str, Any]:
        """The messages and the rule, as JSON data. A callable is not in it."""
        return {
            "policy": str(self.policy),
            "window": self.window,
            "summary_max_chars": self.summary_max_chars,
            "memory": list(self.memory),
        }

    def save(self, file_path: str | Path) -> None:
        """Write what `export_to_dict` gives to a file, as JSON."""
        path = Path(file_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.export_to_dict(), ensure_ascii=False, indent=2), encoding="utf-8")

    def load(self, file_path: str | Path) -> None:
        """Go on from what `save` wrote, or from a list of messages. Raises ValueError for anything else."""
        data = json.loads(Path(file_path).read_text(encoding="utf-8"))
        messages = data
        if isinstance(data, dict):
            messages = data.pop("memory", [])
            rule = MemoryConfig.model_validate({**self.export_to_dict(), **data})
            self.policy, self.window, self.summary_max_chars = rule.policy, rule.window, rule.summary_max_chars
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise ValueError(f"{file_path}: memory is a list of messages, {{'role': ..., 'content': ...}}.")
        self.memory = messages

    def _summarized(self) -> list[dict[str, Any]]:
        keep = max(self.window - 1, 0)
        older, recent = self.memory[: len(self.memory) - keep], self.memory[len(self.memory) - keep :]
        words = "\n\n".join(filter(None, (words_of(message.get("content")) for message in older)))
        if len(words) > self.summary_max_chars:
            words = words[: self.summary_max_chars].rstrip() + "…"
        return [{"role": "system", "content": f"What was said before, in short:\n\n{words}"}, *recent]
