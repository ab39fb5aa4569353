"""`toolcrib tasks`: the operator sees, follows, stops and settles tasks, and no tool is loaded for it."""

import asyncio
import json
import signal
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Caller, Context, Crib, Input, tool
from toolcrib.machinery import LedgerEntry
from toolcrib.store import Store
from toolcrib.store.tables import LEDGER

from ..waiting import until
from .conftest import WAIT_S, Run, Start

SETTINGS = '[[source]]\nfrom = "tools.py"\n\n[store]\nurl = "store.db"\n'
TOOLS = """
from toolcrib import tool

open("loaded", "w").close()


@tool(task=True, idempotent=True)
async def dig() -> str:
    open("dug", "w").close()
    return "dug"
"""


@tool(task=True)
async def ask(context: Context) -> str:
    """Ask."""
    await context.step("one", str)
    return await context.ask("name", str, "Who?")


def in_store(folder: Path, work: Callable[[Store], Coroutine[Any, Any, Any]]) -> Any:
    store = Store(folder / "store.db")
    try:
        return asyncio.run(work(store))
    finally:
        store.close()


def submit(folder: Path, number: int, name: str = "dig", age_s: float = 0, principal: str = "ann") -> str:
    """Store the task `task_NUMBER`, which is due for *age_s* seconds. Those with higher numbers are newer."""
    id = f"task_{number}"
    now = datetime.now(UTC)
    call: dict[str, Any] = {"arguments": "{}", "profile": "default", "groups": [], "claims": [], "traceparent": None}
    entry = LedgerEntry(
        id,
        principal,
        id,
        "digest",
        name,
        "default",
        name == "dig",
        now + timedelta(seconds=number),
        state="queued",
        call=call,
        run_at=now,
    )

    async def store_it(store: Store) -> None:
        await store.ledger.submit(entry)
        since = LEDGER.update().where(LEDGER.c.id == id).values(run_at=LEDGER.c.run_at - int(age_s * 1e6))
        await store.transact(lambda connection: connection.execute(since).rowcount)

    in_store(folder, store_it)
    return id


def lose(folder: Path, number: int) -> str:
    """Leave `task_NUMBER` as a process that died in its middle has left it."""
    id = submit(folder, number, "pay")

    async def leave(store: Store) -> None:
        (entry,) = await store.ledger.take([{"pay": ""}], 1)
        store.ledger.give_up(entry)
        await until(store.ledger.lost)

    in_store(folder, leave)
    return id


def data(toolcrib: Run, *words: str) -> Any:
    done = toolcrib("tasks", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_tasks_are_listed_by_caller_and_state(toolcrib: Run, folder: Path) -> None:
    lost = lose(folder, 1)
    late = submit(folder, 2, age_s=90)
    young = submit(folder, 3, principal="bob")
    page = data(toolcrib, "list", "--limit", "2")
    assert [task["id"] for task in page] == [young, late]
    states = {state: data(toolcrib, "list", "--state", state) for state in ("queued", "running", "lost")}
    assert {state: [task["id"] for task in tasks] for state, tasks in states.items()} == {
        "queued": [young, late],
        "running": [],
        "lost": [lost],
    }
    assert [task["id"] for task in data(toolcrib, "list", "--principal", "bob")] == [young]
    listed = toolcrib("tasks", "list", "--limit", "2")
    rows = [line.split("\t") for line in listed.stdout.splitlines()]
    assert [(row[0], *row[2:]) for row in rows] == [
        (young, "bob", "dig", "queued", ""),
        (late, "ann", "dig", "queued", "no process runs it: start one that has tool 'dig'"),
    ]
    assert listed.stderr == "There are more: --limit NUMBER\n"
    (row,) = toolcrib("tasks", "list", "--state", "lost").stdout.splitlines()
    assert row.split("\t")[-1] == f"settle it: toolcrib tasks settle {lost} --done or --not-done"


def test_a_task_is_shown_with_its_steps_what_it_waits_for_and_its_result(toolcrib: Run, folder: Path) -> None:
    async def wait_for_answer() -> tuple[str, str]:
        async with Crib([ask], store=folder / "store.db") as crib:
            pending = (await crib.workbench(Caller("ann")).call("ask")).pending
            assert pending is not None

            async def is_waiting() -> bool:
                return (await crib.tasks.get(pending.id)).state == "waiting"

            (question,) = await until(crib.pendings)
            await until(is_waiting)
            return pending.id, question.id

    async def answer() -> None:
        async with Crib([ask], store=folder / "store.db") as crib:
            await crib.answer(question, Input("Bob"), by="carol")
            await crib.tasks.wait(id, timeout_s=WAIT_S)

    id, question = asyncio.run(wait_for_answer())
    waiting, text = data(toolcrib, "show", id), toolcrib("tasks", "show", id).stdout.splitlines()
    assert (waiting["state"], waiting["steps"], waiting["result"]) == ("waiting", ["one"], None)
    assert [pending["id"] for pending in waiting["waits_for"]] == [question]
    assert {"state: waiting", "steps: one", f"waits_for: input {question}: Who?"} <= set(text)
    asyncio.run(answer())
    ended, text = data(toolcrib, "show", id), toolcrib("tasks", "show", id).stdout.splitlines()
    assert (ended["state"], ended["waits_for"], ended["result"]["status"]) == ("ended", [], "success")
    assert "result: success: Bob" in text
    again = toolcrib("tasks", "follow", id)
    assert (again.returncode, again.stdout, again.stderr) == (0, "Bob\n", "")


async def test_a_task_of_another_process_is_followed_to_its_result(start: Start, folder: Path) -> None:
    go_on = asyncio.Event()

    @tool(task=True)
    async def night(context: Context) -> str:
        """Work."""
        await context.emit("half")
        await go_on.wait()
        return "done"

    async with Crib([night], store=folder / "store.db") as crib:
        pending = (await crib.workbench(Caller("ann")).call("night")).pending
        assert pending is not None
        follow = ("tasks", "follow", pending.id)
        with start(*follow) as process, start(*follow) as left:
            for reader in (process, left):
                assert await asyncio.to_thread(reader.stdout.readline) == "half\n"
            left.send_signal(signal.SIGINT)
            _, error = await asyncio.to_thread(left.communicate)
            assert (left.returncode, error) == (
                130,
                f"No longer followed; the task goes on. To stop it: toolcrib tasks cancel {pending.id}\n",
            )
            assert (await crib.tasks.get(pending.id)).state == "running"
            go_on.set()
            written = await asyncio.to_thread(process.communicate)
            assert (process.returncode, written) == (0, ("done\n", ""))


def test_no_tool_is_loaded_and_no_task_is_run(toolcrib: Run, start: Start, folder: Path) -> None:
    id = submit(folder, 1, age_s=90)
    with start("tasks", "follow", id, "--json") as process:
        assert process.stderr.readline() == "No process runs it: start one that has tool 'dig'.\n"
        assert data(toolcrib, "list")[0]["state"] == "queued"
        shown = data(toolcrib, "show", id)
        assert (shown["state"], shown["attempts"], shown["note"]) == (
            "queued",
            0,
            "no process runs it: start one that has tool 'dig'",
        )
        assert in_store(folder, lambda store: store.ledger.find_id(id)).fence == 1  # it was never taken
        cancelled = toolcrib("tasks", "cancel", id)
        assert (cancelled.returncode, cancelled.stderr) == (0, "Cancelled.\n")
        output, _ = process.communicate(timeout=WAIT_S)
        assert (process.returncode, json.loads(output)["error"]["code"]) == (1, "cancelled")
    again = toolcrib("tasks", "cancel", id)
    assert (again.returncode, again.stderr) == (1, f"Error: It has ended already. See: toolcrib tasks show {id}\n")
    assert [(folder / name).exists() for name in ("loaded", "dug")] == [False, False]


@pytest.mark.parametrize("is_done", [True, False])
def test_a_lost_task_is_settled_and_following_it_says_so(toolcrib: Run, folder: Path, is_done: bool) -> None:
    id = lose(folder, 1)
    followed = toolcrib("tasks", "follow", id)
    assert (followed.returncode, followed.stderr.startswith("Error (lost): ")) == (1, True)
    assert f"settle {id} --done or --not-done" in " ".join(followed.stderr.split())
    refused = toolcrib("tasks", "cancel", id)
    assert (refused.returncode, f"toolcrib tasks settle {id} --done or --not-done" in refused.stderr) == (1, True)
    unsaid = toolcrib("tasks", "settle", id)
    assert (unsaid.returncode, "--done or --not-done" in unsaid.stderr) == (2, True)
    settled = toolcrib("tasks", "settle", id, "--done" if is_done else "--not-done", "--by", "carol")
    text = "Done: that is its result." if is_done else "Not done: a process that has 'pay' runs it again."
    assert (settled.returncode, settled.stderr) == (0, f"{text}\n")
    task = data(toolcrib, "show", id)
    assert task["state"] == ("ended" if is_done else "queued")
    again = toolcrib("tasks", "settle", id, "--done")
    assert (again.returncode, again.stderr) == (
        1,
        f"Error: There is no lost task '{id}'. See: toolcrib tasks list --state lost\n",
    )


@pytest.mark.parametrize(
    "words",
    [("show",), ("follow",), ("cancel",), ("settle", "--done")],
    ids=lambda words: words[0],
)
def test_an_unknown_task_and_a_store_that_is_not_there_are_errors(
    toolcrib: Run, folder: Path, words: tuple[str, ...]
) -> None:
    absent = toolcrib("tasks", *words, "task_9")
    assert (absent.returncode, "There is no store" in absent.stderr, "--store PATH" in absent.stderr) == (1, True, True)
    assert not (folder / "store.db").exists()
    submit(folder, 1)
    unknown = toolcrib("tasks", *words, "task_9")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "There is no task with this id." in unknown.stderr
