"""Requests of clients of the older era that a client should not make: each gets an answer, and harms nobody."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from toolcrib import Caller, Crib, tool
from toolcrib.serve.protocol import sessions

from .serving import Waits, add, served
from .test_mcp_streams import ACCEPT, HELLO, Session, events, request

JSON = {"Content-Type": "application/json"}
CALL = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 2}}}


def by_header(headers: Mapping[str, str]) -> Caller:
    return Caller(headers["authorization"])


@asynccontextmanager
async def session_of(crib: Crib) -> AsyncIterator[Session]:
    async with served(crib) as url, httpx2.AsyncClient(timeout=60) as http:
        yield await Session(http, url).open()


async def test_a_request_with_the_id_of_another_that_runs_is_refused_and_both_are_answered() -> None:
    waits = Waits()

    async def text(session: Session, id: Any, name: str, **arguments: Any) -> str:
        made = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        return (await session.http.post(session.url, json=made, headers=session.headers)).text

    async with session_of(Crib([add, waits.tool])) as session, asyncio.timeout(60):
        first = asyncio.create_task(text(session, 7, "wait"))
        await waits.began.wait()
        answer = json.loads(await text(session, 7, "add", a=1, b=2))
        assert (answer["id"], answer["error"]["code"]) == (7, -32600)
        assert "has not been answered yet" in answer["error"]["message"]
        assert '"text":"3"' in await text(session, "7", "add", a=1, b=2)  # a text is no number
        other = await Session(session.http, session.url).open()
        assert '"text":"3"' in await text(other, 7, "add", a=1, b=2)
        waits.go_on.set()
        assert '"text":"done"' in await first
        assert '"text":"3"' in await text(session, 7, "add", a=1, b=2)
        # One that was refused before it ran is not waited for.
        odd = {**session.headers, "Accept": "text/html"}
        assert (await session.http.post(session.url, json={**CALL, "id": 8}, headers=odd)).status_code == 406
        assert '"text":"3"' in await text(session, 8, "add", a=1, b=2)


async def test_a_principal_with_many_sessions_loses_their_oldest_and_takes_none_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "_MAX_OF_PRINCIPAL", 3)
    ended: list[str] = []
    close = sessions.HttpSession.close

    async def noted(self: sessions.HttpSession) -> None:
        ended.append(self.id)
        await close(self)

    monkeypatch.setattr(sessions.HttpSession, "close", noted)
    async with served(Crib([add]), by_header) as url, httpx2.AsyncClient(timeout=60) as http:

        async def opened(who: str) -> dict[str, str]:
            headers = {**ACCEPT, "Authorization": who}
            answer = await http.post(url, json=request(0, "initialize", **HELLO), headers=headers)
            assert answer.status_code == 200
            return headers | {"Mcp-Session-Id": answer.headers["mcp-session-id"]}

        async def status(headers: dict[str, str]) -> int:
            return (await http.post(url, json=request(1, "ping"), headers=headers)).status_code

        of_bob = await opened("bob")
        of_ada = [await opened("ada") for _ in range(5)]
        assert ended == [each["Mcp-Session-Id"] for each in of_ada[:2]]
        assert [await status(each) for each in of_ada] == [200] * 5  # an id makes its session again
        assert await status(of_bob) == 200
        assert of_bob["Mcp-Session-Id"] not in ended


async def test_a_client_that_says_twice_that_it_is_ready_is_notified_once() -> None:
    crib = Crib([add])
    async with session_of(crib) as session, asyncio.timeout(60):
        for _ in range(5):
            await session.http.post(
                session.url, json=request(None, "notifications/initialized"), headers=session.headers
            )
        found: list[str] = []
        async with session.http.stream("GET", session.url, headers=session.headers) as stream:
            crib.registry.add(tool(name="greet")(by_name))
            async for event in events(stream):
                found.append(json.loads(event["data"])["method"])
                if len(found) == 1:  # any more of the first change would be before what follows
                    crib.prompts.add(by_name)
                if found[-1] == "notifications/prompts/list_changed":
                    break
        assert found == ["notifications/tools/list_changed", "notifications/prompts/list_changed"]


def by_name(name: str) -> str:
    """Greet somebody."""
    return name
