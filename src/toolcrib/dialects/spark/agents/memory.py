"""`spark.agents.memory`: which messages of a conversation an agent keeps."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

Retention = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
"""A callable that returns those of all messages to keep."""


class MemoryPolicyType(StrEnum):
    """Keep nothing; the last messages; or those that a callable returns, with SUMMARIZE when there are too many."""

    NULL = "null"
    ROLLING_WINDOW = "rolling_window"
    SUMMARIZE = "summarize"
    CUSTOM = "custom"


class MemoryConfig(BaseModel):
    """How many messages are kept (`window`), or the `callable` that decides, for the policies CUSTOM and SUMMARIZE."""

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
        self.callable = config.callable
        self.memory: list[dict[str, Any]] = []

    def add_message(self, message: dict[str, Any]) -> None:
        """Add *message*, and forget those that the policy does not keep. SUMMARIZE keeps a window, too."""
        if self.policy == MemoryPolicyType.NULL:
            return
        self.memory.append(message)
        is_full = len(self.memory) > self.window
        if self.callable is not None and self.policy in (MemoryPolicyType.CUSTOM, MemoryPolicyType.SUMMARIZE):
            if is_full or self.policy == MemoryPolicyType.CUSTOM:
                self.memory = self.callable(self.memory)
        elif is_full and self.policy != MemoryPolicyType.CUSTOM:
            del self.memory[: len(self.memory) - self.window]
