"""Story 3, two people and one gateway: each has their own account, also after a kill, and no secret is in clear.

One tool needs OAuth, one is of a remote MCP server, and a server beside it is dead.
"""

import asyncio
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from toolcrib.auth import DatabaseVault, Grant
from toolcrib.store import Store

from ..auth.oidc.canaries import require_hidden
from ..auth.oidc.conftest import SECRET, Provider
from .running import run

HERE = Path(__file__).parent

SETTINGS = """
providers = "providers.toml"

[[source]]
from = "tools.py"

[[source]]
command = ["python", "server.py"]

[[source]]
url = "http://127.0.0.1:9/mcp"
prefix = "dead_"

[auth.local]
client_id = "web"
client_secret = "${env:CLIENT_SECRET}"

[store]
url = "data/store.db"

[net]
allow = ["127.0.0.1"]

[server]
public_base_url = "http://127.0.0.1:PORT"
"""


class Gateway:
    """The program of the story, in a folder and an environment of its own, and what it wrote."""

    def __init__(self, folder: Path, environ: dict[str, str], port: int) -> None:
        self.folder, self.environ, self.port = folder, environ, port
        self.url = f"http://127.0.0.1:{port}"
        self.written: list[str] = []
        self.keys: dict[str, str] = {}

    def add_key(self, name: str) -> None:
        """What `toolcrib keys add` prints is seen by its owner alone."""
        done = run(self.folder, self.environ, "toolcrib", "keys", "add", name)
        assert done.returncode == 0, done.stderr
        self.keys[name] = done.stdout.strip()
        self.written.append(done.stderr)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Starts it, and kills it at the end, as `kill -9` does."""
        log = self.folder / f"log-{len(self.written)}"
        with log.open("w") as file:
            process = subprocess.Popen(
                ["python", "-W", "error", "gateway.py", str(self.port)],
                cwd=self.folder,
                env=self.environ,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )
            assert process.stdout is not None
            try:
                ready = process.stdout.readline()
                assert ready == f"serving {self.url}/mcp\n", log.read_text()
                yield
            finally:
                process.kill()
                self.written += [process.communicate()[0], log.read_text()]

    def command(self, *arguments: str) -> tuple[int, str]:
        """The status and the output of `toolcrib`."""
        done = run(self.folder, self.environ, "toolcrib", *arguments)
        self.written += [done.stdout, done.stderr]
        return done.returncode, done.stdout

    @asynccontextmanager
    async def client(self, name: str) -> AsyncIterator[Callable[..., Any]]:
        """A call of a tool by an MCP client that has the key of *name*: whether it succeeded, and its text."""
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {self.keys[name]}"}, timeout=60) as http,
            Client(streamable_http_client(f"{self.url}/mcp", http_client=http)) as client,
        ):

            async def call(tool: str, **arguments: Any) -> tuple[bool, str]:
                result = await client.call_tool(tool, arguments)
                text: str = result.content[0].text  # type: ignore[union-attr]
                self.written.append(text)
                return not result.is_error, text

            yield call

    def come_back(self, url: str, name: str) -> int:
        """The status of the page that the browser of *name* is sent back to."""
        page = httpx2.get(url, headers={"Cookie": f"key={self.keys[name]}"})
        self.written.append(page.text)
        return page.status_code


@pytest.fixture
def gateway(
    tmp_path: Path, clean_env: Callable[..., Path], user_environ: Callable[[Path], dict[str, str]]
) -> Iterator[Gateway]:
    programs = clean_env("--extra", "serve")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shutil.copy(HERE / "gateway.py", tmp_path)
    shutil.copy(HERE / "gateway_tools.py", tmp_path / "tools.py")
    shutil.copy(HERE / "gateway_server.py", tmp_path / "server.py")
    (tmp_path / "toolcrib.toml").write_text(SETTINGS.replace("PORT", str(port)))
    yield Gateway(tmp_path, {**user_environ(programs), "CLIENT_SECRET": SECRET}, port)


@pytest.fixture
def provider(gateway: Gateway) -> Iterator[Provider]:
    provider = Provider(redirect=f"{gateway.url}/auth/callback/local")
    (gateway.folder / "providers.toml").write_text(provider.catalogue)
    yield provider
    provider.close()


def address_in(text: str) -> str:
    found = re.search(r"http://\S+", text)
    assert found is not None, text
    return found[0].rstrip(".,)")


@pytest.mark.full
async def test_each_has_their_own_account_over_a_kill_and_a_stale_token_is_refreshed_once(
    gateway: Gateway, provider: Provider
) -> None:
    for name in ("alice", "bob"):
        gateway.add_key(name)
    canaries = {SECRET, *gateway.keys.values()}
    nobody = httpx2.Headers({"Authorization": "Bearer toolcrib_" + "0" * 12 + "_" + "A" * 43})

    async def granted(vault: DatabaseVault) -> Grant:
        ((_, grant),) = await vault.owned_by("key:alice")
        assert grant is not None
        canaries.update(grant.secrets)
        return grant

    def browse(url: str, login: str) -> str:
        back = provider.grant(url, login=login)
        canaries.update(parse_qs(urlsplit(back).query)["code"])
        return back

    with gateway.running():
        async with gateway.client("alice") as alice, gateway.client("bob") as bob:
            is_done, text = await alice("who")
            assert (is_done, "Grant access to your account at Local" in text) == (False, True)
            # Bob follows what is Alice's, and grants his own account for it: it stays without effect.
            assert gateway.come_back(browse(address_in(text), "bob"), "bob") == 403
            assert (await alice("who"))[0] is False
            assert gateway.come_back(browse(address_in(text), "alice"), "alice") == 200
            assert await alice("who") == (True, "200 alice")
            is_done, text = await bob("who")
            assert (is_done, "Grant access to your account at Local" in text) == (False, True)
            # The dead server costs its own tools, and nobody else's.
            for call in (alice, bob):
                assert await call("add", a=1, b=2) == (True, "3")
            assert (
                httpx2.post(f"{gateway.url}/api/tools/add/call", headers=nobody, json={"a": 1, "b": 2}).status_code
                == 401
            )
            assert httpx2.get(f"{gateway.url}/readyz").json() == {"status": "ready"}
            of_alice = {"Authorization": f"Bearer {gateway.keys['alice']}"}
            ready = httpx2.get(f"{gateway.url}/readyz", headers=of_alice).json()
            assert [one["state"] for one in ready["sources"] if one["name"] == "127.0.0.1"] == ["unavailable"]
    with gateway.running():
        async with gateway.client("alice") as alice, gateway.client("bob") as bob:
            assert await alice("who") == (True, "200 alice")
            assert (await bob("who"))[0] is False
            assert gateway.command("call", "who", "--principal", "key:alice") == (0, "200 alice\n")
            assert gateway.command("call", "who", "--principal", "key:bob")[0] == 3
            assert gateway.command("auth", "list", "--principal", "key:alice")[1].startswith("local\toauth2\tdefault\t")
            assert gateway.command("auth", "show", "local", "--principal", "key:alice", "--json")[0] == 0
            assert gateway.command("auth", "list", "--principal", "key:bob") == (0, "")

            store = Store(gateway.folder / "data" / "store.db")
            vault = DatabaseVault(store)
            ((owner, _),) = await vault.owned_by("key:alice")
            stale = replace(await granted(vault), expires_at=datetime.now(UTC) - timedelta(hours=1))
            assert await vault.put(owner, stale, version=(await vault.get(owner)).version)  # type: ignore[union-attr]
            before = provider.counts()
            provider.answer("after", 1000)
            results = await asyncio.gather(*(alice("who") for _ in range(16)))
            assert results == [(True, "200 alice")] * 16
            after = provider.counts()
            assert after["given"]["refresh_token"] == before["given"].get("refresh_token", 0) + 1
            assert after["refused"] == before["refused"]
            assert (await granted(vault)).refresh_token != stale.refresh_token
            store.close()
    assert gateway.command("auth", "revoke", "local", "--principal", "key:alice")[0] == 0
    assert gateway.command("call", "who", "--principal", "key:alice", "--json")[0] == 3
    assert len(canaries) >= 9
    require_hidden(canaries, *gateway.written, folder=gateway.folder)
