"""The whole application: mounted in others, on a socket, when clients leave, and when it is stopped."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from mcp import Client
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from toolcrib import Crib, Source, __version__
from toolcrib.serve import asgi_app, serve_http

from ..waiting import until
from .serving import Waits, add, running


@asynccontextmanager
async def served(*sources: Any, **options: Any) -> AsyncIterator[tuple[httpx2.AsyncClient, asyncio.Task[None]]]:
    """A client of a server of *sources*, and the task that serves."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_http(Crib(sources), port=0, ready=ready.set_result, **options))
    url = (await ready).removesuffix("/mcp")
    async with httpx2.AsyncClient(base_url=url, timeout=60) as opened:
        yield opened, serving
    serving.cancel()
    await asyncio.wait([serving])


def wait_for(api: httpx2.AsyncClient, **arguments: Any) -> asyncio.Task[httpx2.Response]:
    return asyncio.create_task(api.post("/api/tools/wait/call", json=arguments))


async def send(api: httpx2.AsyncClient, accept: str) -> asyncio.StreamWriter:
    """A connection on which a call was sent."""
    body = b'{"says": true}'
    _, writer = await asyncio.open_connection(api.base_url.host, api.base_url.port)
    head = (
        f"POST /api/tools/wait/call HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nContent-Type: application/json"
    )
    writer.write(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    return writer


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_client_that_leaves_cancels_its_call_and_no_other(
    accept: str, caplog: pytest.LogCaptureFixture
) -> None:
    waits = Waits()
    async with served(waits.tool, add) as (api, _):
        other = wait_for(api)
        await waits.began.wait()
        waits.began.clear()
        gone = await send(api, accept)
        await waits.began.wait()
        gone.transport.abort()
        await waits.until("cancelled")
        waits.go_on.set()
        assert (await other).json()["content"] == [{"type": "text", "text": "done"}]
        assert (await api.post("/api/tools/add/call", json={"a": 1, "b": 2})).status_code == 200
        # A connection that is closed half way through its arguments is no call.
        _, writer = await asyncio.open_connection(api.base_url.host, api.base_url.port)
        writer.write(b"POST /api/tools/add/call HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{")
        await writer.drain()
        writer.transport.abort()
        assert (await api.get("/readyz")).json()["status"] == "ready"
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_call_that_runs_when_serving_stops_may_end() -> None:
    waits = Waits()
    async with served(waits.tool, add, grace_s=20) as (api, serving):
        running = wait_for(api)
        await waits.began.wait()
        serving.cancel()
        while (await api.get("/readyz")).status_code == 200:
            await asyncio.sleep(0.01)
        # Nothing new begins, and what looks after the server sees that it lives.
        late = await api.post("/api/tools/add/call", json={"a": 1, "b": 2})
        assert (late.status_code, late.json()["title"], late.headers["retry-after"]) == (503, "Not running", "1")
        assert (await api.get("/livez")).status_code == 200
        assert (await api.get("/readyz")).json()["status"] == "not ready"
        waits.go_on.set()
        assert (await running).json()["content"] == [{"type": "text", "text": "done"}]
        await asyncio.wait([serving])
    assert waits.ended == ["done"]


async def test_calls_that_do_not_end_are_cancelled_and_their_clients_get_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waits = Waits()
    async with served(waits.tool, grace_s=0.1) as (api, serving):
        running = [wait_for(api) for _ in range(5)]
        async with asyncio.timeout(60), Client(f"{api.base_url}/mcp") as client:
            by_mcp = asyncio.create_task(client.call_tool("wait", {}))
            events = await send(api, "text/event-stream")
            await until(lambda: waits.count == 7)
            while len(waits.ended) < 7:
                serving.cancel()  # more than once, as somebody impatient does
                await asyncio.sleep(0.05)
            with pytest.raises(MCPError, match="error response"):
                await by_mcp
        answers = await asyncio.gather(*running)
        events.close()
    assert waits.ended == ["cancelled"] * 7
    assert "calls did not end within 0.1 s, and are cancelled" in caplog.text
    assert {(one.status_code, one.json()["code"]) for one in answers} == {(503, "cancelled")}


async def test_health_names_the_sources_that_run_and_those_that_do_not() -> None:
    class Dead(Source):
        required = False

        async def start(self) -> None:
            raise RuntimeError("no route to 10.1.2.3")

        def tools(self) -> list[Any]:
            return []

    class Lives(Source):
        def tools(self) -> list[Any]:
            return [add]

    async with served(Dead(), Lives()) as (api, _):
        while len((state := (await api.get("/readyz")).json())["sources"]) < 2:
            await asyncio.sleep(0.01)
        assert (await api.get("/readyz")).status_code == 200
    sources = {each["name"]: each["state"] for each in state["sources"]}
    states = {name.rpartition(".")[2]: found for name, found in sources.items()}
    assert states == {"Dead": "unavailable", "Lives": "running"}
    assert "10.1.2.3" not in json.dumps(state)


@pytest.mark.parametrize("path", ["/crib", "/"])
async def test_it_is_mounted_in_one_line(path: str) -> None:
    crib = Crib([add])
    app = FastAPI()
    app.mount(path, asgi_app(crib))
    async with running(app) as url, httpx2.AsyncClient(base_url=f"{url}{path.rstrip('/')}") as api:
        # The first requests start it, once.
        answers = await asyncio.gather(*(api.post("/api/tools/%61dd/call", json={"a": n, "b": 2}) for n in range(5)))
        assert [one.json()["content"][0]["data"] for one in answers] == [2, 3, 4, 5, 6]
        document = (await api.get("/api/openapi.json")).json()
        assert document["servers"] == [{"url": path.rstrip("/") or "/"}]
        assert (await api.get("/api/tools", headers={"Host": "evil.example"})).status_code == 421
        for mode in ("legacy", "2026-07-28"):
            async with Client(f"{url}{path.rstrip('/')}/mcp", mode=mode) as client:
                assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}


async def test_a_host_may_run_its_life_and_add_routes(caplog: pytest.LogCaptureFixture) -> None:
    async def extra(request: Request) -> JSONResponse:
        return JSONResponse({"extra": request.path_params["what"]})

    crib = Crib([add])
    app = asgi_app(crib, routes=[Route("/extra/{what}", extra)], allowed_hosts=["crib.example"])
    host = Starlette(routes=[Mount("/crib", app)], lifespan=lambda _: app.lifespan())
    async with host.router.lifespan_context(host):
        transport = httpx2.ASGITransport(host)
        async with httpx2.AsyncClient(transport=transport, base_url="https://crib.example/crib") as api:
            assert (await api.get("/extra/a%2Fb")).status_code == 404
            assert (await api.get("/extra/a%20b")).json() == {"extra": "a b"}
            assert (await api.get("/extra/x", headers={"Origin": "https://crib.example"})).status_code == 200
            assert (await api.get("/extra/x", headers={"Origin": "https://other.example"})).status_code == 403
            assert (await api.post("/api/tools/add/call", json={"a": 1, "b": 2})).status_code == 200
    assert crib.is_stopped
    async with httpx2.AsyncClient(transport=transport, base_url="https://crib.example/crib") as api:
        assert (await api.get("/readyz")).status_code == 503
        assert (await api.get("/api/tools")).status_code == 503
    # The calls had ended, and nobody has tried to start it again.
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_failure_of_the_server_is_a_problem_without_its_text() -> None:
    async def broken(_: Request) -> JSONResponse:
        raise RuntimeError("password 1234")

    app = asgi_app(Crib([add]), routes=[Route("/broken", broken)])
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    async with app.lifespan(), httpx2.AsyncClient(transport=transport, base_url="http://localhost") as api:
        answer = await api.get("/broken")
    assert answer.status_code == 500
    assert answer.json() == {
        "type": "about:blank",
        "title": "Internal Server Error",
        "status": 500,
        "detail": "The server failed. The detail is in its log.",
    }


async def test_it_is_called_toolcrib_unless_it_is_given_another_name() -> None:
    async with served(add) as (api, _), Client(f"{api.base_url}/mcp", mode="legacy") as client:
        assert (client.server_info.name, client.server_info.version) == ("toolcrib", __version__)
    async with (
        served(add, name="mine", version="7") as (api, _),
        Client(f"{api.base_url}/mcp", mode="legacy") as client,
    ):
        assert (client.server_info.name, client.server_info.version) == ("mine", "7")


async def test_why_a_crib_cannot_start_is_shown_to_no_client_and_it_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Slow(Source):
        fails = True

        async def start(self) -> None:
            if self.fails:
                raise RuntimeError("password 1234")

        def tools(self) -> list[Any]:
            return [add]

    app = asgi_app(Crib([source := Slow()]))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as api:
        assert (await api.get("/livez")).json() == {"status": "alive"}
        assert not caplog.records  # for that, nothing is started
        answer = await api.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (503, "not ready")
        answer = await api.get("/api/tools")
        assert (answer.status_code, "1234" in answer.text) == (503, False)
        assert "The application could not be started" in caplog.text
        source.fails = False
        assert (await api.get("/api/tools")).status_code == 200
