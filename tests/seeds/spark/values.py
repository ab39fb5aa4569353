"""The values of the types in Spark's "Tool Classes API Reference" (003)."""

# The text is the document's, so it is not formatted.
# fmt: off

from toolcrib.dialects.spark.tools.types import ToolChoice, ToolResult, ToolSpec, ToolUse, update_tool_runtime_metadata

search_spec: ToolSpec = {
    "name": "search_database",
    "description": "Search the customer database",
    "parameters": {
        "json": {
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "Search query"
                },
                "limit": {
                    "type": "integer",
                    "description": "Maximum results"
                }
            },
            "required": ["query"]
        }
    }
}

tool_use: ToolUse = {
    "toolUseId": "call_abc123",
    "name": "search_database",
    "input": {
        "query": "customer orders",
        "limit": 10
    }
}

# Let model decide
auto: ToolChoice = {"auto": {}}

# Require tool usage
any_tool: ToolChoice = {"any": {}}

# Force specific tool
one_tool: ToolChoice = {"tool": {"name": "calculator"}}

tool_result: ToolResult = {
    "toolUseId": "call_abc123",
    "status": "success",
    "content": [{"text": "Found 5 matching records"}],
    "metadata": {
        "latency_ms": 245,
        "records_found": 5
    },
    "completed_at": "2025-01-15T10:30:00Z"
}

tool_spec: ToolSpec = {
    "name": "data_processor",
    "description": "Process large datasets",
    "parameters": {"json": {}}
}

update_tool_runtime_metadata(
    tool_spec,
    supports_async=True,
    long_running=True
)
