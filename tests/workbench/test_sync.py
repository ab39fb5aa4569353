"""Sync calls end, whatever becomes of the event loop that runs them, and however they are nested."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from toolcrib import Context, Result, SetupError, ToolError, Workbench, tool
from toolcrib.core.threads import _SIZE
from toolcrib.workbench import Limit

WAIT_S = 60.0


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """A thread that does *work*, and what came of it."""
    ended: list[Any] = []

    def run() -> None:
        try:
            ended.append(work())
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, ended


def the_one(thread: threading.Thread, ended: list[Any]) -> Any:
    thread.join(WAIT_S)
    assert not thread.is_alive(), "it waits for ever"
    return ended[0]


def codes(results: list[Result[Any]]) -> set[str | None]:
    return {result.error and result.error.code for result in results}


@pytest.mark.parametrize("timeout_s", [None, 30.0])
@pytest.mark.parametrize("way", ["ends", "stops", "is closed"])
def test_a_thread_whose_loop_goes_away_gets_a_result(way: str, timeout_s: float | None) -> None:
    begun = threading.Event()

    @tool
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    bench = Workbench([endless], timeout_s=timeout_s)

    async def main() -> tuple[threading.Thread, list[Any]]:
        await bench.start()
        calling = in_thread(lambda: bench.call_sync("endless"))
        await asyncio.to_thread(begun.wait, WAIT_S)
        return calling

    if way == "ends":
        result = the_one(*asyncio.run(main()))
    else:
        loop = asyncio.new_event_loop()
        calling = loop.run_until_complete(main())
        pending = asyncio.all_tasks(loop)
        if way == "is closed":
            loop.close()
        result = the_one(*calling)
        if way == "stops":
            loop.run_until_complete(asyncio.wait(pending, timeout=WAIT_S))
            assert all(task.cancelled() for task in pending), "what nobody waits for is not continued"
            loop.close()
        for task in pending:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
    assert result.error is not None
    assert (result.error.code, result.error.retry) == ("lost", "later")
    assert result.tool == "endless"


def test_a_sync_call_that_its_loop_never_begins_runs_elsewhere() -> None:
    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    bench = Workbench([add])

    async def main() -> Result[Any]:
        await bench.start()
        thread, ended = in_thread(lambda: bench.call_sync("add", {"a": 1, "b": 2}))
        return the_one(thread, ended)  # type: ignore[no-any-return]  # blocks this loop, as careless code does

    assert asyncio.run(main()).value == 3


@pytest.mark.parametrize("timeout_s", [None, 30.0])
@pytest.mark.parametrize("number", [32, 100])
async def test_plain_tools_may_call_plain_tools_side_by_side(number: int, timeout_s: float | None) -> None:
    @tool
    def inner(n: int) -> int:
        return n

    @tool
    def middle(n: int) -> int:
        return int(bench.call_sync("inner", {"n": n}).unwrap())

    @tool
    def outer(n: int) -> int:
        return int(bench.call_sync("middle", {"n": n}).unwrap())

    async with Workbench([inner, middle, outer], timeout_s=timeout_s) as bench:
        calls = bench.call_many([("outer", {"n": n}) for n in range(number)])
        results = await asyncio.wait_for(calls, WAIT_S)
    assert [result.value for result in results] == list(range(number))


@pytest.mark.parametrize("timeout_s", [None, 30.0])
async def test_sync_calls_nest_in_async_and_plain_tools_in_any_order(timeout_s: float | None) -> None:
    @tool
    async def on_loop(n: int, rest: str) -> int:
        return go_on(n, rest)

    @tool
    def in_a_thread(n: int, rest: str) -> int:
        return go_on(n, rest)

    def go_on(n: int, rest: str) -> int:
        if not rest:
            return n
        return int(bench.call_sync({"a": "on_loop", "t": "in_a_thread"}[rest[0]], {"n": n, "rest": rest[1:]}).unwrap())

    async with Workbench([on_loop, in_a_thread], timeout_s=timeout_s) as bench:
        orders = ["atat", "aatt", "ttaa", "taat", "aaaa", "tata"] * 6
        first = {"a": "on_loop", "t": "in_a_thread"}
        calls = bench.call_many([(first[order[0]], {"n": n, "rest": order[1:]}) for n, order in enumerate(orders)])
        results = await asyncio.wait_for(calls, WAIT_S)
    assert [result.value for result in results] == list(range(len(orders)))


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_tool_that_calls_itself_without_end_ends_with_a_result(kind: str) -> None:
    depth = 0
    ended: list[str | None] = []

    def deeper() -> None:
        nonlocal depth
        depth += 1
        result = bench.call_sync("itself")
        ended.append(result.error and result.error.code)

    @tool(name="itself")
    async def async_itself() -> None:
        deeper()

    @tool(name="itself")
    def plain_itself() -> None:
        deeper()

    bench = Workbench([async_itself if kind == "async" else plain_itself])
    result = the_one(*in_thread(lambda: bench.call_sync("itself")))
    assert result.error is None
    assert ended[0] == "limited"
    assert len(ended) == depth < 300


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
        assert codes(results) <= {None, "limited"}
        assert {result.value for result in results if result.error is None} == {"limited"}
        assert (await bench.call("inner", {"n": 1})).value == 1, "all slots are free again"


async def test_a_sync_call_inside_a_loop_that_is_starting_the_workbench_is_answered() -> None:
    starting = asyncio.Event()

    class Slow:
        async def start(self) -> None:
            starting.set()
            await asyncio.sleep(0.05)

        @tool
        async def work(self) -> str:
            return "done"

    bench = Workbench([Slow()])
    first = asyncio.create_task(bench.call("work"))
    await starting.wait()
    inside = bench.call_sync("work")  # the start goes on only when this has ended
    assert inside.error is not None
    assert (inside.error.code, inside.error.retry) == ("unavailable", "later")
    assert (await first).value == "done"
    await bench.stop()


def test_two_live_loops_at_once_make_sync_calls_of_one_another() -> None:
    @tool
    def plain(n: int) -> int:
        return n

    @tool
    async def nested(n: int) -> int:
        return int(bench.call_sync("plain", {"n": n}).unwrap())

    bench = Workbench([plain, nested])

    both_done = threading.Barrier(2)

    async def main() -> list[Any]:
        values = [result.value for result in await bench.call_many([("nested", {"n": n}) for n in range(20)])]
        await asyncio.to_thread(both_done.wait, WAIT_S)
        return values

    threads = [in_thread(lambda: asyncio.run(main())) for _ in range(2)]
    assert [the_one(*each) for each in threads] == [list(range(20))] * 2
    with bench:
        pass


def test_stop_while_a_start_is_on_its_way_ends_both() -> None:
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
    result = the_one(*calling)
    assert isinstance(result, SetupError) or result.error.code == "unavailable"


def test_a_thread_that_waits_in_a_tool_ends_with_its_loop() -> None:
    begun, ended = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    @tool
    def waits(context: Context) -> None:
        async def endless() -> None:
            begun.set()
            await asyncio.Event().wait()

        try:
            context.wait(endless())
        except ToolError as error:
            raised.append(error)
        ended.set()

    async def main() -> None:
        bench = Workbench([waits])
        call = asyncio.create_task(bench.call("waits"))
        await asyncio.to_thread(begun.wait, WAIT_S)
        call.cancel()

    asyncio.run(main())
    assert ended.wait(WAIT_S)
    assert [error.code for error in raised if isinstance(error, ToolError)] == ["lost"]


def test_nothing_holds_a_loop_that_has_ended_after_sync_calls_under_a_limit() -> None:
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
        names = [*(["block"] * (_SIZE - 1)), "outer", "last"]
        calls = [asyncio.create_task(bench.call(name)) for name in names]
        await asyncio.sleep(0)  # each has a thread by now, or waits for one
        all_came.set()
        results = await asyncio.gather(*calls)
    assert [result.value for result in results] == [*([True] * (_SIZE - 1)), "success", None]


async def test_after_a_sync_call_inside_a_loop_the_loop_goes_on_for_whoever_waits() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    @tool
    async def quick() -> None: ...

    @tool(serial=True)
    async def one_at_a_time() -> None:
        begun.set()
        await may_end.wait()

    @tool
    async def outer() -> list[str | None]:
        inside = bench.call_sync("quick")
        waiting = asyncio.create_task(bench.call("one_at_a_time"))
        await asyncio.sleep(0)
        may_end.set()
        return [each.error and each.error.code for each in (inside, await waiting)]

    async with Workbench([quick, one_at_a_time, outer]) as bench:
        first = asyncio.create_task(bench.call("one_at_a_time"))
        await begun.wait()
        assert (await bench.call("outer")).value == [None, None]
        assert (await first).status == "success"
