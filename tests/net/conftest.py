"""Servers on loopback addresses, with TLS or without, and names that lead to them."""

import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ..certificates import write_certificate

Answer = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """Answers as *answers* say, by path; keeps the requests it got."""

    def __init__(self, host: str, context: ssl.SSLContext | None) -> None:
        self.answers: dict[str, Answer] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                while "transfer-encoding" in self.headers and (size := int(self.rfile.readline(), 16)):
                    self.rfile.read(size + 2)
                if "transfer-encoding" in self.headers:
                    self.rfile.readline()
                server.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                server.answers.get(self.path, respond(b"hello"))(self)

            do_POST = do_GET

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer((host, 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def respond(body: bytes, status: int = 200, **headers: str) -> Answer:
    """Answers with *body*; headers with `_` for `-`."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.fixture
def answer() -> Callable[..., Answer]:
    return respond


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate, and its key, of `api.example` and `*.shop.example`."""
    return write_certificate(tmp_path_factory.mktemp("tls") / "certificate.pem", "api.example", "*.shop.example")


@pytest.fixture
def trust(certificate: Path) -> ssl.SSLContext:
    """Trusts the servers of these tests."""
    return ssl.create_default_context(cafile=str(certificate))


@pytest.fixture
def serve(certificate: Path) -> Iterator[Callable[..., Server]]:
    """Starts a server: `serve()`, `serve("127.0.0.2", tls=True)`."""
    made: list[Server] = []

    def serve(host: str = "127.0.0.1", *, tls: bool = False) -> Server:
        context = None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
        made.append(Server(host, context))
        return made[-1]

    yield serve
    for server in made:
        server.close()
