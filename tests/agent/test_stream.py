"""A run as it is watched: words and calls while they come, the outcome last."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from toolcrib import Approve, Call, CancellationToken, Context, Text, Workbench
from toolcrib.agent import (
    Agent,
    CallEvent,
    CallFinished,
    CallStarted,
    ModelError,
    Outcome,
    Request,
    RunEvent,
    ScriptedModel,
)
from toolcrib.core import Emitted, Progress
from toolcrib.formats import Reply, TextDelta, Usage


async def count(context: Context, to: int) -> int:
    """Count."""
    context.progress(0, to)
    await asyncio.sleep(0)
    for n in range(to):
        await context.emit(f"{n + 1}")
    return to


def kinds(events: list[RunEvent | Outcome]) -> list[str]:
    return [type(event).__name__ for event in events]


async def watched(agent: Agent, prompt: str = "Go.", **options: Any) -> list[RunEvent | Outcome]:
    return [event async for event in agent.stream(prompt, **options)]


async def test_words_and_calls_are_reported_in_order_and_the_outcome_last() -> None:
    call = Call("count", {"to": 2}, "call_1")
    model = ScriptedModel(
        [{"text": "Let me count.", "calls": [("count", {"to": 2})], "usage": {"output": 3}}, "All two."]
    )
    events = await watched(Agent(model, [count]))

    *before, outcome = events
    assert [event for event in before if not isinstance(event, CallFinished)] == [
        *map(TextDelta, ["Let ", "me ", "count."]),
        CallStarted(call),
        *(CallEvent(call, event) for event in (Progress(0, 2), Emitted((Text("1"),)), Emitted((Text("2"),)))),
        *map(TextDelta, ["All ", "two."]),
    ]
    (ended,) = (event for event in before if isinstance(event, CallFinished))
    assert (ended.call, ended.result.text, kinds(events).index("CallFinished")) == (call, "2", 7)
    assert isinstance(outcome, Outcome)
    assert (outcome.status, outcome.text, outcome.usage) == ("done", "All two.", Usage(0, 3))


async def test_a_watched_run_ends_as_one_that_is_not() -> None:
    script = [{"calls": [("count", {"to": 1}), ("cuont", {}), ("count", "{")]}, "done"]
    *_, watched_outcome = await watched(Agent(ScriptedModel(script), [count]))
    outcome = await Agent(ScriptedModel(script), [count]).run("Go.")
    assert isinstance(watched_outcome, Outcome)

    def timeless(outcome: Outcome) -> Any:
        return outcome.status, outcome.text, [(t.call_id, t.arguments, t.text, t.code) for t in outcome.trace]

    assert timeless(watched_outcome) == timeless(outcome)


async def test_calls_of_one_turn_are_reported_side_by_side_or_one_after_the_other() -> None:
    all_here = asyncio.Barrier(2)

    async def meet(n: int) -> int:
        await all_here.wait()
        return n

    script = [{"calls": [("meet", {"n": 1}), ("meet", {"n": 2})]}, ""]
    async with asyncio.timeout(30):
        together = await watched(Agent(ScriptedModel(script), [meet]))
    assert kinds(together) == ["CallStarted", "CallStarted", "CallFinished", "CallFinished", "Outcome"]

    all_here = asyncio.Barrier(1)
    in_turn = await watched(Agent(ScriptedModel(script), [meet], parallel=False))
    assert kinds(in_turn) == ["CallStarted", "CallFinished", "CallStarted", "CallFinished", "Outcome"]


async def test_a_run_that_waits_says_so_last() -> None:
    bench = Workbench([count], policy=lambda *_: "ask")
    *_, ended, outcome = await watched(Agent(ScriptedModel([{"calls": [("count", {"to": 1})]}]), bench))
    assert isinstance(ended, CallFinished)
    assert isinstance(outcome, Outcome)
    assert (ended.result.status, outcome.status) == ("pending", "pending")
    assert outcome.state is not None
    answers = {outcome.pendings[0].id: Approve()}
    assert (await Agent(ScriptedModel(["done"]), bench).resume(outcome.state, answers, by="ada")).text == "done"


class Slow:
    """A model that is cut off, or never done, in the middle of its words."""

    name = "slow"

    def __init__(self, *, ends: bool) -> None:
        self.ends = ends
        self.log: list[str] = []

    async def reply(self, request: Request, /) -> Reply:
        raise AssertionError("a run that is watched streams its model")

    async def stream(self, request: Request, /) -> AsyncIterator[TextDelta | Reply]:
        try:
            yield TextDelta("Once ")
            if not self.ends:
                await asyncio.Event().wait()
        finally:
            self.log.append("closed")


async def test_a_stream_of_words_without_a_reply_is_an_error_of_the_model() -> None:
    seen: list[RunEvent | Outcome] = []
    with pytest.raises(ModelError, match="ended without a reply") as raised:
        async for event in Agent(Slow(ends=True)).stream("Go."):
            seen.append(event)
    assert seen == [TextDelta("Once ")]
    assert raised.value.so_far is not None
    assert raised.value.so_far.status == "failed"


async def test_a_reader_that_leaves_in_the_middle_of_a_reply_closes_it() -> None:
    before = asyncio.all_tasks()
    model = Slow(ends=False)
    async with aclosing(Agent(model).stream("Go.")) as events:  # type: ignore[type-var]
        async for event in events:
            assert event == TextDelta("Once ")
            break
    assert model.log == ["closed"]
    assert asyncio.all_tasks() == before


async def test_a_reader_that_leaves_cancels_the_calls_and_leaves_no_tasks() -> None:
    log: list[str] = []

    async def slow(context: Context) -> None:
        """Takes for ever."""
        try:
            await context.emit("running")
            await asyncio.Event().wait()
        finally:
            log.append("ended")

    before = asyncio.all_tasks()
    events = Agent(ScriptedModel([{"calls": [("slow", {}), ("slow", {})]}]), [slow]).stream("Go.")
    running = 0
    async for event in events:
        running += isinstance(event, CallEvent)
        if running == 2:
            break
    await events.aclose()  # type: ignore[attr-defined]
    assert log == ["ended", "ended"]
    assert asyncio.all_tasks() == before


async def test_a_cancelled_token_ends_a_watched_run_with_its_outcome() -> None:
    before = asyncio.all_tasks()
    token = CancellationToken()
    model = Slow(ends=False)
    seen: list[RunEvent | Outcome] = []
    async for event in Agent(model).stream("Go.", cancellation=token):
        seen.append(event)
        token.cancel()
    assert kinds(seen) == ["TextDelta", "Outcome"]
    assert isinstance(seen[-1], Outcome)
    assert seen[-1].status == "cancelled"
    assert model.log == ["closed"]
    assert asyncio.all_tasks() == before


async def test_a_slow_reader_holds_back_the_run() -> None:
    made = 0

    async def chatter(context: Context) -> None:
        """Says much."""
        nonlocal made
        for n in range(1000):
            await context.emit(str(n))
            made += 1

    output: list[str] = []
    async for event in Agent(ScriptedModel([{"calls": [("chatter", {})]}, "done"]), [chatter]).stream("Go."):
        if isinstance(event, CallEvent) and isinstance(event.event, Emitted):
            output.append(event.event.content[0].text)
            for _ in range(5):
                await asyncio.sleep(0)
            assert made - len(output) < 50
    assert output == [str(n) for n in range(1000)]
