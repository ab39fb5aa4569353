"""What outlives a call: approvals that take long, and what `Depends` opens for more than the call."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest

from toolcrib import Approve, Call, Depends, Workbench, tool


async def test_the_deadline_stands_still_while_a_person_is_asked_for_approval() -> None:
    @tool
    async def work() -> str:
        await asyncio.sleep(0.01)
        return "done"

    async def ask(_: Any) -> Approve:
        await asyncio.sleep(0.2)
        return Approve()

    async with Workbench([work], policy=lambda *_: "ask", ask=ask, timeout_s=0.15) as bench:
        assert (await bench.call("work")).text == "done"


async def test_what_is_opened_for_a_session_has_no_deadline_and_shows_no_secret(
    caplog: pytest.LogCaptureFixture,
) -> None:
    polled: list[asyncio.Task[Any]] = []

    @tool
    async def work() -> str:
        await asyncio.sleep(0.01)
        return "done"

    async def poll() -> Any:
        await asyncio.sleep(0.2)
        return await bench.call("work")

    async def poller() -> AsyncIterator[int]:
        polled.append(asyncio.create_task(poll()))
        yield 1
        raise OSError("refused for s3cret-key")

    @tool
    async def use(number: Annotated[int, Depends(poller)]) -> int:
        return number

    with caplog.at_level(logging.DEBUG):
        async with Workbench([use, work], secrets=["s3cret-key"]) as bench:
            assert (await bench.call(Call("use", timeout_s=0.1))).value == 1
            assert (await polled[0]).text == "done"
    assert "failed to close" in caplog.text
    assert "s3cret-key" not in caplog.text
