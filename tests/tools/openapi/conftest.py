"""A service on a loopback address that keeps the requests it got, and documents that name it."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

Reply = tuple[int, dict[str, str], bytes]


class Service:
    """Replies as *replies* have it, by path without query; else with what it got, as JSON."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {}
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                service.requests.append((self.command, self.path, headers, body))
                got = {"method": self.command, "target": self.path, "body": body.decode("latin-1")}
                default = (200, {"content-type": "application/json"}, json.dumps(got).encode())
                status, sent, content = service.replies.get(self.path.partition("?")[0], default)
                self.send_response(status)
                for name, value in sent.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_DELETE = do_OPTIONS = do_HEAD = do_PATCH = do_QUERY = handle_one

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.netloc = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"http://{self.netloc}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def last(self) -> tuple[str, str, dict[str, str], bytes]:
        return self.requests[-1]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a document: `write({"/a": {...}}, server=..., version="3.0.3", components={...})`."""

    def write(
        paths: dict[str, Any], *, server: str = "https://api.example.com", version: str = "3.1.0", **more: Any
    ) -> Path:
        file = tmp_path / "api.json"
        data = {
            "openapi": version,
            "info": {"title": "t", "version": "1"},
            "servers": [{"url": server}],
            "paths": paths,
        }
        file.write_text(json.dumps(data | more))
        return file

    return write
