"""The example of a BaseTool in Spark's "Tool Classes API Reference" (003)."""

# The text is the document's, so it is not formatted.
# ruff: noqa: I001
# fmt: off

from toolcrib.dialects.spark.tools.types import BaseTool, ToolSpec

class CustomTool(BaseTool):
    """Custom tool implementation."""

    @property
    def tool_name(self) -> str:
        return "custom_tool"

    @property
    def tool_spec(self) -> ToolSpec:
        return {
            "name": "custom_tool",
            "description": "A custom tool implementation",
            "parameters": {
                "json": {
                    "type": "object",
                    "properties": {
                        "input": {
                            "type": "string",
                            "description": "Input parameter"
                        }
                    },
                    "required": ["input"]
                }
            }
        }

    @property
    def tool_type(self) -> str:
        return "custom"

    def __call__(self, input: str) -> str:
        return f"Processed: {input}"
