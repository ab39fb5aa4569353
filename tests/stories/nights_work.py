"""An agent books a journey over night, and people answer over HTTP: `python nights_work.py [PROMPT]`."""

import asyncio
import os
import sys

from nights_tools import travel

from toolcrib import Crib
from toolcrib.agent import Agent
from toolcrib.serve import serve_http


async def main() -> None:
    crib = Crib([travel], store=os.environ["DATABASE"], tasks=int(os.environ.get("TASKS", "32")))
    async with crib, Agent("openai:gpt-5-mini", crib.workbench(), name="clerk") as agent:
        if prompt := sys.argv[1:]:
            outcome = await agent.run(*prompt)
            print(outcome.status, outcome.task, flush=True)
        await serve_http(crib, port=0, ready=lambda url: print(url.removesuffix("/mcp"), flush=True))


asyncio.run(main())
