"""`toolcrib worker`: a process that runs the tasks of a store, and serves no tools."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from .app import Session, command, group
from .arguments import SourceNames, ToolNames, port_number
from .processes import require_local
from .serving import opened, set_up_log

if TYPE_CHECKING:
    from ..workbench import Crib

app = group()


@command(
    app, "worker", example="toolcrib worker tools.py --store postgresql://db.example.com/tools", takes="config store"
)
def worker(
    session: Session,
    sources: SourceNames = None,
    tool: ToolNames = None,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, metavar="NUMBER", help="How many tasks run at a time (default: 32)."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            callback=port_number,
            help="Answer this computer at this port: /livez, /readyz, with metrics /metrics; 0 takes any free one.",
        ),
    ] = None,
) -> None:
    """Run the tasks of a store, and serve no tools.

    Start any number of them, on any number of machines: each takes up tasks of the tools that it has. At SIGTERM a
    worker takes up no more, and gives what does not end within the grace_s of the settings to others.
    """
    from ..workbench import TaskLimits

    values = session.settings.values
    limits: TaskLimits = session.settings.options()["tasks"]  # its 0 is for those who leave them to workers
    places = concurrency or limits.concurrency or TaskLimits().concurrency
    tasks = replace(limits, concurrency=places)
    example = "For example: toolcrib worker tools.py --store postgresql://db.example.com/tools"
    report = set_up_log(session)
    crib = opened(session, sources or (), tool or (), report=report, tasks=tasks, follow=True, example=example).crib
    place = ""
    if (store := crib.database) is not None:
        require_local(store)
        note = " (on this computer; those on other machines need a store in PostgreSQL)"
        place = f"{store.place}{note if store.file else ''}"
    grace_s = values.server.grace_s
    session.interrupts.grace_s += grace_s

    def ready(url: str | None) -> None:
        names = sorted(tool.spec.name for tool in crib.registry if tool.is_task)
        tasks = f"the tasks of {', '.join(names)}" if names else "no tasks yet: no tool has task=True"
        report(f"Running {tasks}, in the store {place}{f', with {url}/readyz' if url else ''} (Ctrl-C stops it)")

    if port is None:
        session.run(_work(crib, grace_s, ready))
        return
    from ..serve.http import serve_health

    session.run(serve_health(crib, port=port, grace_s=grace_s, ready=ready))


async def _work(crib: "Crib", grace_s: float, ready: Callable[[None], None]) -> None:
    async with crib:
        try:
            ready(None)
            await asyncio.Event().wait()
        finally:
            await crib.drain(grace_s)
