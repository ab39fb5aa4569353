"""A report that takes an hour, and survives the processes that work on it."""

from pathlib import Path

from toolcrib import Context, tool

PARTS = 6


def count(part: int) -> int:
    """Count the words of a part: here it only notes that it was done."""
    with Path("counted").open("a") as file:
        file.write(f"{part}\n")
    return 100 * part


@tool(task=True, idempotent=True)
async def report(context: Context) -> str:
    """Count the words of a large library."""
    words = 0
    for part in range(PARTS):
        words += await context.step(f"part {part}", count, part)
        context.progress(part + 1, PARTS, f"{words} words so far")
        await context.sleep(context.variables["pause_s"])  # holds no process
    return f"{words} words"
