"""The server behind real proxies, with exactly the settings of docs/serve.md.

The clients reach it through the proxy, over HTTPS, by its public name. Nothing is timed: a tool goes on only when its
client has what it sent before, so a proxy that holds an answer back fails the test.
"""

import asyncio
import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ..certificates import write_certificate
from ..ports import free_port

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
TOOLS = '''
import asyncio
from dataclasses import replace
from pathlib import Path

from toolcrib import Context, ToolSpec, tool
from toolcrib.tools.function import from_work

HERE = Path(__file__).parent


async def until(file: Path) -> None:
    while not file.exists():
        await asyncio.sleep(0.01)


@tool
def whoami(context: Context) -> str:
    """Who calls."""
    return context.caller.principal


@tool
def length(text: str) -> int:
    """The length of a text."""
    return len(text)


@tool
async def step(name: str, context: Context) -> str:
    """Report a step, and go on when it was received."""
    (HERE / f"{name}.begun").touch()
    context.progress(1, 2, "begun")
    await until(HERE / f"{name}.received")
    return "done"


async def read(arguments: dict[str, object], _: object) -> str:
    return "read"


odd = from_work(ToolSpec("odd", "Odd.", {"type": "object"}), read, home="tests", needs_context=False)
odd.spec = replace(odd.spec, name="files/read")  # as a server elsewhere may have it
'''
NAME = "tools.example.com"
SETTINGS = f"""
[[source]]
from = "work.py"
[[source]]
from = "work.py:odd"
[store]
url = "store.db"
[server]
keys = true
public_base_url = "https://{NAME}"
"""
NGINX = """
user root root;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{}}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/proxied;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port} ssl;
        server_name tools.example.com;
        ssl_certificate {folder}/proxy.pem;
        ssl_certificate_key {folder}/proxy.pem;
        {block}
    }}
}}
"""
PROGRAMS = {name: shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/bin") for name in ("nginx", "caddy")}


def documented(first: str) -> str:
    """The settings in docs/serve.md that begin with the line *first*."""
    text = (ROOT / "docs" / "serve.md").read_text()
    found = re.search(rf"^    {re.escape(first)}\n(?:    .*\n)+", text, re.MULTILINE)
    assert found is not None
    assert found[0].count("127.0.0.1:8642") == 1
    return found[0]


def nginx(folder: Path, port: int, server: int) -> list[str]:
    block = documented("location / {").replace("127.0.0.1:8642", f"127.0.0.1:{server}")
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port, block=block))
    return ["-e", str(folder / "nginx.log"), "-c", str(folder / "nginx.conf")]


def caddy(folder: Path, port: int, server: int) -> list[str]:
    block = documented(f"{NAME} {{").replace("127.0.0.1:8642", f"127.0.0.1:{server}")
    # With a certificate of ours, since nobody else would give one for this name.
    pem = folder / "proxy.pem"
    block = block.replace(f"{NAME} {{", f"https://{NAME}:{port} {{\n        tls {pem} {pem}")
    options = f"admin off\n    auto_https disable_redirects\n    default_sni {NAME}"
    (folder / "Caddyfile").write_text(f"{{\n    {options}\n}}\n{block}")
    return ["run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


@dataclass(frozen=True, slots=True)
class Served:
    """A server, and the proxy before it."""

    folder: Path
    process: "subprocess.Popen[str]"
    direct: str
    url: str
    key: str

    def http(self, **headers: str) -> httpx2.AsyncClient:
        known = {"Host": NAME, "Authorization": f"Bearer {self.key}"}
        trusted = ssl.create_default_context(cafile=self.folder / "proxy.pem")
        return httpx2.AsyncClient(base_url=self.url, headers={**known, **headers}, timeout=60, verify=trusted)


def until(done: Callable[[], object]) -> None:
    ends_s = time.monotonic() + 60
    while not done():
        assert time.monotonic() < ends_s
        time.sleep(0.02)


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.fixture(params=["nginx", "caddy"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    program = PROGRAMS[request.param]
    if program is None:
        pytest.skip("nginx or caddy is not installed")
    (tmp_path / "work.py").write_text(TOOLS)
    (tmp_path / "toolcrib.toml").write_text(SETTINGS)
    toolcrib = [sys.executable, "-m", "toolcrib"]
    key = subprocess.run(
        [*toolcrib, "keys", "add", "alice"], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout.strip()
    write_certificate(tmp_path / "proxy.pem", NAME)
    proxy_port, server_port = free_port(), free_port()
    arguments = {"nginx": nginx, "caddy": caddy}[request.param](tmp_path, proxy_port, server_port)
    log = tmp_path / "server.log"
    with (
        log.open("w") as lines,
        subprocess.Popen(
            [*toolcrib, "serve", "--port", str(server_port)], cwd=tmp_path, stderr=lines, text=True
        ) as process,
        subprocess.Popen([program, *arguments], env={"HOME": str(tmp_path)}, stdout=lines, stderr=lines) as proxy,
    ):
        try:
            until(lambda: "--stdio" in log.read_text())
            until(lambda: listens(proxy_port))
            assert f'"url": "https://{NAME}/mcp"' in log.read_text()  # what it tells people to paste
            yield Served(tmp_path, process, f"http://127.0.0.1:{server_port}", f"https://127.0.0.1:{proxy_port}", key)
        finally:
            process.terminate()
            proxy.terminate()


# Each with a proxy of its own: on a busy machine, the first request after a client had left, and its stream of notices,
# was now and then broken off by Debian's Caddy 2.6 ("use of closed network connection" in its log).
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_mcp_clients_of_both_eras_get_progress_through_it_while_a_call_runs(served: Served, mode: str) -> None:
    assert await messages_of_a_call(served, mode) == ["begun"]


async def messages_of_a_call(served: Served, mode: str) -> list[str | None]:
    """The messages of progress of a call that ends only when one was received."""
    received: list[str | None] = []

    async def note(_: float, __: float | None, message: str | None) -> None:
        received.append(message)
        (served.folder / f"{mode}.received").touch()

    async with (
        served.http() as http,
        Client(streamable_http_client(f"{served.url}/mcp", http_client=http), mode=mode) as client,
    ):
        assert "files/read" in {each.name for each in (await client.list_tools()).tools}
        async with asyncio.timeout(60):
            done = await client.call_tool("step", {"name": mode}, progress_callback=note)
        assert done.structured_content == {"result": "done"}
        assert (await client.call_tool("whoami")).structured_content == {"result": "key:alice"}
        # As much as the server takes, which is less than what the proxy does.
        most = 4 * 1024**2 - 2000
        assert (await client.call_tool("length", {"text": "x" * most})).structured_content == {"result": most}
    return received


async def test_the_api_behind_it_streams_and_takes_encoded_names(served: Served) -> None:
    async with served.http() as api, asyncio.timeout(60):
        events = {"Accept": "text/event-stream"}
        async with api.stream("POST", "/api/tools/step/call", json={"name": "api"}, headers=events) as answer:
            names = []
            async for line in answer.aiter_lines():
                names += [line] if line.startswith("event: ") else []
                if names == ["event: progress"]:
                    (served.folder / "api.received").touch()
        assert names == ["event: progress", "event: result"]
        odd = await api.post("/api/tools/files%2Fread/call", json={})
        assert (odd.status_code, odd.json()["content"][0]["text"]) == (200, "read")
    async with served.http(Authorization="Bearer toolcrib_no") as nobody:
        assert (await nobody.post("/api/tools/whoami/call", json={})).status_code == 401
    async with served.http(Host="other.example.com") as other:
        assert "alice" not in (await other.post("/api/tools/whoami/call", json={})).text


async def test_a_call_behind_it_that_runs_when_the_server_is_stopped_is_answered(served: Served) -> None:
    async with served.http() as api, asyncio.timeout(60):
        call = asyncio.create_task(api.post("/api/tools/step/call", json={"name": "stop"}))
        while not (served.folder / "stop.begun").exists():
            await asyncio.sleep(0.02)
        served.process.terminate()
        while (await api.get("/readyz")).status_code != 503:
            await asyncio.sleep(0.02)
        assert (await api.post("/api/tools/whoami/call", json={})).status_code == 503
        (served.folder / "stop.received").touch()
        assert json.loads((await call).text)["content"][0]["text"] == "done"
        assert await asyncio.to_thread(served.process.wait, 60) == 143
