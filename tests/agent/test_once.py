"""Tools with `once`: each request of a model has a key of its own, which it keeps when its run is resumed."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Approve, Call, Context, SetupError, Workbench, tool
from toolcrib.agent import Agent, Outcome, ScriptedModel
from toolcrib.formats import Reply
from toolcrib.workbench import Rule, Rules


class Bank:
    """A tool whose effects, and the keys that they were had under, are noted."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.keys: list[Any] = []

    @tool(once=True)
    async def pay(self, amount: int, context: Context) -> str:
        """Pay."""
        self.paid.append(amount)
        self.keys.append(context.idempotency_key)
        return f"paid {amount}"

    @tool
    async def look(self, context: Context) -> str:
        """Look."""
        self.keys.append(context.idempotency_key)
        return "nothing"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def repeating(*turns: Reply | str) -> ScriptedModel:
    return ScriptedModel(list(turns))


def pays(*amounts: int) -> Reply:
    """A reply with calls under the ids of a server that counts them anew in each reply."""
    return Reply(calls=tuple(Call("pay", {"amount": one}, f"call_{at}") for at, one in enumerate(amounts)))


async def test_each_request_has_a_key_of_its_own_whatever_ids_the_model_chooses(path: Path) -> None:
    bank = Bank()
    async with Workbench([bank], store=path) as bench:
        for _ in range(2):
            model = repeating(pays(3, 3), pays(3), Reply(calls=(Call("look", None, "call_0"),)), "Done.")
            assert (await Agent(model, bench).run("Pay.")).status == "done"
    assert bank.paid == [3] * 6
    assert bank.keys.count(None) == 2
    assert len({key for key in bank.keys if key}) == 6


@pytest.mark.parametrize("streams", [False, True])
async def test_a_run_that_is_resumed_twice_from_one_state_pays_once(path: Path, streams: bool) -> None:
    bank, rules = Bank(), Rules([Rule(tools="pay", do="ask")])
    async with Workbench([bank], store=path, policy=rules) as bench:
        waiting = await Agent(repeating(pays(3), "Done."), bench).run("Pay.")
        assert waiting.status == "pending"
        assert waiting.state is not None
        state = json.loads(json.dumps(waiting.state))
        answers = {waiting.pendings[0].id: Approve()}
        first = await resumed(Agent(repeating(pays(4), "Done."), bench), state, answers, streams)
        assert (first.status, bank.paid) == ("pending", [3])  # the call of the next turn waits
        again = await resumed(Agent(repeating("Done."), bench), state, None, streams)
    assert (again.status, bank.paid) == ("done", [3])
    assert [trace.text for trace in again.trace] == ["paid 3"]


async def resumed(agent: Agent, state: Any, answers: Any, streams: bool) -> Outcome:
    if not streams:
        return await agent.resume(state, answers, by="ann")
    events = [event async for event in agent.resume_stream(state, answers, by="ann")]
    outcome = events[-1]
    assert isinstance(outcome, Outcome)
    return outcome


async def test_of_a_run_that_broke_off_the_state_still_has_its_keys(path: Path) -> None:
    bank, rules = Bank(), Rules([Rule(tools="look", do="ask")])
    async with Workbench([bank], store=path, policy=rules) as bench:
        waiting = await Agent(repeating(Reply(calls=(Call("look", None, "call_0"),))), bench).run("Look, and pay.")
        assert waiting.state is not None
        answers = {waiting.pendings[0].id: Approve()}
        with pytest.raises(ConnectionError):
            model = ScriptedModel([pays(3), ConnectionError("the model is gone")])
            await Agent(model, bench).resume(waiting.state, answers, by="ann")
        assert bank.paid == [3]
        waits_again = await Agent(repeating(), bench).resume(waiting.state)
        assert waits_again.state is not None
        answers = {waits_again.pendings[0].id: Approve()}
        done = await Agent(repeating(pays(3), "Done."), bench).resume(waits_again.state, answers, by="ann")
    assert (done.status, bank.paid) == ("done", [3])


async def test_once_needs_a_database() -> None:
    model = repeating(pays(3))
    async with Workbench([Bank()]) as bench:
        with pytest.raises(SetupError, match=r"'pay' has once=True, which needs a database: .*store="):
            await Agent(model, bench).run("Pay.")
    assert model.requests == []


async def test_calls_at_once_have_keys_by_their_place(path: Path) -> None:
    bank = Bank()
    async with asyncio.timeout(60), Workbench([bank], store=path) as bench:
        await Agent(repeating(pays(1, 2, 3), "Done."), bench).run("Pay.")
    by_amount = dict(zip(bank.paid, bank.keys, strict=True))
    assert [by_amount[amount].rsplit("-", 2)[1:] for amount in (1, 2, 3)] == [["1", "0"], ["1", "1"], ["1", "2"]]
