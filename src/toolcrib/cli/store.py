"""`toolcrib store` and `threads`: copies of the store, and what it has of one caller, or of threads."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core import ToolcribError
from ..workbench.credentials import vault_store
from .app import STORE_OPTIONS, Session, command, group
from .prompts import has_person, read_line
from .terminal import UsageError, counted, echo, is_terminal

if TYPE_CHECKING:
    from ..store import Store
    from ..store.tables import Schema

store = group("Copies of the store, and what it has of one caller.")
threads = group("What threads remember for rules: which labels they have seen, and what came before.")

_File = Annotated[Path, typer.Argument(metavar="FILE", help="The copy; its keys are beside it, in FILE with '.key'.")]
_Of = Annotated[str, typer.Argument(metavar="PRINCIPAL", help="The caller, as in: toolcrib calls list.")]


@contextmanager
def opened_stores(session: Session) -> "Generator[list[tuple[Store, Sequence[Schema] | None]]]":
    """Open the store, with the tables of all rooms, and where another one has the vault, that with which tables."""
    from .. import auth as auth  # before its file: it says which extra is missing
    from ..auth.sealed import AUTH

    with session.opened_store() as database:
        vault = vault_store(session.settings, database, session.store)
        for store in (database, vault):
            use_tables(store)
        yield [(database, None), *([] if vault is database else [(vault, [AUTH])])]


def use_tables(store: "Store") -> None:
    """Have *store* use the tables of all rooms, as far as their extras are here."""
    from ..record.database import RECORD

    if find_spec("authlib") is not None:
        from ..auth.sealed import AUTH

        store.use(AUTH)
    store.use(RECORD)
    if find_spec("mcp") is not None:  # the extra `serve`, without which there are no keys
        from ..serve.access.keys import KEYS
        from ..serve.console.sessions import SESSIONS

        store.use(KEYS)
        store.use(SESSIONS)


@contextmanager
def _progress(verb: str) -> "Generator[Callable[[Any, int], None]]":
    """Show on a line of the terminal how far the work is; the line is gone after the block."""
    is_shown = is_terminal(2)

    def show(done: Any, number: int) -> None:
        if is_shown:
            sys.stderr.write(f"\r\x1b[K{verb}: {done} {number}")
            sys.stderr.flush()

    try:
        yield show
    finally:
        if is_shown:
            sys.stderr.write("\r\x1b[K")


@command(store, "key", takes=STORE_OPTIONS)
async def show_key(session: Session) -> None:
    """Print the fingerprint of the key that signs the log of calls, for: toolcrib calls verify --key."""
    from ..store.audit import fingerprint

    with session.opened_store() as database:
        names = [fingerprint(key) for key in database.keys.public_keys()]
    session.show({"key": names[0], "older": names[1:]})


@command(store, "backup", takes=STORE_OPTIONS)
async def backup(session: Session, file: _File) -> None:
    """Copy the store and its keys while others write. PostgreSQL has pg_dump for that: then the keys alone.

    Both files are for their owner alone. Together they open all that is in the store: keep them apart.
    """
    from ..store.copies import back_up

    with opened_stores(session) as ((database, _), *others), _progress("Pages") as progress:
        keys = await asyncio.to_thread(back_up, database, file, lambda done, total: progress(f"{done} of", total))
        place = database.keys.place
    data = {"file": str(file), "size_bytes": file.stat().st_size, "keys": None if keys is None else str(keys)}
    where = f"The keys stay in {place}." if keys is None else f"The keys: {keys}."
    vaults = [f" The vault is in another: toolcrib store backup FILE --store {vault.place}" for vault, _ in others]
    session.show(data, text=f"Copied: {file}. {where}{''.join(vaults)}")


@command(store, "restore", takes="config store")
async def restore(
    session: Session,
    file: _File,
    replace: Annotated[bool, typer.Option("--replace", help="Lose the store that is there.")] = False,
) -> None:
    """Put a copy in the place of the store, and its keys beside those that are there."""
    from ..store import copies

    with opened_stores(session) as ((database, _), *_), _progress("Pages") as progress:
        keys = await asyncio.to_thread(
            copies.restore, database, file, lambda done, total: progress(f"{done} of", total), replace=replace
        )
        place = database.place
    absent = f" No keys were beside {file}: those that are there have to open it."
    echo(f"Restored: {place}.{absent if keys is None else ''}")


@command(store, "export", takes="config store")
async def export(session: Session, principal: _Of) -> None:
    """Print what the store has of a caller, always as JSON. Keys, tokens and secrets of the vault are left out."""
    from ..store import principals

    tables: dict[str, list[Any]] = {}
    with opened_stores(session) as stores, _progress("Rows") as progress:
        for database, schemas in stores:
            for name, rows in (await principals.export(database, principal, progress, schemas)).items():
                tables.setdefault(name, []).extend(rows)
    session.output.json({"principal": principal, **tables})


@command(store, "forget", takes=STORE_OPTIONS)
async def forget(
    session: Session,
    principal: _Of,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether to delete it.")] = False,
) -> None:
    """Delete what the store has of a caller, also while servers run. Providers are told by `toolcrib auth revoke`."""
    from ..store import principals

    with opened_stores(session) as stores:
        counts: Counter[str] = Counter()
        for database, schemas in stores:
            counts += Counter(await principals.count(database, principal, schemas))
        if not counts:
            raise ToolcribError(f"The store has nothing of '{principal}'.")
        if not yes:
            await _require_consent(principal, ", ".join(f"{number} {name}" for name, number in counts.items()))
        counts.clear()
        with _progress("Deleted") as progress:
            for database, schemas in stores:
                counts += Counter(await principals.forget(database, principal, progress, schemas))
    total = counted(sum(counts.values()), "row")
    session.show({"principal": principal, "deleted": counts}, text=f"Deleted: {total} of '{principal}'.")


async def _require_consent(principal: str, rows: str) -> None:
    if not has_person():
        raise UsageError(f"This deletes {rows}. Say so with --yes.")
    echo(f"Of '{principal}': {rows}.")
    if ((await read_line("Delete them for good? [y/N] ")) or "").strip().lower() not in ("y", "yes"):
        raise ToolcribError("Nothing was deleted.")


@command(threads, "clear", takes="config store")
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
    echo(f"Forgotten: {counted(number, 'fact')}.")
