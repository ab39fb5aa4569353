"""The usage patterns of `@tool` in Spark's "Tool Classes API Reference" (003), with their missing helpers supplied."""

# The text is the document's, so it is not formatted.
# ruff: noqa: E402, F841, I001, RET504, UP045
# fmt: off

import asyncio
from typing import Optional

results = "results"


def search(query, max_results):
    return f"{max_results} of {query}"


def process(query, ctx):
    return f"{query} for {ctx.tool_use['toolUseId']}"


async def async_search_api(query):
    await asyncio.sleep(0)
    return f"found {query}"


# Simple Decorator
from toolcrib.dialects.spark.tools.decorator import tool


@tool
def search_web(query: str) -> str:
    """Search the web for information.

    Args:
        query: The search query

    Returns:
        Search results as a string
    """
    # Implementation here
    return results


# With Parameters
@tool(name="custom_search", description="Custom web search tool")
def my_search(query: str, max_results: int = 10) -> str:
    """Search with custom settings."""
    return search(query, max_results)


# With Context Injection
from toolcrib.dialects.spark.tools.decorator import tool, ToolContext


@tool(context=True)
def contextual_tool(query: str, tool_context: ToolContext) -> str:
    """Tool that accesses execution context."""
    agent = tool_context.invocation_state.get('agent')
    tool_id = tool_context.tool_use['toolUseId']

    return f"Processed {query} with tool ID {tool_id}"


# Custom Context Parameter Name
@tool(context="ctx")
def my_tool(query: str, ctx: ToolContext) -> str:
    """Tool with custom context parameter name."""
    return process(query, ctx)


# Async Tool
@tool
async def async_search(query: str) -> str:
    """Async web search."""
    result = await async_search_api(query)
    return result


# Example with Full Documentation
@tool
def calculate(
    operation: str,
    a: float,
    b: float,
    precision: Optional[int] = 2
) -> float:
    """Perform a mathematical calculation.

    This tool supports basic arithmetic operations including addition,
    subtraction, multiplication, and division.

    Args:
        operation: The operation to perform (add, subtract, multiply, divide)
        a: First operand
        b: Second operand
        precision: Number of decimal places for result (default: 2)

    Returns:
        The result of the calculation rounded to specified precision

    Raises:
        ValueError: If operation is not supported
        ZeroDivisionError: If dividing by zero
    """
    if operation == "add":
        result = a + b
    elif operation == "subtract":
        result = a - b
    elif operation == "multiply":
        result = a * b
    elif operation == "divide":
        if b == 0:
            raise ZeroDivisionError("Cannot divide by zero")
        result = a / b
    else:
        raise ValueError(f"Unsupported operation: {operation}")

    return round(result, precision)


# ToolContext: Example
@tool(context=True)
def smart_tool(query: str, tool_context: ToolContext) -> str:
    # Access tool use metadata
    tool_id = tool_context.tool_use['toolUseId']
    tool_name = tool_context.tool_use['name']

    # Access agent if available
    agent = tool_context.invocation_state.get('agent')
    if agent:
        history = agent.get_history()
        # Use history to inform tool behavior

    return f"Processed {query} (ID: {tool_id})"
