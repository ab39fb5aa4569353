"""A provider on loopback that answers as a test says, and a crib whose broker knows it."""

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from toolcrib import Caller, Context, Crib, ToolAuth, tool
from toolcrib.auth import Client, CredentialBroker, DatabaseVault, MemoryVault, Owner, Vault, load_catalogue
from toolcrib.store import Store

ALICE, BOB = Caller("alice"), Caller("bob")
ALICES = Owner.of(ALICE, "idp", "oauth2")
NOON = datetime(2040, 1, 1, 12, tzinfo=UTC)
SECRET, CODE = "the-client-secret-0123456789", "the-code-0123456789"
TOKEN = {"access_token": "an-access-token-0123456789", "token_type": "bearer"}

Answer = tuple[int, dict[str, str], bytes]


def as_json(data: Any, status: int = 200, **headers: str) -> Answer:
    return status, {"Content-Type": "application/json", **headers}, json.dumps(data).encode()


class Server:
    """Answers as *answers* say, by path; keeps what it was sent."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer | Callable[[dict[str, str]], Answer]] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.arrived, self.open = threading.Event(), threading.Event()
        self.open.set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                text = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
                is_json = self.headers.get("content-type") == "application/json"
                body = json.loads(text) if is_json else dict(parse_qsl(text))
                server.requests.append((self.path, body))
                server.arrived.set()
                server.open.wait(30)
                found = server.answers.get(self.path, (404, {}, b"not here"))
                status, headers, text = found(body) if callable(found) else found
                self.send_response(status)
                for name, value in {"Content-Length": str(len(text)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    self.wfile.write(text)
                except OSError:  # nobody reads on
                    self.close_connection = True

            do_POST = do_DELETE = do_GET

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.open.set()
        self._server.shutdown()
        self._server.server_close()

    def sent(self, path: str) -> list[dict[str, str]]:
        return [body for each, body in self.requests if each == path]


class Setup:
    """A crib, and its broker of 2040 with the providers of a user's file."""

    def __init__(self, server: Server, file: Path) -> None:
        self.server, self.file, self.now = server, file, NOON

    def crib(self, catalogue: str) -> Crib:
        self.file.write_text(catalogue.replace("SERVER", self.server.url))
        self.broker = CredentialBroker(
            catalogue=load_catalogue(self.file),
            clients={"idp": Client("the-client-id", SECRET)},
            redirect_uri="http://127.0.0.1:1/auth/callback",
            allow=["127.0.0.1"],
            clock=lambda: self.now,
        )

        @tool(auth=ToolAuth("idp", scopes=["read"]))
        async def use(ctx: Context) -> str:
            return f"{ctx.credentials['idp'].provider} {' '.join(ctx.credentials['idp'].scopes)}"

        return Crib([use], broker=self.broker)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def setup(server: Server, tmp_path: Path) -> Setup:
    return Setup(server, tmp_path / "providers.toml")


IDP = """
[idp.oauth2]
authorize_url = "SERVER/authorize"
token_url = "SERVER/token"
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "store.db", key=tmp_path / "store.key")
    yield store
    store.close()


@pytest.fixture(params=["memory", "database"])
def vault(request: pytest.FixtureRequest, store: Store) -> Vault:
    return MemoryVault() if request.param == "memory" else DatabaseVault(store)
