"""`myapp.tools`, as the examples of Spark's "Tool Classes API Reference" (docs/api/tools.md) name it."""

from toolcrib.dialects.spark.tools.decorator import tool


@tool
def search_database(query: str, limit: int = 10) -> str:
    """Search the customer database.

    Args:
        query: Search query
        limit: Maximum results
    """
    return f"{limit} results for {query}"


@tool
def calculate(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b
