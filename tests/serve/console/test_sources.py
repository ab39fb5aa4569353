"""The page of sources: what the lock found changed, and its acceptance."""

import asyncio
import json
import logging
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Crib, MCPSource, tool
from toolcrib.tools import as_tool
from toolcrib.tools.lock import Lock, LockedSource, definition_of, read_lock
from toolcrib.workbench import Role

from .conftest import Open, by_user

TOOLS = Path(__file__).parents[2] / "tools"
OPERATOR = Role(principals="olga", may=["sources"])


def says(folder: Path, *tools: dict[str, Any]) -> MCPSource:
    """Return a server that offers *tools*."""
    (folder / "says.json").write_text(json.dumps({"tools/list": {"tools": tools}}))
    command = [sys.executable, "-S", str(TOOLS / "scripted_server.py"), str(folder / "says.json")]
    return MCPSource(command=command, name="bank")


async def locked(file: Path, source: MCPSource) -> Path:
    """Write into the lock *file* what *source* offers now."""
    lock = read_lock(file) or Lock(file)
    async with Crib([source]) as crib:
        tools = {spec.name: definition_of(crib.registry[spec.name]) for spec in crib.registry.specs()}
    lock.with_source(LockedSource(lock.key(source), tools=tools)).write()
    return file


def pay(description: str, **properties: Any) -> dict[str, Any]:
    return {"name": "pay", "description": description, "inputSchema": {"type": "object", "properties": properties}}


async def test_a_changed_definition_is_shown_as_text_and_accepted_as_it_was_shown(
    open_console: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolcrib")
    lock = await locked(tmp_path / "toolcrib.lock", says(tmp_path, pay("Pay."), {**pay("Old."), "name": "old"}))
    source = says(tmp_path, pay("Pay <b>all\u202e</b>.", to={"type": "string"}), {**pay("New."), "name": "refund"})
    async with open_console(source, lock=lock) as browser:
        assert [row["name"] for row in (await browser.get("/api/tools")).json()["tools"]] == ["read_result"]
        home = (await browser.get("/")).text
        assert "see what changed" in home
        assert "Not available now" not in home
        page = (await browser.get("/sources")).text
        rows = re.findall(r'href="/sources/changes/(\w+)">(\w+)</a>', page)
        assert [name for _, name in rows] == ["old", "pay", "refund"]
        assert re.findall(r'badge warn">(\w+)<', page) == ["gone", "changed", "new"]
        (row,) = (await browser.get("/api/sources")).json()["sources"]
        assert (row["name"], row["state"], row["tools"]) == ("bank", "running", 0)
        digests = {name: digest for digest, name in rows}

        page = (await browser.get(f"/sources/changes/{digests['pay']}")).text
        assert '<del>-  "description": "Pay.",</del>' in page.replace("&#34;", '"')
        assert "<ins>+  &#34;description&#34;: &#34;Pay &lt;b&gt;all\\u202e&lt;/b&gt;.&#34;,</ins>" in page
        assert "\u202e" not in page
        assert "<b>" not in page
        assert "properties&#34;: {" in page
        change = (await browser.get(f"/sources/changes/{digests['pay']}.json")).json()
        assert (change["old"]["description"], change["new"]["description"]) == ("Pay.", "Pay <b>all\u202e</b>.")

        for name in digests:
            accepted = await browser.submit(f"/sources/changes/{digests[name]}/accept")
            assert (accepted.status_code, accepted.headers["location"]) == (303, "/sources")
            assert re.search(rf"accepted '{name}' of .*: {digests[name]}", caplog.text)
        rows = (await browser.get("/api/tools")).json()["tools"]
        assert [row["name"] for row in rows] == ["pay", "refund", "read_result"]
        entry = next(iter((read_lock(lock) or Lock(lock)).sources.values()))
        assert {name: of["description"] for name, of in entry.tools.items()} == {
            "pay": "Pay <b>all\u202e</b>.",
            "refund": "New.",
        }
        assert "None." in (await browser.get("/sources")).text
        assert (await browser.submit(f"/sources/changes/{digests['pay']}/accept")).status_code == 409
        assert (await browser.get(f"/sources/changes/{digests['pay']}")).status_code == 404


async def test_what_changed_after_it_was_shown_is_not_accepted(open_console: Open, tmp_path: Path) -> None:
    command = [sys.executable, "-S", str(TOOLS / "mcp_server.py"), "changes"]
    source = MCPSource(command=command, name="changing")
    lock = await locked(tmp_path / "toolcrib.lock", source)
    (entry,) = (read_lock(lock) or Lock(lock)).sources.values()
    Lock(lock).with_source(replace(entry, tools={})).write()
    async with open_console(source, lock=lock) as browser:
        (first,) = (await browser.get("/api/sources/changes")).json()["changes"]
        assert (await browser.submit(f"/sources/changes/{first['digest']}/accept")).status_code == 303
        bench = browser.crib.workbench()  # type: ignore[attr-defined]
        assert (await bench.call("echo", {"n": 1})).value == {"n": 1}  # upon this call it changes
        while "echo" in bench.registry:
            await asyncio.sleep(0.01)
        later = (await browser.get("/api/sources/changes")).json()["changes"]
        assert [(row["tool"], row["kind"]) for row in later] == [("added", "new"), ("echo", "changed")]
        assert (await browser.submit(f"/sources/changes/{first['digest']}/accept")).status_code == 409
        assert "echo" not in bench.registry

        # The command accepts one of them meanwhile.
        change = next(change for change in await browser.crib.lock_changes() if change.name == "added")  # type: ignore[attr-defined]
        (read_lock(lock) or Lock(lock)).accepting([change]).write()
        rows = (await browser.get("/api/sources/changes")).json()["changes"]
        assert [row["tool"] for row in rows] == ["echo"]
        assert "added" in bench.registry
        lock.write_text("version = 1\n[[source]]\n")
        assert (await browser.get("/sources")).status_code == 409
        assert (await browser.submit(f"/sources/changes/{later[1]['digest']}/accept")).status_code == 409


async def test_changes_are_accepted_by_a_role_alone_and_come_in_pages(open_console: Open, tmp_path: Path) -> None:
    lock = await locked(tmp_path / "toolcrib.lock", says(tmp_path))
    source = says(tmp_path, *({**pay("Pay."), "name": f"pay_{number}"} for number in range(3)))
    async with open_console(source, lock=lock, identify=by_user, roles=[OPERATOR]) as browser:
        await browser.become("olga")
        assert "pay_2" in (await browser.get("/sources")).text
        page = (await browser.get("/api/sources/changes?limit=2")).json()
        rest = (await browser.get(f"/api/sources/changes?limit=2&after={page['next']}")).json()
        names = [[row["tool"] for row in part["changes"]] for part in (page, rest)]
        assert (names, rest["next"]) == ([["pay_0", "pay_1"], ["pay_2"]], None)

        await browser.become("ann")
        digest = page["next"]
        assert "pay_" not in (await browser.get("/sources")).text
        for path in ("/api/sources/changes", f"/api/sources/changes/{digest}", f"/sources/changes/{digest}"):
            assert (await browser.get(path)).status_code == 403
        assert (await browser.submit(f"/sources/changes/{digest}/accept")).status_code == 403
        assert [row["name"] for row in (await browser.get("/api/tools")).json()["tools"]] == ["read_result"]


async def test_a_tool_of_a_locked_file_is_offered_once_it_is_accepted(open_console: Open, tmp_path: Path) -> None:
    @tool(name="hello")
    def old() -> str:
        """Say something."""
        return ""

    document = tmp_path / "api.json"
    operation = {"operationId": "hello", "summary": "Say hello.", "responses": {"200": {"description": "It."}}}
    data = {"openapi": "3.1.0", "info": {"title": "A", "version": "1"}, "servers": [{"url": "https://a.example"}]}
    document.write_text(json.dumps({**data, "paths": {"/hello": {"get": operation}}}))
    lock = Lock(tmp_path / "toolcrib.lock")
    source = f"openapi:{document}"
    lock.with_source(LockedSource(lock.key(source), tools={"hello": definition_of(as_tool(old))})).write()
    async with open_console(source, lock=lock.file) as browser:
        assert "has changed since" in str(browser.crib.problems)  # type: ignore[attr-defined]
        (change,) = (await browser.get("/api/sources/changes")).json()["changes"]
        assert (await browser.submit(f"/sources/changes/{change['digest']}/accept")).status_code == 303
        assert [row["name"] for row in (await browser.get("/api/tools")).json()["tools"]] == ["hello", "read_result"]
        assert browser.crib.problems == []  # type: ignore[attr-defined]
