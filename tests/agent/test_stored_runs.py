"""Runs of agents with a name: what waits is stored, and goes on by itself, in this process or another one."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Approve, Caller, Context, Crib, Input, Pending, SetupError, Workbench, tool
from toolcrib.agent import Agent, ModelError, Outcome, ScriptedModel
from toolcrib.durable import engine
from toolcrib.formats import Results
from toolcrib.workbench import Rule, Rules, UnknownTaskError

from ..waiting import until

WAIT_S = 60
ANN = Caller("ann", thread="t")


class Mine:
    """Tools whose effects are noted."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []
        self.runs = 0
        self.may_end = asyncio.Event()

    @tool(task=True)
    async def dig(self, depth: int) -> str:
        """Dig."""
        self.runs += 1
        await self.may_end.wait()
        return f"dug {depth}"

    @tool(task=True)
    async def ask(self, context: Context) -> str:
        """Ask for a name."""
        return f"for {await context.ask('who', str, 'Who?')}"

    @tool
    async def pay(self, amount: int, context: Context) -> str:
        """Pay."""
        self.paid.append((context.caller.principal, amount))
        return f"paid {amount}"

    @tool(read_only=True)
    async def look(self, context: Context) -> str:
        """Look."""
        return f"the key is {context.idempotency_key}"


@pytest.fixture
def mine() -> Mine:
    return Mine()


@pytest.fixture
async def crib(mine: Mine, tmp_path: Path) -> AsyncIterator[Crib]:
    async with opened(mine, tmp_path) as crib:
        yield crib


def opened(mine: Mine, folder: Path) -> Crib:
    return Crib([mine], store=folder / "store.db", policy=Rules([Rule(tools="pay", do="ask")]))


def scripted(*turns: Any) -> ScriptedModel:
    return ScriptedModel([{"calls": turn} if isinstance(turn, list) else turn for turn in turns])


def agent(crib: Crib, *turns: Any, caller: Caller = ANN, name: str | None = "digger") -> Agent:
    return Agent(scripted(*turns), crib.workbench(caller), name=name)


async def question(crib: Crib) -> Pending:
    return (await until(crib.pendings))[0]


async def begun(agent: Agent) -> str:
    """Return the id under which a run of *agent* is stored."""
    outcome = await agent.run("Dig, please.")
    assert (outcome.status, outcome.state) == ("pending", None), outcome
    assert outcome.task is not None
    return outcome.task


def texts(outcome: Outcome) -> list[str]:
    return [call.text for call in outcome.trace]


async def test_a_run_goes_on_by_itself_once_all_of_its_tasks_have_ended(crib: Crib, mine: Mine) -> None:
    one = agent(crib, [("dig", {"depth": 1}), ("ask", {}), ("look", {})], [("dig", {"depth": 2})], "All is dug.")
    task = await begun(one)
    assert (await crib.tasks.get(task)).to_dict() | {"started_at": "", "run_at": ""} == {
        "id": task,
        "tool": "agent/digger",
        "principal": "ann",
        "thread": "t",
        "state": "waiting",
        "started_at": "",
        "run_at": "",
        "attempts": 0,
        "arguments": '{"prompt": "Dig, please."}',
        "result": None,
    }
    await crib.answer((await question(crib)).id, Input("bob"), by="ann")
    mine.may_end.set()
    outcome = await one.wait(task, timeout_s=WAIT_S)
    assert (outcome.status, outcome.text, outcome.why) == ("done", "All is dug.", "")
    assert texts(outcome) == ["dug 1", "for bob", "the key is None", "dug 2"]
    assert mine.runs == 2
    assert [type(turn).__name__ for turn in outcome.turns] == ["User", "Reply", "Results", "Reply", "Results", "Reply"]
    result = await crib.tasks.wait(task, principal="ann")
    assert (result.value, result.text) == ("All is dug.", "All is dug.")


async def test_a_run_is_gone_on_with_in_a_process_that_comes_later(mine: Mine, tmp_path: Path) -> None:
    mine.may_end.set()
    async with opened(mine, tmp_path) as before:
        task = await begun(agent(before, [("pay", {"amount": 3})]))
        ((pending,), caller) = (await before.pendings(), Caller("bea", thread="t"))
    async with opened(mine, tmp_path) as after:
        await after.answer(pending.id, Approve(), by="ada")
        assert (await after.tasks.get(task)).state == "waiting"  # for an agent of this name
        another = agent(after, [("dig", {"depth": 1})], "Paid.", caller=caller)
        await another.start()
        with pytest.raises(UnknownTaskError):
            await another.wait(task)
        outcome = await agent(after, [("dig", {"depth": 1})], "Paid.").wait(task, timeout_s=WAIT_S)
    assert (outcome.status, texts(outcome)) == ("done", ["paid 3", "dug 1"])
    assert mine.paid == [("ann", 3)]


async def test_it_goes_on_for_its_own_caller_with_the_agent_of_another(crib: Crib, mine: Mine) -> None:
    task = await begun(agent(crib, [("pay", {"amount": 3})], "Ann's."))
    theirs = agent(crib, "Paid.", caller=Caller("bea"))
    await theirs.start()
    await crib.answer((await question(crib)).id, Approve(), by="ada")
    await crib.tasks.wait(task, principal="ann", timeout_s=WAIT_S)
    assert mine.paid == [("ann", 3)]


async def test_a_model_that_cannot_be_reached_is_asked_again_and_no_call_is_made_twice(
    crib: Crib, mine: Mine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engine, "_FIRST_PAUSE_S", 0.01)
    mine.may_end.set()
    failure = {"error": "unavailable"}
    one = agent(crib, [("dig", {"depth": 1})], failure, failure, [("pay", {"amount": 1})], failure, "Paid.")
    task = await begun(one)
    await crib.answer((await question(crib)).id, Approve(), by="ada")
    outcome = await one.wait(task, timeout_s=WAIT_S)
    assert (outcome.status, texts(outcome), mine.paid) == ("done", ["dug 1", "paid 1"], [("ann", 1)])
    assert caplog.text.count("A run of the agent 'digger'") == 3


async def test_a_run_that_fails_again_and_again_ends_with_the_reason(
    crib: Crib, mine: Mine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(engine, "MAX_FAILURES", 3)
    mine.may_end.set()
    one = agent(crib, [("dig", {"depth": 1})], *[{"error": "unavailable"}] * 3, "Not reached.")
    outcome = await one.wait(await begun(one), timeout_s=WAIT_S)
    assert (outcome.status, texts(outcome)) == ("failed", ["dug 1"])
    assert "It could not go on, 3 times in a row." in outcome.why


async def test_a_turn_that_is_begun_once_more_has_its_effects_once(
    crib: Crib, mine: Mine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is stopped between a call and the storing of its turn. That the model may ask otherwise is new."""
    monkeypatch.setattr(engine, "_FIRST_PAUSE_S", 0.01)
    mine.may_end.set()
    asks: list[Any] = [("pay", {"amount": 1})]
    one = agent(crib, [("dig", {"depth": 1})], asks, [("pay", {"amount": 2})], "Done.")
    over, failures = ScriptedModel.reply, iter([RuntimeError("torn")])

    async def reply(self: ScriptedModel, request: Any) -> Any:
        last = request.turns[-1]
        if isinstance(last, Results) and last.results[0].text == "paid 1" and (error := next(failures, None)):
            raise error
        return await over(self, request)

    monkeypatch.setattr(ScriptedModel, "reply", reply)
    task = await begun(one)
    for _ in range(2):
        await crib.answer((await question(crib)).id, Approve(), by="ada")

        async def is_used() -> bool:
            return not await crib.pendings()

        await until(is_used)
    outcome = await one.wait(task, timeout_s=WAIT_S)
    assert (outcome.status, mine.paid) == ("done", [("ann", 1), ("ann", 2)])


async def test_a_run_that_waits_can_be_cancelled(crib: Crib) -> None:
    one = agent(crib, [("dig", {"depth": 1})], "Not reached.")
    task = await begun(one)
    with pytest.raises(TimeoutError):
        await one.wait(task, timeout_s=0.01)
    assert await crib.tasks.cancel(task, principal="ann")
    outcome = await one.wait(task, timeout_s=WAIT_S)
    assert (outcome.status, outcome.why) == ("cancelled", f"Task '{task}' of 'agent/digger' was cancelled.")


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_agent_without_a_name_resumes_with_the_result_of_its_task(
    crib: Crib, mine: Mine, is_streamed: bool
) -> None:
    one = agent(crib, [("dig", {"depth": 1})], "Dug.", name=None)
    waits = await one.run("Dig.")
    assert waits.state is not None
    assert (await one.resume(waits.state)).status == "pending"
    mine.may_end.set()
    await crib.tasks.wait(waits.pendings[0].id, timeout_s=WAIT_S)
    if is_streamed:
        (outcome,) = [item async for item in one.resume_stream(waits.state) if isinstance(item, Outcome)]
    else:
        outcome = await one.resume(waits.state)
    assert (outcome.status, texts(outcome), mine.runs) == ("done", ["dug 1"], 1)


async def test_what_names_no_run_is_unknown(crib: Crib, mine: Mine) -> None:
    one = agent(crib, [("dig", {"depth": 1})], "Dug.")
    waits = await one.run("Dig.")
    for id in ("", "run_0", waits.pendings[0].id):
        with pytest.raises(UnknownTaskError):
            await one.wait(id)


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, 3, "a/b", "ä"])
async def test_names_of_agents_are_letters_and_digits(crib: Crib, name: Any) -> None:
    with pytest.raises(SetupError, match="1 to 64 letters, digits"):
        agent(crib, name=name)


def test_an_agent_with_a_name_needs_a_database(mine: Mine) -> None:
    with pytest.raises(SetupError, match=r"stores its runs, as 'digger' does, .*store="):
        Agent(ScriptedModel([]), Workbench([mine]), name="digger")


async def test_a_run_that_ends_at_once_is_not_stored(crib: Crib) -> None:
    outcome = await agent(crib, "Hello.").run("Hi.")
    assert (outcome.status, outcome.task, await crib.tasks.list()) == ("done", None, [])
    with pytest.raises(ModelError):
        await agent(crib, {"error": "unavailable"}).run("Hi.")
