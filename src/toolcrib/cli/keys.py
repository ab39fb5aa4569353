"""`toolcrib keys`: the keys with which clients enter a server, in the store."""

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core import ToolcribError
from .interrupts import Interrupts
from .options import Config, Json, Store
from .sources import settings_of
from .terminal import Output, echo, log_to_stderr, one_line

if TYPE_CHECKING:
    from ..serve.keys import AccessKey, AccessKeys

keys = typer.Typer(help="Keys with which clients enter the server.")

_LONGEST_DAYS = 36_500


def _run(
    context: typer.Context, config: Any, where: str | None, work: Callable[["AccessKeys"], Coroutine[Any, Any, int]]
) -> int:
    """Run *work* with the keys in the store. Returns the exit status."""
    from ..workbench.credentials import store_of

    log_to_stderr(tracebacks=False)
    store = store_of(settings_of(config), where)  # before the import: it names the extra, where it is missing
    from ..serve.keys import AccessKeys

    interrupts: Interrupts = context.find_root().obj
    try:
        return interrupts.run(work(AccessKeys(store)))
    finally:
        store.close()


@keys.command("add")
def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is.")],
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="GROUP", help="A group that they are in; may be repeated.")
    ] = None,
    days: Annotated[
        int | None,
        typer.Option("--days", min=1, max=_LONGEST_DAYS, metavar="NUMBER", help="The days until it expires."),
    ] = None,
    config: Config = None,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """Make a key. It is printed now and never again: only a hash of it is stored."""

    async def work(found: "AccessKeys") -> int:
        until = None if days is None else datetime.now(UTC) + timedelta(days=days)
        text, key = await found.add(name, groups=group or (), expires_at=until)
        output = Output()
        if as_json:
            output.json({"key": text, **key.to_dict()})
        else:
            output.write(text)
            echo(f"The key {key.id} of '{key.principal}'. It is not shown again.")
        return 0

    return _run(context, config, store, work)


@keys.command("list")
def list_keys(context: typer.Context, config: Config = None, store: Store = None, as_json: Json = False) -> int:
    """List the keys, by their ids."""

    async def work(found: "AccessKeys") -> int:
        every = await found.all()
        output = Output()
        if as_json:
            output.json([key.to_dict() for key in every])
        else:
            output.table(("Id", "Principal", "Groups", "Made", "Expires", "Last used"), [*map(_row, every)])
        return 0

    return _run(context, config, store, work)


@keys.command("revoke")
def revoke(
    context: typer.Context,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="One or more of: toolcrib keys list.")],
    config: Config = None,
    store: Store = None,
) -> int:
    """Revoke keys: they let nobody in from now on."""

    async def work(found: "AccessKeys") -> int:
        unknown = [one for one in ids if not await found.revoke(one)]
        if unknown:
            names = ", ".join(f"'{one_line(one)[:60]}'" for one in unknown)
            raise ToolcribError(f"There is no key {names}. See: toolcrib keys list")
        echo(f"Revoked: {', '.join(ids)}.")
        return 0

    return _run(context, config, store, work)


def _row(key: "AccessKey") -> list[str]:
    moments = (key.created_at, key.expires_at, key.last_used_at)
    return [
        key.id,
        key.principal,
        " ".join(key.groups),
        *("" if at is None else f"{at:%Y-%m-%d %H:%M}" for at in moments),
    ]
