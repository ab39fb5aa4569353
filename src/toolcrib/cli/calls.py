"""`toolcrib pending`, `calls` and `keys`: open questions, the call log, and the keys of a server, in the store."""

import json
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..call import settle
from ..core import Answer, Approve, Caller, CallRecord, Deny, Pending, ToolcribError
from ..record.calls import call_data, duration_of, name_of, notes_on, status_of
from ..schema import parse_json
from ..schema.toml import to_toml
from .app import STORE_OPTIONS, Session, command, group
from .arguments import Limit
from .prompts import moment, os_user, outcome_of
from .terminal import UsageError, counted, echo, one_line

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from ..record import DatabaseCalls
    from ..serve.access.keys import AccessKeys
    from ..store.audit import Audit
    from ..workbench import Crib

pending = group("Approvals, inputs and logins that calls wait for.")
grants = group("Approvals for more than one call: what runs without a question, and until when.")
calls = group("The log of calls: who called what, and how it ended.")
keys = group("Keys with which clients enter the server.")

_EXAMPLE = "For example, in toolcrib.toml: [[source]]"

_AGE = re.compile(r"(\d{1,9})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

_PendingId = Annotated[str, typer.Argument(metavar="ID", help="One of: toolcrib pending list.")]
_Principal = Annotated[str | None, typer.Option("--principal", metavar="NAME", help="Only calls of this caller.")]
_By = Annotated[str, typer.Option("--by", metavar="NAME", help="Who answers.")]
_Groups = Annotated[
    list[str] | None, typer.Option("--group", metavar="NAME", help="A group that who answers is in; repeatable.")
]
IsDone = Annotated[bool | None, typer.Option("--done/--not-done", help="Whether it took effect.")]
SettledBy = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who says so; by default you.")]


# Open questions


@command(pending, "list", takes=STORE_OPTIONS)
async def list_pending(session: Session, principal: _Principal = None) -> None:
    """List the calls that wait, the oldest first."""
    async with session.crib(with_grants=False) as crib:
        data = [question.to_dict() for question in await crib.pendings(principal=principal)]
    session.show(data, columns=("id", "kind", "principal", "tool", "message", "arguments"))


@command(pending, "show", takes=STORE_OPTIONS)
async def show_pending(session: Session, pending_id: _PendingId) -> None:
    """Show one call that waits, always as JSON."""
    async with session.crib(with_grants=False) as crib:
        session.output.json((await _find(crib, pending_id)).to_dict())


@command(pending, "approve", takes=STORE_OPTIONS)
async def approve(
    session: Session,
    pending_id: _PendingId,
    by: _By = "local",
    group: _Groups = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Later calls, too: until a time, or 'conversation'.")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="JSON", help='Conditions of these: \'{"/city": "Oslo*"}\'.')
    ] = None,
    tools: Annotated[
        list[str] | None,
        typer.Option("--tools", metavar="PATTERN", help="Tools of these, in place of the call's; repeatable."),
    ] = None,
    arguments: Annotated[
        str | None, typer.Option("--arguments", metavar="JSON", help="Run it with these arguments, all of them.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Grant what was shown without it.")] = False,
) -> None:
    """Approve a call: it runs, once, when it is made again. With --until, later ones run without a question."""
    if until is None and where is None and not tools and arguments is None:
        await _answer(session, pending_id, Approve(), by, group)
        return
    answer, person = _approval(until, where, tools, arguments), Caller(by, groups=frozenset(group or ()))
    from .sources import open_sources

    sources = open_sources((), session.settings, example=_EXAMPLE, store=session.store, needs_store=True)
    async with sources.crib as crib:  # with the tools: what is granted is bound to them, and they check arguments
        if not yes and (grant := await crib.preview(pending_id, answer, by=person)) is not None:
            raise UsageError(f"{one_line(grant.text)} Say so with --yes.")
        pending = await crib.answer(pending_id, answer, by=person)
    session.show(pending.to_dict(), text=outcome_of(answer, pending))


def _approval(until: str | None, where: str | None, tools: Sequence[str] | None, arguments: str | None) -> Approve:
    end = until if until in (None, "conversation") else moment(until)
    if end is None and (until is not None or where is not None or tools):
        raise UsageError("--until takes 'conversation', or a time as in 18:00 or 2026-01-31T18:00.")
    if arguments is not None:
        _json_object("--arguments", arguments)
    return Approve(arguments, end, _json_object("--where", where or "{}"), tools or ())  # type: ignore[arg-type]


def _json_object(option: str, text: str) -> dict[str, Any]:
    with suppress(ValueError):
        if isinstance(value := parse_json(text), dict):
            return value
    raise UsageError(f"{option} takes a JSON object, each name once.")


@command(grants, "list", takes=STORE_OPTIONS)
async def list_grants(
    session: Session,
    principal: Annotated[
        str | None, typer.Option("--principal", metavar="NAME", help="Only those that they have, or have given.")
    ] = None,
    limit: Limit = 100,
) -> None:
    """List the approvals for more than one call, the oldest first, and what they allow."""
    async with session.crib(with_grants=False) as crib:
        page, following = await crib.grants.list(principal=principal, limit=limit)
    session.show([grant.to_dict() for grant in page], columns=("id", "given_by", "text"))
    if following is not None:
        echo("There are more: --limit NUMBER")


@command(grants, "revoke", takes=STORE_OPTIONS)
async def revoke_grant(
    session: Session,
    id: Annotated[str, typer.Argument(metavar="ID", help="One of: toolcrib grants list.")],  # noqa: A002
) -> None:
    """Revoke a grant: its calls ask from now on, in all processes."""
    async with session.crib(with_grants=False) as crib:
        grant = await crib.grants.revoke(id)
    session.show(grant.to_dict(), text=f"Revoked: {one_line(grant.text)}")


@command(pending, "deny", takes=STORE_OPTIONS)
async def deny(
    session: Session,
    pending_id: _PendingId,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="The model reads it.")] = "",
    by: _By = "local",
    group: _Groups = None,
) -> None:
    """Deny a call, or an answer."""
    await _answer(session, pending_id, Deny(reason), by, group)


async def _answer(session: Session, pending_id: str, answer: Answer, by: str, groups: Sequence[str] | None) -> None:
    async with session.crib(with_grants=False) as crib:
        if (await _find(crib, pending_id)).kind == "input" and isinstance(answer, Approve):
            raise ToolcribError("This waits for an input. Make the call again at a terminal to enter it.")
        pending = await crib.answer(pending_id, answer, by=Caller(by, groups=frozenset(groups or ())))
    session.show(pending.to_dict(), text=outcome_of(answer, pending))


async def _find(crib: "Crib", pending_id: str) -> Pending:
    row = await crib.pending.store.get(pending_id)
    if row is None:
        raise ToolcribError(f"Nothing waits under '{one_line(pending_id)[:100]}'. See: toolcrib pending list")
    return row.pending


# The log of calls


_Status = StrEnum("_Status", ("STARTED", "SUCCESS", "ERROR", "PENDING", "LOST"))
_Tool = Annotated[str | None, typer.Option("--tool", metavar="NAME", help="Only calls of this tool.")]
_WithStatus = Annotated[
    _Status | None,
    typer.Option("--status", metavar="STATUS", help=f"Only calls with this status: {', '.join(_Status)}."),
]
_Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Since when: a time, 2026-01-31T12:00, or an age: 30m, 12h, 7d."),
]
_COLUMNS = ("started_at", "id", "principal", "tool", "status", "time", "notes")


@contextmanager
def _log(session: Session) -> "Generator[DatabaseCalls]":
    from ..record import DatabaseCalls

    with session.opened_store() as store:
        yield DatabaseCalls(store)


@command(calls, "list", takes=STORE_OPTIONS)
async def list_calls(
    session: Session,
    tool: _Tool = None,
    principal: _Principal = None,
    status: _WithStatus = None,
    since: _Since = None,
    limit: Limit = 100,
) -> None:
    """List calls, the newest first. The status `lost` is of a call whose process has died."""
    started_after = None if since is None else _time(since)
    with _log(session) as log:
        records = await log.newest(tool=tool, principal=principal, status=status, since=started_after, limit=limit)
    session.show([_data(record, session) for record in records], columns=_COLUMNS)


@command(calls, "show", takes=STORE_OPTIONS)
async def show_call(
    session: Session,
    id: Annotated[str, typer.Argument(metavar="ID", help="One of: toolcrib calls list.")],  # noqa: A002
) -> None:
    """Show one call. Its arguments and result are shown where these are recorded."""
    with _log(session) as log:
        record = await log.find(id)
    if record is None:
        raise ToolcribError(f"There is no call '{one_line(id)[:100]}' in the log. See: toolcrib calls list")
    session.show(call_data(record, with_content=True))


@command(calls, "lost", takes=STORE_OPTIONS)
async def list_lost(session: Session) -> None:
    """List calls with a key of which it is unknown whether they took effect, the oldest first."""
    with session.opened_store() as store:
        data = [entry.to_dict() for entry in await store.ledger.lost()]
    session.show(data, columns=("id", "started_at", "principal", "tool", "key", "arguments"))


@command(calls, "settle", takes=STORE_OPTIONS)
async def settle_call(
    session: Session,
    id: Annotated[str, typer.Argument(metavar="ID", help="One of: toolcrib calls lost.")],  # noqa: A002
    is_done: IsDone = None,
    by: SettledBy = None,
) -> None:
    """Settle a lost call. Where it was not done, it runs when it is made again with its key."""
    async with session.crib(with_grants=False) as crib:
        await settle_in(crib, session, id, is_done, by, unknown="There is no lost call '{}'. See: toolcrib calls lost")


async def settle_in(
    crib: "Crib",
    session: Session,
    id: str,  # noqa: A002
    is_done: bool | None,
    by: str | None,
    *,
    unknown: str,
) -> None:
    """Settle the lost call or task *id*, and say what comes of it. *unknown* is the message where it is not lost."""
    if is_done is None:
        raise UsageError("Say whether it took effect: --done or --not-done.")
    ledger = crib.store.ledger
    entry, by = await ledger.find_id(id), by or os_user()
    if entry is None or not await settle(ledger, entry, is_done=is_done, by=by, recorders=crib.recorders):
        raise ToolcribError(unknown.format(one_line(id)[:100]))
    if entry.run_at is not None:
        text = "Done: that is its result." if is_done else f"Not done: a process that has '{entry.tool}' runs it again."
    else:
        outcome = "Done: that is the result" if is_done else "Not done: it runs"
        text = f"{outcome} when '{entry.principal}' calls '{entry.tool}' again with the same key."
    session.show({**entry.to_dict(), "done": is_done, "settled_by": by}, text=text)


@command(calls, "follow", takes=STORE_OPTIONS)
async def follow_calls(
    session: Session, tool: _Tool = None, principal: _Principal = None, status: _WithStatus = None
) -> None:
    """Print calls as they end, until Ctrl-C. They are those of all processes that share the store.

    A call that takes longer, or whose process has died, is printed as `started` or `lost` before.
    """
    with _log(session) as log:
        async for record in log.follow(tool=tool, principal=principal, status=status):
            data = _data(record, session)
            if session.as_json:
                session.output.json(data, indent=False)
            else:
                session.output.rows([data], _COLUMNS)


@command(calls, "export", takes="config store")
async def export_events(session: Session, since: _Since = None) -> None:
    """Print the events of the log as signed lines of JSON, which `calls verify FILE` proves without the store."""
    from ..store import audit

    with session.opened_store() as store:

        def write(connection: "Connection") -> None:
            for line in audit.lines(store, connection, None if since is None else _time(since), at=datetime.now(UTC)):
                session.output.write(line)

        await store.transact(write, write=False)


@command(calls, "verify", takes=STORE_OPTIONS)
async def verify_events(
    session: Session,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A file of: toolcrib calls export. No store is needed.")
    ] = None,
    pins: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="FINGERPRINT", help="A key that may sign, and no other; may be repeated."),
    ] = None,
) -> None:
    """Verify that no event of the log, or of a file of them, was changed, moved or removed. Exit with 1 if one was."""
    from ..store import audit

    if file is None:
        from ..record.database import RECORD
        from ..record.verify import verify

        with session.opened_store() as store:
            store.use(RECORD)
            public_keys = audit.pinned_keys(store.keys.public_keys(), pins or ())
            result = await store.transact(lambda c: verify(store, c, public_keys), write=False)
    else:
        try:
            with file.open(encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
                result = audit.verify_lines(lines, pins or ())
        except OSError as error:
            raise ToolcribError(f"{file} cannot be read: {error.strerror}.") from None
    if session.as_json:
        session.output.json(result.to_dict())
    else:
        for problem in result.problems:
            session.output.write(one_line(problem))
        session.output.write(_summary(result, is_pinned=bool(pins), is_file=file is not None))
    if result.problem_count:
        raise ToolcribError(f"The log was changed: {counted(result.problem_count, 'problem')}.")
    if not result.events + result.left_out:
        raise ToolcribError("There is no event: no call was made yet, this is another store, or all was removed.")


def _summary(audit: "Audit", *, is_pinned: bool, is_file: bool) -> str:
    texts = [f"{counted(audit.events, 'event')} in {counted(audit.chains, 'chain')} verified."]
    if audit.left_out:
        texts.append(f"Only stubs are left of {audit.left_out}: they were too old, or of a caller who was forgotten.")
    if audit.unsigned:
        texts.append(
            f"Not signed: {audit.unsigned}. Their process runs, or was killed; these may have been added or cut."
        )
    texts.append(f"Signed by: {', '.join(audit.keys)}.")
    if is_file and not is_pinned:
        texts.append("The file itself says so: compare it with `toolcrib store key`, or name it with --key.")
    return " ".join(texts)


@command(calls, "to-scenarios", takes="config store")
async def write_scenarios(
    session: Session, tool: _Tool = None, principal: _Principal = None, since: _Since = None, limit: Limit = 100
) -> None:
    """Print the calls that succeeded as scenarios for `toolcrib eval`, in TOML: for you to add what a person asked.

    There are those whose arguments are recorded, by `content = true` in [calls]. Calls that are the same are one, and
    arguments that are null are left out.
    """
    started_after = None if since is None else _time(since)
    with _log(session) as log:
        records = await log.newest(tool=tool, principal=principal, status="success", since=started_after, limit=limit)
    calls = (record for record in records if record.arguments is not None and " " not in record.tool)  # of tools
    # For example {("add", '{"a": 1, "b": 2}'): CallRecord(...)}
    unique = {(record.tool, record.arguments): record for record in calls}
    if not unique:
        raise ToolcribError("No call that succeeded has its arguments recorded. In [calls]: content = true")
    for record in reversed(unique.values()):
        try:
            session.output.write(_scenario(record), end="\n\n")
        except ValueError as error:
            echo(f"Left out: {record.id}, a call of {record.tool}: {error}")


def _scenario(record: CallRecord) -> str:
    arguments = {name: value for name, value in json.loads(record.arguments or "").items() if value is not None}
    results = "" if record.result is None else f"\nresults = {to_toml({record.tool: record.result})}"
    return (
        f'[[scenario]]\nname = "{record.id}"\nprompt = ""{results}\n\n'
        f"[[scenario.call]]\ntool = {to_toml(record.tool)}\narguments = {to_toml(arguments)}"
    )


def _data(record: CallRecord, session: Session) -> dict[str, Any]:
    """Return a call as JSON data, or with texts for people in place of codes and durations."""
    data = call_data(record)
    if session.as_json:
        return data
    texts = {"principal": name_of(record), "status": status_of(record), "time": duration_of(record)}
    return {**data, **texts, "notes": notes_on(record)}


def _time(text: str) -> datetime:
    if (age := _AGE.fullmatch(text)) is not None:
        with suppress(OverflowError):
            return datetime.now(UTC) - timedelta(**{_UNITS[age[2]]: int(age[1])})
    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(text).astimezone(UTC)
    raise UsageError("--since takes a time, as in 2026-01-31T12:00, or an age, as in 30m, 12h or 7d.")


# Keys of a server


@contextmanager
def _access_keys(session: Session) -> "Generator[AccessKeys]":
    with session.opened_store() as store:
        from ..serve.access.keys import AccessKeys

        yield AccessKeys(store)


@command(keys, "add", takes=STORE_OPTIONS)
async def add_key(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is.")],
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="GROUP", help="A group that they are in; may be repeated.")
    ] = None,
    days: Annotated[
        int | None, typer.Option("--days", min=1, max=36_500, metavar="NUMBER", help="The days until it expires.")
    ] = None,
) -> None:
    """Make a key. It is printed now and never again: only a hash of it is stored."""
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    with _access_keys(session) as access_keys:
        text, key = await access_keys.add(name, groups=group or (), expires_at=expires_at)
    if session.as_json:
        session.output.json({"key": text, **key.to_dict()})
    else:
        session.output.write(text)
        echo(f"The key {key.id} of '{key.principal}'. It is not shown again.")


@command(keys, "list", takes=STORE_OPTIONS)
async def list_keys(session: Session) -> None:
    """List the keys, by their ids."""
    with _access_keys(session) as access_keys:
        data = [key.to_dict() for key in await access_keys.all()]
    session.show(data, columns=("id", "principal", "groups", "created_at", "expires_at", "last_used_at"))


@command(keys, "revoke", takes="config store")
async def revoke_keys(
    session: Session,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="One or more of: toolcrib keys list.")],
) -> None:
    """Revoke keys: they let no client in from now on."""
    with _access_keys(session) as access_keys:
        unknown = [key_id for key_id in ids if not await access_keys.revoke(key_id)]
    if unknown:
        names = ", ".join(f"'{one_line(key_id)[:60]}'" for key_id in unknown)
        raise ToolcribError(f"There is no key {names}. See: toolcrib keys list")
    echo(f"Revoked: {', '.join(ids)}.")
