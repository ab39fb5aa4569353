"""MCP servers over HTTP that never end what they begin: each costs its own calls, and holds nothing for longer."""

import asyncio
from collections.abc import Mapping

import pytest

from toolcrib import Call, Caller, CancellationToken, Crib, Workbench
from toolcrib.tools.mcp import session, transports
from toolcrib.tools.remote import MCPSource

from ..waiting import until
from .raw_upstream import ERAS, EVENTS, NEW, OLD, Answer, Asked, accept, connected, never, raw_upstream, text, tool


async def endless(asked: Asked) -> None:
    await asked.head(content_type=EVENTS)
    await never(asked)


async def again_and_again(asked: Asked) -> None:
    """A stream that ends, and is to be asked for again at once."""
    await asked.head(content_type=EVENTS)
    await asked.send(b"id: 1\nretry: 0\ndata:\n\n")


ACCEPTED = {"notifications/initialized": accept}


async def code_of(bench: Workbench, name: str, timeout_s: float = 60) -> str:
    result = await bench.call(Call(name, {}, timeout_s=timeout_s))
    return "" if result.error is None else result.error.code


@ERAS
async def test_calls_that_were_given_up_hold_no_connection(
    era: Mapping[str, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transports, "MAX_CONNECTIONS", 20)
    monkeypatch.setattr(session, "MAX_CONNECTIONS", 20)
    async with connected({**era, "tools/call hangs": endless, "tools/call good": text("fine")}) as (upstream, bench):
        given_up = CancellationToken()
        calls = [asyncio.ensure_future(bench.call(Call("hangs", {}, cancellation=given_up))) for _ in range(30)]
        await until(lambda: len(upstream.seen("tools/call")) == 20)  # one that is given up earlier ends the session
        given_up.cancel()
        assert {result.error and result.error.code for result in await asyncio.gather(*calls)} == {"cancelled"}
        await until(lambda: upstream.open == 0)
        assert await code_of(bench, "good") == ""


@ERAS
@pytest.mark.parametrize("by", ["calls", "reads"])
async def test_the_connections_of_a_server_are_shared_by_principals(
    era: Mapping[str, Answer], by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One caller's calls that hang held all 200; so did their reads of resources, the case that was found beside."""
    most = 200 if (era, by) == (NEW, "calls") else 20  # as many as there are, once
    monkeypatch.setattr(transports, "MAX_CONNECTIONS", most)
    monkeypatch.setattr(session, "MAX_CONNECTIONS", most)
    says = {**era, "tools/call hangs": endless, "tools/call good": text("fine"), "resources/read r:bad": endless}
    says["resources/read r:good"] = {"contents": [{"uri": "r:good", "text": "fine"}]}
    says["resources/list"] = {"resources": [{"uri": uri, "name": "r"} for uri in ("r:bad", "r:good")]}
    says["tools/list"] = {"tools": [tool("hangs"), tool("good")]}
    async with (
        raw_upstream(says) as upstream,
        Crib([MCPSource(url=upstream.url).source()]) as crib,
        crib.workbench(Caller("ada")) as ada,
        crib.workbench(Caller("bob")) as bob,
    ):
        await until(lambda: bool(bob.specs()))
        many = [ada.offers.read("r:bad") if by == "reads" else ada.call("hangs", {}) for _ in range(most + 20)]
        tasks = [asyncio.ensure_future(work) for work in many]
        name, method = ("r:bad", "resources/read") if by == "reads" else ("hangs", "tools/call")

        def held() -> int:
            sent = [asked.message["params"] for asked in upstream.seen(method)]
            return sum(params.get("uri", params.get("name")) == name for params in sent)

        await until(lambda: held() >= most)
        assert (await bob.call(Call("good", {}, timeout_s=30))).text == "fine"
        async with asyncio.timeout(30):
            assert (await bob.offers.read("r:good")).unwrap()[0].data == "fine"
        assert held() == most  # ada's others wait for their turn
        for task in tasks:
            task.cancel()


async def test_a_stream_that_ends_at_once_is_not_asked_for_without_a_pause() -> None:
    says = {**OLD, "tools/call again": again_and_again, "GET": again_and_again, "tools/call good": text("fine")}
    async with connected(says) as (upstream, bench):
        assert await code_of(bench, "again", 1) == "timeout"
        assert len(upstream.seen("GET")) < 30
        await until(lambda: upstream.open == 0)
        assert await code_of(bench, "good") == ""


async def test_the_answer_to_a_request_is_fetched_again_only_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transports, "MAX_RESUMED", 5)
    async with connected({**NEW, "tools/call again": again_and_again, "GET": again_and_again}) as (upstream, bench):
        assert await code_of(bench, "again") == "lost"
        assert len(upstream.seen("GET")) == 5


@ERAS
async def test_requests_of_a_server_are_not_piled_up(era: Mapping[str, Answer]) -> None:
    most = 0

    size = 2000

    async def floods(asked: Asked) -> None:
        nonlocal most
        await asked.head(content_type=EVENTS)
        for first in range(0, size, 1000):
            lines = (b'data: {"jsonrpc":"2.0","id":%d,"method":"ping"}\n\n' % n for n in range(first, first + 1000))
            await asked.send(b"".join(lines))
            most = max(most, len(asyncio.all_tasks()))
        await asked.event({"id": asked.message["id"], "result": {**text("fine"), "resultType": "complete"}})

    # Our answers to what it asks it never accepts.
    async with connected({**era, "tools/call floods": floods, "POST": never, **ACCEPTED}) as (_, bench):
        assert await code_of(bench, "floods") == ""
        assert most < 500


async def test_what_a_server_does_not_accept_does_not_hold_up_the_calls_after_it() -> None:
    says = {**OLD, "tools/call hangs": endless, "tools/call good": text("fine"), "POST": never, **ACCEPTED}
    async with connected(says) as (upstream, bench):
        assert await code_of(bench, "hangs", 0.3) == "timeout"
        assert await code_of(bench, "good") == ""
        await until(lambda: len(upstream.seen("notifications/cancelled")) == 1)
