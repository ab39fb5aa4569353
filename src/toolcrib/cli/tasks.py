"""`toolcrib tasks`: the calls of the store that run as tasks. No tool is loaded, and no task is run here."""

import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ..core import ToolcribError
from .app import STORE_OPTIONS, Session, command, group
from .arguments import Limit
from .call import result_of, write_result
from .calls import IsDone, SettledBy, settle_in
from .terminal import echo, one_line
from .transcript import CallTranscript

if TYPE_CHECKING:
    from ..workbench import Crib, Task
    from ..workbench.tasks import TaskState

tasks = group("Calls that run as tasks: where they are, and what they wait for.")

_DUE = timedelta(minutes=1)
"""How long a task is due before the command says that no process runs it."""

_Id = Annotated[str, typer.Argument(metavar="ID", help="One of: toolcrib tasks list.")]
_State = StrEnum("_State", ("QUEUED", "RUNNING", "WAITING", "ENDED", "LOST"))


@asynccontextmanager
async def _opened(session: Session) -> "AsyncGenerator[Crib]":
    """Start a crib of the store, which has to be there. Raises ToolcribError, also for an unknown task."""
    from .. import auth as auth  # before the store, whose extra is a part of this one
    from ..workbench import UnknownTaskError

    with session.opened_store() as store:
        if store.file is not None and not store.file.exists():
            raise ToolcribError(f"There is no store {store.place}. Name the one that the server has: --store PATH")
    async with session.crib() as crib:
        try:
            yield crib
        except UnknownTaskError:
            message = "There is no task with this id. Its result may have expired. See: toolcrib tasks list"
            raise ToolcribError(message) from None


@command(tasks, "list", takes=STORE_OPTIONS)
async def list_tasks(
    session: Session,
    principal: Annotated[str | None, typer.Option("--principal", metavar="NAME", help="Only tasks of this caller.")] = (
        None
    ),
    state: Annotated[
        _State | None, typer.Option("--state", metavar="STATE", help=f"Only tasks in this state: {', '.join(_State)}.")
    ] = None,
    limit: Limit = 50,
) -> None:
    """List tasks, the newest first."""
    in_state = cast("TaskState | None", state)
    async with _opened(session) as crib:
        page = await crib.tasks.list(principal=principal, state=in_state, limit=limit + 1)
    data = [{**task.to_dict(with_content=False), "note": _note(task)} for task in page[:limit]]
    session.show(data, columns=("id", "started_at", "principal", "tool", "state", "note"))
    if len(page) > limit:
        echo("There are more: --limit NUMBER")


@command(tasks, "show", takes=STORE_OPTIONS)
async def show_task(session: Session, id: _Id) -> None:  # noqa: A002
    """Show one task: what it waits for, which steps it has finished, and its result."""
    async with _opened(session) as crib:
        task = await crib.tasks.get(id)
        waits = await _waits(crib, id)
        steps = sorted((await crib.store.ledger.steps(id)).items())
    keys = [key.removeprefix("step ") for _, (key, *_) in steps]
    data = {**task.to_dict(), "steps": keys, "waits_for": waits}
    data["note"] = _note(task)
    if not session.as_json:
        data["steps"] = ", ".join(keys) or None
        data["waits_for"] = "; ".join(map(_wait_text, waits)) or None
        data["result"] = task.result and f"{task.result.status}: {task.result.text}"
    session.show(data)


@command(tasks, "follow", takes=STORE_OPTIONS)
async def follow_task(session: Session, id: _Id) -> int:  # noqa: A002
    """Show what a task has reported, and reports from now on, and last its result. Ctrl-C does not stop the task."""
    interrupts = session.interrupts
    transcript = CallTranscript(session.output, as_json=session.as_json, is_over=lambda: interrupts.came)
    async with _opened(session) as crib:
        task = await crib.tasks.get(id)
        interrupts.messages[signal.SIGINT] = (
            f"No longer followed; the task goes on. To stop it: toolcrib tasks cancel {id}"
        )
        for data in await _waits(crib, id):
            echo(f"It waits for: {_wait_text(data)}", wrap=True)
        if task.state != "lost" and (note := _note(task)) is not None:
            echo(f"{note[0].upper()}{note[1:]}.", wrap=True)
        return write_result(session, await result_of(crib.tasks.follow(id), transcript), transcript, None)


@command(tasks, "cancel", takes=STORE_OPTIONS)
async def cancel_task(session: Session, id: _Id) -> None:  # noqa: A002
    """Stop a task."""
    async with _opened(session) as crib:
        is_open = await crib.tasks.cancel(id)
        task = await crib.tasks.get(id)
    if not is_open:
        if task.state == "lost":
            raise ToolcribError(f"It does not run, and whether it took effect is unknown: {_note(task)}.")
        raise ToolcribError(f"It has ended already. See: toolcrib tasks show {id}")
    text = "Cancelled." if task.state == "ended" else "It is to stop: the process that runs it does so within a second."
    session.show(task.to_dict(), text=text)


@command(tasks, "settle", takes=STORE_OPTIONS)
async def settle_task(session: Session, id: _Id, is_done: IsDone = None, by: SettledBy = None) -> None:  # noqa: A002
    """Say whether a lost task took effect. Where it did not, it runs again."""
    async with _opened(session) as crib:
        unknown = "There is no lost task '{}'. See: toolcrib tasks list --state lost"
        if (await crib.tasks.get(id)).state != "lost":
            raise ToolcribError(unknown.format(one_line(id)[:100]))
        await settle_in(crib, session, id, is_done, by, unknown=unknown)


def _note(task: "Task") -> str | None:
    """Return what the operator is to know of *task*, or to do about it; None where that is nothing."""
    if task.result is not None and task.result.error is not None:
        return task.result.error.code
    if task.state == "lost":
        return f"settle it: toolcrib tasks settle {task.id} --done or --not-done"
    if task.state in ("queued", "waiting") and task.run_at is not None and task.run_at < datetime.now(UTC) - _DUE:
        kind, _, agent = task.tool.rpartition("/")
        return f"no process runs it: start one that has {kind or 'tool'} '{agent}'"
    return None


async def _waits(crib: "Crib", id: str) -> list[dict[str, Any]]:  # noqa: A002
    """Return the open questions, and other tasks, that the task *id* waits for, as JSON data."""
    subjects = await crib.store.ledger.subjects(id)
    questions = {pending.id: pending for pending in await crib.pendings()} if subjects else {}
    waits: list[dict[str, Any]] = []
    for subject in subjects:
        if subject in questions:
            waits.append(questions[subject].to_dict())
        elif (entry := await crib.store.ledger.find_id(subject)) is not None:
            waits.append({"id": subject, "kind": "task", "message": f"'{entry.tool}' has to end."})
    return waits


def _wait_text(data: Mapping[str, Any]) -> str:
    return f"{data['kind']} {data['id']}: {data['message']}"
