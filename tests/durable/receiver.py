"""A receiver of webhooks on loopback, which answers as a test says. The library of the specification checks them."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # of the specification's examples


class Receiver:
    """*status* is asked for each message, by its path and how many came before."""

    def __init__(self, status: Callable[[str, int], int] = lambda path, count: 200, port: int = 0) -> None:
        self.paths: list[str] = []
        self.messages: list[tuple[dict[str, str], bytes]] = []
        self.came = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                with receiver.came:
                    receiver.paths.append(self.path)
                    receiver.messages.append(({name.lower(): value for name, value in self.headers.items()}, body))
                    count = len(receiver.messages) - 1
                    receiver.came.notify_all()
                self.send_response(code := status(self.path, count))
                if 300 <= code < 400:
                    self.send_header("location", "/elsewhere")
                self.end_headers()
                self.wfile.write(b"ok")

            do_GET = do_POST

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}/hook"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self) -> "Receiver":
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def wait(self, count: int) -> list[dict[str, Any]]:
        """Return the first *count* messages, verified, once they are there."""
        with self.came:
            assert self.came.wait_for(lambda: len(self.messages) >= count, 60), self.messages
            return [Webhook(SECRET).verify(body, headers) for headers, body in self.messages[:count]]

    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.messages]
