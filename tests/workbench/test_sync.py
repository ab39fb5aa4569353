"""A workbench lives on one event loop at a time, and calls from elsewhere are handed over to it. Nothing hangs."""

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from typing import Annotated, Any

import pytest

from toolcrib import Caller, Context, Crib, Depends, SetupError, Source, ToolError, Workbench, tool
from toolcrib.core import loops
from toolcrib.core.threads import MAX_THREADS
from toolcrib.workbench import Limit

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

        @tool
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
            @tool
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


def test_what_a_closed_loop_left_running_is_stopped_before_it_is_started_again() -> None:
    program = Program()
    bench = program.bench()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(bench.call("of_source"))
    pending = asyncio.all_tasks(loop)
    loop.close()
    assert bench.call_sync("of_source").value == 2
    assert program.source.events == ["start", "stop", "start"]
    bench.__exit__(None, None, None)
    for task in pending:
        task._log_destroy_pending = False  # type: ignore[attr-defined]


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

    @tool
    async def quick() -> str:
        return "done"

    @tool
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


def test_a_call_for_a_loop_that_waits_for_it_is_a_conflict() -> None:
    @tool
    async def outer() -> str | None:
        result = await inner_bench.call("inner")
        return result.error and result.error.code

    @tool
    async def inner() -> None: ...

    outer_bench, inner_bench = Workbench([outer]), Workbench([inner])

    async def main() -> Any:
        await inner_bench.call("inner")  # so it lives on this loop, which waits for the other bench
        return outer_bench.call_sync("outer").value

    with outer_bench:
        assert outcome_of(*in_thread(lambda: asyncio.run(main()))) == "conflict"


def test_a_loop_that_is_blocked_costs_a_call_that_is_handed_over_to_it_only_some_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loops, "BEGIN_TIMEOUT_S", 0.2)

    @tool
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

    @tool
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

    @tool
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
    @tool
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

    @tool
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


@pytest.mark.parametrize("number", [MAX_THREADS, 3 * MAX_THREADS])
async def test_plain_tools_may_call_plain_tools_side_by_side(number: int) -> None:
    @tool
    def inner(n: int) -> int:
        return n

    @tool
    def middle(n: int) -> int:
        return int(bench.call_sync("inner", {"n": n}).unwrap())

    @tool
    def outer(n: int) -> int:
        return int(bench.call_sync("middle", {"n": n}).unwrap())

    async with Workbench([inner, middle, outer], timeout_s=30) as bench:
        calls = bench.call_many([("outer", {"n": n}) for n in range(number)])
        results = await asyncio.wait_for(calls, WAIT_S)
    assert [result.value for result in results] == list(range(number))


def test_a_plain_tool_that_calls_itself_without_end_ends_with_a_result() -> None:
    depth = 0
    codes: list[str | None] = []

    @tool
    def itself() -> None:
        nonlocal depth
        depth += 1
        result = bench.call_sync("itself")
        codes.append(result.error and result.error.code)

    bench = Workbench([itself])
    result = outcome_of(*in_thread(lambda: bench.call_sync("itself")))
    assert result.error is None
    assert codes[0] == "limited"
    assert len(codes) == depth < 300


async def test_nested_sync_calls_under_a_limit_of_one_end() -> None:
    @tool
    def inner(n: int) -> int:
        return n

    @tool
    def outer(n: int) -> Any:
        result = bench.call_sync("inner", {"n": n})
        return result.error.code if result.error else result.value

    async with Workbench([inner, outer], limits=[Limit(per="workbench", concurrency=1, wait_s=0.2)]) as bench:
        calls = bench.call_many([("outer", {"n": n}) for n in range(32)])
        results = await asyncio.wait_for(calls, WAIT_S)
        assert {result.error and result.error.code for result in results} <= {None, "limited"}
        assert {result.value for result in results if result.error is None} == {"limited"}
        assert (await bench.call("inner", {"n": 1})).value == 1, "all slots are free again"


def test_a_stop_during_a_start_ends_both() -> None:
    begun = threading.Event()

    class Slow:
        async def start(self) -> None:
            begun.set()
            await asyncio.Event().wait()

        @tool
        async def work(self) -> None: ...

    bench = Workbench([Slow()])
    calling = in_thread(lambda: bench.call_sync("work"))
    assert begun.wait(WAIT_S)
    bench.__exit__(None, None, None)
    result = outcome_of(*calling)
    assert isinstance(result, SetupError) or result.error.code == "unavailable"


def test_a_thread_that_waits_in_a_tool_ends_with_its_loop() -> None:
    begun, ended = threading.Event(), threading.Event()
    errors: list[ToolError] = []

    @tool
    def waits(context: Context) -> None:
        async def endless() -> None:
            begun.set()
            await asyncio.Event().wait()

        try:
            context.wait(endless())
        except ToolError as error:
            errors.append(error)
        ended.set()

    async def main() -> None:
        bench = Workbench([waits])
        call = asyncio.create_task(bench.call("waits"))
        await asyncio.to_thread(begun.wait, WAIT_S)
        call.cancel()

    asyncio.run(main())
    assert ended.wait(WAIT_S)
    assert [error.code for error in errors] == ["lost"]


def test_a_workbench_that_is_dropped_holds_no_loop() -> None:
    bench: Any = None

    @tool
    def inner() -> int:
        return 1

    @tool
    def outer() -> int:
        return bench.call_sync("inner").unwrap() + 1  # type: ignore[no-any-return]

    async def main() -> tuple[int, "weakref.ref[asyncio.AbstractEventLoop]"]:
        nonlocal bench
        async with Workbench([inner, outer], limits=[Limit(tools="outer", concurrency=1)]) as bench:
            return (await bench.call("outer")).unwrap(), weakref.ref(asyncio.get_running_loop())

    value, loop = asyncio.run(main())
    bench = None
    gc.collect()
    assert (value, loop()) == (2, None)


async def test_a_thread_that_waits_for_another_call_makes_room_for_one_that_came_before() -> None:
    ended, all_came = threading.Event(), threading.Event()
    has_ended = asyncio.Event()

    @tool
    def block() -> bool:
        return ended.wait(WAIT_S)

    @tool
    async def until_it_ended() -> None:
        await asyncio.wait_for(has_ended.wait(), WAIT_S)

    @tool
    def outer() -> str:
        all_came.wait(WAIT_S)
        return bench.call_sync("until_it_ended").status

    @tool
    def last() -> None:
        ended.set()
        loop.call_soon_threadsafe(has_ended.set)

    loop = asyncio.get_running_loop()
    async with Workbench([block, until_it_ended, outer, last]) as bench:
        names = [*(["block"] * (MAX_THREADS - 1)), "outer", "last"]
        calls = [asyncio.create_task(bench.call(name)) for name in names]
        await asyncio.sleep(0)  # each has a thread by now, or waits for one
        all_came.set()
        results = await asyncio.gather(*calls)
    assert [result.value for result in results] == [*([True] * (MAX_THREADS - 1)), "success", None]
