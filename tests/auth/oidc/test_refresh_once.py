"""A refresh token is spent once, whoever finds its token stale, and whoever is killed meanwhile."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

import pytest

from toolcrib import Caller
from toolcrib.auth import DatabaseVault, Owner
from toolcrib.store import Store
from toolcrib.store.tables import LEASES

from .conftest import MakeParts, Parts, Provider

WORKER = Path(__file__).with_name("worker.py")
ALICE = Caller("alice")
Start = Callable[..., "list[Worker]"]


@pytest.fixture
def stored(provider: Provider, make_parts: MakeParts, url: str, tmp_path: Path) -> Iterator[Parts]:
    """Parts whose grants are in a database."""
    store = Store(url, key=tmp_path / "store.key")
    yield make_parts(provider, vault=DatabaseVault(store))
    provider.answer()
    store.close()


class Worker:
    """A process of `worker.py`."""

    def __init__(self, stdin: IO[str], stdout: IO[str]) -> None:
        self._stdin, self._stdout = stdin, stdout
        self.pid = 0

    def line(self) -> str:
        return self._stdout.readline().rstrip("\n")

    def ready(self) -> None:
        name, _, pid = self.line().partition(" ")
        assert name == "ready"
        self.pid = int(pid)

    def go(self) -> None:
        self._stdin.write("\n")
        self._stdin.flush()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        self._stdin.close()
        self._stdout.close()


@pytest.fixture
def start(url: str, tmp_path: Path, stored: Parts) -> Iterator[Start]:
    """Starts processes of `worker.py`, one for each caller and where it is to stop."""
    started: list[subprocess.Popen[bytes]] = []
    workers: list[Worker] = []

    def start(*jobs: tuple[str, str]) -> list[Worker]:
        pipes = [(os.pipe(), os.pipe()) for _ in jobs]
        theirs = [(stdin[0], stdout[1]) for stdin, stdout in pipes]
        files = (str(tmp_path / "store.key"), str(tmp_path / "catalogue.toml"))
        listed = json.dumps([[*job, *fds] for job, fds in zip(jobs, theirs, strict=True)])
        fds = [fd for pair in theirs for fd in pair]
        started.append(subprocess.Popen([sys.executable, str(WORKER), url, *files, listed], pass_fds=fds))
        for fd in fds:
            os.close(fd)
        made = [Worker(open(stdin[1], "w"), open(stdout[0])) for stdin, stdout in pipes]  # noqa: SIM115
        workers.extend(made)
        return made

    yield start
    for worker in workers:
        if worker.pid:
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
        worker.close()
    for process in started:
        process.kill()
        process.wait()


async def until_arrived(provider: Provider, count: int) -> None:
    async with asyncio.timeout(30):
        while (await asyncio.to_thread(provider.counts))["arrived"] < count:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "rounds", [1, pytest.param(5, marks=pytest.mark.full), pytest.param(50, marks=pytest.mark.nightly)]
)
async def test_sixteen_processes_refresh_once(stored: Parts, start: Start, rounds: int) -> None:
    provider = stored.provider
    await stored.log_in(ALICE)
    workers = start(*[("alice", "")] * 16)
    provider.answer("after", 1000)
    for _ in range(rounds):
        for worker in workers:
            worker.ready()
        await stored.expire(ALICE)
        before = provider.counts()
        for worker in workers:
            worker.go()
        assert [worker.line() for worker in workers] == ["200 alice"] * 16
        after = provider.counts()
        assert after["given"]["refresh_token"] == before["given"].get("refresh_token", 0) + 1
        assert after["refused"] == before["refused"]


@pytest.mark.full
async def test_what_a_killed_holder_has_sent_is_not_sent_again(stored: Parts, start: Start) -> None:
    provider = stored.provider
    await stored.log_in(ALICE)
    holder, *others = workers = start(*[("alice", "")] * 4)
    for worker in workers:
        worker.ready()
    await stored.expire(ALICE)
    before = provider.counts()
    provider.answer("before", 60_000)
    holder.go()
    await until_arrived(provider, before["arrived"] + 1)
    for worker in others:
        worker.go()
    holder.kill()
    provider.answer()
    for worker in others:
        assert "Your grant at Local has ended." in await asyncio.to_thread(worker.line)
    after = provider.counts()
    assert after["arrived"] == before["arrived"] + 1
    assert after["refused"] == before["refused"]


@pytest.mark.full
@pytest.mark.parametrize("step", ["!held", "!marked"])
async def test_a_holder_that_stands_still_for_longer_than_its_lease_spends_no_spent_token(
    stored: Parts, start: Start, step: str
) -> None:
    """It wakes before it has said that it sends the token (another has), or after that (others have waited)."""
    provider = stored.provider
    await stored.log_in(ALICE)
    holder, *others = workers = start(("alice", step), *[("alice", "")] * 3)
    for worker in workers:
        worker.ready()
    await stored.expire(ALICE)
    before = provider.counts()
    holder.go()
    assert holder.line() == "here"
    for worker in others:
        worker.go()
    if step == "!marked":
        vault: Any = stored.broker.vault
        async with asyncio.timeout(30):
            while [row["fence"] for row in await vault._store.read(LEASES.select(), {})] == [1]:
                await asyncio.sleep(0.05)
        os.kill(holder.pid, signal.SIGCONT)
    assert [await asyncio.to_thread(worker.line) for worker in others] == ["200 alice"] * 3
    os.kill(holder.pid, signal.SIGCONT)
    assert await asyncio.to_thread(holder.line) == "200 alice"
    after = provider.counts()
    assert after["given"]["refresh_token"] == before["given"].get("refresh_token", 0) + 1
    assert after["refused"] == before["refused"]


STEPS = {"held": "200", "marked": "ended", "sent": "ended", "given": "ended", "answered": "ended", "written": "200"}
"""Where a process is killed, and what the next call finds: the grant, or that it has ended."""


@pytest.mark.full
async def test_a_kill_at_any_step_costs_at_most_that_grant(stored: Parts, start: Start) -> None:
    provider, callers = stored.provider, {step: Caller(f"user-{step}") for step in STEPS}
    bystander = Caller("bystander")
    for caller in (*callers.values(), bystander):
        await stored.log_in(caller)
        await stored.expire(caller)
    refreshed = provider.counts()["given"].get("refresh_token", 0)
    workers = start(*((caller.principal, step) for step, caller in callers.items()))
    for step, worker in zip(STEPS, workers, strict=True):
        worker.ready()
        arrived = provider.counts()["arrived"]
        if step in ("sent", "given"):
            provider.answer("before" if step == "sent" else "after", 60_000)
            worker.go()
            await until_arrived(provider, arrived + 1)
            while step == "given" and provider.counts()["given"].get("refresh_token", 0) == refreshed:
                await asyncio.sleep(0.01)
        else:
            worker.go()
            assert worker.line() == "here"
        worker.kill()
        provider.answer()
        refreshed = provider.counts()["given"].get("refresh_token", 0)
    stored.shift = timedelta(seconds=31)  # so long an outcome is waited for
    async with stored.crib as crib:
        for step, caller in callers.items():
            before = provider.counts()["given"]["refresh_token"]
            result = await crib.workbench(caller).call("who")
            if STEPS[step] == "200":
                assert result.text == f"200 {caller.principal}", step
            else:
                assert result.pending is not None, step
                assert result.pending.message.startswith("Your grant at Local has ended."), step
                await crib.complete(provider.grant(result.pending.url or "", login=caller.principal))
                assert (await crib.workbench(caller).call("who")).text == f"200 {caller.principal}"
            more = provider.counts()["given"]["refresh_token"] - before
            assert more == (1 if step == "held" else 0), step
        assert (await crib.workbench(bystander).call("who")).text == "200 bystander"


async def test_a_refresh_that_takes_longer_than_a_lease_is_still_the_only_one(
    provider: Provider, make_parts: MakeParts, url: str, tmp_path: Path
) -> None:
    stores = [Store(url, key=tmp_path / "store.key") for _ in range(3)]
    parts = [make_parts(provider, vault=DatabaseVault(store, lease_s=0.5)) for store in stores]
    await parts[0].log_in(ALICE)
    await parts[0].expire(ALICE)
    before = provider.counts()
    provider.answer("after", 1500)
    results = await asyncio.gather(*(part.crib.workbench(ALICE).call("who") for part in parts))
    assert [result.text for result in results] == ["200 alice"] * 3
    after = provider.counts()
    assert after["given"]["refresh_token"] == before["given"].get("refresh_token", 0) + 1
    provider.answer()
    for store in stores:
        store.close()


async def test_a_call_that_is_given_up_leaves_no_spent_token(stored: Parts) -> None:
    """Its refresh goes on, and the next call finds what came of it."""
    provider, owner = stored.provider, Owner.of(ALICE, "local", "oauth2")
    async with stored.crib as crib:
        alice = crib.workbench(ALICE)
        await stored.log_in(ALICE)
        old = await stored.expire(ALICE)
        before = provider.counts()
        provider.answer("after", 60_000)
        task = asyncio.create_task(alice.call("who"))
        await until_arrived(provider, before["arrived"] + 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        provider.answer()
        assert (await alice.call("who")).text == "200 alice"
        assert provider.counts()["given"]["refresh_token"] == before["given"].get("refresh_token", 0) + 1
        stored_now = await stored.broker.vault.get(owner)
        assert stored_now.grant.refresh_token != old.refresh_token
