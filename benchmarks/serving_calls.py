"""MCP as a client sends it, over HTTP and stdio, in both eras: calls, lists, starts, and memory.

The servers are processes of their own (servers.py), and the requests raw ones, so that no client's work is counted. A
time is what the server's process had on the processor, but that of a call over stdio. One client makes one request
after the other on one connection, or one on each of several and then reads the answers.
"""

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from report import BARE, COMMIT, FASTMCP, FLOOR, STORELESS
from servers import NAME

COUNTS = (4, 100, 1000)
KINDS = {FLOOR: "sdk", BARE: "toolcrib", STORELESS: "storeless", FASTMCP: "fastmcp", COMMIT: "commit"}
VERSION, OLDER = "2026-07-28", "2025-11-25"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}
_SERVERS = Path(__file__).with_name("servers.py")
_GREETING = {"protocolVersion": OLDER, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
_START_S = 60
_PRINCIPALS = 10
"""Whose the sessions are, in turn: Toolcrib gives 1,000 to one."""


def subjects(peers: bool) -> list[str]:
    return [subject for subject in KINDS if subject != COMMIT and (peers or subject != FASTMCP)]


def over_http(
    era: str, count: int, names: Sequence[str], rounds: int, requests: int, *, connections: int = 1
) -> dict[str, list[float]]:
    """Seconds of the server's processors for one call, round by round, of each subject among *names*."""
    # FastMCP takes half a second for a call among 1,000.
    each = {name: requests // 10 if name == FASTMCP and count >= 1000 else requests for name in names}
    each = {name: times - times % connections for name, times in each.items()}
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(_http_server(KINDS[name], count, era, connections)) for name in names}
        for name, server in servers.items():
            server.calls(each[name])  # warm
        return {
            name: [figure / each[name] for figure in figures]
            for name, figures in _in_turn(servers, rounds, lambda name: servers[name].calls(each[name])).items()
        }


def over_stdio(era: str, names: Sequence[str], rounds: int, requests: int) -> dict[str, list[float]]:
    """Seconds for one call after the other, round by round."""
    times: dict[str, list[float]] = {name: [] for name in names}
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(_stdio_server(KINDS[name], era)) for name in names}
        for server in servers.values():
            server.calls(requests)
        for _ in range(rounds):
            for name, server in servers.items():
                began = time.perf_counter()
                server.calls(requests)
                times[name].append((time.perf_counter() - began) / requests)
    return times


def listings(names: Sequence[str], rounds: int, *, again: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of the processors of a server that runs for a list of 1,000 tools: the first, and one of *again* more."""
    first: dict[str, list[float]] = {name: [] for name in names}
    repeated: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            with _http_server(KINDS[name], 1000, VERSION) as server:
                server.greet()  # answered once it has started: it listens before
                before = server.processor_s()
                server.list_tools()
                then = server.processor_s()
                first[name].append(then - before)
                for _ in range(again):
                    server.list_tools()
                repeated[name].append((server.processor_s() - then) / again)
    return first, repeated


def starts(door: str, names: Sequence[str], rounds: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of the processor until a server of one tool answers `initialize`, and its memory then, in bytes."""
    times: dict[str, list[float]] = {name: [] for name in names}
    sizes: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            start = _stdio_server(KINDS[name], OLDER, 1) if door == "stdio" else _http_server(KINDS[name], 1, OLDER)
            with start as server:
                times[name].append(server.processor_s())
                sizes[name].append(server.memory())
    return times, sizes


def session_bytes(names: Sequence[str], count: int) -> dict[str, list[float]]:
    """The memory of one idle session of 2025-11-25, of *count*."""
    sizes: dict[str, list[float]] = {}
    for name in names:
        with _http_server(KINDS[STORELESS if name == BARE else name], 1, OLDER) as server:
            for number in range(100):
                server.greet(number % _PRINCIPALS)
            before = server.memory()
            ids = {server.greet(number % _PRINCIPALS) for number in range(count)}
            if len(ids) != count:
                raise SystemExit(f"{name} gave {len(ids)} sessions in place of {count}.")
            sizes[name] = [(server.memory() - before) / count]
    return sizes


def can_measure() -> bool:
    """Whether this system tells the processor time of a process to the nanosecond."""
    return Path("/proc/self/schedstat").exists()


def _in_turn(servers: "dict[str, _HTTP]", rounds: int, work: Callable[[str], Any]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in servers}
    for _ in range(rounds):
        for name, server in servers.items():
            before = server.processor_s()
            work(name)
            times[name].append(server.processor_s() - before)
    return times


class _Server:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def processor_s(self) -> float:
        """What all its threads have used."""
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(file.read_text().split()[0]) for file in threads) / 1e9

    def memory(self) -> float:
        """What it has in memory, in bytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return float(status.partition("VmRSS:")[2].split()[0]) * 1024


class _HTTP(_Server):
    def __init__(
        self, process: "subprocess.Popen[bytes]", port: int, count: int, era: str, connections: int = 1
    ) -> None:
        super().__init__(process)
        self._name, self._era = NAME.format(count - 1), era
        self._connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for _ in range(connections)]
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": era,
            "X-Principal": "p0",
        }
        if era == OLDER:
            self._headers["Mcp-Session-Id"] = self.greet()

    def greet(self, principal: int = 0) -> str:
        """Begin a session of *principal*, and return its id."""
        headers = {**self._headers, "MCP-Protocol-Version": OLDER, "X-Principal": f"p{principal}"}
        headers.pop("Mcp-Session-Id", None)
        id_, _ = self._post(_request("initialize", _GREETING, OLDER), headers)
        if id_ is None:
            raise SystemExit(f"{self._process.args} began no session.")
        self._post(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}', {**headers, "Mcp-Session-Id": id_})
        return id_

    def calls(self, count: int) -> None:
        headers = {**self._headers, "Mcp-Method": "tools/call", "Mcp-Name": self._name}
        # Calls of one session that run at once have ids of their own.
        bodies = {connection: _call(self._name, self._era, id_) for id_, connection in enumerate(self._connections)}
        answers: list[bytes] = []
        for _ in range(count // len(bodies)):
            for connection, body in bodies.items():
                self._send(connection, body, headers)
            answers = [self._receive(connection, body, headers)[1] for connection, body in bodies.items()]
        for answer in answers:
            _require_three(answer, self._process.args)

    def list_tools(self) -> None:
        cursor, count = None, 0
        while count == 0 or cursor is not None:
            body = _request("tools/list", {} if cursor is None else {"cursor": cursor}, self._era)
            result = _json(self._post(body, {**self._headers, "Mcp-Method": "tools/list"})[1])["result"]
            count, cursor = count + len(result["tools"]), result.get("nextCursor")
        if count - 1000 not in (0, 1):  # with a store, the tool that reads large results is there too
            raise SystemExit(f"{self._process.args} listed {count} tools.")

    def _post(self, body: bytes, headers: dict[str, str]) -> tuple[str | None, bytes]:
        """Return the id of a session that began, and the answer."""
        self._send(self._connections[0], body, headers)
        return self._receive(self._connections[0], body, headers)

    def _send(self, connection: http.client.HTTPConnection, body: bytes, headers: dict[str, str]) -> None:
        with contextlib.suppress(ConnectionError):  # which shows where the answer is read
            connection.request("POST", "/mcp", body, headers)

    def _receive(
        self, connection: http.client.HTTPConnection, body: bytes, headers: dict[str, str]
    ) -> tuple[str | None, bytes]:
        """Read an answer. A connection that rested may have ended meanwhile: ask again, once."""
        for is_last in (False, True):
            try:
                answer = connection.getresponse()
                return answer.getheader("Mcp-Session-Id"), answer.read()
            except (http.client.HTTPException, ConnectionError):
                connection.close()
                if is_last:
                    raise
                connection.request("POST", "/mcp", body, headers)
        raise AssertionError


class _Stdio(_Server):
    def __init__(self, process: "subprocess.Popen[bytes]", era: str) -> None:
        super().__init__(process)
        self._era, self._next = era, 1
        if era == OLDER:
            self._send(_request("initialize", _GREETING, era, 0))
            self._read(0)
            self._send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')

    def calls(self, count: int) -> None:
        answer = b""
        for _ in range(count):
            self._send(_call(NAME.format(0), self._era, self._next))
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


def _call(name: str, era: str, number: int = 1) -> bytes:
    return _request("tools/call", {"name": name, "arguments": {"a": 1, "b": 2}}, era, number)


def _request(method: str, params: dict[str, Any], era: str, number: int = 1) -> bytes:
    params = {**params, "_meta": META} if era == VERSION else params
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()


def _json(answer: bytes) -> Any:
    """Return what *answer* says, which may be an event of a stream."""
    text = answer.decode()
    return json.loads((text.partition("data: ")[2] if "data: " in text[:100] else text).strip() or "{}")


def _require_three(answer: bytes, command: object) -> None:
    """A server that is fast because it fails is no subject."""
    if _json(answer).get("result", {}).get("content", [{}])[0].get("text") != "3":
        raise SystemExit(f"{command} answered {answer[:300]!r}.")


@contextlib.contextmanager
def _http_server(kind: str, count: int, era: str, connections: int = 1) -> Generator[_HTTP]:
    with http_process(kind, count) as (process, port):
        yield _HTTP(process, port, count, era, connections)


@contextlib.contextmanager
def http_process(kind: str, count: int) -> "Generator[tuple[subprocess.Popen[bytes], int]]":
    """Run a server until the context ends; yield its process and its port, when it listens."""
    port = _free_port()
    with _process(kind, count, str(port)) as process:
        until = time.monotonic() + _START_S
        while True:
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"The server {kind} did not start.")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.02)
        yield process, port


@contextlib.contextmanager
def _stdio_server(kind: str, era: str, count: int = 4) -> Generator[_Stdio]:
    with _process(kind, count, "stdio") as process:
        yield _Stdio(process, era)


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
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
