"""A server with keys, and a real provider: a link that is sent to somebody else leads to nothing."""

import asyncio
import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from toolcrib import Crib
from toolcrib.auth import DatabaseVault
from toolcrib.serve import Authenticator, serve_http
from toolcrib.serve.access.keys import AccessKeys
from toolcrib.store import Store

from ...ports import free_port
from .conftest import Parts, Provider


class Site:
    """The server, and the clients and browsers of its people."""

    def __init__(self, url: str, provider: Provider, keys: dict[str, str]) -> None:
        self.url, self.provider, self.keys = url, provider, keys

    async def call(self, name: str) -> dict[str, Any]:
        """What a call of *name* ends with."""
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {self.keys[name]}"}) as client:
            answer: dict[str, Any] = (await client.post(f"{self.url}/api/tools/who/call", json={})).json()
        return answer

    async def ask(self, name: str) -> tuple[str, str]:
        """The link and the code that the client of *name* shows."""
        pending = (await self.call(name))["pending"]
        code = re.search(r"The page asks for the code ([A-Z]{4}-[A-Z]{4})$", pending["message"])
        assert code is not None, pending["message"]
        return pending["url"], code[1]

    async def enter(self, browser: httpx2.AsyncClient, link: str, code: str) -> httpx2.Response:
        """The page after *code* was entered at *link*."""
        page = await browser.get(link)
        token = re.search(r'name="token" value="([^"]+)"', page.text)
        assert token is not None, page.text
        return await browser.post(link, data={"token": token[1], "code": code})

    async def is_asked_at(self, link: str) -> bool:
        async with httpx2.AsyncClient() as browser:
            return (await browser.get(link)).status_code == 200

    async def grant(self, page: httpx2.Response, login: str) -> str:
        """Somebody goes on from *page* to the provider, as *login*, and consents: where they are sent back to."""
        (address,) = re.findall(r'<a href="([^"]+)"', page.text)
        return await asyncio.to_thread(self.provider.grant, html.unescape(address), login=login)


async def sent(url: str, target: str, cookies: dict[str, str]) -> bytes:
    """The answer to a request for *target*, to the letter."""
    reader, writer = await asyncio.open_connection(*urlsplit(url).netloc.split(":"))
    cookie = "; ".join(f"{name}={value}" for name, value in cookies.items())
    head = f"GET {target} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode())
    answer = await reader.read()
    writer.close()
    return answer


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Site]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    provider, store = Provider(redirect=f"{url}/auth/callback/local"), Store(folder / "store.db")
    parts, access = Parts(provider, folder, vault=DatabaseVault(store)), AccessKeys(store)
    parts.broker.redirect_uri = None  # the server's own
    keys = {name: (await access.add(name))[0] for name in ("alice", "mallory")}
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    crib = Crib([parts.who], broker=parts.broker, store=store)
    serving = asyncio.create_task(serve_http(crib, Authenticator(access), port=port, ready=ready.set_result))
    try:
        await ready
        yield Site(url, provider, keys)
    finally:
        serving.cancel()
        await asyncio.wait({serving})
        provider.close()
        store.close()


async def test_what_a_victim_grants_by_the_attackers_link_does_not_reach_the_attacker(tmp_path: Path) -> None:
    """The attacker sends the provider's address, to which only his own browser has come. The second case is the other
    way round: he has the victim's link, from a chat or a log, and grants an account of his own for her tools.
    """
    async with (
        served(tmp_path) as site,
        httpx2.AsyncClient() as his,
        httpx2.AsyncClient() as hers,
    ):
        link, code = await site.ask("mallory")
        page = await hers.get(link)
        assert ("<strong>key:mallory</strong>" in page.text, "account at Local" in page.text) == (True, True)
        assert site.provider.issuer not in page.text
        back = await site.grant(await site.enter(his, link, code), "alice")
        refused = await hers.get(back)
        assert (refused.status_code, "The code was not entered in this browser" in refused.text) == (403, True)
        assert (await site.call("mallory"))["status"] == "pending"

        link, code = await site.ask("alice")
        for wrong in ("", "BBBB-BBBB", (await site.ask("mallory"))[1], code[:-1]):
            assert (await site.enter(his, link, wrong)).status_code == 403
        assert (await his.get(f"{site.url}/auth/callback/local?{link.partition('?')[2]}&code=x")).status_code == 403
        assert (await site.call("alice"))["status"] == "pending"

        # His own cookie, at an address of which one reader could see his state, and another one hers.
        own = await site.grant(await site.enter(his, *await site.ask("mallory")), "mallory")
        path, _, query = own.removeprefix(site.url).partition("?")
        for whole in (f"{link.partition('?')[2]}&code=x#&{query}", f"{query}#&{link.partition('?')[2]}"):
            await sent(site.url, f"{path}?{whole}", dict(his.cookies))
            assert (await site.call("alice"))["status"] == "pending"
            assert await site.is_asked_at(link)

        back = await site.grant(await site.enter(hers, link, code.lower().replace("-", " ")), "alice")
        assert (await his.get(back)).status_code == 403
        assert (await hers.get(back)).status_code == 200
        assert (await site.call("alice"))["content"][0]["text"] == "200 alice"
        assert (await site.call("mallory"))["content"][0]["text"] == "200 mallory"


@pytest.mark.full
async def test_a_code_is_not_found_by_trying(tmp_path: Path) -> None:
    async with served(tmp_path) as site, httpx2.AsyncClient() as his:
        link, code = await site.ask("alice")
        statuses = [(await site.enter(his, link, "BBBB-BBBB")).status_code for _ in range(22)]
        assert (statuses[:20], statuses[21]) == ([403] * 20, 429)
        assert (await site.enter(his, link, code)).status_code == 429
