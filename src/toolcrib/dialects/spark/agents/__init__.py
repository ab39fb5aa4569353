"""`spark.agents`: the agent that runs tools, also as `.config`, `.memory` and `.types`."""

from ..._modules import also_as, left_out
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

__getattr__ = left_out(__name__, "Strategies, cost trackers and checkpoints are left out.")
