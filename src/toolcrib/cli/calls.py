"""`toolcrib calls`: what was called, from the call log in the store."""

import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core import CallRecord, ToolcribError
from .interrupts import Interrupts
from .options import Config, Json, Store
from .sources import settings_of
from .terminal import Output, UsageError, log_to_stderr, one_line

if TYPE_CHECKING:
    from ..record import DatabaseCalls

calls = typer.Typer(help="What was called, by whom, and how it ended.")

_STATUSES = ("started", "success", "error", "pending", "lost")
_AGE = re.compile(r"(\d{1,9})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_COLUMNS = ("Started", "Id", "Principal", "Tool", "Status", "Time", "Notes")


def _status(text: str | None) -> str | None:
    if text is not None and text not in _STATUSES:
        raise typer.BadParameter(f"a status is one of: {', '.join(_STATUSES)}.")
    return text


_Tool = Annotated[str | None, typer.Option("--tool", metavar="NAME", help="Only calls of this tool.")]
_Principal = Annotated[str | None, typer.Option("--principal", metavar="NAME", help="Only calls of this caller.")]
_Status = Annotated[
    str | None,
    typer.Option(
        "--status", metavar="STATUS", callback=_status, help=f"Only calls with this status: {', '.join(_STATUSES)}."
    ),
]


@calls.command("list")
def list_calls(
    context: typer.Context,
    tool: _Tool = None,
    principal: _Principal = None,
    status: _Status = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Since when: a time, 2026-01-31T12:00, or an age: 30m, 12h, 7d."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, metavar="NUMBER", help="How many at most.")] = 100,
    config: Config = None,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """List calls, the newest first. The status `lost` is of a call whose process has died."""
    began = None if since is None else _since(since)

    async def work(log: "DatabaseCalls") -> None:
        from ..record.call_lines import call_data

        found = await log.newest(tool=tool, principal=principal, status=status, since=began, limit=limit)
        output = Output()
        if as_json:
            output.json([*map(call_data, found)])
        else:
            output.table(_COLUMNS, [*map(_row, found)])

    return _run(context, config, store, work)


@calls.command("show")
def show_call(
    context: typer.Context,
    id: Annotated[str, typer.Argument(metavar="ID", help="One of: toolcrib calls list.")],  # noqa: A002
    config: Config = None,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """Show one call. Its arguments and result are shown where these are recorded."""

    async def work(log: "DatabaseCalls") -> None:
        from ..record.call_lines import call_data

        record = await log.find(id)
        if record is None:
            raise ToolcribError(f"There is no call '{one_line(id)[:100]}' in the log. See: toolcrib calls list")
        data = call_data(record, with_content=True)
        output = Output()
        if as_json:
            output.json(data)
        else:
            shown = {name: value for name, value in data.items() if value is not None}
            output.write("\n".join(f"{name}: {one_line(str(value))}" for name, value in shown.items()))

    return _run(context, config, store, work)


@calls.command("follow")
def follow_calls(
    context: typer.Context,
    tool: _Tool = None,
    principal: _Principal = None,
    status: _Status = None,
    config: Config = None,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """Print calls as they end, until Ctrl-C. They are those of all processes that share the store.

    A call that takes longer, or whose process has died, is printed as `started` or `lost` before.
    """

    async def work(log: "DatabaseCalls") -> None:
        from ..record.call_lines import call_data

        output = Output()
        async for record in log.follow(tool=tool, principal=principal, status=status):
            if as_json:
                output.json_line(call_data(record))
            else:
                output.write("\t".join(map(one_line, _row(record))))

    return _run(context, config, store, work)


def _run(
    context: typer.Context, config: Any, store: str | None, work: "Callable[[DatabaseCalls], Coroutine[Any, Any, None]]"
) -> int:
    """Run *work* with the call log of the settings and the store."""
    log_to_stderr(tracebacks=False)
    settings = settings_of(config)
    interrupts: Interrupts = context.find_root().obj

    async def run() -> int:
        from ..record import DatabaseCalls
        from ..store import Store

        where = settings.path(settings.values.store.url) if store is None else store
        opened = Store(where, key=settings.path(settings.values.store.key))
        try:
            await work(DatabaseCalls(opened))
        finally:
            opened.close()
        return 0

    return interrupts.run(run())


def _row(record: CallRecord) -> list[str]:
    from ..record.call_lines import duration_of, name_of, notes_on, status_of

    began = record.started_at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return [
        *(began, record.id, name_of(record), record.tool),
        *(status_of(record), duration_of(record), notes_on(record)),
    ]


def _since(text: str) -> datetime:
    if (age := _AGE.fullmatch(text)) is not None:
        with suppress(OverflowError):
            return datetime.now(UTC) - timedelta(**{_UNITS[age[2]]: int(age[1])})
    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(text).astimezone(UTC)
    raise UsageError("--since takes a time, as in 2026-01-31T12:00, or an age, as in 30m, 12h or 7d.")
