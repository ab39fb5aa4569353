"""Calling tools: by name, by function, many at once, from async and sync code anywhere."""

import asyncio
from contextlib import suppress

import pytest

from toolcrib import Call, Caller, SetupError, ToolError, Workbench, tool
from toolcrib.core import UnknownToolError


@tool
async def add(a: int, b: int = 2) -> int:
    return a + b


@tool
def shout(text: str) -> str:
    return text.upper()


async def test_a_tool_is_called_by_name_by_call_and_by_function() -> None:
    async with Workbench([add, shout]) as bench:
        values = [
            (await bench.call("add", '{"a": 1, "b": 2}')).value,
            (await bench.call("add", b'{"a": 1, "b": 2}')).value,
            (await bench.call("add", {"a": 1, "b": 2})).value,
            (await bench.call(Call("add", {"a": 1, "b": 2}, id="mine"))).value,
            (await bench.call(add, 1, b=2)).value,
            (await bench.call(add, 1)).value,
            (await bench.call(shout, "hey")).value,
        ]
    assert values == [3, 3, 3, 3, 3, 3, "HEY"]
    assert (await Workbench([add]).call(Call("add", {"a": 1}, id="mine"))).call_id == "mine"


async def test_a_function_that_is_no_tool_of_the_bench_is_the_program_s_mistake() -> None:
    with pytest.raises(UnknownToolError, match=r"'shout' is not a tool of this workbench. Add it"):
        await Workbench([add]).call(shout, "x")


async def test_many_calls_give_their_results_in_the_order_of_the_calls() -> None:
    async def after(tenths: int) -> int:
        await asyncio.sleep(tenths / 100)
        return tenths

    async with Workbench([after]) as bench:
        order = [5, 1, 3, 0, 2]
        calls = [("after", {"tenths": n}) for n in order]
        for how in ({}, {"parallel": False}, {"limit": 2}, {"limit": 1}):
            assert [r.value for r in await bench.call_many(calls, **how)] == order
    assert await Workbench([after]).call_many([]) == []


async def test_a_limit_is_how_many_run_at_a_time() -> None:
    running = most = 0

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    await Workbench([work]).call_many([("work", None)] * 40, limit=7)
    assert most == 7
    with pytest.raises(SetupError, match="1 or more"):
        await Workbench([work]).call_many([("work", None)], limit=0)


async def test_stop_on_error_cancels_what_has_not_ended() -> None:
    finished: list[str] = []

    async def fail() -> None:
        raise ToolError("no")

    async def wait() -> None:
        await asyncio.sleep(30)
        finished.append("wait")

    async with Workbench([add, fail, wait]) as bench:
        side_by_side = await bench.call_many([("wait", None), ("fail", None), ("wait", None)], stop_on_error=True)
        in_order = await bench.call_many(
            [("add", {"a": 1}), ("fail", None), ("add", {"a": 1})], parallel=False, stop_on_error=True
        )
    assert [r.error and r.error.code for r in side_by_side] == ["cancelled", "failed", "cancelled"]
    assert [r.error and r.error.code for r in in_order] == [None, "failed", "cancelled"]
    assert finished == []


async def test_stop_on_error_leaves_no_cancellation_with_its_caller() -> None:
    """Also not with the caller's next task group, of which an error would come as a cancellation (the second case)."""

    async def fail() -> None:
        raise ToolError("no")

    async def wait() -> None:
        await asyncio.sleep(30)

    async def broken() -> None:
        await asyncio.sleep(0)
        raise ValueError("mine")

    async with Workbench([fail, wait]) as bench:
        await bench.call_many([("wait", None), ("fail", None)], stop_on_error=True)
    task = asyncio.current_task()
    assert task.cancelling() == 0
    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(broken())
            await asyncio.sleep(30)


async def test_a_check_of_availability_that_hangs_is_no_and_takes_no_other_tool_with_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A second case: it swallows its cancellation, too."""
    monkeypatch.setattr("toolcrib.workbench.workbench.PATIENCE_S", 0.1)
    release = asyncio.Event()

    async def never(_: Caller) -> bool:
        return await release.wait()

    async def stubborn(_: Caller) -> bool:
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()
        return True

    @tool(available=never)
    async def hidden() -> None: ...

    @tool(available=stubborn)
    async def hidden_too() -> None: ...

    async with asyncio.timeout(30), Workbench([hidden, hidden_too, add]) as bench:
        assert [spec.name for spec in bench.specs()] == ["add"]
        assert (await bench.call("add", {"a": 1})).status == "success"
        result = await bench.call("hidden")
        assert result.text == "Tool 'hidden' is not available to you now."
        release.set()
    assert "The availability check of 'hidden' failed; treating it as unavailable" in caplog.text


async def test_availability_is_per_caller_sync_or_async_and_no_when_its_check_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def only_alice(caller: Caller) -> bool:
        return caller.principal == "alice"

    def broken(caller: Caller) -> bool:
        raise LookupError

    @tool(available=only_alice)
    async def hers() -> str:
        return "hers"

    @tool(available=lambda caller: caller.principal != "alice")
    async def others() -> str:
        return "others"

    @tool(available=broken)
    async def nobody() -> str:
        return "nobody"

    seen = {}
    for who in ("alice", "bob"):
        async with Workbench([hers, others, nobody, add], caller=Caller(who)) as bench:
            results = [await bench.call(name) for name in ("hers", "others", "nobody")]
            assert results[2].text == "Tool 'nobody' is not available to you now."
            seen[who] = ([spec.name for spec in bench.specs()], [r.error.code if r.error else r.value for r in results])
        assert [spec.name for spec in Workbench([hers, add], caller=Caller(who)).specs()] == (
            ["hers", "add"] if who == "alice" else ["add"]
        )
    assert seen == {
        "alice": (["hers", "add"], ["hers", "unavailable", "unavailable"]),
        "bob": (["others", "add"], ["unavailable", "others", "unavailable"]),
    }
    assert "The availability check of 'nobody' failed; treating it as unavailable:" in caplog.text


def test_what_cannot_be_a_workbench_is_refused_at_once() -> None:
    with pytest.raises(SetupError, match="takes a list"):
        Workbench(add)  # type: ignore[arg-type]
    with pytest.raises(SetupError, match="takes a list"):
        Workbench("tools.py")


async def test_arguments_of_python_beside_a_name_are_refused_with_the_form_that_works() -> None:
    form = r"The arguments of 'add' are one mapping, or JSON text: call\('add', {...}\)\."
    async with Workbench([add]) as bench:
        for _ in range(2):  # the first call starts the workbench
            with pytest.raises(TypeError, match=form):
                await bench.call("add", a=1, b=2)  # type: ignore[call-overload]
            with pytest.raises(TypeError, match=form):
                await bench.call("add", 1, 2)  # type: ignore[call-overload]
            assert (await bench.call("add", {"a": 1, "b": 2})).unwrap() == 3
