"""`toolcrib threads`: what threads remember for rules, in the store."""

from typing import Annotated

import typer

from .app import Session, command, group
from .terminal import counted

threads = group("What threads remember for rules: which labels they have seen, and what came before.")


@command(threads, "clear", takes="config store json")
async def clear(
    session: Session,
    principal: Annotated[
        str | None, typer.Argument(metavar="[PRINCIPAL]", help="Only what this caller's threads remember.")
    ] = None,
    thread: Annotated[str | None, typer.Argument(metavar="[THREAD]", help="Only this thread of theirs.")] = None,
) -> None:
    """Forget it: rules that ask what a thread has seen, or what came before, begin anew."""
    with session.opened_store() as database:
        number = await database.threads.clear(principal, thread)
    data = {"principal": principal, "thread": thread, "cleared": number}
    session.show(data, text=f"Forgotten: {counted(number, 'fact')}.")
