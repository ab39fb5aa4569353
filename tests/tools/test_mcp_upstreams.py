"""MCP servers over HTTP that lie, in either era: about versions, lists and caching, and in what they ask of whom."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from toolcrib import Call, Caller, Crib, Input, Pending, ToolError, Workbench
from toolcrib.core import Answer as Answered
from toolcrib.core.source import OffersChange
from toolcrib.tools.mcp import offers
from toolcrib.tools.remote import MCPSource

from ..waiting import until
from .raw_upstream import ANY, ERAS, EVENTS, NEW, OLD, Answer, Asked, accept, connected, never, raw_upstream, text, tool

FORM = {"message": "Which one?", "requestedSchema": {**ANY, "properties": {"color": {"type": "string"}}}}


def asks(key: str = "a", **params: Any) -> dict[str, Any]:
    """A result of the newer era that asks for input."""
    asked = {"method": "elicitation/create", "params": params}
    return {"resultType": "input_required", "inputRequests": {key: asked}}


async def outcome(bench: Workbench, name: str) -> str:
    """How a call ends: with its text, or the code of its error."""
    result = await bench.call(Call(name, {}, timeout_s=60))
    return result.error.code if result.error is not None else result.text


# Lists


@ERAS
async def test_what_a_list_says_of_caching_costs_nothing(era: Mapping[str, Answer]) -> None:
    wrong = [{"ttlMs": "soon"}, {"ttlMs": 10**30}, {"cacheScope": "everybody"}]
    for hints in wrong:
        says = {**era, "tools/list": {"tools": [tool("good")], **hints}, "tools/call good": text("fine")}
        async with connected(says) as (_, bench):
            assert await outcome(bench, "good") == "fine", hints


@ERAS
async def test_what_a_page_says_beside_its_items_is_read_once(era: Mapping[str, Answer]) -> None:
    listed = [*(tool(f"t{number}") for number in range(800)), {"name": "none"}]
    page = {"tools": listed, "_meta": {"toolcrib/page": 5, "long": ["m" * 10] * 50_000}}
    async with connected({**era, "tools/list": page, "tools/call t1": text("fine")}) as (_, bench):
        assert await outcome(bench, "t1") == "fine"
        assert [problem.reason for problem in bench.problems] == [
            "Tool 'none' is not defined as MCP requires: inputSchema: Field required"
        ]


async def test_a_server_that_lists_slowly_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "LIST_TIMEOUT_S", 60)
    may_answer, is_asked = asyncio.Event(), asyncio.Event()
    may_answer.set()
    listed = [{"uri": "slow:1", "name": "one"}]

    async def slow(asked: Asked) -> None:
        is_asked.set()
        await may_answer.wait()
        await asked.result({"resources": listed})

    says = {**NEW, "resources/list": slow, "resources/templates/list": {"resourceTemplates": []}}
    async with raw_upstream(says) as upstream, Crib([source := MCPSource(url=upstream.url).source()]) as crib:
        crib.resources.add("own://one", "text")
        changes: list[OffersChange] = []
        source.on_offers_change(changes.append)
        async with crib.workbench() as bench:
            assert len(await bench.offers.resources()) == 2  # so it is known, and not being listed
            monkeypatch.setattr(offers, "LIST_TIMEOUT_S", 0.1)
            may_answer.clear()
            is_asked.clear()
            listed.append({"uri": "slow:2", "name": "two"})
            assert [each.uri for each in await bench.offers.resources()] == ["own://one", "slow:1"]
            await is_asked.wait()
            before, count = len(changes), len(upstream.seen("resources/list"))
            assert [each.uri for each in await bench.offers.resources()] == ["own://one", "slow:1"]
            assert len(upstream.seen("resources/list")) == count  # it is asked already
            may_answer.set()
            await until(lambda: OffersChange("resources") in changes[before:])
            uris = {each.uri for each in await bench.offers.resources()}
            assert uris == {"own://one", "slow:1", "slow:2"}


# Versions and states


async def test_a_server_that_speaks_another_version_is_connected_to_again() -> None:
    async def moved(asked: Asked) -> None:
        upstream.says |= {**OLD, "server/discover": gone, "tools/call moves": text("fine")}
        error = {"code": -32022, "message": "No.", "data": {"supported": ["2025-11-25"], "requested": "2026-07-28"}}
        await asked.body(json.dumps({"jsonrpc": "2.0", "id": asked.message["id"], "error": error}).encode(), 400)

    async def gone(asked: Asked) -> None:
        await asked.body(b"", 404)

    async with connected({**NEW, "tools/call moves": moved}) as (upstream, bench):
        assert await outcome(bench, "moves") == "unavailable"
        async with asyncio.timeout(60):
            while await outcome(bench, "moves") != "fine":
                await asyncio.sleep(0.01)


@ERAS
async def test_a_server_that_is_busy_says_so_and_stays_connected(era: Mapping[str, Answer]) -> None:
    def status(number: int) -> Any:
        async def answer(asked: Asked) -> None:
            await asked.body(b"<html>", number, content_type="text/html", retry_after="-99999999999999")

        return answer

    says = {**era, "tools/call many": status(429), "tools/call down": status(503), "tools/call good": text("fine")}
    async with connected(says) as (upstream, bench):
        assert [await outcome(bench, name) for name in ("many", "down", "good")] == ["limited", "unavailable", "fine"]
        assert len(upstream.seen("tools/list")) == 1


# Questions


@ERAS
async def test_what_a_resource_asks_is_asked_of_no_call_that_runs_beside_it(era: Mapping[str, Answer]) -> None:
    asked_of: list[str] = []
    has_read = asyncio.Event()

    async def ask(pending: Pending) -> Answered:
        asked_of.append(pending.principal)
        return Input({"color": "red"})

    async def slow(asked: Asked) -> None:
        await has_read.wait()
        await asked.result(text("fine"))

    async def read(asked: Asked) -> None:
        if "server/discover" in era:
            await asked.result(asks(**FORM))
            return
        await asked.head(content_type=EVENTS)
        await asked.event({"id": "q", "method": "elicitation/create", "params": FORM})
        await until(lambda: any(each.message.get("id") == "q" for each in upstream.asked))
        await asked.event({"id": asked.message["id"], "error": {"code": -32000, "message": "No."}})

    says: dict[str, Answer] = {**era, "tools/call slow": slow, "resources/read": read, "POST": accept}
    says |= {"tools/list": {"tools": [tool("slow")]}, "resources/list": {"resources": [{"uri": "a:1", "name": "a"}]}}
    async with (
        raw_upstream(says) as upstream,
        Crib([MCPSource(url=upstream.url).source()], ask=ask) as crib,
        crib.workbench(Caller("alice")) as alice,
        crib.workbench(Caller("bob")) as bob,
    ):
        running = asyncio.create_task(outcome(alice, "slow"))
        await until(lambda: bool(upstream.seen("tools/call")))
        with pytest.raises(ToolError):
            (await bob.offers.read("a:1")).unwrap()
        has_read.set()
        assert await running == "fine"
        assert asked_of == []


async def test_over_http_a_question_is_for_the_call_on_whose_stream_it_comes() -> None:
    """A call that was given up, and one that runs, kept questions from everybody; so did a read of a resource."""

    async def ask(pending: Pending) -> Answered:
        return Input({"color": pending.principal})

    async def asking(asked: Asked) -> None:
        await asked.head(content_type=EVENTS)
        number = f"q{len(upstream.asked)}"
        await asked.event({"id": number, "method": "elicitation/create", "params": FORM})
        await until(lambda: any(each.message.get("id") == number for each in upstream.asked))
        reply = next(each.message for each in upstream.asked if each.message.get("id") == number)
        content = reply.get("result", {}).get("content", {"color": "nobody"})
        result = {**text(content["color"])}
        await asked.event({"id": asked.message["id"], "result": result})

    says = {**OLD, "tools/call hangs": never, "tools/call asks": asking, "POST": accept, "resources/read": never}
    says["tools/list"] = {"tools": [tool("hangs"), tool("asks")]}
    says["resources/list"] = {"resources": [{"uri": "a:1", "name": "a"}]}
    async with (
        raw_upstream(says) as upstream,
        Crib([MCPSource(url=upstream.url).source()], ask=ask) as crib,
        crib.workbench(Caller("alice")) as alice,
        crib.workbench(Caller("bob")) as bob,
    ):
        assert await outcome(bob, "asks") == "bob"
        await alice.call(Call("hangs", {}, timeout_s=1))
        assert await outcome(bob, "asks") == "bob"
        running = [asyncio.create_task(outcome(alice, "hangs")), asyncio.create_task(alice.offers.read("a:1"))]
        await until(lambda: len(upstream.seen("tools/call")) == 4 and bool(upstream.seen("resources/read")))
        both = await asyncio.gather(outcome(alice, "asks"), outcome(bob, "asks"))
        assert both == ["alice", "bob"]
        for task in running:
            task.cancel()


async def test_a_question_of_a_later_round_is_another_one_whatever_its_name() -> None:
    async def ask(pending: Pending) -> Answered:
        asked_for.append(pending.message.rpartition(": ")[2])
        return Input({"color": str(len(asked_for))})

    async def twice(asked: Asked) -> None:
        params = asked.message["params"]
        state, answer = params.get("requestState"), params.get("inputResponses", {}).get("a", {})
        given.append((state, answer.get("content")))
        if state == "second":
            await asked.result(text("fine"))
        else:
            following = "second" if state == "first" else "first"
            await asked.result({**asks(**{**FORM, "message": following}), "requestState": following})

    asked_for: list[str] = []
    given: list[Any] = []
    async with connected({**NEW, "tools/call twice": twice}, ask=ask) as (_, bench):
        assert await outcome(bench, "twice") == "fine"
        assert asked_for == ["first", "second"]
        assert given == [(None, None), ("first", {"color": "1"}), ("second", {"color": "2"})]


async def test_a_question_that_is_no_question_ends_the_call() -> None:
    form = {"message": "m"}
    wrong: dict[str, Any] = {
        "large": asks(**form, requestedSchema={**ANY, "properties": {"a": {"type": "string", "title": "t" * 100_000}}}),
        "no_schema": asks(**form, requestedSchema={**ANY, "properties": {"a": {"type": "nonsense"}}}),
        "named": asks("k" * 10_000, **FORM),
        "again": asks(**FORM),
        "script": asks(mode="url", message="m", url="javascript:alert(1)"),
        "file": asks(mode="url", message="m", url="file:///etc/passwd"),
        "long": asks(mode="url", message="m", url="https://example.com/" + "a" * 100_000),
        "pretends": asks(mode="url", message="m", url="https://bank.example@example.com/"),
        "broken": asks(mode="url", message="m", url="https://[example.com/"),
        "sampling": {
            "resultType": "input_required",
            "inputRequests": {"a": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}},
        },
        "state_only": {"resultType": "input_required", "requestState": "s" * 1_000_000},
    }

    async def ask(pending: Pending) -> Answered:
        asked_by.add(pending.tool)
        return Input({"color": "red"})

    asked_by: set[str] = set()
    async with connected({**NEW, **{f"tools/call {name}": reply for name, reply in wrong.items()}}, ask=ask) as (
        upstream,
        bench,
    ):
        assert {name: await outcome(bench, name) for name in wrong} == dict.fromkeys(wrong, "failed")
        asked = [each for each in upstream.seen("tools/call") if each.message["params"]["name"] == "again"]
        assert len(asked) == 20
        assert asked_by == {"again"}
