"""The complete example in Spark's "Tool Classes API Reference" (003), its helpers supplied. Each takes 0.2 seconds.

The document awaits at its end outside of any function, as a notebook does; here that is in `main`.
"""

# The text is the document's, so it is not formatted.
# ruff: noqa: F401, I001, RET504
# fmt: off

import asyncio
import time

from toolcrib.dialects.spark.agents import Agent, AgentConfig
from toolcrib.dialects.spark.models.openai import OpenAIModel
from toolcrib.dialects.spark.tools.decorator import tool, ToolContext
from toolcrib.dialects.spark.tools.registry import ToolRegistry
from typing import Optional


def perform_search(query, limit):
    time.sleep(0.2)
    return [query] * limit


def enhanced_search(query, history):
    time.sleep(0.2)
    return f"{query} after {history[-1]['content'][0]['text']!r}"


async def make_api_call(endpoint):
    await asyncio.sleep(0.2)
    return {"endpoint": endpoint, "ok": True}


context = "Who are our customers in Zürich?"


# Define tools with @tool decorator
@tool
def search_database(query: str, limit: int = 10) -> str:
    """Search the customer database.

    Args:
        query: Search query string
        limit: Maximum number of results to return

    Returns:
        Search results as formatted string
    """
    # Implementation
    results = perform_search(query, limit)
    return f"Found {len(results)} results: {results}"

@tool(context=True)
def contextual_search(query: str, tool_context: ToolContext) -> str:
    """Search with access to agent context.

    Args:
        query: Search query string
        tool_context: Execution context (injected automatically)
    """
    agent = tool_context.invocation_state.get('agent')
    # Use agent history to improve search
    history = agent.get_history() if agent else []
    return enhanced_search(query, history)

@tool
async def async_api_call(endpoint: str) -> dict:
    """Make an async API call.

    Args:
        endpoint: API endpoint to call

    Returns:
        API response as dictionary
    """
    response = await make_api_call(endpoint)
    return response

# Create registry and register tools
registry = ToolRegistry()
registry.process_tools([search_database, contextual_search, async_api_call])

# Use tools with agent
config = AgentConfig(
    model=OpenAIModel(model_id="gpt-4o-mini"),
    tools=[search_database, contextual_search, async_api_call],
    tool_choice='auto',
    parallel_tool_execution=True
)

agent = Agent(config=config)

async def main():
    # Agent can now use all registered tools
    result = await agent.process(context)
    return result


if __name__ == "__main__":
    print(asyncio.run(main()).content)
