"""Whole calls can be wrapped: in order, with an answer of one's own, and without doubt about how they end."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from toolcrib import Call, Caller, Result, ToolError, Workbench, tool
from toolcrib.call.runtime import Resources
from toolcrib.core import Tool as AnyTool
from toolcrib.machinery import Next
from toolcrib.record import CallLog
from toolcrib.workbench import Limit


@tool
async def add(a: int, b: int) -> int:
    return a + b


async def test_wrappers_see_the_call_in_order_and_may_answer_it_themselves() -> None:
    seen: list[str] = []
    kept: dict[Any, Result[Any]] = {}

    async def note(tool: AnyTool, call: Call, caller: Caller, go_on: Next) -> Result[Any]:
        seen.append(f"{caller.principal} calls {tool.spec.name}")
        result = await go_on()
        seen.append(f"{call.tool} gave {result.text}")
        return result

    async def keep(tool: AnyTool, call: Call, caller: Caller, go_on: Next) -> Result[Any]:
        if call.arguments not in kept:
            seen.append("asked")
            kept[call.arguments] = await go_on()
        return kept[call.arguments]

    bench = Workbench([add], caller=Caller("alice"), middleware=[note, keep], limits=[Limit(rate="1/h", wait_s=0)])
    text = '{"a": 1, "b": 2}'
    assert [(await bench.call("add", text)).value for _ in range(3)] == [3, 3, 3], "what is kept costs no turn"
    assert seen == ["alice calls add", "asked", "add gave 3", *["alice calls add", "add gave 3"] * 2]
    refused = await bench.call("add", '{"a": 2, "b": 2}')
    assert refused.error is not None
    assert refused.error.code == "limited"


async def test_what_a_wrapper_raises_is_how_the_call_failed_and_is_recorded() -> None:
    raised: list[BaseException] = [ToolError("not today", "conflict"), RuntimeError("password=hunter2")]

    async def refuse(tool: AnyTool, call: Call, caller: Caller, go_on: Next) -> Result[Any]:
        raise raised.pop(0)

    log = CallLog()
    bench = Workbench([add], middleware=[refuse], recorder=log)
    refused, failed = await bench.call(Call("add", id="one")), await bench.call(Call("add", id="two"))
    assert (refused.error and refused.error.code, refused.text, refused.call_id) == ("conflict", "not today", "one")
    assert failed.error is not None
    assert failed.error.code == "failed"
    assert "hunter2" not in failed.text
    assert [(entry.call_id, entry.code) for entry in log] == [("one", "conflict"), ("two", "failed")]


async def test_a_wrapped_call_streams_and_can_be_cancelled() -> None:
    begun = asyncio.Event()

    @tool
    async def count(up_to: int) -> Any:
        for number in range(up_to):
            yield number

    @tool
    async def wait() -> None:
        begun.set()
        await asyncio.sleep(600)

    async def plain(tool: AnyTool, call: Call, caller: Caller, go_on: Next) -> Result[Any]:
        return await go_on()

    bench = Workbench([count, wait], middleware=[plain])
    *events, result = [event async for event in bench.stream("count", {"up_to": 3})]
    assert isinstance(result, Result)
    assert (len(events), result.value) == (2, 2)
    waiting = asyncio.create_task(bench.call("wait"))
    await begun.wait()
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()


def test_what_tools_share_is_made_once_by_threads_that_ask_at_once() -> None:
    resources = Resources()

    def slow() -> object:
        time.sleep(0.05)
        return object()

    with ThreadPoolExecutor(8) as pool:
        made = {*pool.map(lambda _: resources.get(slow), range(8))}
    assert made == {*resources}
    assert len(made) == 1
