"""A call over HTTP: of a tool by Toolcrib's API, and of a bare Starlette route that parses and answers the same JSON.

Each is served by a process of its own (servers.py): Toolcrib by its command with its defaults, a store among them. What
is measured is that process's time on the processor, for one request on a connection that stays open.
"""

import json
import socket
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from report import BARE, FLOOR, STORELESS
from servers import NAME
from serving_calls import http_process

TITLE = "call over HTTP, tiny async tool"
KINDS = {FLOOR: "route", BARE: "toolcrib", STORELESS: "storeless"}
_BODY = b'{"a": 1, "b": 2}'
_PATH = f"/api/tools/{NAME.format(0)}/call"


class Served:
    """A connection to a server process."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int) -> None:
        self._pid, self._port = process.pid, port
        self._connect()

    def _connect(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self._port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def call(self) -> Any:
        """The answer to one call, JSON data. A connection that rested for long may have ended meanwhile."""
        head = f"POST {_PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        request = head.encode() + b"Content-Length: %d\r\n\r\n" % len(_BODY) + _BODY
        line, length = b"", 0
        for _ in range(2):
            with suppress(ConnectionError):
                self._socket.sendall(request)
                line = self._file.readline()
            if line:
                break
            self.close()
            self._connect()
        assert b" 200 " in line
        while (line := self._file.readline()) != b"\r\n":
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        return json.loads(self._file.read(length))

    def cpu_s(self) -> float:
        """The seconds that the process has had on the processor."""
        threads = Path(f"/proc/{self._pid}/task").glob("*/schedstat")
        return sum(int(file.read_text().split()[0]) for file in threads) / 1e9

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@contextmanager
def servers() -> Generator[dict[str, Served]]:
    """A connection to each of the servers."""
    with ExitStack() as stack:
        connections: dict[str, Served] = {}
        for name, kind in KINDS.items():
            connections[name] = Served(*stack.enter_context(http_process(kind, 1)))
            stack.callback(connections[name].close)
            assert connections[name].call()["content"] == [{"type": "data", "data": 3}]
        yield connections


def rounds(servers: dict[str, Served], count: int, calls: int) -> dict[str, list[float]]:
    """Seconds on the processor for one call of each server, round by round."""
    times: dict[str, list[float]] = {name: [] for name in servers}
    for _ in range(count):
        for name, served in servers.items():
            began = served.cpu_s()
            for _ in range(calls):
                served.call()
            times[name].append((served.cpu_s() - began) / calls)
    return times
