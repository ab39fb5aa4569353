"""What the tests of tools in the sandbox share: programs, and a server that they may reach where that is granted."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import wasmtime

from .guests import WASI, Module

Answer = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """Answers "hello", or by path as *answers* say. Keeps path, headers and body of what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self._released = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                server.requests.append((self.path, {name.lower(): text for name, text in self.headers.items()}, body))
                server.answers.get(self.path, server.respond(b"hello"))(self)

            do_POST = do_GET

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def respond(self, body: bytes, status: int = 200, **headers: str) -> Answer:
        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                handler.send_header(name, value)
            handler.end_headers()
            try:
                handler.wfile.write(body)
            except (BrokenPipeError, ConnectionResetError):
                return  # it has enough

        return answer

    def redirect(self, to: str) -> Answer:
        return self.respond(b"", 302, location=to)

    def wait(self) -> None:
        """Answer nothing until the test ends."""
        self._released.wait(30)

    def close(self) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()


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
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()
