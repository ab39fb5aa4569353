"""Calls of tools in processes: within other calls, while a bench stops, and with what the host gives to them."""

import asyncio
from typing import Any

import pytest

from toolcrib import Call, Context, Result, Workbench, tool
from toolcrib.sandbox import Processes

from ..doubled import doubled


@pytest.mark.parametrize("given", [None, {}, {"tenant": 7, "path": ["a", {"b": None}], "text": "\u00e9"}])
async def test_the_data_of_a_call_is_what_it_is_in_process(tools: str, given: Any) -> None:
    async with Workbench([tools]) as bench:
        result = await bench.call(Call("data", {}, data=given))
    assert result.unwrap() == given


async def test_data_that_cannot_be_sent_is_missing_with_its_reason(tools: str) -> None:
    async with Workbench([tools], show_errors=True) as bench:
        result = await bench.call(Call("data", {"name": "lock"}, data={"lock": asyncio.Lock()}))
    assert "'lock' is a Lock, which stays in the host's process" in result.text


async def test_the_deadline_of_a_calling_tool_holds_while_a_worker_starts(tools: str) -> None:
    results: list[Result[Any]] = []

    @tool
    async def outer(ctx: Context) -> str:
        results.append(await bench.call(Call("pid", timeout_s=30)))
        return "done"

    async with doubled([outer, tools], processes=(processes := Processes(size=1))) as bench:
        began = asyncio.get_running_loop().time()
        result = await bench.call(Call("outer", timeout_s=0.05))
        assert result.error is not None
        assert result.error.code == "timeout"
        assert asyncio.get_running_loop().time() - began < 25
        # Starting a worker does not count towards a deadline of the call's own.
        assert (await bench.call(Call("pid", timeout_s=5))).status == "success"
    await processes.close()


async def test_calls_that_wait_for_a_worker_when_the_bench_stops_are_lost_and_not_broken(tools: str) -> None:
    bench = doubled([tools], processes=(processes := Processes(size=1)))
    await bench.start()
    calls = [asyncio.create_task(bench.call(Call("spin"))) for _ in range(3)]
    await asyncio.sleep(1)
    await processes.close()
    codes = [result.error and result.error.code for result in await asyncio.gather(*calls)]
    await bench.stop()
    assert codes == ["lost"] * 3


async def test_a_cancellation_that_comes_late_cancels_no_other_call(tools: str) -> None:
    async with Processes(size=1) as processes, doubled([tools], processes=processes) as bench:
        await bench.call("pid")
        (worker,) = processes._idle
        await worker.send({"do": "cancel", "call": -1})  # before any other, and while another runs
        running = asyncio.create_task(bench.call("nap", {"seconds": 0.3}))
        await asyncio.sleep(0.1)
        await worker.send({"do": "cancel", "call": -1})
        assert (await running).value == "slept"
