"""A provider on 127.0.0.1 that plays scripted answers, and keeps the requests it got.

    with wire(answer({"id": "1"}), events({"n": 1}, "[DONE]"), refusal(429, {...}, retry_after="7")) as provider:
        ...  # a client whose base URL is provider.url
        assert provider.requests[0].body == {...}

`cut(...)` ends the connection before an answer is whole; `unfinished(...)` sends what it has and then waits for the
client to hang up, which sets `provider.hung_up`. `provider.asked` is set by the first request.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from toolcrib import Text, Tool, tool
from toolcrib.agent import Model, Request
from toolcrib.formats import Reply, TextDelta, User


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADD = Tool(add).spec
QUESTION = Request([User((Text("2 and 3?"),))], specs=[ADD])


@dataclass(frozen=True)
class Answer:
    """What is sent for one request. *streamed* pieces go out one by one, in chunks, without a length."""

    pieces: tuple[bytes, ...]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    streamed: bool = False
    cut: bool = False
    unfinished: bool = False


@dataclass(frozen=True)
class Asked:
    """One request. `path` has the query; header names are in small letters; `body` is decoded JSON."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class Wire:
    url: str
    requests: list[Asked] = field(default_factory=list[Asked])
    asked: threading.Event = field(default_factory=threading.Event)
    hung_up: threading.Event = field(default_factory=threading.Event)


def answer(body: Any, *, status: int = 200, **headers: str) -> Answer:
    """A whole answer of JSON. `retry_after="3"` is the header `Retry-After`."""
    named = {name.replace("_", "-").title(): value for name, value in headers.items()}
    return Answer((json.dumps(body).encode(),), status, {"Content-Type": "application/json", **named})


def refusal(status: int, body: Any, **headers: str) -> Answer:
    """The same, for the eye: an answer with a status that says no."""
    return answer(body, status=status, **headers)


def events(*data: Any) -> Answer:
    """Server-sent events. Each is JSON data, text as it is, or a pair of the event's name and its data."""
    return raw(*map(_event, data), content_type="text/event-stream")


def raw(*pieces: bytes, content_type: str, status: int = 200) -> Answer:
    """Any bytes, streamed piece by piece."""
    return Answer(pieces, status, {"Content-Type": content_type}, streamed=True)


def cut(whole: Answer) -> Answer:
    """*whole*, but the connection ends before the answer does."""
    return replace(whole, cut=True)


def unfinished(begun: Answer) -> Answer:
    """*begun*, and then nothing more, until the client hangs up."""
    return replace(begun, unfinished=True)


async def heard(model: Model, request: Request = QUESTION) -> list[TextDelta | Reply]:
    return [piece async for piece in model.stream(request)]


def _event(data: Any) -> bytes:
    name, data = data if isinstance(data, tuple) else (None, data)
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


@contextmanager
def wire(*script: Answer | Callable[[Asked], Answer]) -> Iterator[Wire]:
    """A provider that answers its n-th request with the n-th of *script* (or what that makes of the request)."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 20  # no test waits for ever

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, self.path, headers, json.loads(body) if body else None)
            with lock:
                state.requests.append(asked)
                step = script[len(state.requests) - 1] if len(state.requests) <= len(script) else _OVER
            state.asked.set()
            self.play(step if isinstance(step, Answer) else step(asked))

        do_GET = do_POST

        def play(self, message: Answer) -> None:
            self.close_connection = True
            self.send_response(message.status)
            length = sum(map(len, message.pieces)) + (1 if message.cut or message.unfinished else 0)
            shape = {"Transfer-Encoding": "chunked"} if message.streamed else {"Content-Length": str(length)}
            for name, value in {**message.headers, **shape, "Connection": "close"}.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for piece in message.pieces:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if message.streamed else piece)
                    self.wfile.flush()
                if message.streamed and not (message.cut or message.unfinished):
                    self.wfile.write(b"0\r\n\r\n")
                if message.unfinished:
                    self.connection.recv(1)
                    state.hung_up.set()
            except ConnectionError:
                state.hung_up.set()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state = Wire(f"http://127.0.0.1:{server.server_address[1]}")
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            yield state
        finally:
            server.shutdown()
            serving.join()


_OVER = refusal(418, {"error": {"message": "The script has no more answers."}})
