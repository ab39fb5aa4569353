"""A server that accepts the access tokens of a real provider, and the official client that finds its way to one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from toolcrib import Context, Crib, tool
from toolcrib.serve import Authenticator, serve_http
from toolcrib.serve.access.tokens import AccessTokens
from toolcrib.workbench import Rule, Rules

from ...ports import free_port
from .conftest import REDIRECT, Provider


@tool
async def who(ctx: Context) -> list[str]:
    return [ctx.caller.principal, *sorted(ctx.caller.groups)]


@tool
async def only_alice() -> str:
    return "for alice"


class Storage:
    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@asynccontextmanager
async def served(provider: Provider, **options: Any) -> AsyncIterator[str]:
    port = free_port()
    tokens = AccessTokens(provider.issuer, f"http://127.0.0.1:{port}/mcp", allow=["127.0.0.1"], **options)
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    rules = Rules([Rule(do="deny", tools="only_alice", groups="of-bob")])
    crib = Crib([who, only_alice], policy=rules)
    serving = asyncio.create_task(serve_http(crib, Authenticator(tokens=[tokens]), port=port, ready=ready.set_result))
    try:
        yield await ready
    finally:
        serving.cancel()
        await asyncio.wait({serving})


@asynccontextmanager
async def client(url: str, provider: Provider, login: str, storage: Storage, mode: str) -> AsyncIterator[Any]:
    """The official client, whose person logs in as *login*."""
    sent_back: list[dict[str, str]] = []

    async def redirect(address: str) -> None:
        asked = address if "prompt=" in address else f"{address}&prompt=consent"
        back = await asyncio.to_thread(provider.grant, asked, login=login)
        sent_back.append(dict(parse_qsl(urlsplit(back).query)))

    async def callback() -> AuthorizationCodeResult:
        found = sent_back.pop()
        assert "code" in found, found
        return AuthorizationCodeResult(code=found["code"], state=found["state"], iss=found.get("iss"))

    metadata = OAuthClientMetadata.model_validate({"redirect_uris": [REDIRECT], "client_name": "test"})
    auth = OAuthClientProvider(url, metadata, storage, redirect, callback)
    async with httpx2.AsyncClient(auth=auth) as http:  # noqa: SIM117
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as connected:
            yield connected


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_official_client_finds_the_provider_registers_logs_in_and_calls(
    provider: Provider, mode: str
) -> None:
    async with served(provider, scopes=["read"]) as url:
        for login, tools in [("alice", ["who", "only_alice"]), ("bob", ["who"])]:
            storage = Storage()
            async with client(url, provider, login, storage, mode) as connected:
                result = await connected.call_tool("who")
                assert result.structured_content == {"result": [f"{provider.issuer}|{login}", f"of-{login}"]}
                assert [each.name for each in (await connected.list_tools()).tools] == tools
            assert storage.tokens.access_token.count(".") == 2
