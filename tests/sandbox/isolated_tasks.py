"""Tasks that run in processes of their own, apart from the other tools: they need a store."""

from pathlib import Path

from toolcrib import Context, tool


def note(file: str, word: str) -> dict[str, str]:
    with Path(file).open("a") as notes:
        notes.write(f"{word}\n")
    return {"word": word}


@tool(isolation="process", task=True, idempotent=True)
async def night(ctx: Context, file: str) -> str:
    one = await ctx.step("one", note, file, "one")
    await ctx.sleep(0.2)
    two = await ctx.step("two", note, file, "two")
    name = await ctx.ask("name", str, "Who?")
    return f"{one['word']} {two['word']} {name}"


@tool(isolation="process", task=True)
async def set_of_a_step(ctx: Context) -> None:
    await ctx.step("one", set)
