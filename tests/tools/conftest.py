"""What the tests of tools share: programs for the sandbox, and a service that keeps the requests it got."""

import fcntl
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import wasmtime

from .guests import WASI, Module

BUILT = Path(__file__).parents[2] / ".cache" / "sandbox"

Reply = tuple[int, dict[str, str], bytes]


class Service:
    """Replies as *replies* have it, by path without query: not at all for None, else with what it got, as JSON."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply | None] = {}
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.peers: set[Any] = set()
        self._closed = threading.Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_one(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                service.requests.append((self.command, self.path, headers, body))
                service.peers.add(self.client_address)
                got = {"method": self.command, "target": self.path, "body": body.decode("latin-1")}
                default = (200, {"content-type": "application/json"}, json.dumps(got).encode())
                if (reply := service.replies.get(self.path.partition("?")[0], default)) is None:
                    service._closed.wait(30)
                    return
                status, sent, content = reply
                self.send_response(status)
                for name, value in sent.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    with suppress(BrokenPipeError, ConnectionResetError):  # the client has enough
                        self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_DELETE = do_OPTIONS = do_HEAD = do_PATCH = do_QUERY = handle_one

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.netloc = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.netloc}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def last(self) -> tuple[str, str, dict[str, str], bytes]:
        return self.requests[-1]

    def close(self) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()


def build_sandbox_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build the Python of the sandbox, once for all tests of this checkout."""
    from toolcrib.sandbox.python_build import build_python

    BUILT.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(BUILT))
    with (BUILT / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build_python()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "toolcrib" / "wasm"


@pytest.fixture
def module(tmp_path: Path) -> Module:
    """A file `NAME.wasm` of a program in WebAssembly text, or of other bytes."""

    def make(code: str | bytes, name: str = "guest", *, wasi: str = WASI) -> Path:
        made = wasmtime.wat2wasm(f"(module {wasi} {code})") if isinstance(code, str) else code
        file = tmp_path / f"{name}.wasm"
        file.write_bytes(bytes(made))
        return file

    return make


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()
