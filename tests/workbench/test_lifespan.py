"""Sources start by themselves: one that hangs, fails or dies costs its own tools, and nobody else's."""

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from toolcrib import Call, Caller, CancellationToken, Context, Crib, SetupError, Source, Workbench, tool
from toolcrib.workbench import lifespan

from ..waiting import until


@tool
async def add(a: int, b: int) -> int:
    return a + b


@tool
async def deadline(context: Context) -> str:
    return str(context.deadline_at)


class Remote(Source):
    """A source in another place, which the test lets start, fail, hang and die."""

    required = False
    restart_after_s = 0.02

    def __init__(self) -> None:
        self.starts = self.stops = 0
        self.fails = 0
        """How many more starts fail."""
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.may_stop = asyncio.Event()
        self.may_stop.set()

    async def start(self) -> None:
        self.starts += 1
        await self.may_start.wait()
        if self.fails > 0:
            self.fails -= 1
            raise ConnectionError("no route to the server")

    async def stop(self) -> None:
        await self.may_stop.wait()
        self.stops += 1

    def tools(self) -> Sequence[Callable[..., Any]]:
        async def ping() -> str:
            return f"start {self.starts}"

        return [ping]


def others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifespan, "PATIENCE_S", 0.1)
    monkeypatch.setattr(lifespan, "START_TIMEOUT_S", 0.3)


async def test_a_start_that_fails_costs_its_own_tools_until_it_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    remote = Remote()
    remote.fails, remote.restart_after_s = 3, 0.1
    async with Workbench([add, remote]) as bench:
        assert (await bench.call(add, a=1, b=2)).value == 3
        result = await bench.call("ping")
        assert result.error.code == "unavailable"
        assert [problem.reason for problem in bench.problems] == ["ConnectionError: no route to the server"]
        assert "no route to the server; it is tried again" in caplog.text
        await until(lambda: not bench.problems)
        assert (await bench.call("ping")).value == "start 4"
    assert remote.stops == 1
    assert not others()


async def test_a_source_that_exits_ends_no_loop(caplog: pytest.LogCaptureFixture) -> None:
    class Exits(Remote):
        async def start(self) -> None:
            await super().start()
            if self.starts == 1:
                sys.exit(3)

        async def stop(self) -> None:
            sys.exit(3)

    remote = Exits()
    async with Workbench([add, remote]) as bench:
        assert (await bench.call(add, a=1, b=2)).value == 3
        assert [problem.reason for problem in bench.problems] == ["RuntimeError: its start called sys.exit"]
        await until(lambda: not bench.problems)
        assert (await bench.call("ping")).value == "start 2"
    assert "failed to stop: SystemExit: 3" in caplog.text
    remote.starts, remote.required = 0, True
    with pytest.raises(SetupError, match=r"its start called sys\.exit"):
        await Workbench([remote]).start()


async def test_a_source_that_cannot_list_its_tools_keeps_no_others_from_running() -> None:
    class Mute(Remote):
        def tools(self) -> Sequence[Callable[..., Any]]:
            raise RuntimeError("nothing to list")

    async with Workbench([add, Mute()]) as bench:
        assert (await bench.call("add", {"a": 1, "b": 2})).value == 3
        assert [str(problem) for problem in bench.problems] == ["Mute: RuntimeError: nothing to list"]
    mute = Mute()
    mute.required = True
    with pytest.raises(RuntimeError, match="nothing to list"):
        Workbench([add, mute])


@pytest.mark.usefixtures("impatient")
async def test_a_start_that_hangs_is_a_problem_and_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    remote = Remote()
    remote.may_start.clear()
    async with Workbench([add, remote]) as bench:
        assert (await bench.call(add, a=1, b=2)).value == 3
        result = await bench.call("ping")
        assert result.error.code == "unavailable"
        assert [problem.reason for problem in bench.problems] == ["it has not started yet"]
        assert "The source Remote has not started yet" in caplog.text
        await until(lambda: remote.starts == 2)
        assert "could not be started: TimeoutError: it took longer than 0.3 s" in caplog.text
        remote.may_start.set()
        await until(lambda: not bench.problems)
        assert (await bench.call("ping")).value == "start 2"
    assert not others()


async def test_a_source_that_dies_is_started_again() -> None:
    remote = Remote()
    async with Workbench([add, remote]) as bench:
        assert (await bench.call("ping")).value == "start 1"
        remote.may_start.clear()
        remote.lost()
        await until(lambda: remote.starts == 2)
        assert [problem.reason for problem in bench.problems] == ["it was lost"]
        assert (await bench.call(add, a=1, b=2)).value == 3
        remote.may_start.set()
        await until(lambda: not bench.problems)
        assert (await bench.call("ping")).value == "start 2"
    assert remote.stops == 2
    assert not others()


async def test_a_stop_waits_for_what_died_and_is_still_stopping() -> None:
    remote = Remote()
    bench = Workbench([remote])
    await bench.start()
    remote.may_stop.clear()
    remote.lost()
    await asyncio.sleep(0.02)
    asyncio.get_running_loop().call_later(0.05, remote.may_stop.set)
    await bench.stop()
    assert remote.stops == 1
    assert not others()


async def test_a_stop_ends_the_attempts() -> None:
    remote = Remote()
    remote.fails = 1000
    bench = Workbench([remote])
    await bench.start()
    await bench.stop()
    assert not others()
    hanging = Remote()
    hanging.may_start.clear()
    crib = Crib([hanging])
    await crib.start_required()
    await crib.stop()
    assert not others()


async def test_what_a_source_starts_in_a_call_does_not_have_the_deadline_of_that_call() -> None:
    polled: list[asyncio.Task[Any]] = []

    class Polling(Source):
        required = False

        async def open(self, _caller: Caller) -> Any:
            return Polling.Session()

        def tools(self) -> Sequence[Callable[..., Any]]:
            return Polling.Session().tools()

        class Session(Source):
            async def start(self) -> None:
                polled.append(asyncio.create_task(self.poll()))

            async def poll(self) -> Any:
                return await bench.call("deadline")

            def tools(self) -> Sequence[Callable[..., Any]]:
                async def poll() -> None: ...

                return [poll]

    async def poll_inside() -> None:
        (await bench.call("poll")).unwrap()

    bench = Crib([deadline, poll_inside, Polling()]).workbench()
    result = await bench.call(Call("poll_inside", timeout_s=60))
    assert result.status == "success"
    assert (await polled[0]).value == "None"
    await bench.crib.stop()


class PerCaller(Remote):
    """A source with a session of its own for each caller, which takes time to open."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[Remote] = []
        self.session_fails = 0

    async def open(self, caller: Caller) -> Remote:
        await asyncio.sleep(0.02)
        session = Remote()
        session.fails = self.session_fails
        self.opened.append(session)
        return session


async def test_a_session_that_is_required_starts_with_its_workbench() -> None:
    source = PerCaller()
    source.required = True
    async with Workbench([add, source]):
        assert [session.starts for session in source.opened] == [1]
    source.session_fails = 1
    with pytest.raises(SetupError, match="is not available: ConnectionError: no route"):
        await Workbench([add, source]).start()
    assert not others()


async def test_a_token_cancels_a_call_that_waits_for_a_source() -> None:
    source = Remote()
    source.required = True
    source.may_start.clear()
    token = CancellationToken()
    bench = Workbench([source])
    asyncio.get_running_loop().call_later(0.05, token.cancel)
    async with asyncio.timeout(30):
        result = await bench.call(Call("ping", cancellation=token))
    assert result.error.code == "cancelled"
    await bench.stop()
    assert not others()


async def test_the_reason_has_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    class Leaking(Remote):
        async def start(self) -> None:
            raise ConnectionError("https://user:s3cret-key@host is down")

        async def stop(self) -> None: ...

    class Leaving(Source):
        async def stop(self) -> None:
            raise ConnectionError("https://user:s3cret-key@host is down")

        def tools(self) -> Sequence[Callable[..., Any]]:
            return [add]

    with caplog.at_level(logging.DEBUG):
        async with Workbench([Leaking(), Leaving()], secrets=["s3cret-key"]) as bench:
            await bench.call("ping")
            assert "s3cret-key" not in str(bench.problems)
    assert "failed to stop" in caplog.text
    assert "s3cret-key" not in caplog.text
