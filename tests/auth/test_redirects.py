"""Where providers send people back to: an address of its own for each, so that none is given the code of another.

The attacker is a provider that an honest operator has configured: its login page sends the browser on to another one.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from toolcrib import Caller, Crib, ToolAuth, tool
from toolcrib.auth import CallbackError, Client, CredentialBroker, Provider
from toolcrib.core import SetupError
from toolcrib.serve import callback_app

from ..serve.serving import running
from .conftest import Server, as_json

PUBLIC = "https://tools.example/auth/callback"


class World:
    """A crib that knows an `evil` and a `good` provider, and its pages at *url*."""

    def __init__(self, evil: Server, good: Server, clients: Mapping[str, Client], path: str, **options: Any) -> None:
        self.evil, self.good = evil, good
        servers = {"evil": evil, "good": good}
        for server in servers.values():
            server.answers["/token"] = as_json({"access_token": "a-token-0123456789"})
        self.broker = CredentialBroker(
            catalogue={
                name: Provider.model_validate(
                    {
                        "title": name,
                        "oauth2": {"authorize_url": f"{server.url}/authorize", "token_url": f"{server.url}/token"},
                    }
                )
                for name, server in servers.items()
            },
            clients={"evil": Client("id", "secret-of-evil"), "good": Client("id", "secret-of-good"), **clients},
            redirect_uri=f"https://tools.example{path}/auth/callback",
            allow=["127.0.0.1"],
            **options,
        )

        @tool(auth=ToolAuth("evil"))
        async def evil_tool() -> str:
            return "evil"

        @tool(auth=ToolAuth("good"))
        async def good_tool() -> str:
            return "good"

        self.crib = Crib([evil_tool, good_tool], broker=self.broker)
        self.url = ""

    async def asked(self, name: str) -> dict[str, str]:
        """The parameters with which people are sent to the provider *name*."""
        pending = (await self.crib.workbench(Caller("ada")).call(f"{name}_tool")).pending
        return {key: values[0] for key, values in parse_qs(urlsplit(pending.url).query).items()}

    async def sent_back(self, address: str, state: str, strip: str = "") -> int:
        """The status of what a browser gets that a provider sends to *address*."""
        async with httpx2.AsyncClient(trust_env=False) as browser:
            path = urlsplit(address).path.removeprefix(strip)
            query = urlencode({"state": state, "code": "the-code-0123456789"})
            return (await browser.get(f"{self.url}{path}?{query}")).status_code


@asynccontextmanager
async def world(path: str = "", clients: Mapping[str, Client] | None = None, **options: Any) -> AsyncIterator[World]:
    evil, good = Server(), Server()
    try:
        made = World(evil, good, clients or {}, path, **options)
        app: Any = callback_app(made.crib)
        async with made.crib, running(Starlette(routes=[Mount(path, app)]) if path else app) as made.url:
            yield made
    finally:
        await asyncio.to_thread(evil.close)
        await asyncio.to_thread(good.close)


@pytest.mark.parametrize(
    "clients",
    [
        {},
        # The case of the old address: it stays for the one provider that it is registered at.
        {"good": Client("id", "secret-of-good", redirect_uri=PUBLIC)},
        {"evil": Client("id", "secret-of-evil", redirect_uri=PUBLIC)},
    ],
)
async def test_a_code_of_one_provider_is_never_sent_to_another(clients: Mapping[str, Client]) -> None:
    """`evil` sends the browser on to `good`, with the address that is registered there and its own state."""
    async with world(clients=clients) as made:
        evil, good = await made.asked("evil"), await made.asked("good")
        assert await made.sent_back(good["redirect_uri"], evil["state"]) == 400
        assert made.evil.sent("/token") == []
        assert await made.sent_back(evil["redirect_uri"], evil["state"]) == 400  # the state is used up
        assert await made.sent_back(evil["redirect_uri"], good["state"]) == 400
        assert made.good.sent("/token") == []
        for name in ("evil", "good"):
            asked = await made.asked(name)
            assert await made.sent_back(asked["redirect_uri"], asked["state"]) == 200
        assert (await made.crib.workbench(Caller("ada")).call("good_tool")).value == "good"


@pytest.mark.parametrize(("path", "strip"), [("/tools", ""), ("", "/tools")])
async def test_pages_under_a_path_and_behind_a_proxy_that_strips_it(path: str, strip: str) -> None:
    async with world(path) as made:
        made.broker.redirect_uri = "https://tools.example/tools/auth/callback"
        evil, good = await made.asked("evil"), await made.asked("good")
        assert good["redirect_uri"] == "https://tools.example/tools/auth/callback/good"
        assert await made.sent_back(good["redirect_uri"], evil["state"], strip) == 400
        assert await made.sent_back(good["redirect_uri"], good["state"], strip) == 200


async def test_a_program_that_completes_by_itself_gives_the_whole_address() -> None:
    async with world() as made:
        for address in ("", "callback/good", "/", "https://tools.example", "/auth/callback", "/auth/callback/evil"):
            state = (await made.asked("good"))["state"]
            with pytest.raises(CallbackError, match=r"Register https://tools.example/auth/callback/good there"):
                await made.crib.complete(f"{address}?state={state}&code=c", caller=Caller("ada"))
        assert made.good.sent("/token") == []


@pytest.mark.parametrize(
    "addresses",
    [
        {"evil": PUBLIC, "good": PUBLIC},
        {"evil": "https://tools.example/callback", "good": PUBLIC.replace("/auth", "/tools/auth")[:-9] + "/callback"},
        {"good": f"{PUBLIC}/evil"},
    ],
)
async def test_an_address_that_two_providers_would_have_is_refused(addresses: dict[str, str]) -> None:
    clients = {name: Client("id", f"secret-of-{name}", redirect_uri=uri) for name, uri in addresses.items()}
    with pytest.raises(SetupError, match="one address"):
        async with world(clients=clients):
            pass


async def test_servers_have_addresses_of_their_own_too() -> None:
    broker = CredentialBroker(redirect_uri=PUBLIC, client_document_url="https://tools.example/{provider}.json")
    names = ["mcp:https://a.example/mcp", "mcp:https://a.example/mcp2", "mcp:https://b.example/mcp", "github"]
    addresses = [broker.redirect_uri_of(name) or "" for name in names]
    assert len({*addresses}) == 4 and all(address.startswith(f"{PUBLIC}/") for address in addresses)
    assert all("/" not in address.removeprefix(f"{PUBLIC}/") for address in addresses)
    document = broker.client_document(names[0])
    assert document["redirect_uris"] == [addresses[0]]
    assert document["client_id"] == addresses[0].replace("/auth/callback", "") + ".json"
    assert broker.client_document(addresses[0].rpartition("/")[2]) == document
