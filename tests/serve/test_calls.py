"""The call log and the figures over HTTP, and the trace that a call over MCP is a part of."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from starlette.applications import Starlette

from toolcrib import Caller, Context, Crib, SetupError, tool
from toolcrib.record import CallLog, Metrics
from toolcrib.serve import call_routes, calls, metrics_route, server

from .serving import add

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
async def crib(tmp_path: Path) -> AsyncIterator[Crib]:
    async with Crib([add], store=tmp_path / "store.db") as crib:
        for name in ("ann", "bob", "ann"):
            await crib.workbench(Caller(name)).call("add", {"a": 1, "b": 2})
        await crib.workbench(Caller("ann")).call("add", {"a": 1})
        await crib.recorders[0].flush()
        yield crib


def browser(crib: Crib, **options: object) -> httpx2.AsyncClient:
    def identify(headers: dict[str, str]) -> Caller:
        return Caller(headers["x-user"])

    app = Starlette(routes=call_routes(crib, identify, **options))  # type: ignore[arg-type]
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://h", headers={"x-user": "ann"})


async def test_a_principal_sees_their_own_calls_page_by_page(crib: Crib) -> None:
    async with browser(crib) as http:
        page = (await http.get("/api/calls", params={"limit": 2})).json()
        assert [one["code"] for one in page["calls"]] == ["invalid_arguments", None]
        rest = (await http.get("/api/calls", params={"limit": 2, "before": page["next"]})).json()
        assert ([one["principal"] for one in rest["calls"]], rest["next"]) == (["ann"], None)
        for most, count in ((1, 1), (500, 3)):
            assert len((await http.get("/api/calls", params={"limit": most})).json()["calls"]) == count
        wrong = (await http.get("/api/calls", params={"status": "error", "tool": "add"})).json()["calls"]
        assert [one["id"] for one in wrong] == [page["calls"][0]["id"]]
        one = (await http.get(f"/api/calls/{wrong[0]['id']}")).json()
        events = one.pop("events")
        assert one == wrong[0] | {"arguments": None, "result": None}
        assert [(event["kind"], event["id"], event["status"]) for event in events] == [("ended", one["id"], "error")]
        hour_ago = datetime.now(UTC) - timedelta(hours=1)
        for since, count in [
            ("2100-01-01T00:00:00Z", 0),
            (hour_ago.astimezone(timezone(timedelta(hours=14))).isoformat(), 3),
            (hour_ago.replace(tzinfo=None).isoformat(), 3),  # UTC where it names no zone
        ]:
            assert len((await http.get("/api/calls", params={"since": since})).json()["calls"]) == count
        exactly = (await http.get("/api/calls", params={"limit": 3})).json()
        assert (len(exactly["calls"]), exactly["next"]) == (3, None)


@pytest.mark.parametrize(
    ("client", "headers", "status"),
    [
        (("127.0.0.1", 1), {}, 200),
        (("192.0.2.1", 1), {}, 403),
        (None, {}, 403),  # a socket without an address
        (("127.0.0.1", 1), {"X-Forwarded-For": "127.0.0.1"}, 403),  # behind a proxy that is believed
        (("127.0.0.1", 1), {"Forwarded": "for=127.0.0.1"}, 403),
    ],
)
async def test_calls_of_the_person_at_this_computer_are_shown_to_no_other(
    client: tuple[str, int] | None, headers: dict[str, str], status: int, tmp_path: Path
) -> None:
    async with Crib([add], store=tmp_path / "store.db") as crib:
        await crib.workbench().call("add", {"a": 1, "b": 2})
        await crib.recorders[0].flush()
        app = Starlette(routes=call_routes(crib))
        transport = httpx2.ASGITransport(app, client=client)  # type: ignore[arg-type]
        async with httpx2.AsyncClient(transport=transport, base_url="http://h") as http:
            answer = await http.get("/api/calls", headers=headers)
    assert answer.status_code == status
    assert ("principal" in answer.text) is (status == 200)


async def test_a_call_log_that_cannot_be_read_is_a_problem_of_the_server(crib: Crib, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "store.db")) as database, database:
        database.execute("DROP TABLE toolcrib_calls")
    async with browser(crib) as http:
        for path in ("/api/calls", "/api/calls/run_1"):
            answer = await http.get(path)
            assert (answer.status_code, answer.json()["title"]) == (503, "Call log unavailable")


async def test_anothers_call_is_as_unknown_as_none_unless_the_host_allows_it(
    crib: Crib, caplog: pytest.LogCaptureFixture
) -> None:
    log = crib.recorders[0]
    (theirs,) = await log.newest(principal="bob")
    async with browser(crib) as http:
        for name in (theirs.id, "run_no", "%", "a'--"):
            answer = await http.get(f"/api/calls/{name}")
            assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
            assert answer.json()["detail"] == "There is no call with this id."
        assert (await http.get("/api/calls", params={"principal": "bob"})).json() == {"calls": [], "next": None}
        pages = [(await http.get("/api/calls", params={"before": each})).json() for each in (theirs.id, "nothing")]
        assert pages == [{"calls": [], "next": None}] * 2
        http.headers.pop("x-user")
        for path in ("/api/calls", f"/api/calls/{theirs.id}"):
            answer = await http.get(path)
            assert (answer.status_code, answer.json()["title"]) == (401, "Unauthorized")
        assert caplog.text.count("A request could not be identified") == 2
    async with browser(crib, sees_all=lambda caller: caller.principal == "ann") as http:
        assert len((await http.get("/api/calls")).json()["calls"]) == 4
        assert len((await http.get("/api/calls", params={"principal": "bob"})).json()["calls"]) == 1
        assert (await http.get(f"/api/calls/{theirs.id}")).json()["principal"] == "bob"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", "0"),
        ("limit", "501"),
        ("limit", "²"),
        ("limit", "1" * 5000),
        ("status", "done"),
        ("since", "soon"),
        ("since", "0001-01-01T00:00+14:00"),
        ("tol", "add"),
    ],
)
async def test_a_parameter_that_is_not_valid_is_a_problem_that_names_it(name: str, value: str, crib: Crib) -> None:
    async with browser(crib) as http:
        answer = await http.get("/api/calls", params={name: value})
    assert answer.status_code == 400
    assert name in answer.json()["detail"]
    assert len(answer.json()["detail"]) < 200


async def test_figures_are_served_and_what_is_missing_is_named() -> None:
    async with Crib([add], recorder=[CallLog(), Metrics()]) as crib:
        await crib.workbench().call(add, 1, 2)
        app = Starlette(routes=[metrics_route(crib)])
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://h") as http:
            answer = await http.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=")
        assert 'toolcrib_calls_total{code="",status="success",tool="add"} 1.0' in answer.text
        with pytest.raises(SetupError, match="no call log"):
            call_routes(crib)
    with pytest.raises(SetupError, match="no Metrics"):
        metrics_route(Crib([add]))


async def test_a_call_over_mcp_is_a_part_of_the_trace_that_its_meta_names() -> None:
    log = CallLog()
    async with Crib([add], recorder=log) as crib, Client(server(crib)) as client:
        await client.call_tool("add", {"a": 1, "b": 2}, meta={"traceparent": TRACE})
        await client.call_tool("add", {"a": 1, "b": 2}, meta={"traceparent": 7})  # type: ignore[dict-item]
    first, second = log
    assert (first.traceparent, second.traceparent) == (TRACE, None)


async def test_metrics_have_the_tasks_of_the_store_by_their_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_COUNT_INTERVAL_S", 0.0)

    @tool(task=True)
    async def wait(context: Context) -> str:
        """Wait for an answer."""
        return await context.ask("who", str, "Who?")

    @tool(task=True)
    async def hang() -> None:
        """Hang."""
        await asyncio.Event().wait()

    crib = Crib([wait, hang], store=tmp_path / "store.db", recorder=[Metrics()])
    transport = httpx2.ASGITransport(Starlette(routes=[metrics_route(crib)]))
    async with crib, httpx2.AsyncClient(transport=transport, base_url="http://h") as http:
        bench = crib.workbench(Caller("ann"))
        for name in ("wait", "wait", "hang"):
            await bench.call(name)
        rows = 'toolcrib_tasks{state="%s"} %s.0\n'
        expected = [rows % row for row in (("queued", 0), ("running", 1), ("waiting", 2), ("lost", 0))]
        async with asyncio.timeout(60):
            text = ""
            while not all(row in text for row in expected):
                await asyncio.sleep(0.05)
                text = (await http.get("/metrics")).text
        assert "toolcrib_tasks_oldest_due_seconds 0.0\n" in text
