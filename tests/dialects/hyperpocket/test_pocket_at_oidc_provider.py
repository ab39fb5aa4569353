"""Grants by OAuth 2.0 at npm's `oidc-provider`: refreshes and attacks. Through a Pocket: tests/stories."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx2
import pytest

from toolcrib.core import ToolError
from toolcrib.dialects.hyperpocket.auth import AuthContext, AuthProvider
from toolcrib.dialects.hyperpocket.futures import CallbackCode, FutureStore
from toolcrib.dialects.hyperpocket.pocket_auth import AuthState, PocketAuth
from toolcrib.dialects.hyperpocket.server import start_callback_server, stop_callback_server
from toolcrib.dialects.hyperpocket.tool import ToolAuth

from ...auth.oidc.conftest import SECRET, Provider
from ...ports import free_port
from .conftest import Settings

PORT = free_port()
REDIRECT = f"http://127.0.0.1:{PORT}/proxy/auth/local/oauth2/callback"
SETTINGS = f"""
providers = "providers.toml"
internal_server_port = {PORT}
public_server_port = {PORT}
public_server_protocol = "http"
public_hostname = "127.0.0.1"
enable_local_callback_proxy = false
net = {{allow = ["127.0.0.1"]}}

[auth.local]
client_id = "web"
client_secret = "{SECRET}"
"""

SCOPES = ["openid", "read"]


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    provider = Provider(redirect=REDIRECT)
    yield provider
    provider.close()


def url_in(text: object) -> str:
    beginning = "User needs to authenticate using the following URL: "
    assert isinstance(text, str)
    assert text.startswith(beginning)
    return text.removeprefix(beginning)


# Below the Pocket


@pytest.fixture
def auth(provider: Provider, settings: Settings) -> PocketAuth:
    settings(SETTINGS, providers=provider.catalogue)
    return PocketAuth()


def needs(auth_scopes: list[str] = SCOPES) -> ToolAuth:
    return ToolAuth(auth_provider=AuthProvider.LOCAL, scopes=auth_scopes)


def come_back(url: str) -> None:
    """What the callback server does with *url*."""
    query = dict(parse_qsl(urlsplit(url).query))
    FutureStore.resolve_future(query["state"], CallbackCode(query["code"], query))


async def granted(auth: PocketAuth, provider: Provider, thread: str = "alice") -> AuthContext:
    come_back(provider.grant(url_in(await auth.invoke(needs(), thread, wait=False)), login=thread))
    context = await auth.invoke(needs(), thread, wait=False)
    assert isinstance(context, AuthContext)
    return context


def end_soon(auth: PocketAuth, context: AuthContext, thread: str = "alice") -> AuthContext:
    """The session of *thread* with a context that ends in a minute."""
    near = context.model_copy(update={"expires_at": datetime.now(UTC) + timedelta(seconds=60)})
    auth.session_storage.set(AuthProvider.LOCAL, thread, "default", SCOPES, None, near, True)
    return near


async def test_a_person_grants_access_at_the_url_and_the_call_made_again_has_the_token(
    auth: PocketAuth, provider: Provider
) -> None:
    url = url_in(await auth.invoke(needs(), "alice", wait=False))
    assert parse_qs(urlsplit(url).query)["redirect_uri"] == [REDIRECT]
    assert url_in(await auth.invoke(needs(), "alice", wait=False)) == url
    come_back(provider.grant(url))
    context = await auth.invoke(needs(), "alice", wait=False)
    assert isinstance(context, AuthContext)
    assert context.to_dict() == {"LOCAL_TOKEN": context.access_token}
    assert context.to_profiled_dict("work") == {"WORK_LOCAL_TOKEN": context.access_token}
    assert await auth.invoke(needs(), "alice", wait=False) == context
    assert auth.get_auth_context(AuthProvider.LOCAL, "alice") == context


async def test_sixteen_calls_that_find_a_token_near_its_end_refresh_it_once(
    auth: PocketAuth, provider: Provider
) -> None:
    end_soon(auth, await granted(auth, provider))
    refreshes = provider.counts()["given"].get("refresh_token", 0)
    contexts = await asyncio.gather(*(auth.invoke(needs(), "alice", wait=False) for _ in range(16)))
    assert len({context.access_token for context in contexts if isinstance(context, AuthContext)}) == 1
    assert provider.counts()["given"]["refresh_token"] == refreshes + 1


async def test_eight_calls_that_find_a_grant_completed_exchange_its_code_once(
    auth: PocketAuth, provider: Provider
) -> None:
    come_back(provider.grant(url_in(await auth.invoke(needs(), "alice", wait=False))))
    refused = provider.counts()["refused"]
    contexts = await asyncio.gather(*(auth.invoke(needs(), "alice", wait=False) for _ in range(8)))
    assert len({context.access_token for context in contexts if isinstance(context, AuthContext)}) == 1
    assert provider.counts()["refused"] == refused


async def test_a_refresh_that_is_refused_ends_the_session(auth: PocketAuth, provider: Provider) -> None:
    near = end_soon(auth, await granted(auth, provider))
    await auth.invoke(needs(), "alice", wait=False)
    end_soon(auth, near)  # whose refresh token is spent
    auth_req = auth.make_request(SCOPES, auth_provider=AuthProvider.LOCAL)
    assert await auth.check(auth_req, auth_provider=AuthProvider.LOCAL, thread_id="alice") is AuthState.DO_REFRESH
    with pytest.raises(RuntimeError, match=r"^Failed to refresh the token. Please re-authenticate.$"):
        await auth.authenticate_async(auth_req, auth_provider=AuthProvider.LOCAL, thread_id="alice")
    assert await auth.check(auth_req, auth_provider=AuthProvider.LOCAL, thread_id="alice") is AuthState.NO_SESSION


async def test_a_callback_of_another_issuer_grants_nothing(auth: PocketAuth, provider: Provider) -> None:
    """Through the callback server, which hands on all that the provider has sent (RFC 9207)."""
    url = provider.grant(url_in(await auth.invoke(needs(), "alice", wait=False)))
    query = dict(parse_qsl(urlsplit(url).query))
    assert query["iss"] == provider.issuer
    start_callback_server()
    try:
        await asyncio.to_thread(httpx2.get, REDIRECT, params={**query, "iss": "https://evil.example"})
    finally:
        stop_callback_server()
    with pytest.raises(ToolError, match=r"another provider than the one that was asked"):
        await auth.invoke(needs(), "alice", wait=False)
