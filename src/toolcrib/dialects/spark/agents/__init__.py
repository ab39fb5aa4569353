"""`spark.agents`: the agent that runs tools."""

from .agent import Agent, AgentError, ConfigurationError, ModelError, ToolExecutionError
from .config import AgentConfig
from .memory import MemoryConfig, MemoryManager, MemoryPolicyType
from .types import AgentState, ToolTrace

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
