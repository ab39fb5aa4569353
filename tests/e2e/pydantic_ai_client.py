"""An agent of pydantic-ai with its TestModel, which calls each of some tools once: prints what these gave, as JSON."""

import asyncio
import json
import sys

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.test import TestModel

TOOLS = ["test_simple_text", "test_multiple_content_types", "test_x_mcp_header"]


async def main(url: str) -> None:
    server = MCPToolset(url)
    agent = Agent(TestModel(call_tools=TOOLS), toolsets=[server])
    async with agent:
        run = await agent.run("Go on.")
    parts = [part for message in run.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    print(json.dumps({part.tool_name: str(part.content)[:60] for part in parts}))


asyncio.run(main(sys.argv[1]))
