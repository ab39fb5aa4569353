"""Who is let in where: mounted in another application, from other computers, in others' sessions, at what is open."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from toolcrib import Caller, Context, Crib, Source, tool
from toolcrib.serve import Authentication, AuthenticationError, Authenticator, asgi_app, callback_app, server
from toolcrib.serve.access.callers import CALLER, Identify
from toolcrib.serve.access.hosts import Hosts
from toolcrib.serve.access.tokens import AccessTokens

from .serving import running, served
from .test_mcp_streams import ACCEPT, HELLO, request

DOCUMENT = "/.well-known/oauth-protected-resource"
ISSUER = "https://id.example"
BOTH = {"Bearer a": "ada", "Bearer b": "bob"}


@tool
async def ask(context: Context) -> str:
    """Ask the person at the client."""
    return f"{context.caller.principal} says {await context.ask('name', str, 'Your name?')}"


def by_key(headers: Mapping[str, str]) -> Caller:
    return Caller(BOTH[headers["authorization"]])


def of_tokens() -> Authenticator:
    return Authenticator(tokens=[AccessTokens(ISSUER, "tools")])


def client(app: Any, base_url: str = "http://localhost", address: str = "127.0.0.1") -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app, client=(address, 4711), raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url=base_url)


# Mounted


@pytest.mark.parametrize("root_path", ["", "/base", '/caf\xe9 "x'])
@pytest.mark.parametrize("base_url", [None, "https://tools.example.com/crib/"])
async def test_the_metadata_of_rfc_9728_is_of_the_place_where_the_application_is_mounted(
    root_path: str, base_url: str | None
) -> None:
    host = Starlette()
    host.mount("/crib", asgi_app(Crib(), of_tokens(), base_url=base_url))
    transport = httpx2.ASGITransport(host, root_path=root_path)
    async with httpx2.AsyncClient(transport=transport, base_url=f"http://localhost{root_path}/crib") as api:
        refused = await api.post("/mcp", json={})
        at = "https://tools.example.com/crib" if base_url else str(api.base_url).rstrip("/")
        named = f'Bearer realm="toolcrib", resource_metadata="{at}{DOCUMENT}/mcp"'
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, named)
        found = await api.get(f"{DOCUMENT}/mcp")
        assert (found.json()["resource"], found.json()["authorization_servers"]) == (f"{at}/mcp", [ISSUER])


async def test_the_metadata_is_also_where_rfc_9728_has_it_for_a_public_address_with_a_path() -> None:
    app = asgi_app(Crib(), of_tokens(), base_url="https://tools.example.com/base")
    async with client(app) as api:
        for path in (DOCUMENT, f"{DOCUMENT}/mcp", f"{DOCUMENT}/base/mcp"):
            assert (await api.get(path)).json()["resource"] == "https://tools.example.com/base/mcp"
        for path in (f"{DOCUMENT}/other", f"{DOCUMENT}/", f"/x{DOCUMENT}", f"{DOCUMENT}/base/mcp/"):
            assert (await api.get(path)).status_code == 401


PATHS = """
    /mcp /mcp/ //mcp /./mcp /%6dcp /mcp%00 /x/../mcp /mcp;x /MCP /mcp%2f /crib/mcp /livez/ //livez /livez%0a /livez%00
    /livez/../mcp /livez%2f..%2fmcp /livez;/mcp /crib/livez /readyz/ /auth/callback/ /auth/secret/x /api/../livez/x
    /api/tools /api/tools/%61sk/call /api/openapi.json /metrics /api/calls /api/pending /api/results/x / /%2e%2e/livez
    /livez%3f
"""


@pytest.mark.parametrize("prefix", ["", "/base/crib"])
async def test_no_spelling_of_a_path_leads_past_the_key(prefix: str) -> None:
    """Also under a path, where what is open is only what is open there."""
    app: Any = asgi_app(Crib([ask]), by_key)
    for part in reversed(prefix.split("/")[1:]):
        app = Starlette(routes=[Mount(f"/{part}", app)])

    async def status(method: str, path: str) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        head = f"{method} {prefix}{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        answer = await reader.read()
        writer.close()
        return int(answer.split()[1])

    async with running(app) as url:
        for path in PATHS.split():
            for method in ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PROPFIND"):
                assert await status(method, path) in (401, 404), (method, path)
                assert prefix or await status(method, path) == 401, (method, path)
        assert [await status("GET", path) for path in ("/livez", "/readyz")] == [200, 200]


# By which name, from which page, with which key


def refused(host: str, *origins: str) -> int:
    headers = [(b"host", host.encode()), *((b"origin", origin.encode()) for origin in origins)]
    found = Hosts(["tools.example.com"]).refusal({"type": "http", "headers": headers})
    return 0 if found is None else found.status_code


STRANGERS = """
    localhost. localhost: localhost:x 127.0.0.1:80:80 evil@localhost localhost@evil ::1 localhost/ localhost# 127.1
    2130706433 [::ffff:127.0.0.1] 0.0.0.0 tools.example.com:1 evil.localhost localhost.evil xtools.example.com
"""
ORIGINS = "null file:// chrome-extension://localhost localhost http:localhost http://localhost/x"


def test_no_spelling_of_another_name_is_taken_for_one_of_ours() -> None:
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1:80", "[::1]", "[::1]:80", "Tools.Example.com"):
        assert refused(host) == 0, host
        assert refused(host, f"http://{host.lower()}", "http://localhost") == 0, host
    for host in ("", "localhost, evil", *STRANGERS.split()):
        assert refused(host) == 421, host
        assert refused("localhost", "http://localhost", f"http://{host}") == 403, host
    for origin in ORIGINS.split():
        assert refused("localhost", origin) == 403, origin


async def test_a_key_is_read_in_its_header_alone() -> None:
    async with client(asgi_app(Crib([ask]), by_key)) as api:
        for sent in (
            {"url": "/api/tools?access_token=a&authorization=Bearer%20a&key=a"},
            {"url": "/api/tools", "headers": {"Cookie": "authorization=Bearer a; Authorization=Bearer a"}},
            {"url": "/api/tools", "headers": {"Proxy-Authorization": "Bearer a", "X-Api-Key": "a"}},
            {"url": "/api/tools", "headers": {"X-Authorization": "Bearer a", "X-Forwarded-Authorization": "Bearer a"}},
            {"url": "http://Bearer%20a:a@localhost/api/tools"},
        ):
            assert (await api.get(**sent)).status_code == 401, sent
        assert (await api.post("/api/tools", data={"access_token": "a"})).status_code == 401


# From other computers


@pytest.mark.parametrize(
    ("address", "is_here"),
    [
        *((each, True) for each in ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1")),
        *((each, False) for each in ("192.0.2.1", "10.0.0.1", "::ffff:192.0.2.1", "2001:db8::1", "0.0.0.0", "odd", "")),
    ],
)
async def test_where_nobody_is_identified_only_this_computer_is_served_however_the_application_is_run(
    address: str, is_here: bool
) -> None:
    for app in (asgi_app(Crib([ask]), allowed_hosts=["tools.example.com"]), server(Crib([ask])).streamable_http_app()):
        async with client(app, address=address) as api:  # a `Host` that says it is here is no proof of it
            answer = await api.get("/livez" if is_here else "/mcp")
            assert answer.status_code != 403 if is_here else answer.json()["title"] == "Not authorized"
    async with client(asgi_app(Crib([ask])), address=address) as api:
        assert (await api.get("/api/tools")).status_code == (200 if is_here else 403)
        assert ("sources" in (await api.get("/readyz")).json()) is is_here
        assert (await api.get("/livez")).status_code == 200
    async with client(asgi_app(Crib([ask]), by_key), address=address) as api:
        assert (await api.get("/api/tools", headers={"Authorization": "Bearer a"})).status_code == 200


# What is open


async def test_what_is_open_names_no_tool_source_or_principal() -> None:
    class Named(Source):
        def tools(self) -> list[Any]:
            return [ask]

        def __str__(self) -> str:
            return "https://tools.internal/mcp?key=s3cr3t-of-a-server"

    crib = Crib([Named()], secrets=["s3cr3t-of-a-server"])
    async with served(crib, by_key) as url, httpx2.AsyncClient(base_url=url[: -len("/mcp")]) as api:
        for path in ("/livez", "/readyz", "/auth/callback", "/auth/secret", "/auth/client.json", DOCUMENT, "/", "/api"):
            for method in ("GET", "POST", "HEAD", "OPTIONS"):
                text = (await api.request(method, path)).text
                assert not [word for word in ("ask", "internal", "s3cr3t", "ada", "Named") if word in text], (
                    path,
                    text,
                )
        assert (await api.get("/readyz")).json() == {"status": "ready"}
        assert (await api.get("/readyz", headers={"Authorization": "Bearer x"})).status_code == 401
        ready = (await api.get("/readyz", headers={"Authorization": "Bearer a"})).json()
        name = "https://tools.internal/mcp?key=[secret]"
        assert ready == {"status": "ready", "tools": 1, "sources": [{"name": name, "state": "running"}]}


# Sessions


@asynccontextmanager
async def bare(crib: Crib, identify: Identify) -> AsyncGenerator[str]:
    """The URL of the application that the SDK makes of `server`."""
    app = server(crib, identify).streamable_http_app(streamable_http_path="/here")
    async with running(app) as url:
        yield f"{url}/here"


@pytest.mark.parametrize("serving", [bare, served])
async def test_nobody_answers_what_another_principal_is_asked_in_their_session(serving: Any) -> None:
    able = {**HELLO, "capabilities": {"elicitation": {"form": {}}}}
    async with serving(Crib([ask]), by_key) as url, httpx2.AsyncClient(timeout=60) as http, asyncio.timeout(60):
        of_ada = {**ACCEPT, "Authorization": "Bearer a"}
        opened = await http.post(url, json=request(0, "initialize", **able), headers=of_ada)
        session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
        await http.post(url, json=request(None, "notifications/initialized"), headers=of_ada | session)
        made, result = request(1, "tools/call", name="ask", arguments={}), {}
        async with http.stream("POST", url, json=made, headers=of_ada | session) as stream:
            async for line in stream.aiter_lines():
                message = json.loads(line.removeprefix("data: ")) if line.startswith("data: {") else {}
                if message.get("method") != "elicitation/create":
                    result = message.get("result", result)
                    continue
                for who, status in (("Bearer b", 404), ("Bearer c", 401), ("Bearer a", 202)):
                    name = "value" if who == "Bearer a" else "stolen"
                    answer = {"action": "accept", "content": {"value": name}}
                    sent = {"jsonrpc": "2.0", "id": message["id"], "result": answer}
                    headers = {**ACCEPT, **session, "Authorization": who}
                    assert (await http.post(url, json=sent, headers=headers)).status_code == status
                    if status != 202:
                        for method in ("GET", "DELETE"):
                            assert (await http.request(method, url, headers=headers)).status_code == status
        assert result["content"][0]["text"] == "ada says value"


# Headers


async def seen_as(headers: list[tuple[str, str]], name: str) -> str | None:
    """Who is seen by an `identify` that reads the header *name*; None where nobody is."""
    seen: list[Caller] = []

    async def app(scope: Any, _: Any, send: Any) -> None:
        seen.append(scope[CALLER])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    known = {"ada", "eve", "sid=ada", "a=1; sid=ada"}
    guarded = Authentication(app, lambda found: Caller({each: each for each in known}[found[name]]))
    async with client(guarded) as api:
        await api.get("/", headers=headers)
    return seen[0].principal if seen else None


async def test_a_second_header_of_a_name_makes_nobody_else_of_a_caller() -> None:
    assert await seen_as([("X-User", "ada")], "x-user") == "ada"
    for first, second in (("ada", "eve"), ("eve", "ada"), ("ada", "ada"), ("ada", "")):
        assert await seen_as([("X-User", first), ("x-user", second)], "x-user") is None
    assert await seen_as([("Cookie", "a=1"), ("Cookie", "sid=ada")], "cookie") == "a=1; sid=ada"


@pytest.mark.parametrize("text", ["Not known: caf\xe9 \u2019", 'a "b" \\ c', "a\r\nSet-Cookie: x=1", "\x00\x7f"])
async def test_whatever_a_refusal_says_its_challenge_is_one_header(text: str) -> None:
    def nobody(_: Mapping[str, str]) -> Caller:
        raise AuthenticationError(text)

    async with client(asgi_app(Crib(), nobody)) as api:
        answer = await api.get("/api/tools")
    assert (answer.status_code, answer.json()["detail"], "set-cookie" in answer.headers) == (401, text, False)
    description = answer.headers["www-authenticate"].partition('error_description="')[2]
    assert description.isascii()
    assert description.isprintable()
    assert (description.count('"'), description.count("\\")) == (1, 0)


async def test_the_pages_of_browsers_read_headers_as_the_server_does() -> None:
    asked: list[Mapping[str, str]] = []

    def nobody(headers: Mapping[str, str]) -> Caller:
        asked.append(headers)
        raise LookupError

    from toolcrib.auth import CredentialBroker

    async with client(callback_app(Crib(broker=CredentialBroker()), nobody)) as api:
        await api.get("/auth/secret", headers=[("Cookie", "a=1"), ("Cookie", "b=2")])
        await api.get("/auth/secret", headers=[("Authorization", "a"), ("Authorization", "b")])
    assert [each["cookie"] for each in asked] == ["a=1; b=2"]
