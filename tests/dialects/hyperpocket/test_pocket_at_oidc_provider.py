"""A call through a Pocket, from the URL to the result, at npm's `oidc-provider`, with the callback server between."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from toolcrib.dialects.hyperpocket import Pocket
from toolcrib.dialects.hyperpocket.auth import AuthProvider
from toolcrib.dialects.hyperpocket.server import stop_callback_server
from toolcrib.dialects.hyperpocket.tool import function_tool

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


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    provider = Provider(redirect=REDIRECT)
    yield provider
    provider.close()


@pytest.fixture
def made(provider: Provider, settings: Settings) -> Iterator[Pocket]:
    settings(SETTINGS, providers=provider.catalogue)

    @function_tool(auth_provider=AuthProvider.LOCAL, scopes=["openid", "read"])
    def who(**kwargs: Any) -> str:
        """Who the provider takes the caller for."""
        answer = httpx2.get(f"{provider.issuer}/me", headers={"Authorization": f"Bearer {kwargs['LOCAL_TOKEN']}"})
        return f"{answer.status_code} {answer.json()['sub']}"

    with Pocket([who]) as made:
        yield made
    stop_callback_server()


def url_in(text: str) -> str:
    beginning, _, url = text.partition("following URL: ")
    assert beginning == "User needs to authenticate using the "
    return url


def test_a_call_gives_the_url_somebody_grants_and_the_same_call_runs(made: Pocket, provider: Provider) -> None:
    text, is_paused = made.invoke_with_state("who", {}, thread_id="alice")
    assert is_paused
    page = httpx2.get(provider.grant(url_in(text), login="alice"))
    assert (page.status_code, "success" in page.text) == (200, True)
    assert made.invoke_with_state("who", {}, thread_id="alice") == ("200 alice", False)
    assert made.invoke_with_state("who", {}, thread_id="bob")[1]


async def test_all_that_is_needed_is_granted_before_the_first_call(made: Pocket, provider: Provider) -> None:
    asked = await made.initialize_tool_auth("dora")
    httpx2.get(provider.grant(url_in(asked["LOCAL"]), login="dora"))
    assert await made.wait_tool_auth("dora")
    assert await made.ainvoke("who", {}, "dora") == "200 dora"
