"""A server under clients that come, go, cancel and break off: `python benchmarks/soak.py [--seconds 600]`.

No answer may be lost, or be another's. Memory, descriptors, threads and rows of the call log are looked at all the
while; the slope of each over the second half is printed with its bound, and one above it is an error.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from serving_calls import META, VERSION

TOOLS = '''
import asyncio
from toolcrib import Context, tool


@tool
async def echo(token: str) -> str:
    """Say it again."""
    return token


@tool(read_only=True)
async def slow(token: str, context: Context) -> str:
    """Say it again, later."""
    context.progress(0.5)
    await asyncio.sleep(0.05)
    return token


@tool(read_only=True)
def large(token: str) -> str:
    """Say it again, with much after it."""
    return token + "." * 30_000
'''
CLIENTS = 12
LOOK_S = 1.0
BOUNDS = {"memory, KiB": 60.0, "descriptors": 0.2, "threads": 0.1, "rows for a call": 1.05}
"""The most that each may grow in a second of the second half; for rows, what there may be for each call."""


@dataclass
class Soak:
    """What was done, and what was seen of the server meanwhile."""

    url: str
    process: "subprocess.Popen[bytes]"
    done: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    seen: list[tuple[float, ...]] = field(default_factory=list[tuple[float, ...]])

    def check(self, what: str, token: str, answer: str) -> None:
        self.done[what] += 1
        if token not in answer:
            self.wrong.append(f"{what}: {token} got {answer[:200]!r}")

    def look(self, at_s: float) -> None:
        proc = Path(f"/proc/{self.process.pid}")
        status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        memory_kib = float(status["VmRSS"].split()[0])
        self.seen.append((at_s, memory_kib, float(len(list((proc / "fd").iterdir()))), float(status["Threads"])))


async def over_api(soak: Soak, http: httpx2.AsyncClient, token: str) -> None:
    name = random.choice(["echo", "slow", "large"])
    sent = await http.post(f"{soak.url}/api/tools/{name}/call", json={"token": token})
    soak.check("HTTP API", token, sent.json()["content"][0].get("text", sent.text))


async def over_mcp(soak: Soak, http: httpx2.AsyncClient, token: str) -> None:
    name = random.choice(["echo", "slow"])
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": name,
    }
    params = {"name": name, "arguments": {"token": token}, "_meta": META}
    body = {"jsonrpc": "2.0", "id": token, "method": "tools/call", "params": params}
    sent = await http.post(f"{soak.url}/mcp", json=body, headers=headers)
    text = sent.text.partition("data: ")[2] if "data: " in sent.text else sent.text
    answer = json.loads(text)
    soak.check("MCP, stateless", token, answer["result"]["content"][0]["text"] if answer["id"] == token else text)


async def session(soak: Soak, http: httpx2.AsyncClient, token: str) -> None:
    async with Client(streamable_http_client(f"{soak.url}/mcp"), mode="legacy") as client:
        await client.list_tools()
        for number in range(3):
            result = await client.call_tool("slow", {"token": f"{token}-{number}"})
            soak.check("MCP, with a session", f"{token}-{number}", result.content[0].text)  # type: ignore[union-attr]


async def cancels(soak: Soak, http: httpx2.AsyncClient, token: str) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(random.uniform(0, 0.05)):
            await http.post(f"{soak.url}/api/tools/slow/call", json={"token": token})
    soak.done["cancelled"] += 1


async def breaks_off(soak: Soak, http: httpx2.AsyncClient, token: str) -> None:
    host, _, port = soak.url.removeprefix("http://").partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps({"token": token}).encode()
    head = f"POST /api/tools/slow/call HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    writer.write((head + body)[: random.randrange(1, len(head + body) + 1)])
    await writer.drain()
    writer.transport.abort()
    soak.done["broken off"] += 1


DOINGS: Sequence[Callable[[Soak, httpx2.AsyncClient, str], Awaitable[None]]]
DOINGS = (over_api, over_api, over_mcp, over_mcp, session, cancels, breaks_off)


async def client(soak: Soak, number: int, until: float) -> None:
    while time.monotonic() < until:
        async with httpx2.AsyncClient(timeout=30) as http:
            for turn in range(random.randrange(1, 20)):
                doing = random.choice(DOINGS)
                try:
                    await doing(soak, http, f"{number}-{turn}-{random.random()}")
                except Exception as error:
                    soak.wrong.append(f"{doing.__name__}: {type(error).__name__}: {error}"[:300])


async def run(soak: Soak, seconds: float) -> None:
    began = time.monotonic()
    clients = [asyncio.create_task(client(soak, number, began + seconds)) for number in range(CLIENTS)]
    while not all(task.done() for task in clients):
        soak.look(time.monotonic() - began)
        await asyncio.wait(clients, timeout=LOOK_S)
    await asyncio.gather(*clients)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """How much the second number grows for each 1 of the first, by least squares."""
    middle_x, middle_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0


def report(soak: Soak, rows: int) -> bool:
    """Print it. Returns whether all is well."""
    print(", ".join(f"{count:,} {what}" for what, count in sorted(soak.done.items())))
    half = soak.seen[len(soak.seen) // 2 :]
    found = {name: slope([(one[0], one[at]) for one in half]) for at, name in enumerate(list(BOUNDS)[:3], 1)}
    found["rows for a call"] = rows / max(1, sum(soak.done.values()))
    for name, value in found.items():
        unit = "" if name == "rows for a call" else " a second"
        print(
            f"{name}: {value:+.3f}{unit}, at most {BOUNDS[name]:g}: {'well' if value <= BOUNDS[name] else 'TOO MUCH'}"
        )
    for wrong in soak.wrong[:20]:
        print(f"wrong: {wrong}")
    print(f"{len(soak.wrong)} answers lost or mixed")
    return not soak.wrong and all(value <= BOUNDS[name] for name, value in found.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tools.py").write_text(TOOLS)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "toolcrib", "serve", "tools.py", "--port", str(port), "--store", "calls.db"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env={**os.environ})
        try:
            until = time.monotonic() + 60
            while b"Serving" not in (folder / "log").read_bytes():
                if process.poll() is not None or time.monotonic() > until:
                    print((folder / "log").read_text(), file=sys.stderr)
                    return 1
                time.sleep(0.1)
            soak = Soak(f"http://127.0.0.1:{port}", process)
            asyncio.run(run(soak, options.seconds))
            time.sleep(2)  # what is recorded is written in batches
            with contextlib.closing(sqlite3.connect(folder / "calls.db")) as database:
                (rows,) = database.execute("SELECT count(*) FROM toolcrib_calls").fetchone()
            return 0 if report(soak, rows) else 1
        except KeyboardInterrupt:
            print("Stopped.", file=sys.stderr)
            return 130
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
