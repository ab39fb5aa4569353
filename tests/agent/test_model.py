"""Models of one's own: what an agent says to one that does not keep to the contract."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from toolcrib import Call, Workbench
from toolcrib.agent import Agent, ModelError, Outcome, Request
from toolcrib.formats import Reply, TextDelta

from .wire import add


class Mine:
    """Says one thing after the other, whole or streamed."""

    name = "mine"

    def __init__(self, *output: Any) -> None:
        self._output = list(output)

    async def reply(self, _: Request, /) -> Reply:
        output: Reply = self._output.pop(0)
        return output

    async def stream(self, _: Request, /) -> AsyncIterator[TextDelta | Reply]:
        yield self._output.pop(0)


async def run(agent: Agent, streaming: bool) -> Outcome:
    if not streaming:
        return await agent.run("Go.")
    *_, last = [event async for event in agent.stream("Go.")]
    assert isinstance(last, Outcome)
    return last


WRONG: list[tuple[Any, str]] = [
    (None, "None"),
    ("Hello", "a str"),
    ({"text": "Hello"}, "a dict"),
]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(("output", "what"), WRONG)
async def test_a_model_that_gives_no_reply_is_reported_so_and_what_was_done_is_kept(
    output: Any, what: str, streaming: bool
) -> None:
    first = Reply("", (Call("add", {"a": 1, "b": 2}, "c"),), "calls")
    with pytest.raises(ModelError) as raised:
        await run(Agent(Mine(first, output), [add]), streaming)
    assert str(raised.value) == (
        f"Model 'mine' returned {what}. Its `reply` must return a toolcrib.formats.Reply, and its `stream` must end "
        "with one: Reply(text, (Call(tool, arguments, id), ...))."
    )
    assert raised.value.so_far is not None
    assert [trace.text for trace in raised.value.so_far.trace] == ["3"]


@pytest.mark.parametrize("streaming", [False, True])
async def test_numbers_that_are_no_json_end_no_run_that_waits(streaming: bool) -> None:
    bench = Workbench([add], policy=lambda _spec, arguments, _caller: "ask" if arguments["a"] == 1 else "allow")
    calls = (Call("add", {"a": float("nan"), "b": 2}, "1"), Call("add", {"a": 1, "b": 2}, "2"))
    outcome = await run(Agent(Mine(Reply("", calls, "calls")), bench), streaming)
    assert outcome.status == "pending"
    assert [trace.code for trace in outcome.trace] == ["invalid_arguments", None]
    assert outcome.state is not None
    assert outcome.state["turns"][1]["calls"][0]["arguments"] == {"a": "NaN", "b": 2}
