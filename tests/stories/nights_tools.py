"""The tool of the night, which books at an agency: a folder that all machines reach."""

import os
import time
from pathlib import Path

from toolcrib import Context, tool

AGENCY = Path(os.environ["AGENCY"])


def effect(text: str) -> str:
    with (AGENCY / "effects.txt").open("a") as file:
        file.write(f"{text}\n")
    return text


def book_hotel(city: str) -> str:
    with (AGENCY / "begun.txt").open("a") as file:
        file.write(f"{Path.home().name}\n")
    while (AGENCY / "slow").exists():
        time.sleep(0.01)
    return effect(f"hotel in {city}")


@tool(task=True, idempotent=True, destructive=False, timeout_s=3600)
async def travel(city: str, context: Context) -> str:
    """Book a journey, which takes up to an hour."""
    flight = await context.step("flight", effect, f"flight to {city}")
    hotel = await context.step("hotel", book_hotel, city)
    context.progress(2, 3, "Flight and hotel are booked.")
    seat = await context.ask("seat", str, "Which seat?")
    await context.step("seat", effect, f"seat {seat}")
    return f"{flight}, {hotel}, seat {seat}"
