"""The pages of calls and their figures."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

from toolcrib import Caller, Crib, tool
from toolcrib.record import DatabaseCalls
from toolcrib.store import Store
from toolcrib.workbench import Limit, Role, Rule, Rules

from .conftest import Browser, Open, add, by_user


@tool(destructive=True)
def drop(table: str) -> str:
    """Drop a table."""
    return f"dropped {table}"


RULES = Rules([Rule(do="ask", hint="destructive", name="careful")])


def recorded(tmp_path: Path) -> Crib:
    store = Store(tmp_path / "calls.db")
    return Crib([add, drop], store=store, recorder=DatabaseCalls(store, with_content=True), policy=RULES)


async def call(browser: Browser, name: str, arguments: Mapping[str, object]) -> None:
    """Make a call, and wait until the log has it."""
    await browser.post(f"/api/tools/{name}/call", json=arguments)
    await browser.crib.recorders[0].flush()  # type: ignore[attr-defined]


async def test_calls_are_listed_and_filtered_by_links(open_console: Open, tmp_path: Path) -> None:
    async with open_console(crib=recorded(tmp_path)) as browser:
        assert "No calls yet" in (await browser.get("/calls")).text
        for arguments in ({"a": 1}, {"a": "x"}, {"a": 2, "b": 3}):
            await call(browser, "add", arguments)
        await call(browser, "drop", {"table": "<script>alert(1)</script>"})
        page = (await browser.get("/calls")).text
        assert page.count("/calls/run_") == 4
        assert 'href="/calls?tool=add"' in page
        assert 'href="/calls?rule=careful"' in page
        assert (await browser.get("/calls?rule=careful")).text.count("/calls/run_") == 1
        assert (await browser.get("/calls?tool=add&status=error")).text.count("/calls/run_") == 1
        assert (await browser.get("/calls?status=wrong")).status_code == 400
        assert (await browser.get("/calls.json?tool=add")).json() == (await browser.get("/api/calls?tool=add")).json()


async def test_a_call_shows_what_ran_and_runs_again(open_console: Open, tmp_path: Path) -> None:
    async with open_console(crib=recorded(tmp_path)) as browser:
        await call(browser, "add", {"a": 40})
        (only,) = (await browser.get("/api/calls")).json()["calls"]
        page = (await browser.get(f"/calls/{only['id']}")).text
        assert "&#34;a&#34;: 40" in page
        assert ">42</pre>" in page
        assert "curl -sS http://127.0.0.1:8642/api/tools/add/call" in page
        assert "bench.call(&#39;add&#39;" in page
        assert "ended: success" in page
        again = await browser.submit(f"/calls/{only['id']}/again")
        assert again.status_code == 303
        assert again.headers["location"] not in ("", f"/calls/{only['id']}")
        assert len((await browser.get("/api/calls")).json()["calls"]) == 2
        assert (await browser.get("/calls/run_none")).status_code == 404


async def test_figures_count_calls_by_time_tool_and_rule(open_console: Open, tmp_path: Path) -> None:
    async with open_console(crib=recorded(tmp_path)) as browser:
        for arguments in ({"a": 1}, {"a": "x"}, {"a": "2"}):
            await call(browser, "add", arguments)
        await call(browser, "drop", {"table": "t"})
        figures = (await browser.get("/api/stats", params={"parts": 4})).json()
        assert [sum(part["calls"].values()) for part in figures["parts"]] == [0, 0, 0, 4]
        assert figures["parts"][-1]["calls"] == {"success": 2, "invalid_arguments": 1, "pending": 1}
        (adds, drops) = figures["tools"]
        assert {name: adds[name] for name in ("tool", "calls", "errors", "repaired")} == {
            "tool": "add", "calls": 3, "errors": 1, "repaired": 1,
        }  # fmt: skip
        assert 0 < adds["p50_s"] <= adds["p95_s"]
        assert drops["tool"] == "drop"
        assert {"rule": "careful", "decision": "ask", "calls": 1, "approved": 0} in figures["rules"]
        page = (await browser.get("/stats?age=hour")).text
        assert "4 calls, at most 4 in one part of the time" in page
        for wrong in ("since=x", "parts=0", "parts=999", "since=2100-01-01", "other=1"):
            assert (await browser.get(f"/api/stats?{wrong}")).status_code == 400


async def test_calls_of_others_are_shown_to_a_role_only(open_console: Open, tmp_path: Path) -> None:
    def identify(headers: Mapping[str, str]) -> Caller:
        return Caller(headers["user"], groups=frozenset({"ops"} if headers["user"] == "olga" else ()))

    roles = [Role(groups="ops", may=["calls:all"])]
    async with open_console(crib=recorded(tmp_path), identify=identify, roles=roles) as browser:
        await browser.become("ann")
        await call(browser, "add", {"a": 1})
        (only,) = (await browser.get("/api/calls")).json()["calls"]
        seen = {}
        for user in ("bob", "olga"):
            await browser.become(user)
            listed = (await browser.get("/calls")).text.count("/calls/run_")
            one = (await browser.get(f"/calls/{only['id']}")).status_code
            count = sum(row["calls"] for row in (await browser.get("/stats.json")).json()["tools"])
            seen[user] = (listed, one, count)
        assert seen == {"bob": (0, 404, 0), "olga": (1, 200, 1)}


@tool
def travel(city: str, days: int = 1, places: dict[str, int] | None = None) -> str:
    """Travel to a city."""
    return city


async def test_repaired_arguments_are_counted_by_name_and_kind(open_console: Open, tmp_path: Path) -> None:
    store = Store(tmp_path / "calls.db")
    crib = Crib([travel], store=store, recorder=DatabaseCalls(store), limits=[Limit(budget="1000 calls/d")])
    async with open_console(crib=crib) as browser:
        assert "Models got no argument wrong" in (await browser.get("/stats")).text
        for arguments in (
            {"city": "Oslo", "days": "2"},
            {"city": "Oslo", "days": "3", "places": {"ann@example.com": "1"}},
            {"City": "Oslo"},
        ):
            await call(browser, "travel", arguments)
        figures = (await browser.get("/stats.json")).json()
        counts = [(row["argument"], row["from"], row["to"], row["calls"]) for row in figures["repairs"]]
        assert counts == [
            ("days", "string", "integer", 2),
            ("City", "key", "key", 1),
            ("places.*", "string", "integer", 1),
        ]
        page = (await browser.get("/stats")).text
        assert "<code>days</code>" in page
        assert "ann@" not in page
        assert "another spelling" in page
        assert re.search(r"997 calls of travel</td>\s*<td><meter", page)
        assert "No process runs a task now" in page
        newest = (await browser.get("/api/calls?limit=2")).json()["calls"]
        assert newest[1]["repaired"][0] == {"argument": "days", "from": "string", "to": "integer"}
        page = (await browser.get(f"/calls/{newest[1]['id']}")).text
        assert "repaired: <code>days</code> string to integer" in page


async def test_processes_that_run_tasks_are_for_a_role(open_console: Open, tmp_path: Path) -> None:
    begun, is_over = asyncio.Event(), asyncio.Event()

    @tool(task=True, idempotent=True)
    async def report() -> str:
        """Write a report."""
        begun.set()
        await is_over.wait()
        return "done"

    roles = [Role(principals="olga", may=["tasks"])]
    async with open_console(report, identify=by_user, roles=roles) as browser:
        await browser.become("olga")
        await browser.post("/api/tools/report/call", json={})
        await begun.wait()
        data = (await browser.get("/api/workers")).json()
        assert ([row["tasks"] for row in data["workers"]], data["next"]) == ([1], None)
        assert data["tasks"]["running"] == 1
        assert data["workers"][0]["process"] in (await browser.get("/stats")).text
        after = data["workers"][0]["process"]
        assert (await browser.get(f"/api/workers?after={after}")).json()["workers"] == []
        await browser.become("ann")
        assert (await browser.get("/api/workers")).status_code == 403
        assert "Workers" not in (await browser.get("/stats")).text
        is_over.set()
