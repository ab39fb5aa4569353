"""An agent books a journey over night, and people answer over HTTP: `python nights_work.py [PROMPT]`."""

import asyncio
import sys
import time
from pathlib import Path

from toolcrib import Context, Crib, tool
from toolcrib.agent import Agent
from toolcrib.serve import serve_http


def effect(text: str) -> str:
    with Path("effects.txt").open("a") as file:
        file.write(f"{text}\n")
    return text


def book_hotel(city: str) -> str:
    Path("booking").touch()
    while Path("slow").exists():
        time.sleep(0.01)
    return effect(f"hotel in {city}")


@tool(task=True, idempotent=True, destructive=False)
async def travel(city: str, context: Context) -> str:
    """Book a journey, which takes the night."""
    flight = await context.step("flight", effect, f"flight to {city}")
    hotel = await context.step("hotel", book_hotel, city)
    context.progress(2, 3, "Flight and hotel are booked.")
    seat = await context.ask("seat", str, "Which seat?")
    await context.step("seat", effect, f"seat {seat}")
    return f"{flight}, {hotel}, seat {seat}"


async def main() -> None:
    crib = Crib([travel], store="night.db")
    async with crib, Agent("openai:gpt-5-mini", crib.workbench(), name="clerk") as agent:
        if prompt := sys.argv[1:]:
            outcome = await agent.run(*prompt)
            print(outcome.status, outcome.task, flush=True)
        await serve_http(crib, port=0, ready=lambda url: print(url.removesuffix("/mcp"), flush=True))


asyncio.run(main())
