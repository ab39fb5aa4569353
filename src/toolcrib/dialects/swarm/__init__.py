"""agent-swarm-kit's tool layer: its tools, and what its agent does with the tool calls of one turn.

The phrase book, from agent-swarm-kit to here. What it writes in camelCase is written in snake_case; its dictionaries
may stay as they are, and are then called with camelCase keys.

    agent-swarm-kit                        here
    IAgentTool                             IAgentTool: an object, a subclass, or a dictionary of either spelling
    IAgentTool.function (as a factory)     function=: (client_id, agent_name) -> dictionary, plain or async
    ITool, IToolCall, ToolValue            ITool, IToolCall, ToolValue
    addTool(tool)                          add_tool(tool); `tools` take its name
    the agent's run of its tool calls      await execute_tools(client_id, agent_name, tool_calls, tools)
    commitToolOutput(id, text, ...)        await commit_tool_output(id, text, client_id, agent_name); or return it
    dto.abortSignal                        dto.abort_signal: a CancellationToken, with `aborted`
    the tools an agent has for a client    await resolve_tools(client_id, agent_name, tools)
    validateToolArguments                  nothing to call: the schema holds before `validate` is asked
    CC_MAX_TOOL_CALLS, maxToolCalls        max_tool_calls=, all by default; calls that are dropped are reported
    CC_RESQUE_STRATEGY, onResurrect        Execution: what happened, as data, for the host to act on

In Toolcrib's own words: an IAgentTool is a Tool (its `__toolcrib__`), `params` are a Call's arguments, a tool id is a
Call's id, a client is the principal of a Caller, and the output of a call is a Result. Swarms, sessions, rescue
messages and navigation are an agent runtime's, and not here.
"""

from .added import AddedTool, add_tool
from .commits import commit_tool_output
from .execution import Execution, ToolEvent
from .reading import AgentTool, agent_tool
from .resolving import resolve_tools
from .running import execute_tools
from .words import (
    AbortSignal,
    AgentName,
    IAgentTool,
    IAgentToolCallbacks,
    ITool,
    IToolCall,
    IToolCallDto,
    IToolCallFunction,
    IToolFunction,
    IToolParameters,
    IToolProperty,
    IToolValidateDto,
    ToolName,
    ToolValue,
)

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
    "commit_tool_output",
    "execute_tools",
    "resolve_tools",
]
