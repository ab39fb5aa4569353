"""Each page and form of the console, with the ids of another person."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from toolcrib import Caller, Crib, tool
from toolcrib.auth import CredentialBroker, Grant, Owner
from toolcrib.auth.sealed import DatabaseVault
from toolcrib.record import DatabaseCalls
from toolcrib.serve.console.app import PAGES
from toolcrib.store import Store
from toolcrib.workbench import Rule, Rules

from .conftest import Open, add


@tool(destructive=True)
def drop(table: str) -> str:
    """Drop a table."""
    return f"dropped {table}"


@tool
def read() -> str:
    """Return a long text."""
    return "1234567 " * 20_000


@tool(task=True, idempotent=True)
async def report(topic: str) -> str:
    """Write a report."""
    return f"all of {topic}"


def identify(headers: Mapping[str, str]) -> Caller:
    return Caller(headers["user"], thread="t1")


OPEN_TO_ALL = ("tools",)
"""Rooms whose names are not somebody's."""


async def test_ids_of_another_person_are_unknown_in_every_address(open_console: Open, tmp_path: Path) -> None:
    store = Store(tmp_path / "ids.db")
    log = DatabaseCalls(store, with_content=True)
    vault = DatabaseVault(store)
    await vault.put(Owner("ann", "default", "github", "token"), Grant("a-token"), version=None)
    rules = Rules([Rule(do="ask", hint="destructive")])
    crib = Crib(
        [add, drop, read, report], store=store, recorder=log, policy=rules, broker=CredentialBroker(vault=vault)
    )
    async with open_console(crib=crib, identify=identify) as browser:
        browser.headers["user"] = "ann"
        await browser.post("/api/tools/add/call", json={"a": 1234567})
        pending = (await browser.post("/api/tools/drop/call", json={"table": "t1234567"})).json()["pending"]["id"]
        task = (await browser.post("/api/tools/report/call", json={"topic": "t1234567"})).json()["pending"]["id"]
        await crib.tasks.wait(task, timeout_s=60)
        handle = (await browser.post("/api/tools/read/call")).json()["metadata"]["handle"]
        await log.flush()
        call = (await browser.get("/api/calls", params={"tool": "add"})).json()["calls"][0]["id"]
        answered = await browser.post(
            f"/api/pending/{pending}/answer", json={"kind": "approve", "until": "conversation"}
        )
        assert answered.status_code == 200, answered.text
        drops = await browser.post("/api/tools/drop/call", json={"table": "t7654321"})
        (grant,) = [grant["id"] for grant in (await browser.get("/api/grants")).json()["grants"]]
        names: dict[str, str | tuple[str, ...]] = {
            "approvals": pending,
            "calls": call,
            "tasks": task,
            "connections": ("github", "token", "default"),
            "grants": grant,
            "results": handle,
            "keys": "abcdefghijkl",
            "sources": "0" * 64,
        }
        await browser.become("bob")
        token = await browser.token("/tools")
        for page in PAGES:
            room = "grants" if "/grants/" in page.path else page.path.split("/")[1]
            if "*" not in page.path or room in OPEN_TO_ALL:
                continue
            assert room in names, f"{page.path}: say here whose its ids are"
            its = names[room]
            ids = iter([its] if isinstance(its, str) else its)
            path = "/".join(next(ids) if part == "*" else part for part in page.path.split("/"))
            data = {"token": token, "answer": "approve", "kind": "approve", "done": "yes", "digest": ""}
            answer = await (browser.get(path) if page.method == "GET" else browser.post(path, data=data))
            assert answer.status_code in (403, 404, 409, 410, 422), (page.method, path, answer.status_code)
            assert "1234567" not in answer.text, path
            if page.api is not None:
                as_data = await browser.get(f"{path}.json")
                assert as_data.status_code in (403, 404), path
                assert "1234567" not in as_data.text, path
        assert drops.json()["status"] == "success"
        assert len(await vault.owned_by("ann")) == 1
        browser.headers["user"] = "ann"
        assert len((await browser.get("/api/grants")).json()["grants"]) == 1
        assert (await browser.get("/api/tasks", params={"of": "me"})).json()["tasks"][0]["state"] == "ended"


@pytest.mark.parametrize("path", [page.path for page in PAGES if page.method == "POST"])
async def test_no_form_is_taken_without_its_token(open_console: Open, path: str) -> None:
    async with open_console(add) as browser:
        assert (await browser.post(path.replace("*", "x"), data={})).status_code == 403
