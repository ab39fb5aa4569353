"""What reaches an MCP client while its call runs: lines that a tool logs, and its progress."""

import asyncio
import logging
from typing import Any

import mcp_types as wire
import pytest
from mcp import Client

from toolcrib import Context, Crib, tool
from toolcrib.serve import server

from .serving import served

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
MODERN = "2026-07-28"


async def test_each_line_reaches_the_client_while_the_call_runs() -> None:
    lines: list[Any] = []
    came = asyncio.Event()

    async def log(params: wire.LoggingMessageNotificationParams) -> None:
        lines.append(params.data)
        came.set()

    @tool
    async def work(context: Context) -> str:
        for number in range(3):
            came.clear()
            context.log.warning("line %d", number)
            context.log.warning("and %d", number)
            await came.wait()
        context.log.warning("last")
        return "done"

    crib = Crib([work])
    async with asyncio.timeout(60), crib, Client(server(crib), mode="legacy", logging_callback=log) as client:
        await client.call_tool("work")
    assert lines == [*(f"{word} {number}" for number in range(3) for word in ("line", "and")), "last"]


async def test_a_line_that_cannot_be_written_fails_no_call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Without the handlers of the test run, which would raise.
    monkeypatch.setattr(logging.getLogger("toolcrib.tool"), "propagate", False)

    @tool
    async def work(context: Context) -> str:
        context.log.warning("%d", "not a number")
        return "done"

    lines: list[Any] = []

    async def log(params: wire.LoggingMessageNotificationParams) -> None:
        lines.append(params.data)

    async with Crib([work]) as crib, Client(server(crib), mode="legacy", logging_callback=log) as client:
        assert (await client.call_tool("work")).structured_content == {"result": "done"}
        assert "Logging error" in capsys.readouterr().err
        logging.getLogger("toolcrib.tool.nobody").warning("of no call")
    assert (lines, capsys.readouterr().err) == ([], "")


@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_progress_begins_at_nothing_with_what_is_emitted_and_only_goes_forward(mode: str) -> None:
    came = asyncio.Event()

    @tool
    async def work(context: Context) -> str:
        await context.emit("a part")
        context.progress(2, 4, "on")
        await came.wait()
        context.progress(2, 4, "again")
        context.progress(1, 4, "back")
        await context.emit("half \udcff")
        return "done"

    seen: list[tuple[float, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, message))
        if message == "on":
            came.set()

    async with asyncio.timeout(60), served(Crib([work])) as url, Client(url, mode=mode) as client:
        await client.call_tool("work", progress_callback=progress)
    assert [seen[:2], [message for _, message in seen[2:]]] == [[(0.0, "a part"), (2.0, "on")], ["half ?"]]
