"""The examples of ToolRegistry in Spark's "Tool Classes API Reference" (003), with their missing tools supplied."""

# The text is the document's, so it is not formatted.
# ruff: noqa: E402
# fmt: off

from toolcrib.dialects.spark.tools.decorator import tool


@tool
def search_tool(query: str) -> str:
    """Search."""
    return query


@tool
def calculator_tool(a: int, b: int) -> int:
    """Add."""
    return a + b


# process_tools
from toolcrib.dialects.spark.tools.registry import ToolRegistry

registry = ToolRegistry()
tool_names = registry.process_tools([search_tool, calculator_tool])
print(f"Registered tools: {tool_names}")


# register_tool
@tool
def my_tool(input: str) -> str:
    return f"Processed: {input}"

registry = ToolRegistry()
registry.register_tool(my_tool)

# register_tool_by_ref
registry.register_tool_by_ref("myapp.tools:search_database")
registry.register_tool_by_ref("myapp.tools:calculate", tool_name="calc")

# to_spec_dict
spec = registry.to_spec_dict()
# {
#   "tools": [
#     {"name": "search", "ref": "myapp.tools:search", "spec": {...}},
#     ...
#   ]
# }
