"""A workbench lives on one event loop at a time, and calls from elsewhere are handed over to it. Nothing hangs."""

import asyncio
import gc
import threading
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from typing import Annotated, Any

import pytest

from toolcrib import Caller, Crib, Depends, SetupError, Source, Workbench
from toolcrib.machinery import loops

WAIT_S = 60.0

name: ContextVar[str] = ContextVar("name", default="none")


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """A thread that does *work*, and what came of it."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome


def outcome_of(thread: threading.Thread, outcome: list[Any]) -> Any:
    thread.join(WAIT_S)
    assert not thread.is_alive(), "it waits for ever"
    return outcome[0]


class Program:
    """What a workbench opens, and on which event loop its tools run."""

    def __init__(self) -> None:
        self.opened = self.closed = 0
        self.source = self.Counted()
        bench_program = self

        async def session() -> AsyncGenerator[int]:
            bench_program.opened += 1
            yield bench_program.opened
            bench_program.closed += 1

        async def where(value: Annotated[int, Depends(session)]) -> tuple[int, int, str]:
            return id(asyncio.get_running_loop()), value, name.get()

        self.where = where

    class Counted(Source):
        def __init__(self) -> None:
            self.events: list[str] = []

        async def start(self) -> None:
            self.events.append("start")

        async def stop(self) -> None:
            self.events.append("stop")

        def tools(self) -> list[Any]:
            async def of_source() -> int:
                return self.events.count("start")

            return [of_source]

    def bench(self) -> Workbench:
        return Workbench([self.where, self.source])


def test_after_a_loop_has_ended_a_workbench_starts_anew_on_the_next(caplog: pytest.LogCaptureFixture) -> None:
    program = Program()
    bench = program.bench()

    async def main() -> tuple[int, int, int]:
        of_source = (await bench.call("of_source")).unwrap()
        loop, value, _ = (await bench.call("where")).unwrap()
        assert loop == id(asyncio.get_running_loop())
        assert (await bench.call("where")).unwrap()[1] == value
        return value, of_source, loop

    assert asyncio.run(main())[:2] == (1, 1)
    assert asyncio.run(main())[:2] == (2, 2)
    assert "cannot be closed any more" in caplog.text
    with bench:
        assert bench.call_sync("of_source").value == 3
        assert bench.call_sync("where").unwrap()[1] == 3
    assert program.source.events == ["start", "stop"] * 3
    assert (program.opened, program.closed) == (3, 1)


def test_threads_with_loops_of_their_own_share_the_loop_of_the_first_call() -> None:
    program = Program()
    bench = program.bench()
    all_called = threading.Barrier(4)

    async def main(number: int) -> list[tuple[int, int, str]]:
        name.set(f"thread {number}")
        results = await bench.call_many([("where", {}) for _ in range(20)])
        await asyncio.to_thread(all_called.wait, WAIT_S)
        return [result.unwrap() for result in results]

    threads = [in_thread(lambda number=number: asyncio.run(main(number))) for number in range(4)]
    values = [outcome_of(*thread) for thread in threads]
    assert len({loop for rows in values for loop, _, _ in rows}) == 1, "all run on one loop"
    assert {value for rows in values for _, value, _ in rows} == {1}, "and share what it has opened"
    assert [{name for _, _, name in rows} for rows in values] == [{f"thread {number}"} for number in range(4)]
    assert program.opened == 1


@pytest.mark.filterwarnings("error")
def test_a_call_that_its_home_never_began_runs_on_the_next_home(caplog: pytest.LogCaptureFixture) -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    bench = Workbench([add])

    async def main() -> Any:
        return await bench.call("add", {"a": 1, "b": 2})

    threads = [in_thread(lambda: [asyncio.run(main()) for _ in range(20)]) for _ in range(4)]
    results = [result for thread in threads for result in outcome_of(*thread)]
    gc.collect()  # a coroutine that was never awaited would warn
    assert [result.value for result in results] == [3] * 80
    assert caplog.text == ""


async def test_a_notebook_may_mix_sync_and_awaited_calls() -> None:
    program = Program()
    bench = program.bench()
    first = bench.call_sync("where").unwrap()  # on the portal, since this loop stands still meanwhile
    assert (await bench.call("where")).unwrap() == first
    assert first[0] != id(asyncio.get_running_loop())
    await bench.stop()
    assert program.closed == 1
    with program.bench() as bench:
        assert (await bench.call("where")).unwrap()[1] == 2
    async with Crib([program.where]) as crib:
        assert (await crib.workbench(Caller("alice")).call("where")).unwrap()[0] == id(asyncio.get_running_loop())


@pytest.mark.parametrize("kind", ["Workbench", "Crib"])
def test_what_async_with_has_started_cannot_be_used_after_its_loop(kind: str) -> None:
    program = Program()
    owner: Any = program.bench() if kind == "Workbench" else Crib([program.where])
    bench: Workbench = owner if kind == "Workbench" else owner.workbench()

    async def main(*, leave: bool) -> None:
        await owner.__aenter__()
        (await bench.call("where")).unwrap()
        if leave:
            await owner.__aexit__(None, None, None)

    asyncio.run(main(leave=False))
    for call in (bench.call_sync, lambda tool: asyncio.run(bench.call(tool))):
        with pytest.raises(SetupError, match="async with"):
            call("where")
    if kind == "Workbench":
        asyncio.run(main(leave=True))


async def test_a_sync_call_on_the_loop_that_runs_the_workbench_is_refused_with_the_way_out() -> None:
    errors: list[SetupError] = []

    async def quick() -> str:
        return "done"

    async def careless(bench_of: str) -> str:
        try:
            return str(benches[bench_of].call_sync("quick").unwrap())
        except SetupError as error:
            errors.append(error)
            return "refused"

    async with Workbench([quick, careless]) as mine, Workbench([quick]) as other:
        benches = {"mine": mine, "other": other}
        with pytest.raises(SetupError, match=r"await bench\.call"):
            mine.call_sync("quick")
        assert (await mine.call("careless", {"bench_of": "mine"})).value == "refused"
        assert (await mine.call("careless", {"bench_of": "other"})).value == "refused"
        assert (await mine.call("quick")).value == "done"
    assert len(errors) == 2
    benches = {"mine": Workbench([quick, careless])}
    with benches["mine"] as bench:
        assert bench.call_sync("careless", {"bench_of": "mine"}).value == "refused", "on the portal, too"


def test_a_loop_that_is_blocked_costs_a_call_that_is_handed_over_to_it_only_some_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loops, "BEGIN_TIMEOUT_S", 0.2)

    async def add(a: int, b: int) -> int:
        return a + b

    bench = Workbench([add])

    async def main() -> tuple[Any, Any]:
        await bench.start()
        calling = in_thread(lambda: bench.call_sync("add", {"a": 1, "b": 2}))
        blocked = outcome_of(*calling)  # as careless code does
        return blocked, await asyncio.to_thread(bench.call_sync, "add", {"a": 1, "b": 2})

    blocked, later = asyncio.run(main())
    assert (blocked.error.code, blocked.error.retry, later.value) == ("unavailable", "later", 3)


@pytest.mark.parametrize("way", ["ends", "stops", "is closed"])
def test_a_thread_whose_loop_goes_away_gets_a_result(way: str) -> None:
    begun = threading.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    bench = Workbench([endless])

    async def main() -> tuple[threading.Thread, list[Any]]:
        await bench.start()
        calling = in_thread(lambda: bench.call_sync("endless"))
        await asyncio.to_thread(begun.wait, WAIT_S)
        return calling

    if way == "ends":
        result = outcome_of(*asyncio.run(main()))
    else:
        loop = asyncio.new_event_loop()
        calling = loop.run_until_complete(main())
        pending = asyncio.all_tasks(loop)
        if way == "is closed":
            loop.close()
        result = outcome_of(*calling)
        loop.close()
        for task in pending:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
    assert (result.error.code, result.error.retry, result.tool) == ("lost", "later", "endless")


def test_a_task_that_is_cancelled_cancels_its_call_on_the_other_loop() -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    bench = Workbench([endless])

    async def main() -> None:
        call = asyncio.create_task(bench.call("endless"))
        await asyncio.to_thread(begun.wait, WAIT_S)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    with bench:
        asyncio.run(main())
        assert cancelled.wait(WAIT_S)


def test_a_stream_may_be_read_on_another_loop() -> None:
    async def count(to: int) -> AsyncGenerator[int]:
        for number in range(to):
            yield number

    async def main() -> list[str]:
        items = bench.stream("count", {"to": 3})
        return [type(item).__name__ async for item in items]

    with Workbench([count]) as bench:
        assert asyncio.run(main()) == ["Emitted", "Emitted", "Result"]


def test_ctrl_c_in_a_sync_call_cancels_it_and_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    import _thread

    begun, cancelled = threading.Event(), threading.Event()

    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    def interrupt() -> None:
        begun.wait(WAIT_S)
        _thread.interrupt_main()

    with Workbench([endless]) as bench:
        interrupting = in_thread(interrupt)
        with pytest.raises(KeyboardInterrupt):
            bench.call_sync("endless")
        assert cancelled.wait(WAIT_S)
        interrupting[0].join(WAIT_S)
