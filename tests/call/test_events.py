"""Tools say things while they run; a slow reader holds back the tool, not the memory."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest

from toolcrib import Context, Result, Text, ToolError, Workbench, tool
from toolcrib.core import Data, Emitted, Progress


@tool
async def count(to: int) -> AsyncIterator[int]:
    for n in range(to):
        yield n


@tool
def count_in_a_thread(to: int) -> Iterator[int]:
    yield from range(to)


@pytest.mark.parametrize("name", ["count", "count_in_a_thread"])
async def test_what_a_generator_yields_is_emitted_and_the_last_is_the_result(name: str) -> None:
    async with Workbench([count, count_in_a_thread]) as bench:
        *events, result = [event async for event in bench.stream(name, {"to": 3})]
        assert events == [Emitted((Data("0"),)), Emitted((Data("1"),))]
        assert isinstance(result, Result)
        assert (result.value, result.text) == (2, "2")
        assert (await bench.call(name, {"to": 3})).value == 2
        assert (await bench.call(name, {"to": 0})).value is None


async def test_progress_and_content_come_before_the_result_from_async_and_from_threads() -> None:
    async def work(ctx: Context) -> str:
        ctx.progress(1, 2, "half")
        await ctx.emit("some text")
        return "done"

    def threaded(ctx: Context) -> str:
        ctx.progress(1, 2, "half")
        ctx.wait(ctx.emit("some text"))
        return "done"

    async with Workbench([work, threaded]) as bench:
        for name in ("work", "threaded"):
            *events, result = [event async for event in bench.stream(name)]
            assert events == [Progress(1, 2, "half"), Emitted((Text("some text"),))]
            assert result.text == "done"
            assert (await bench.call(name)).text == "done"


async def test_a_slow_reader_holds_back_the_tool() -> None:
    ahead = 0

    async def fast() -> AsyncIterator[int]:
        nonlocal ahead
        for n in range(1000):
            ahead = n
            yield n

    stream = Workbench([fast]).stream("fast")
    first = await anext(stream)
    assert first == Emitted((Data("0"),))
    for _ in range(50):
        await asyncio.sleep(0)
    assert ahead < 30
    rest = [event async for event in stream]
    assert len(rest) == 999
    assert rest[-1].value == 999


async def test_a_reader_that_leaves_cancels_the_call() -> None:
    ended = asyncio.Event()

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            ended.set()

    stream: Any = Workbench([endless]).stream("endless")
    await anext(stream)
    await stream.aclose()
    await asyncio.wait_for(ended.wait(), 60)


async def test_a_generator_that_fails_half_way_gives_what_it_had_and_then_the_error() -> None:
    async def breaks() -> AsyncIterator[str]:
        yield "one"
        yield "two"
        raise ToolError("no three")

    *events, result = [event async for event in Workbench([breaks]).stream("breaks")]
    assert events == [Emitted((Text("one"),))]
    assert result.text == "no three"


@pytest.mark.parametrize("cut", range(1, 14))
async def test_a_secret_split_over_two_pieces_is_redacted(cut: int) -> None:
    secret = "hunter2-secret"

    async def leak(ctx: Context) -> str:
        await ctx.emit(f"the token is {secret[:cut]}")
        await ctx.emit(f"{secret[cut:]} and more")
        ctx.progress(1, message=f"with {secret}")
        return "done"

    events = [event async for event in Workbench([leak], secrets=[secret]).stream("leak")]
    text = "".join(part.text for event in events if isinstance(event, Emitted) for part in event.content)
    assert text == "the token is [secret] and more"
    assert Progress(1, None, "with [secret]") in events


async def test_text_that_only_looks_like_the_beginning_of_a_secret_is_not_lost() -> None:
    async def tease(ctx: Context) -> str:
        await ctx.emit("I was a hunter")
        return "done"

    events = [event async for event in Workbench([tease], secrets=["hunter2-secret"]).stream("tease")]
    assert "".join(e.content[0].text for e in events if isinstance(e, Emitted)) == "I was a hunter"  # type: ignore[union-attr]


async def test_a_tool_that_ignores_its_cancellation_and_emits_on_does_not_hold_its_reader() -> None:
    count = 0

    async def stubborn(ctx: Context) -> str:
        nonlocal count
        with suppress(asyncio.CancelledError):
            while True:
                await ctx.emit("more")
        for _ in range(1000):
            await ctx.emit("still more")
            count += 1
        return "done"

    events = Workbench([stubborn]).stream("stubborn")
    assert await anext(events) == Emitted((Text("more"),))
    async with asyncio.timeout(60):
        await events.aclose()  # type: ignore[attr-defined]
    assert count == 1000
