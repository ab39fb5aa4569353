"""Three `toolcrib serve` processes of one store in PostgreSQL, and requests that each take the next process.

Nothing is sticky: what one process begins goes on at the others, for clients of 2026-07-28 and of the HTTP API.
"""

import asyncio
import html
import json
import os
import re
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitRequestParams, ElicitResult

from toolcrib.serve.access.keys import AccessKeys
from toolcrib.store import Store

from ..cli.provider import PROVIDERS, LoopbackProvider, loopback_provider
from ..conftest import new_database
from ..ports import free_port

pytestmark = pytest.mark.full

NEW = "2026-07-28"
WAIT_S = 60
KEY = b"k" * 32
TOOLS = '''
import asyncio
import os
from pathlib import Path

from toolcrib import Context, ToolAuth, tool

HERE = Path(__file__).parent


@tool
async def much(word: str) -> str:
    """Return a large result."""
    return f"{word} " * 1000


@tool
async def pay(amount: int) -> str:
    """Pay somebody."""
    with open(HERE / "paid", "a") as file:
        file.write(f"{amount}\\n")
    return f"paid {amount}"


@tool
async def buy(amount: int, once: str, ctx: Context) -> str:
    """Buy something, slowly."""
    with open(HERE / once, "a") as file:
        file.write(f"{amount}\\n")
    await asyncio.sleep(0.2)
    return f"bought {amount}"


@tool
async def scarce() -> str:
    """Return what there is little of."""
    return "one"


@tool
async def serves() -> str:
    """Return which process answers."""
    return os.environ["SERVER"]


@tool(task=True, idempotent=True)
async def dig(name: str, ctx: Context) -> str:
    """Dig until a file is there."""
    ctx.progress(1, 2, "digging")
    while not (HERE / f"go-{name}").exists():
        await asyncio.sleep(0.02)
    return "dug"


@tool(auth=ToolAuth("test", scopes=["a"]))
async def me(ctx: Context) -> str:
    """Who am I?"""
    return (await ctx.http("test").get("URL/me")).text
'''
SETTINGS = """
providers = "providers.toml"
max_result_chars = 1000

[[source]]
from = "tools.py"

[[rule]]
tools = "pay"
do = "ask"

[[limit]]
tools = "scarce"
per = "principal"
rate = "3/h"
wait_s = 0

[auth.test]
client_id = "this-program"
client_secret = "${env:TEST_SECRET}"

[store]
url = "DATABASE"

[net]
allow = ["127.0.0.1"]

[server]
keys = true
public_base_url = "http://tools.example.com"
"""


class RoundRobin(httpx2.AsyncHTTPTransport):
    """Sends each request to the next of *urls*."""

    def __init__(self, urls: Sequence[str]) -> None:
        super().__init__()
        self._ports = cycle([urlsplit(url).port for url in urls])

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.url = request.url.copy_with(port=next(self._ports))
        return await super().handle_async_request(request)


class Servers:
    """The processes, their store, and the clients of a new principal."""

    def __init__(self, folder: Path, urls: Sequence[str], store: Store, provider: LoopbackProvider) -> None:
        self.folder, self.urls, self.store, self.provider = folder, urls, store, provider
        self.keys = AccessKeys(store)

    @asynccontextmanager
    async def client(self, key: str | None = None, *, only: int | None = None) -> AsyncIterator[httpx2.AsyncClient]:
        key = key or (await self.keys.add(f"user-{uuid4().hex}"))[0]
        urls = self.urls if only is None else [self.urls[only]]
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx2.AsyncClient(
            transport=RoundRobin(urls), base_url="http://127.0.0.1", headers=headers, timeout=WAIT_S
        ) as http:
            yield http

    @asynccontextmanager
    async def mcp(self, http: httpx2.AsyncClient, mode: str = NEW, **options: Any) -> AsyncIterator[Client]:
        transport = streamable_http_client("http://127.0.0.1/mcp", http_client=http)
        async with Client(transport, mode=mode, cache=None, **options) as client:
            yield client


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, postgres: str) -> Iterator[Servers]:
    folder, url = tmp_path_factory.mktemp("servers"), new_database(postgres)
    store = Store(url, key=lambda: [KEY])
    with loopback_provider() as provider, ExitStack() as stack:
        for file, content in (("tools.py", TOOLS), ("providers.toml", PROVIDERS), ("toolcrib.toml", SETTINGS)):
            content = content.replace("URL", provider.url).replace("HOST", urlsplit(provider.url).netloc)
            (folder / file).write_text(content.replace("DATABASE", url))
        ports = [free_port() for _ in range(3)]
        processes = [stack.enter_context(_serving(folder, port, number)) for number, port in enumerate(ports)]
        try:
            for number, process in enumerate(processes):
                log = folder / f"{number}.log"
                while "Serving MCP" not in log.read_text():
                    assert process.poll() is None, log.read_text()
                    time.sleep(0.05)
            yield Servers(folder, [f"http://127.0.0.1:{port}" for port in ports], store, provider)
        finally:
            for process in processes:
                process.kill()
            store.close()


@contextmanager
def _serving(folder: Path, port: int, number: int) -> Iterator["subprocess.Popen[bytes]"]:
    own = {
        "HOME": str(folder),
        "TOOLCRIB_KEY": b64encode(KEY).decode(),
        "SERVER": str(number),
        "TEST_SECRET": "a-client-secret",
    }
    command = [sys.executable, "-m", "toolcrib", "serve", "--port", str(port), "--no-watch"]
    with (
        (folder / f"{number}.log").open("w") as log,
        subprocess.Popen(command, cwd=folder, env=os.environ | own, stderr=log) as process,
    ):
        yield process


async def test_requests_go_to_all_of_them(servers: Servers) -> None:
    async with servers.client() as http:
        answers = [(await http.post("/api/tools/serves/call", json={})).json() for _ in range(3)]
    assert [answer["content"][0]["text"] for answer in answers] == ["0", "1", "2"]


async def test_a_large_result_of_one_is_read_at_the_others(servers: Servers) -> None:
    async with servers.client() as http, servers.mcp(http) as client:
        names = {tuple(tool.name for tool in (await client.list_tools()).tools) for _ in servers.urls}
        assert len(names) == 1
        answer = await client.call_tool("much", {"word": "gold"})
        assert answer.meta is not None
        handle = answer.meta["toolcrib/handle"]
        for _ in servers.urls:
            part = await client.call_tool("read_result", {"handle": handle, "limit": 9})
            assert [block.text for block in part.content][1:] == ["gold gold"]
            assert {tuple(tool.name for tool in (await client.list_tools()).tools)} == names
            whole = (await http.get(f"/api/results/{handle}")).json()
            assert whole["content"][0]["text"] == "gold " * 1000
            tools = (await http.get("/api/tools")).json()["tools"]
            assert "read_result" in {tool["name"] for tool in tools}


async def test_a_call_that_waits_is_answered_at_another_and_made_at_a_third(servers: Servers) -> None:
    async with servers.client() as http:
        pending = (await http.post("/api/tools/pay/call", json={"amount": 5})).json()["pending"]
        for _ in servers.urls:
            assert [item["id"] for item in (await http.get("/api/pending")).json()["pending"]] == [pending["id"]]
        answer = await http.post(f"/api/pending/{pending['id']}/answer", json={"kind": "approve"})
        assert answer.status_code == 200
        assert (await http.get("/api/pending")).json()["pending"] == []
        outcomes = [(await http.post("/api/tools/pay/call", json={"amount": 5})).json() for _ in range(3)]
    assert [outcome["status"] for outcome in outcomes] == ["success", "pending", "pending"]  # an answer counts once


async def test_a_client_that_is_asked_carries_the_question_to_the_next(servers: Servers) -> None:
    async def approve(_: Any, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"approve": True})

    async with servers.client() as http, servers.mcp(http, elicitation_callback=approve) as client:
        for amount in (101, 102, 103):
            answer = await client.call_tool("pay", {"amount": amount})
            assert answer.content[0].text == f"paid {amount}"
    paid = (servers.folder / "paid").read_text().splitlines()
    assert [paid.count(str(amount)) for amount in (101, 102, 103)] == [1, 1, 1]


async def test_a_login_goes_on_at_whichever_is_next(servers: Servers) -> None:
    async with (
        servers.client() as http,
        httpx2.AsyncClient(transport=RoundRobin(servers.urls), base_url="http://127.0.0.1") as browser,
        httpx2.AsyncClient() as provider,
    ):
        pending = (await http.post("/api/tools/me/call", json={})).json()["pending"]
        code = re.search(r"The page asks for the code ([A-Z]{4}-[A-Z]{4})$", pending["message"])
        assert code is not None
        link = pending["url"].removeprefix("http://tools.example.com")
        await browser.get("/livez")  # the next one is another than where it was asked
        token = re.search(r'name="token" value="([^"]+)"', (await browser.get(link)).text)
        assert token is not None
        page = await browser.post(link, data={"token": token[1], "code": code[1]})
        (address,) = re.findall(r'<a href="([^"]+)"', page.text)
        sent_back = (await provider.get(html.unescape(address))).headers["location"]
        done = await browser.get(sent_back.removeprefix("http://tools.example.com"))
        assert (done.status_code, "Granted" in done.text) == (200, True)
        for _ in servers.urls:
            answer = (await http.post("/api/tools/me/call", json={})).json()
            assert json.loads(answer["content"][0]["text"]) == {"known": True}


async def test_a_task_is_followed_and_cancelled_at_any_of_them(servers: Servers) -> None:
    async with servers.client() as http, asyncio.timeout(WAIT_S):
        ids = [
            (await http.post("/api/tools/dig/call", json={"name": name})).json()["pending"]["id"]
            for name in ("well", "grave")
        ]
        for id in ids:
            async with http.stream("GET", f"/api/tasks/{id}/events") as events:
                async for line in events.aiter_lines():
                    if line == "event: progress":
                        break
        assert {task["id"] for task in (await http.get("/api/tasks")).json()["tasks"]} == {*ids}
        assert (await http.post(f"/api/tasks/{ids[1]}/cancel")).status_code == 200
        (servers.folder / "go-well").touch()
        for id, status in zip(ids, ("success", "error"), strict=True):
            while (task := (await http.get(f"/api/tasks/{id}")).json())["state"] != "ended":
                await asyncio.sleep(0.05)
            assert task["result"]["status"] == status


async def test_calls_with_one_key_at_all_of_them_take_effect_once(servers: Servers) -> None:
    async with servers.client() as http:
        name, headers = f"bought-{uuid4().hex}", {"Idempotency-Key": "order-7"}
        calls = [http.post("/api/tools/buy/call", json={"amount": 7, "once": name}, headers=headers) for _ in range(6)]
        answers = [answer.json() for answer in await asyncio.gather(*calls)]
    assert {answer["content"][0]["text"] for answer in answers} == {"bought 7"}
    assert (servers.folder / name).read_text() == "7\n"


async def test_a_limit_counts_the_calls_at_all_of_them(servers: Servers) -> None:
    async with servers.client() as http:
        codes = [(await http.post("/api/tools/scarce/call", json={})).status_code for _ in range(6)]
    assert codes == [200, 200, 200, 429, 429, 429]


async def test_a_key_that_is_revoked_enters_nowhere_any_more(servers: Servers) -> None:
    key, row = await servers.keys.add(f"user-{uuid4().hex}")
    async with servers.client(key) as http:
        statuses = [(await http.get("/api/tools")).status_code for _ in servers.urls]
        assert await servers.keys.revoke(row.id)
        statuses += [(await http.get("/api/tools")).status_code for _ in servers.urls]
    assert statuses == [200, 200, 200, 401, 401, 401]
