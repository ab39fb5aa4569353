"""`spark.agents`: the agent that runs tools, also as `.config`, `.memory` and `.types`."""

from ..._modules import also_as
from .agent import (
    Agent,
    AgentConfig,
    AgentError,
    AgentState,
    ConfigurationError,
    MemoryConfig,
    MemoryManager,
    MemoryPolicyType,
    ModelError,
    ToolExecutionError,
    ToolTrace,
)

__all__ = [
    "Agent",
    "AgentConfig",
    "AgentError",
    "AgentState",
    "ConfigurationError",
    "MemoryConfig",
    "MemoryManager",
    "MemoryPolicyType",
    "ModelError",
    "ToolExecutionError",
    "ToolTrace",
]

also_as(__name__, "config", "memory", "types")
