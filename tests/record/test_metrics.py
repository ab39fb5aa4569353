"""Figures of calls, with as many series as there are tools."""

import asyncio

from toolcrib import Workbench, tool
from toolcrib.core import CallRecord
from toolcrib.record import Metrics

from ..waiting import until


@tool
async def add(a: int, b: int) -> int:
    return a + b


async def test_calls_are_counted_by_tool_status_and_code() -> None:
    metrics, go_on = Metrics(), asyncio.Event()

    @tool
    async def wait() -> None:
        await go_on.wait()

    async with Workbench([add, wait], recorder=metrics) as bench:
        await bench.call(add, 1, 2)
        await bench.call("add", {"a": 1})
        task = asyncio.create_task(bench.call("wait"))
        await until(lambda: "toolcrib_calls_in_flight 1.0\n" in metrics.text())
        go_on.set()
        await task
        for number in range(100):
            await bench.call(f"made_up_{number}")
    text = metrics.text()
    assert 'toolcrib_calls_total{code="",status="success",tool="add"} 1.0\n' in text
    assert 'toolcrib_calls_total{code="invalid_arguments",status="error",tool="add"} 1.0\n' in text
    assert 'toolcrib_calls_total{code="unknown_tool",status="error",tool="unknown"} 100.0\n' in text
    assert 'toolcrib_call_duration_seconds_count{tool="wait"} 1.0\n' in text
    assert "toolcrib_calls_in_flight 0.0\n" in text
    assert "made_up" not in text


async def test_beyond_so_many_tools_the_rest_are_counted_together() -> None:
    metrics = Metrics(most_tools=2)
    for number in range(10):
        record = CallRecord("c", f"t{number}", None, 0.0, "success")  # type: ignore[arg-type]
        await metrics.finished(record)
    assert 'toolcrib_calls_total{code="",status="success",tool="other"} 8.0\n' in metrics.text()
    assert 'tool="t2"' not in metrics.text()
