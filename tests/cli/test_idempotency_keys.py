"""`toolcrib call --key`, and `toolcrib calls lost` and `settle`: a call takes effect once, also over processes."""

import asyncio
import getpass
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from toolcrib.machinery import LedgerEntry, key_digest
from toolcrib.store import Store

from .conftest import Run

TOOLS = """
from toolcrib import tool


@tool
async def pay(amount: int) -> str:
    with open("paid.txt", "a") as file:
        print(amount, file=file)
    return f"paid {amount}"
"""


SETTINGS = '[[source]]\nfrom = "tools.py"\n[store]\nurl = "store.db"\n'


def paid(folder: Path) -> list[str]:
    file = folder / "paid.txt"
    return file.read_text().split() if file.exists() else []


async def leave_lost(folder: Path) -> LedgerEntry:
    """Leave the call `pay(amount=3)` with the key `k` as a process that died in its middle has left it."""
    store = Store(folder / "store.db")
    digest = key_digest("default", "pay", '[{"amount":3},{"amount":3}]')
    entry = LedgerEntry("run_1", "local", "k", digest, "pay", "default", False, datetime.now(UTC))
    try:
        claimed = await store.ledger.claim(entry)
        store.ledger.give_up(claimed)
        while not await store.ledger.lost():
            await asyncio.sleep(0.01)
        return claimed
    finally:
        store.close()


def test_a_call_with_a_key_is_made_once_and_its_repetition_is_marked(toolcrib: Run, folder: Path) -> None:
    first, again = [toolcrib("call", "pay", "amount=3", "--key", "k") for _ in range(2)]
    assert [(done.returncode, done.stdout) for done in (first, again)] == [(0, "paid 3\n")] * 2
    assert "Repeated" not in first.stderr
    assert again.stderr == "Repeated: the result of an earlier call with this key. The tool did not run again.\n"
    data = json.loads(toolcrib("call", "pay", "amount=3", "--key", "k", "--json").stdout)
    assert data["metadata"]["repeated"] is True
    log = json.loads(toolcrib("calls", "list", "--json").stdout)
    assert [row["repeated"] for row in log] == [True, True, False]
    assert [line.split("\t")[-1] for line in toolcrib("calls", "list").stdout.splitlines()] == ["repeated"] * 2 + [""]
    conflict = toolcrib("call", "pay", "amount=4", "--key", "k")
    assert (conflict.returncode, conflict.stderr.startswith("Error (conflict): ")) == (1, True)
    assert paid(folder) == ["3"]


@pytest.mark.parametrize("key", ["", "k" * 256, "schl\u00fcssel", "two\nlines"])
def test_a_key_that_no_call_can_have_is_refused_before_the_call(toolcrib: Run, folder: Path, key: str) -> None:
    done = toolcrib("call", "pay", "amount=3", "--key", key)
    assert (done.returncode, paid(folder)) == (2, [])
    assert "--key: An idempotency key is 1 to 255 printable characters of ASCII" in done.stderr


def test_a_lost_call_is_listed_and_settled(toolcrib: Run, folder: Path) -> None:
    entry = asyncio.run(leave_lost(folder))
    lost = toolcrib("call", "pay", "amount=3", "--key", "k")
    assert (lost.returncode, f"settle {entry.id}" in " ".join(lost.stderr.split())) == (1, True)
    assert json.loads(toolcrib("calls", "lost", "--json").stdout) == [entry.to_dict()]
    assert toolcrib("calls", "lost").stdout.split("\t")[0] == entry.id
    unsaid = toolcrib("calls", "settle", entry.id)
    assert (unsaid.returncode, "--done or --not-done" in unsaid.stderr) == (2, True)
    unknown = toolcrib("calls", "settle", "run_2", "--done")
    assert (unknown.returncode, unknown.stderr) == (
        1,
        "Error: There is no lost call 'run_2'. See: toolcrib calls lost\n",
    )
    settled = toolcrib("calls", "settle", entry.id, "--done", "--json")
    user = getpass.getuser()
    assert json.loads(settled.stdout) == {**entry.to_dict(), "done": True, "settled_by": user}
    again = toolcrib("call", "pay", "amount=3", "--key", "k")
    assert again.stdout == f"This call of 'pay' took effect, as '{user}' has settled. Its result is not known.\n"
    assert toolcrib("calls", "settle", entry.id, "--not-done").returncode == 1
    assert (json.loads(toolcrib("calls", "lost", "--json").stdout), paid(folder)) == ([], [])
    log = json.loads(toolcrib("calls", "list", "--tool", "calls/settle", "--json").stdout)
    assert [(row["call_id"], row["decision"], row["answered_by"]) for row in log] == [(entry.id, "done", user)]


def test_a_call_that_was_not_done_runs_again(toolcrib: Run, folder: Path) -> None:
    entry = asyncio.run(leave_lost(folder))
    settled = toolcrib("calls", "settle", entry.id, "--not-done", "--by", "ann")
    assert settled.stderr == "Not done: it runs when 'local' calls 'pay' again with the same key.\n"
    assert toolcrib("call", "pay", "amount=3", "--key", "k").stdout == "paid 3\n"
    assert paid(folder) == ["3"]


def test_a_task_is_waited_for_and_what_it_reports_is_shown(toolcrib: Run, folder: Path) -> None:
    (folder / "night.py").write_text(
        "from toolcrib import Context, tool\n\n\n@tool(task=True)\nasync def night(context: Context) -> str:\n"
        '    """Work."""\n    await context.emit("half")\n    await context.sleep(0.1)\n    return "done"\n'
    )
    done = toolcrib("call", "night.py", "night", "--key", "k")
    assert (done.returncode, done.stdout) == (0, "half\nhalf\ndone\n")
    assert re.match(r"'night' runs as the task task_[0-9a-f]{32}\. Ctrl-C stops the waiting", done.stderr)
    again = toolcrib("call", "night.py", "night", "--key", "k", "--json")
    assert json.loads(again.stdout)["content"] == [{"type": "text", "text": "done"}]
