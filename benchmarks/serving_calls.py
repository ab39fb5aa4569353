"""`tools/call` as a client sends it: processor time of the server for a request over HTTP, and the rate over stdio.

The servers are processes of their own (servers.py), and the requests raw ones, so that no client's work is counted.
"""

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from report import BARE, FASTMCP, FLOOR, OVER_HTTP
from servers import NAME

COUNTS = (4, 100, 1000)
KINDS = {FLOOR: "sdk", BARE: "toolcrib", FASTMCP: "fastmcp"}
_SERVERS = Path(__file__).with_name("servers.py")
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}
_START_S = 60


def title(count: int) -> str:
    return OVER_HTTP.format(f"{count:,}")


def subjects(peers: bool) -> list[str]:
    return [subject for subject in KINDS if peers or subject != FASTMCP]


def over_http(count: int, names: Sequence[str], rounds: int, requests: int) -> dict[str, list[float]]:
    """Seconds of the server's processors for one call, round by round, of each subject among *names*."""
    found: dict[str, list[float]] = {name: [] for name in names}
    # FastMCP takes half a second for a call among 1,000.
    each = {name: requests // 10 if name == FASTMCP and count >= 1000 else requests for name in names}
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(_http_server(KINDS[name], count)) for name in names}
        for name, server in servers.items():
            server.calls(each[name])  # warm
        for _ in range(rounds):
            for name, server in servers.items():
                before = server.processor_s()
                server.calls(each[name])
                found[name].append((server.processor_s() - before) / each[name])
    return found


def over_stdio(names: Sequence[str], rounds: int, requests: int) -> dict[str, list[float]]:
    """Seconds for one call after the other, round by round."""
    found: dict[str, list[float]] = {name: [] for name in names}
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(_stdio_server(KINDS[name])) for name in names}
        for server in servers.values():
            server.calls(requests)
        for _ in range(rounds):
            for name, server in servers.items():
                began = time.perf_counter()
                server.calls(requests)
                found[name].append((time.perf_counter() - began) / requests)
    return found


def can_measure() -> bool:
    """Whether this system tells the processor time of a process to the nanosecond."""
    return Path("/proc/self/schedstat").exists()


class _HTTP:
    def __init__(self, process: "subprocess.Popen[bytes]", port: int, count: int) -> None:
        self._process = process
        self._name = NAME.format(count - 1)
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._body = _request(1, self._name, META)
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION,
            "Mcp-Method": "tools/call",
            "Mcp-Name": self._name,
        }

    def calls(self, count: int) -> None:
        for _ in range(count):
            self._connection.request("POST", "/mcp", self._body, self._headers)
            answer = self._connection.getresponse().read()
        _require_three(answer, self._process.args)

    def processor_s(self) -> float:
        """What all its threads have used."""
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(file.read_text().split()[0]) for file in threads) / 1e9


class _Stdio:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        self._send(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client}).encode())
        self._read(0)
        self._send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
        self._next = 1

    def calls(self, count: int) -> None:
        answer = b""
        for _ in range(count):
            self._send(_request(self._next, NAME.format(0), None))
            answer = self._read(self._next)
            self._next += 1
        _require_three(answer, self._process.args)

    def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def _read(self, number: int) -> bytes:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if json.loads(line).get("id") == number:
                return line
        raise SystemExit(f"{self._process.args} ended.")


def _request(number: int, name: str, meta: Any) -> bytes:
    params = {"name": name, "arguments": {"a": 1, "b": 2}} | ({"_meta": meta} if meta else {})
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()


def _require_three(answer: bytes, command: object) -> None:
    """A server that is fast because it fails is no subject. The answer may be an event of a stream."""
    text = answer.decode().partition("data: ")[2] if b"data: " in answer else answer.decode()
    if json.loads(text.strip() or "{}").get("result", {}).get("content", [{}])[0].get("text") != "3":
        raise SystemExit(f"{command} answered {answer[:300]!r}.")


@contextlib.contextmanager
def _http_server(kind: str, count: int) -> Generator[_HTTP]:
    port = _free_port()
    with _process(kind, count, str(port)) as process:
        until = time.monotonic() + _START_S
        while True:
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"The server {kind} did not start.")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield _HTTP(process, port, count)


@contextlib.contextmanager
def _stdio_server(kind: str) -> Generator[_Stdio]:
    with _process(kind, 4, "stdio") as process:
        yield _Stdio(process)


@contextlib.contextmanager
def _process(kind: str, count: int, door: str) -> Generator["subprocess.Popen[bytes]"]:
    piped = subprocess.PIPE if door == "stdio" else subprocess.DEVNULL
    command = [sys.executable, str(_SERVERS), kind, str(count), door]
    with subprocess.Popen(command, stdin=piped, stdout=piped, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
