"""agent-swarm-kit's tool layer: its tools, and what its agent does with the tool calls of one turn.

The original's camelCase is snake_case here. Its dictionaries may stay as they are, and are then called with camelCase
keys. The phrase book is in docs/dialects/swarm.md.
"""

from .definitions import AddedTool, IAgentTool, ITool, add_tool, agent_tool, get_tool, override_tool
from .interfaces import (
    AbortSignal,
    AgentName,
    Execution,
    IAgentToolCallbacks,
    IToolCall,
    IToolCallDto,
    IToolCallFunction,
    IToolFunction,
    IToolParameters,
    IToolProperty,
    IToolValidateDto,
    ToolEvent,
    ToolName,
    ToolValue,
)
from .tool import AgentTool, commit_stop_tools, commit_tool_output, commit_tool_output_force
from .turn import execute_tools, resolve_tools

__all__ = [
    "AbortSignal",
    "AddedTool",
    "AgentName",
    "AgentTool",
    "Execution",
    "IAgentTool",
    "IAgentToolCallbacks",
    "ITool",
    "IToolCall",
    "IToolCallDto",
    "IToolCallFunction",
    "IToolFunction",
    "IToolParameters",
    "IToolProperty",
    "IToolValidateDto",
    "ToolEvent",
    "ToolName",
    "ToolValue",
    "add_tool",
    "agent_tool",
    "commit_stop_tools",
    "commit_tool_output",
    "commit_tool_output_force",
    "execute_tools",
    "get_tool",
    "override_tool",
    "resolve_tools",
]
