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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
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
import os
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
def process() -> int:
    """Which process answers."""
    return os.getpid()


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
    {upstream}
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


def documented(first: str, *, section: str = "Behind a proxy") -> str:
    """The settings in this section of docs/serve.md that begin with the line *first*."""
    text = (ROOT / "docs" / "serve.md").read_text().partition(f"\n## {section}\n")[2]
    found = re.search(rf"^    {re.escape(first)}\n(?:    .*\n)+", text, re.MULTILINE)
    assert found is not None
    return found[0]


def before(servers: Sequence[int], first: str) -> str:
    """The documented settings, for *servers* in place of the addresses there."""
    if len(servers) == 1:
        return replaced(documented(first), {"127.0.0.1:8642": servers[0]})
    text = documented(first, section="Several processes")
    return replaced(text, {f"10.0.0.1{number}:8642": port for number, port in enumerate(servers, 1)})


def replaced(text: str, ports: Mapping[str, int]) -> str:
    for address, port in ports.items():
        assert text.count(address) == 1
        text = text.replace(address, f"127.0.0.1:{port}")
    return text


def nginx(folder: Path, port: int, servers: Sequence[int]) -> list[str]:
    if len(servers) == 1:
        upstream, block = "", before(servers, "location / {")
    else:
        upstream = before(servers, "upstream toolcrib {")
        block = documented("location / {").replace("http://127.0.0.1:8642;", "http://toolcrib;")
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port, upstream=upstream, block=block))
    return ["-e", str(folder / "nginx.log"), "-c", str(folder / "nginx.conf")]


def caddy(folder: Path, port: int, servers: Sequence[int]) -> list[str]:
    block = before(servers, f"{NAME} {{")
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
    processes: "Sequence[subprocess.Popen[str]]"
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
    with serving(request.param, tmp_path, count=1) as served:
        yield served


@pytest.fixture(params=["nginx", "caddy"])
def balanced(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    """Two servers behind a proxy that sends each client to one of them."""
    with serving(request.param, tmp_path, count=2) as served:
        yield served


@pytest.fixture(params=["nginx", "caddy"])
def in_turn(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    """Two servers behind a proxy that sends each of them every second request."""
    with serving(request.param, tmp_path, count=2, in_turn=True) as served:
        yield served


def without_hash(file: Path) -> None:
    text = file.read_text()
    plain = text.replace("hash $http_authorization consistent;", "").replace("header Authorization", "round_robin")
    assert plain != text
    file.write_text(plain)


@contextmanager
def serving(proxy_name: str, tmp_path: Path, *, count: int, in_turn: bool = False) -> Iterator[Served]:
    program = PROGRAMS[proxy_name]
    if program is None:
        pytest.skip("nginx or caddy is not installed")
    (tmp_path / "work.py").write_text(TOOLS)
    (tmp_path / "toolcrib.toml").write_text(SETTINGS)
    toolcrib = [sys.executable, "-m", "toolcrib"]
    key = new_key(tmp_path, "alice")
    write_certificate(tmp_path / "proxy.pem", NAME)
    proxy_port, server_ports = free_port(), [free_port() for _ in range(count)]
    arguments = {"nginx": nginx, "caddy": caddy}[proxy_name](tmp_path, proxy_port, server_ports)
    if in_turn:
        without_hash(Path(arguments[-1]))
    log = tmp_path / "server.log"
    with ExitStack() as stack:
        lines = stack.enter_context(log.open("a"))
        processes = [
            stack.enter_context(
                subprocess.Popen([*toolcrib, "serve", "--port", str(port)], cwd=tmp_path, stderr=lines, text=True)
            )
            for port in server_ports
        ]
        proxy = stack.enter_context(
            subprocess.Popen([program, *arguments], env={"HOME": str(tmp_path)}, stdout=lines, stderr=lines)
        )
        try:
            until(lambda: log.read_text().count("--stdio") == count)
            until(lambda: listens(proxy_port))
            assert f'"url": "https://{NAME}/mcp"' in log.read_text()  # what it tells people to paste
            direct = f"http://127.0.0.1:{server_ports[0]}"
            yield Served(tmp_path, processes, direct, f"https://127.0.0.1:{proxy_port}", key)
        finally:
            for process in (*processes, proxy):
                process.terminate()


def new_key(folder: Path, name: str) -> str:
    command = [sys.executable, "-m", "toolcrib", "keys", "add", name]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


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
        (process,) = served.processes
        process.terminate()
        while (await api.get("/readyz")).status_code != 503:
            await asyncio.sleep(0.02)
        assert (await api.post("/api/tools/whoami/call", json={})).status_code == 503
        (served.folder / "stop.received").touch()
        assert json.loads((await call).text)["content"][0]["text"] == "done"
        assert await asyncio.to_thread(process.wait, 60) == 143


async def process_of(api: httpx2.AsyncClient) -> int:
    pid: int = (await api.post("/api/tools/process/call", json={})).json()["content"][0]["data"]
    return pid


async def test_behind_a_balancer_each_client_stays_at_its_server_until_that_ends(balanced: Served) -> None:
    async with asyncio.timeout(120):
        keys: dict[int, str] = {}
        while len(keys) < 2:
            key = new_key(balanced.folder, f"user{time.monotonic_ns()}")
            async with balanced.http(Authorization=f"Bearer {key}") as api:
                pids = {*await asyncio.gather(*(process_of(api) for _ in range(6)))}  # on several connections
            assert len(pids) == 1
            keys[pids.pop()] = key
        ended, other = balanced.processes
        ended.kill()
        await asyncio.to_thread(ended.wait)
        for key in keys.values():
            async with balanced.http(Authorization=f"Bearer {key}") as api:
                while (await api.get("/api/tools")).status_code == 502:  # until it is known to be down
                    await asyncio.sleep(0.05)
                assert await process_of(api) == other.pid


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_behind_a_balancer_that_takes_servers_in_turn_each_call_is_answered(in_turn: Served, mode: str) -> None:
    async with (
        asyncio.timeout(120),
        in_turn.http() as http,
        Client(streamable_http_client(f"{in_turn.url}/mcp", http_client=http), mode=mode) as client,
    ):
        answers = [await client.call_tool("process") for _ in range(20)]
        pids = {answer.structured_content["result"] for answer in answers if answer.structured_content}
        assert pids == {process.pid for process in in_turn.processes}
        assert not any(answer.is_error for answer in answers)
        names = [(await client.call_tool("whoami")).structured_content for _ in range(2)]
        assert names == [{"result": "key:alice"}] * 2
