"""Who may enter with a key: what is refused and how, whose thread a request is in, and what ends with a key."""

import asyncio
import http.client
import json
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from pydantic import BaseModel
from starlette.responses import PlainTextResponse
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from toolcrib import Caller, Context, Crib, StatefulTool, tool
from toolcrib.serve import Authentication, AuthenticationError, Authenticator, asgi_app
from toolcrib.serve.access import authentication as module
from toolcrib.serve.access import throttle
from toolcrib.serve.access.authentication import PUBLIC
from toolcrib.serve.access.callers import CALLER
from toolcrib.serve.access.keys import AccessKeys
from toolcrib.store import Store

from .serving import message_of, request_of, served

MODERN: dict[str, str] = {}
LEGACY = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Count(BaseModel):
    value: int = 0


class Counter(StatefulTool[Count]):
    @tool
    async def increment(self) -> int:
        self.state.value += 1
        return self.state.value


@tool
async def who(ctx: Context) -> list[str]:
    return [ctx.caller.principal, ctx.caller.thread, *sorted(ctx.caller.groups)]


class Door:
    """A server with keys, and somebody who knocks."""

    def __init__(self, url: str, keys: AccessKeys, crib: Crib) -> None:
        self.url, self.keys, self.crib = url, keys, crib
        self.http = httpx2.AsyncClient(timeout=60)

    async def post(
        self, method: str, key: str | None, *, era: Mapping[str, str] = MODERN, id: int | None = 1, **parts: Any
    ) -> httpx2.Response:
        headers = {**era, **parts.pop("headers", {})}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        if era is MODERN:
            request = request_of(method, **parts)
            return await self.http.post(self.url, headers=request["headers"] | headers, content=request["content"])
        content = {"jsonrpc": "2.0", "method": method, "params": parts, **({} if id is None else {"id": id})}
        return await self.http.post(self.url, headers=headers, json=content)

    async def value(self, name: str, key: str, **parts: Any) -> Any:
        answer = await self.post("tools/call", key, name=name, arguments={}, **parts)
        assert answer.status_code == 200, answer.text
        return message_of(answer)["result"]["structuredContent"]["result"]

    async def session(self, key: str) -> str:
        answer = await self.post("initialize", key, era=LEGACY, **HELLO)
        made: str = answer.headers["mcp-session-id"]
        await self.post("notifications/initialized", key, era=LEGACY, id=None, headers={"Mcp-Session-Id": made})
        return made


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    store, crib = Store(tmp_path / "store.db"), Crib([who, Counter])
    keys = AccessKeys(store)
    async with served(crib, Authenticator(keys)) as url:
        door = Door(url, keys, crib)
        async with door.http:
            yield door
    store.close()


async def test_a_key_lets_its_principal_in_with_their_groups_in_both_eras(door: Door) -> None:
    alice, _ = await door.keys.add("alice", groups=["staff"])
    bob, _ = await door.keys.add("bob")
    for key, expected in [(alice, ["key:alice", "default", "staff"]), (bob, ["key:bob", "default"])]:
        assert await door.value("who", key) == expected
        session = await door.session(key)
        found = await door.value("who", key, era=LEGACY, headers={"Mcp-Session-Id": session})
        assert found == [expected[0], session.partition(".")[0], *expected[2:]]


async def test_whoever_has_no_key_that_is_valid_is_refused_without_a_word_of_it(
    door: Door, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(throttle, "TRIES", 1000)
    key, made = await door.keys.add("alice")
    other, revoked = await door.keys.add("bob")
    assert [await door.keys.revoke(revoked.id) for _ in range(2)] == [True, False]
    refused = "There is no such key, or it has expired or was revoked."
    cases = [
        (None, None, "This needs a key or a token, in the header 'Authorization: Bearer ...'."),
        *((f"Bearer {each}", "invalid_token", refused) for each in (other, key[:-1], f"{key}x", "a.b.c", key.upper())),
        *(
            (each, "invalid_request", "The header 'Authorization' has the form 'Bearer KEY'.")
            for each in ("", "Bearer", f"Basic {key}", key, f"Bearer {key} {key}", f"Bearer,{key}", "Bearer \xfc")
        ),
        (f"Bearer {'a' * 16_384}", "invalid_token", refused),
        (f"Bearer {'a' * 16_385}", "invalid_request", "A key or token has at most 16384 characters."),
    ]
    for written, error, detail in cases:
        headers = {} if written is None else {"Authorization": written.encode("latin-1")}
        for path in ("/mcp", "/api/tools", "/", "/metrics", "/mcp/", "//livez", "/livez/x", "/LIVEZ"):
            answer = await door.http.post(door.url.replace("/mcp", path), headers=headers, json={})
            assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")
            assert answer.json() == {
                "type": "about:blank",
                "title": "Not authenticated",
                "status": 401,
                "detail": detail,
            }
            challenge = 'Bearer realm="toolcrib"'
            if error is not None:
                challenge += f', error="{error}", error_description="{detail.replace(chr(34), chr(39))}"'
            assert answer.headers["www-authenticate"] == challenge
        assert f"A request was refused: {detail}" in caplog.text
    assert (await door.post("tools/list", key)).status_code == 200
    assert not [secret for secret in (key, other, key[30:]) if secret in caplog.text]
    assert repr(Authenticator(door.keys)) == "<Authenticator of keys, 0 issuers>"
    assert made.id  # of the key, an id may be shown


async def test_a_header_that_says_who_calls_is_there_once(door: Door) -> None:
    alice, _ = await door.keys.add("alice")
    bob, _ = await door.keys.add("bob")

    def send(*headers: tuple[str, str], status: int = 400) -> str:
        connection = http.client.HTTPConnection(urlsplit(door.url).netloc, timeout=60)
        connection.putrequest("POST", "/mcp")
        for name, value in headers:
            connection.putheader(name, value)
        connection.putheader("Content-Length", "0")
        connection.endheaders()
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        assert answer.status == status
        assert status != 400 or json.loads(text)["title"] == "Bad request"
        return text

    own = ("Authorization", f"Bearer {alice}")
    for first, second in [
        (own, ("authorization", f"Bearer {bob}")),
        (("Toolcrib-Thread", "a"), ("toolcrib-thread", "b")),
        (("Mcp-Session-Id", "a"), ("MCP-SESSION-ID", "a")),
    ]:
        assert "more than once" in await asyncio.to_thread(send, *([] if first is own else [own]), first, second)
    await asyncio.to_thread(send, ("Authorization", "Bearer " + "a" * 60_000), status=401)
    for thread in ("x" * 129, "caf\xe9", "a\tb"):
        assert "A thread is named by" in await asyncio.to_thread(send, own, ("Toolcrib-Thread", thread))
    assert (await door.value("who", alice, headers={"Toolcrib-Thread": "x" * 128}))[1] == "x" * 128


async def test_the_thread_is_the_session_else_the_header_and_of_one_principal(door: Door) -> None:
    alice, _ = await door.keys.add("alice")
    bob, _ = await door.keys.add("bob")
    session = await door.session(alice)
    in_session = {"Mcp-Session-Id": session}
    assert [await door.value("increment", alice, era=LEGACY, headers=in_session) for _ in range(2)] == [1, 2]
    assert await door.value("increment", alice) == 1  # the thread `default`
    named = {"Toolcrib-Thread": "t1"}
    assert [await door.value("increment", alice, headers=named) for _ in range(2)] == [1, 2]
    # Another principal who names the same thread, or the session, is in one of their own.
    assert await door.value("increment", bob, headers=named) == 1
    assert await door.value("increment", bob, headers={"Toolcrib-Thread": session.partition(".")[0]}) == 1
    assert await door.value("increment", alice, headers=named) == 3
    both = {"Mcp-Session-Id": session, "Toolcrib-Thread": "t1"}
    assert await door.value("who", alice, era=LEGACY, headers=both) == ["key:alice", session.partition(".")[0]]


async def test_a_session_is_only_for_the_principal_who_began_it(door: Door) -> None:
    alice, _ = await door.keys.add("alice")
    second, _ = await door.keys.add("alice")
    bob, _ = await door.keys.add("bob")
    session = {"Mcp-Session-Id": await door.session(alice)}
    for method in ("POST", "GET", "DELETE"):
        for key, status in [(bob, 404), (None, 401), ("toolcrib_x", 401)]:
            headers = {**LEGACY, **session, **({} if key is None else {"Authorization": f"Bearer {key}"})}
            answer = await door.http.request(method, door.url, headers=headers)
            assert answer.status_code == status, (method, key)
    thread = session["Mcp-Session-Id"].partition(".")[0]
    assert await door.value("who", alice, era=LEGACY, headers=session) == ["key:alice", thread]
    assert await door.value("who", second, era=LEGACY, headers=session) == ["key:alice", thread]


async def test_what_is_revoked_ends_with_the_next_request_also_in_an_open_session(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RETRY_INTERVAL_S", 0.0)
    alice, key = await door.keys.add("alice")
    session = {"Mcp-Session-Id": await door.session(alice)}
    headers = {**LEGACY, **session, "Authorization": f"Bearer {alice}"}
    async with door.http.stream("GET", door.url, headers=headers) as stream:
        lines = stream.aiter_lines()

        async def notice() -> str | None:
            async for line in lines:
                if line.startswith("data: {"):
                    return line
            return None

        door.crib.registry.add(tool(name="one")(lambda: 1))
        assert "list_changed" in str(await notice())
        assert await door.keys.revoke(key.id)
        door.crib.registry.add(tool(name="two")(lambda: 2))
        async with asyncio.timeout(60):
            assert await notice() is None  # the stream has ended
    answer = await door.post("tools/list", alice, era=LEGACY, headers=session)
    assert answer.status_code == 401


async def test_where_the_store_fails_nobody_is_let_in_and_the_client_may_try_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("nobody is let in")

    keys = AccessKeys(Store(tmp_path, key=tmp_path / "store.key"))  # a folder
    transport = httpx2.ASGITransport(Authentication(app, Authenticator(keys)))
    async with httpx2.AsyncClient(transport=transport, base_url="http://h") as client:
        answer = await client.get("/mcp", headers={"Authorization": f"Bearer toolcrib_{'a' * 12}_{'b' * 43}"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert (answer.json()["title"], answer.headers["cache-control"]) == ("Not available", "no-store")
    assert str(tmp_path) not in answer.text
    assert "No caller can be identified now: " in caplog.text


async def test_what_is_open_to_everybody_and_what_the_application_gets(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope["type"], scope.get("path"), scope.get(CALLER)))
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    def identify(headers: Mapping[str, str]) -> Any:
        return {"a": Caller("ada"), "n": None}[headers["x-user"]]

    guarded = Authentication(app, identify, public=PUBLIC)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(guarded), base_url="http://h") as client:
        for path in ("/livez", "/readyz", "/auth/callback", "/auth/secret"):
            assert (await client.get(path)).status_code == 200
        for headers, status in [({"X-User": "a"}, 200), ({"X-User": "n"}, 401), ({"X-User": "x"}, 401), ({}, 401)]:
            assert (await client.get("/api/tools", headers=headers)).status_code == status
        answer = await client.get("/.well-known/oauth-protected-resource")
        assert answer.status_code == 401  # without an issuer there is no such document
    assert await messages(guarded, {"type": "lifespan"}) == []
    public = [("http", path, None) for path in ("/livez", "/readyz", "/auth/callback", "/auth/secret")]
    assert seen == [*public, ("http", "/api/tools", Caller("ada")), ("lifespan", None, None)]


async def messages(app: ASGIApp, scope: Scope) -> list[Any]:
    """What *app* sends to a client that connects."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


CLOSED = {"type": "websocket.close", "code": 1008}


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Somebody's own application, with a path for each that a server of ours has open."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": scope[CALLER].principal})
    else:
        await PlainTextResponse(scope[CALLER].principal)(scope, receive, send)


async def test_around_an_application_of_somebody_else_no_path_is_open() -> None:
    guarded = Authentication(echo, by_user)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(guarded), base_url="http://h") as http:
        for path in ("/", *PUBLIC):
            assert (await http.get(path)).status_code == 401
            assert (await http.get(path, headers={"x-user": "ada"})).text == "ada"


async def test_a_websocket_needs_a_caller_as_a_request_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def socket(*headers: tuple[bytes, bytes]) -> Scope:
        return {"type": "websocket", "path": "/livez", "headers": [(b"host", b"localhost"), *headers]}

    ada, mallory = (b"x-user", b"ada"), (b"origin", b"https://mallory.example")

    async def greet(socket: WebSocket) -> None:
        await echo(socket.scope, socket.receive, socket.send)

    route = WebSocketRoute("/livez", greet)
    async with Crib([]) as crib:
        for app in (Authentication(echo, by_user), asgi_app(crib, by_user, routes=[route])):
            assert await messages(app, socket()) == [CLOSED]
            accepted = await messages(app, socket(ada))
            assert accepted == [{"type": "websocket.accept"}, {"type": "websocket.send", "text": "ada"}]
        # A page of another origin, in the browser of somebody whose cookie would let them in.
        assert await messages(app, socket(ada, mallory)) == [CLOSED]
        local = asgi_app(crib, routes=[route])
        assert [await messages(local, socket() | {"client": (host, 1)}) for host in ("192.0.2.1", "")] == [[CLOSED]] * 2
    seen = iter([Caller("ada"), Caller("bob")])
    monkeypatch.setattr(module, "_RETRY_INTERVAL_S", -1.0)
    assert await messages(Authentication(echo, lambda _: next(seen)), socket()) == [CLOSED]


def by_user(headers: Mapping[str, str]) -> Caller:
    return Caller(headers["x-user"])


class Answer:
    """An answer in three messages, of which each is sent as it is told, and what arrives of it."""

    def __init__(self) -> None:
        self.sees: Any = Caller("ada")
        self.asked = 0
        self.sent: list[dict[str, Any]] = []
        self.before: dict[str, Any] = {}
        """What `identify` returns or raises from that message on."""

    async def _app(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        for message in (
            {"type": "http.response.start", "status": 200, "headers": []},
            {"type": "http.response.body", "body": b"one", "more_body": True},
            {"type": "http.response.body", "body": b"two"},
        ):
            name = message["type"] if message["type"].endswith("start") else message["body"].decode()
            self.sees = self.before.get(name, self.sees)
            await send(message)

    def _identify(self, headers: Mapping[str, str]) -> Caller:
        self.asked += 1
        if isinstance(self.sees, Exception):
            raise self.sees
        return self.sees

    async def make(self) -> list[Any]:
        """The statuses and texts that arrive."""

        async def receive() -> Any:
            return {"type": "http.request"}

        async def send(message: Any) -> None:
            self.sent.append(message)

        scope = {"type": "http", "method": "GET", "scheme": "http", "path": "/x", "headers": []}
        await Authentication(self._app, self._identify)(scope, receive, send)
        return [one.get("status") or one["body"] for one in self.sent]


OUT = {"type": "http.response.body", "body": b"", "more_body": False}


@pytest.mark.parametrize("name", ["http.response.start", "one", "two"])
@pytest.mark.parametrize("now", [AuthenticationError("Gone."), Caller("bob"), KeyError("gone")], ids=repr)
async def test_a_long_answer_ends_as_soon_as_its_caller_is_not_let_in_any_more(
    now: Any, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(module, "_RETRY_INTERVAL_S", -1.0)
    answer = Answer()
    answer.before[name] = now
    arrived = await answer.make()
    assert arrived == {"http.response.start": [401, b""], "one": [200, b""], "two": [200, b"one", b""]}[name]
    assert answer.sent[-1] == OUT
    assert caplog.text.count("An answer was ended, since its caller is not let in any more") == 1


async def test_a_long_answer_goes_on_where_its_caller_is_the_same_or_nobody_can_be_identified_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = Answer()
    answer.before["one"] = AuthenticationError("Gone.")
    assert (await answer.make(), answer.asked) == ([200, b"one", b"two"], 1)  # not asked again so soon
    monkeypatch.setattr(module, "_RETRY_INTERVAL_S", -1.0)
    answer = Answer()
    answer.before["one"] = AuthenticationError("Try again later.", None, status=503)
    assert (await answer.make(), answer.asked) == ([200, b"one", b"two"], 4)
    assert answer.sent[-1] == {"type": "http.response.body", "body": b"two"}
