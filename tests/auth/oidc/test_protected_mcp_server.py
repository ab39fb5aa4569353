"""An MCP server that lets nobody in without a token of npm's `oidc-provider`, as a source: each caller logs in."""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl
from starlette.responses import Response

from tests.auth.oidc.conftest import KEY, REDIRECT, SECRET, Provider
from tests.ports import free_port
from toolcrib import Caller, Crib, tool
from toolcrib.auth import Client, CredentialBroker, Owner


class Introspection(TokenVerifier):
    """Asks the provider whom a token belongs to; those in `revoked` are not accepted any more."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.revoked: set[str] = set()
        self.seen: list[str] = []

    async def verify_token(self, token: str) -> AccessToken | None:
        self.seen.append(token)
        async with httpx2.AsyncClient(timeout=60) as http:
            answer = await http.post(f"{self.issuer}/token/introspection", data={"token": token}, auth=("web", SECRET))
        found = answer.json()
        if not found.get("active") or token in self.revoked:
            return None
        scopes = found.get("scope", "").split()
        return AccessToken(token=token, client_id=found["client_id"], scopes=scopes, subject=found.get("sub"))


class Protected:
    """The server, on a port of loopback, in a thread."""

    def __init__(self, provider: Provider) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/opaque"
        self.verifier = Introspection(provider.issuer)
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(provider.issuer),
            resource_server_url=AnyHttpUrl(self.url),
            required_scopes=["read"],
            validate_token_resource=False,
        )
        server = MCPServer("protected", auth=settings, token_verifier=self.verifier)

        @server.tool()
        def whoami() -> str:
            """Whose token it is."""
            token = get_access_token()
            return str(token and (token.subject or token.client_id))

        app = server.streamable_http_app(streamable_http_path="/opaque")
        self.too_narrow: set[str] = set()
        """The tokens that are refused for want of the scope `write`."""

        async def scoped(scope: Any, receive: Any, send: Any) -> None:
            token = dict(scope.get("headers", ())).get(b"authorization", b"").decode().removeprefix("Bearer ")
            if token in self.too_narrow:
                challenge = {"WWW-Authenticate": 'Bearer error="insufficient_scope", scope="read write"'}
                await Response(status_code=403, headers=challenge)(scope, receive, send)
            else:
                await app(scope, receive, send)

        config = uvicorn.Config(scoped, port=self.port, log_level="error", lifespan="on")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            pass

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(5)


@pytest.fixture
def protected(provider: Provider) -> Iterator[Protected]:
    made = Protected(provider)
    yield made
    made.close()


@tool
def local() -> str:
    """A tool of this process."""
    return "here"


async def granted(crib: Crib, caller: Caller, name: str, provider: Provider) -> Any:
    """The result of a call, after the caller has granted what it waited for."""
    bench = crib.workbench(caller)
    waiting = await bench.call(name, {})
    assert waiting.pending is not None, waiting.text
    assert waiting.pending.kind == "authorization"
    await crib.complete(await asyncio.to_thread(provider.grant, waiting.pending.url, login=caller.principal))
    return await bench.call(name, {})


async def test_each_caller_logs_in_and_has_a_session_of_their_own(provider: Provider, protected: Protected) -> None:
    alice, bob = Caller("alice"), Caller("bob")
    broker = CredentialBroker(redirect_uri=REDIRECT, allow=["127.0.0.1"])
    async with Crib([protected.url, local], broker=broker) as crib:
        assert (await crib.workbench(alice).call("local", {})).text == "here"
        (connect,) = (spec.name for spec in crib.workbench(alice).specs() if spec.name != "local")
        connected = await granted(crib, alice, connect, provider)
        assert "whoami" in connected.text
        assert (await crib.workbench(alice).call("whoami", {})).value == "alice"

        assert (await granted(crib, bob, "whoami", provider)).value == "bob"
        both = await asyncio.gather(*(crib.workbench(who).call("whoami", {}) for who in (alice, bob) * 4))
        assert [result.error or result.value for result in both] == ["alice", "bob"] * 4

        registered = await broker.vault.get(Owner("", "default", f"mcp:{protected.url}", "client"))
        assert registered is not None
        stored = await broker.vault.get(Owner.of(alice, f"mcp:{protected.url}", "oauth2"))
        for result in both:
            assert stored.grant.access_token not in result.text


async def test_a_token_that_is_not_accepted_any_more_is_refreshed_or_asked_for_again(
    provider: Provider, protected: Protected
) -> None:
    alice = Caller("alice")
    broker = CredentialBroker(redirect_uri=REDIRECT, allow=["127.0.0.1"])
    async with Crib([protected.url], broker=broker) as crib:
        bench = crib.workbench(alice)
        await bench.call("local", {})
        (connect,) = (spec.name for spec in bench.specs())
        await granted(crib, alice, connect, provider)
        protected.verifier.revoked |= set(protected.verifier.seen)
        refused = await bench.call("whoami", {})
        assert refused.error.code == "unauthorized"
        again = await bench.call("whoami", {})
        assert again.value == "alice", again.text
        assert provider.counts()["given"].get("refresh_token", 0) >= 1


async def test_scopes_that_a_server_wants_of_one_caller_are_asked_of_that_one_alone(
    provider: Provider, protected: Protected
) -> None:
    """Another caller who is let in goes on, also in a new conversation; one who is new is asked as before."""
    alice, bob, carol = Caller("alice"), Caller("bob"), Caller("carol")
    broker = CredentialBroker(redirect_uri=REDIRECT, allow=["127.0.0.1"])
    async with Crib([protected.url], broker=broker) as crib:
        await crib.workbench(alice).call("local", {})
        (connect,) = (spec.name for spec in crib.workbench(alice).specs())
        benches = {caller: crib.workbench(caller) for caller in (alice, bob)}
        for caller, bench in benches.items():
            await granted(crib, caller, connect if caller == alice else "whoami", provider)
            assert (await bench.call("whoami", {})).value == caller.principal
        specs = benches[bob].specs()
        stored = await broker.vault.get(Owner.of(alice, f"mcp:{protected.url}", "oauth2"))
        protected.too_narrow.add(stored.grant.access_token)
        refused = await benches[alice].call("whoami", {})
        assert refused.error is not None and refused.error.code == "unauthorized"
        for bench in (benches[bob], crib.workbench(Caller("bob", thread="another"))):
            assert (await bench.call("whoami", {})).value == "bob"
        assert benches[bob].specs() == specs

        async def asked(caller: Caller) -> list[str]:
            pending = (await (benches.get(caller) or crib.workbench(caller)).call("whoami", {})).pending
            return parse_qs(urlsplit(pending.url or "").query)["scope"][0].split()

        assert "write" in await asked(alice)
        assert "write" not in await asked(carol)
        waiting = (await benches[alice].call("whoami", {})).pending
        await crib.complete(await asyncio.to_thread(provider.grant, waiting.url or "", login="alice"))
        assert (await benches[alice].call("whoami", {})).value == "alice"


async def test_without_a_broker_the_tool_says_what_is_missing(protected: Protected) -> None:
    async with Crib([protected.url]) as crib:
        bench = crib.workbench(Caller("alice"))
        await bench.call("local", {})
        (connect,) = (spec.name for spec in bench.specs())
        result = await bench.call(connect, {})
        assert result.error.code == "unauthorized"


@pytest.mark.parametrize("client_id", ["machine", "machine-by-key"])
async def test_a_program_logs_in_for_all_callers_by_its_secret_or_its_key(
    provider: Provider, protected: Protected, client_id: str
) -> None:
    proof = {"secret": SECRET} if client_id == "machine" else {"private_key": json.dumps(KEY.as_dict(private=True))}
    client = Client(client_id, grant="client_credentials", issuer=provider.issuer, **proof)
    broker = CredentialBroker(clients={f"mcp:{protected.url}": client}, allow=["127.0.0.1"])
    before = provider.counts()["given"].get("client_credentials", 0)
    async with Crib([protected.url], broker=broker) as crib:
        bench = crib.workbench(Caller("alice"))
        await bench.call("local", {})
        (connect,) = (spec.name for spec in bench.specs())
        assert "whoami" in (await bench.call(connect, {})).text
        callers = [Caller(name) for name in ("alice", "bob")]
        results = await asyncio.gather(*(crib.workbench(caller).call("whoami", {}) for caller in callers))
        assert [result.value for result in results] == [client_id] * 2
    assert len(set(protected.verifier.seen)) == 1
    assert provider.counts()["given"]["client_credentials"] == before + 1
