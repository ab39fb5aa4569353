"""Sync and async tools that call each other in any order, serial and limited ones too, cancelled at random moments."""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest

from toolcrib import Call, CancellationToken, Context, Depends, Tool, ToolError, Workbench
from toolcrib.workbench import Limit

from .. import fuzz

WAIT_S = 60.0


class Storm:
    """Tools that call each other along a path, and how many values were opened and closed for them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.count: Counter[str] = Counter()
        self.codes: Counter[str | None] = Counter()
        self._lock = threading.Lock()

        async def on_loop(path: list[str], value: Annotated[int, Depends(self.plain, scope="call")]) -> None:
            await self.go_on(path)

        def in_thread(
            path: list[str],
            context: Context,
            one: Annotated[int, Depends(self.plain, scope="call")],
            other: Annotated[int, Depends(self.async_, scope="call")],
        ) -> None:
            self.go_on_in_thread(path, context)

        tools = {
            f"{fn.__name__}_{'serial' if serial else 'free'}_{number}": (fn, serial)
            for number in range(2)
            for fn in (on_loop, in_thread)
            for serial in (False, True)
        }
        self.names = list(tools)
        self.bench = Workbench(
            [Tool(fn, name=name, serial=serial) for name, (fn, serial) in tools.items()],
            limits=[Limit("*free_1", concurrency=1, wait_s=0.05)],
        )

    def note(self, what: str) -> None:
        with self._lock:
            self.count[what] += 1

    def plain(self) -> Iterator[int]:
        self.note("opened")
        yield 1
        self.note("closed")

    async def async_(self) -> AsyncIterator[int]:
        self.note("opened")
        yield 1
        await asyncio.sleep(0)
        self.note("closed")

    def go_on_sync(self, path: list[str]) -> None:
        if path:
            result = self.bench.call_sync(path[0], {"path": path[1:]})
            if result.error is not None:
                raise ToolError(result.error.message, result.error.code)

    async def go_on(self, path: list[str]) -> None:
        await asyncio.sleep(self.chance.random() * 0.005)
        if path:
            (await self.bench.call(path[0], {"path": path[1:]})).unwrap()

    def go_on_in_thread(self, path: list[str], context: Context) -> None:
        time.sleep(self.chance.random() * 0.003)
        if self.chance.random() < 0.5:
            self.go_on_sync(path)
        elif path:
            context.wait(self.bench.call(path[0], {"path": path[1:]})).unwrap()

    async def call(self) -> None:
        first, *rest = (self.chance.choice(self.names) for _ in range(self.chance.randint(1, 5)))
        how, after_s = self.chance.choice(["", "", "deadline", "token", "task"]), self.chance.random() * 0.3
        token = CancellationToken()
        timeout_s = after_s if how == "deadline" else None
        task = asyncio.create_task(
            self.bench.call(Call(first, {"path": rest}, cancellation=token, timeout_s=timeout_s))
        )
        if how in ("token", "task"):
            await asyncio.sleep(after_s)
            token.cancel() if how == "token" else task.cancel()
        try:
            result = await task
        except asyncio.CancelledError:
            assert how == "task"
        else:
            self.codes[result.error and result.error.code] += 1

    async def calls(self, number: int) -> None:
        await asyncio.wait_for(asyncio.gather(*(self.call() for _ in range(number))), WAIT_S)

    def sync_calls(self, number: int) -> None:
        for _ in range(number):
            result = self.bench.call_sync(self.chance.choice(self.names), {"path": [self.chance.choice(self.names)]})
            self.codes[result.error and result.error.code] += 1


async def storm(seed: int, number: int) -> None:
    weather = Storm(seed)
    await weather.bench.start()
    ended: list[BaseException | None] = []

    def run(work: Any) -> None:
        try:
            work()
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    def on_another_loop() -> None:
        asyncio.run(weather.calls(number // 3))

    works = [on_another_loop, *[lambda: weather.sync_calls(number // 10)] * 4]
    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    await weather.calls(number)
    for thread in threads:
        await asyncio.to_thread(thread.join, WAIT_S)
    assert ended == [None] * len(threads)
    assert weather.codes.keys() <= {None, "timeout", "cancelled", "limited", "conflict"}, weather.codes
    async with asyncio.timeout(WAIT_S):
        while weather.count["opened"] != weather.count["closed"]:
            await asyncio.sleep(0.01)
        for name in weather.names:  # all locks and places are free again, once threads that were given up have ended
            while (await weather.bench.call(name, {"path": []})).error is not None:
                await asyncio.sleep(0.01)
        await weather.bench.stop()


async def test_calls_that_nest_in_any_order_all_end() -> None:
    await storm(1, 60)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", fuzz.seeds(5))
async def test_a_storm_of_nested_calls_ends_with_results_and_leaves_nothing_open(seed: int) -> None:
    await storm(seed, 500)
