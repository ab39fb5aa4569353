"""Runs that wait for a person, and go on: in the same process, and from JSON in another one."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Approve, Caller, CancellationToken, Context, Deny, Input, SetupError, Workbench, tool
from toolcrib.agent import Agent, CallFinished, CallStarted, Outcome, ScriptedModel
from toolcrib.core import AnswerError
from toolcrib.formats import Reply, Results, Usage
from toolcrib.workbench import Ask, Stores

from ..doubled import doubled

done: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> Iterator[None]:
    done.clear()
    yield
    done.clear()


@tool(destructive=True)
def delete(path: str) -> str:
    """Delete a file."""
    done.append(f"deleted {path}")
    return done[-1]


@tool(destructive=True)
def wipe(path: str) -> str:
    """Delete everything."""
    done.append(f"wiped {path}")
    return done[-1]


@tool
def look(path: str) -> str:
    """Look at a file."""
    done.append(f"looked at {path}")
    return done[-1]


@tool
async def ship(context: Context, item: str) -> str:
    """Ship an item."""
    where = await context.ask("where", str, f"Where shall {item} go?")
    boxes = await context.ask("boxes", int, "In how many boxes?")
    done.append(f"{item} goes to {where} in {boxes}")
    return done[-1]


def asks(spec: Any, _arguments: Any, _caller: Any) -> Any:
    return Ask(f"May '{spec.name}' run?") if spec.hints.destructive else "allow"


def bench(*tools: Any, **options: Any) -> Workbench:
    """A workbench with a memory of its own, as another process has."""
    return doubled(tools or [delete, wipe, look, ship], **{"policy": asks, **options})


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": name, "arguments": arguments}


def stored(outcome: Outcome) -> Any:
    """The state of a run as another process reads it."""
    assert outcome.state is not None
    return json.loads(json.dumps(outcome.state))


KEY = "only-our-processes-know-this"


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLCRIB_KEY", raising=False)


def agent_of(model: ScriptedModel, at: Workbench, *, key: str | None = KEY, **options: Any) -> Agent:
    """An agent of a process where TOOLCRIB_KEY is *key*."""
    with pytest.MonkeyPatch.context() as patch:
        if key is not None:
            patch.setenv("TOOLCRIB_KEY", key)
        return Agent(model, at, **options)


async def pended(*calls: dict[str, Any], at: Workbench | None = None, key: str | None = KEY) -> Outcome:
    """A run that waits."""
    script = [{"text": "Let me.", "calls": calls, "usage": {"input": 1, "output": 2}}]
    outcome = await agent_of(ScriptedModel(script), at or bench(), key=key).run("Go.")
    assert outcome.status == "pending"
    return outcome


def elsewhere(*, key: str | None = KEY, **options: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel([{"text": "Done.", "usage": {"input": 10, "output": 20}}])
    return agent_of(model, bench(**options), key=key), model


async def test_a_run_that_waits_ends_after_the_other_calls_of_its_turn() -> None:
    outcome = await pended(call("delete", path="a"), call("look", path="b"), call("nope"))

    assert done == ["looked at b"]
    assert (outcome.status, outcome.text, outcome.why) == (
        "pending",
        "Let me.",
        "'delete' waits: May 'delete' run?",
    )
    (pending,) = outcome.pendings
    assert (pending.kind, pending.tool, pending.arguments) == ("approval", "delete", '{"path": "a"}')
    assert [(trace.tool, trace.status) for trace in outcome.trace] == [
        ("delete", "pending"),
        ("look", "success"),
        ("nope", "error"),
    ]
    # The conversation is whole, so the host may also go on without an answer.
    model = ScriptedModel(["Never mind."])
    assert (await Agent(model, bench()).run("Stop.", after=outcome.turns)).text == "Never mind."
    assert isinstance(results := model.requests[0].turns[2], Results)
    assert [result.status for result in results.results] == ["pending", "success", "error"]


@pytest.mark.parametrize("same_process", [True, False])
async def test_an_answer_lets_the_call_run_and_the_run_go_on(same_process: bool) -> None:
    shared = Stores() if same_process else None
    waits = await pended(
        call("delete", path="a"),
        call("look", path="b"),
        call("wipe", path="c"),
        at=bench(store=shared),
    )
    first, second = waits.pendings
    agent, model = elsewhere(store=shared)

    outcome = await agent.resume(stored(waits), {first.id: Approve(), second.id: Deny("too much")}, by="ada")

    assert done == ["looked at b", "deleted a"]
    assert (outcome.status, outcome.text, outcome.usage) == ("done", "Done.", Usage(11, 22))
    texts = ["deleted a", "looked at b", "Tool 'wipe' was not executed: 'ada' denied it: too much"]
    assert [trace.text for trace in outcome.trace] == texts
    assert isinstance(last := model.requests[0].turns[-1], Results)
    assert [(result.call_id, result.text) for result in last.results] == list(
        zip(["call_1", "call_2", "call_3"], texts, strict=True)
    )


async def test_a_call_without_an_answer_waits_on() -> None:
    waits = await pended(call("delete", path="a"), call("wipe", path="b"))
    first, second = waits.pendings
    still = await elsewhere()[0].resume(stored(waits), {first.id: Approve()}, by="ada")
    assert (still.status, done) == ("pending", ["deleted a"])
    assert [(pending.tool, pending.digest) for pending in still.pendings] == [("wipe", second.digest)]
    assert [trace.status for trace in still.trace] == ["success", "pending"]

    outcome = await elsewhere()[0].resume(stored(still), {still.pendings[0].id: Approve()}, by="ada")
    assert (outcome.status, done) == ("done", ["deleted a", "wiped b"])


@pytest.mark.parametrize("same_process", [True, False])
async def test_a_tool_with_several_questions_gets_its_answers_one_resume_after_the_other(same_process: bool) -> None:
    shared = Stores() if same_process else None
    key = None if same_process else KEY

    def here() -> Agent:
        return elsewhere(key=key, store=shared, policy=lambda *_: "ask")[0]

    waits = await pended(call("ship", item="the lathe"), at=bench(policy=lambda *_: "ask", store=shared), key=key)
    waits = await here().resume(stored(waits), {waits.pendings[0].id: Approve()}, by="ada")
    assert waits.pendings[0].message == "Where shall the lathe go?"
    waits = await here().resume(stored(waits), {waits.pendings[0].id: {"kind": "input", "value": "Oslo"}}, by="bob")
    assert waits.pendings[0].message == "In how many boxes?"
    assert done == []
    outcome = await here().resume(stored(waits), {waits.pendings[0].id: Input(2)}, by="bob")
    assert (outcome.status, done) == ("done", ["the lathe goes to Oslo in 2"])


async def test_answers_are_kept_in_a_state_that_is_signed_and_in_no_other() -> None:
    for key, has_answers in ((KEY, True), (None, False)):
        options: dict[str, Any] = {} if key else {"store": Stores()}
        waits = await pended(call("ship", item="the lathe"), at=bench(**options), key=key)
        answers = {waits.pendings[0].id: Input("Oslo")}
        waits = await elsewhere(key=key, **options)[0].resume(stored(waits), answers, by="ada")
        assert waits.pendings[0].key == "boxes"
        assert ("Oslo" in json.dumps(waits.state), "signature" in stored(waits)) == (has_answers, has_answers)
        # Without it, another process asks from the first question on.
        again = await elsewhere(key=key)[0].resume(stored(waits))
        assert again.pendings[0].key == ("boxes" if has_answers else "where")


async def test_answers_that_somebody_writes_into_a_state_do_not_count() -> None:
    waits = await pended(call("delete", path="a"), key=None)
    state = stored(waits)
    pending = state["turns"][2]["results"][0]["pending"]
    state["answers"] = [{"pending": pending, "answer": {"kind": "approve"}, "by": "boss"}]
    again = await elsewhere(key=None)[0].resume(state)
    assert (again.status, done) == ("pending", [])


async def test_a_signed_state_that_was_changed_or_is_signed_by_others_is_refused() -> None:
    waits = await pended(call("delete", path="a"), key=KEY)
    state, answers = stored(waits), {waits.pendings[0].id: Approve()}
    changed = put(stored(waits), "turns", 1, "calls", 0, "arguments", {"path": "/etc"})
    unsigned = {name: value for name, value in state.items() if name != "signature"}
    for bad, key in (
        (changed, KEY),
        (unsigned, KEY),
        (state, KEY + "!"),
        ({**state, "signature": None}, KEY),
        ({**state, "x": {1}}, KEY),
    ):
        with pytest.raises(SetupError, match="not signed with a key of this store"):
            await elsewhere(key=key)[0].resume(bad, answers, by="ada")
    assert done == []
    reordered = dict(reversed(state.items()))
    assert (await elsewhere(key=KEY)[0].resume(reordered, answers, by="ada")).status == "done"


async def test_a_state_is_signed_with_the_keys_of_the_store(tmp_path: Path) -> None:
    from toolcrib.store import Store

    first, second = (Store(tmp_path / f"{name}.db", key=tmp_path / name) for name in ("a", "b"))
    waits = await pended(call("delete", path="a"), at=bench(store=first), key=None)
    answers = {waits.pendings[0].id: Approve()}
    with pytest.raises(SetupError, match="not signed with a key of this store"):
        await elsewhere(key=None, store=second)[0].resume(stored(waits), answers, by="ada")
    first.keys.rotate()
    assert (await elsewhere(key=None, store=first)[0].resume(stored(waits), answers, by="ada")).status == "done"
    first.close()
    second.close()


def test_a_key_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(SetupError, match="at least 16 characters") as raised:
        elsewhere(key="fifteen-letters")
    assert "fifteen" not in str(raised.value)


async def test_one_approval_lets_one_of_two_equal_calls_run() -> None:
    waits = await pended(call("delete", path="a"), call("delete", path="a"), key=KEY)
    (pending,) = waits.pendings  # asked for the first, and then for the second
    assert pending.message == "May 'delete' run? (2 calls: an answer counts for one of them)"
    assert waits.why == f"'delete' waits: {pending.message}"
    still = await elsewhere(key=KEY)[0].resume(stored(waits), {pending.id: Approve()}, by="ada")
    assert (still.status, done) == ("pending", ["deleted a"])
    assert [trace.status for trace in still.trace] == ["success", "pending"]
    # The approval that was used is not in the state any more.
    still = await elsewhere(key=KEY)[0].resume(stored(still))
    assert (still.status, done) == ("pending", ["deleted a"])
    outcome = await elsewhere(key=KEY)[0].resume(stored(still), {still.pendings[0].id: Approve()}, by="ada")
    assert (outcome.status, done) == ("done", ["deleted a", "deleted a"])


async def test_an_approval_counts_once_where_the_store_is_shared() -> None:
    shared = Stores()
    waits = await pended(call("delete", path="a"), at=bench(store=shared))
    state, answers = stored(waits), {waits.pendings[0].id: Approve()}
    assert (await elsewhere(store=shared)[0].resume(state, answers, by="ada")).status == "done"
    with pytest.raises(AnswerError) as raised:
        await elsewhere(store=shared)[0].resume(state, answers, by="ada")
    assert raised.value.reason == "replayed"
    assert done == ["deleted a"]


async def test_an_approval_given_so_far_counts_once_where_the_store_is_shared() -> None:
    shared = Stores()
    at = bench(store=shared, policy=lambda *_: "ask")
    agent = agent_of(ScriptedModel(["Done."] * 9), at)
    waits = await pended(call("ship", item="the lathe"), at=at, key=KEY)
    waits = await agent.resume(stored(waits), {waits.pendings[0].id: Approve()}, by="ada")
    stale = stored(waits)
    waits = await agent.resume(stored(waits), {waits.pendings[0].id: Input("Oslo")}, by="ada")
    assert (await agent.resume(stored(waits), {waits.pendings[0].id: Input(2)}, by="ada")).status == "done"
    # The answers that the stale state has are used up: the call waits for the first of them again.
    again = await agent.resume(stale)
    assert [pending.kind for pending in again.pendings] == ["approval"]


async def test_an_answer_given_at_another_door_is_found() -> None:
    at = bench()
    waits = await pended(call("delete", path="a"), at=at)
    await at.answer(waits.pendings[0].id, Approve(), by="ada")
    outcome = await Agent(ScriptedModel(["Done."]), at).resume(stored(waits))
    assert (outcome.status, done) == ("done", ["deleted a"])


async def test_a_run_is_resumed_in_another_process(forked_python: str, tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(
        """
import json, sys
from pathlib import Path
from toolcrib import Context, Workbench, tool
from toolcrib.agent import Agent, ScriptedModel

@tool(destructive=True)
async def delete(context: Context, paths: set[str], sure: bool = True) -> str:
    'Delete files.'
    why = await context.ask("why", str, "Why?")
    with Path("deleted").open("a") as file:
        file.write(f"{sorted(paths)} {why};")
    return "deleted"

def policy(spec, arguments, caller):
    return "ask"

def agent(*script):
    return Agent(ScriptedModel(script), Workbench([delete], policy=policy))

state, answers = json.loads(sys.stdin.read())
if state is None:
    calls = [{"tool": "delete", "arguments": {"paths": ["b", "a"]}}]
    outcome = agent({"calls": calls}).run_sync("Go.")
else:
    outcome = agent("Done.").resume_sync(state, answers, by="ada")
print(json.dumps([outcome.status, outcome.state, [pending.to_dict() for pending in outcome.pendings]]))
"""
    )

    async def process(state: Any, answers: Any) -> Any:
        made = await asyncio.to_thread(
            subprocess.run,
            [forked_python, "agents.py"],
            input=json.dumps([state, answers]),
            cwd=tmp_path,
            env={**os.environ, "TOOLCRIB_KEY": KEY},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert made.returncode == 0, made.stderr
        return json.loads(made.stdout)

    status, state, pendings = await process(None, None)
    assert (status, pendings[0]["kind"]) == ("pending", "approval")
    status, state, pendings = await process(state, {pendings[0]["id"]: {"kind": "approve"}})
    assert (status, pendings[0]["kind"]) == ("pending", "input")
    assert not (tmp_path / "deleted").exists()
    status, state, pendings = await process(state, {pendings[0]["id"]: {"kind": "input", "value": "old"}})
    assert (status, state, pendings) == ("done", None, [])
    assert (tmp_path / "deleted").read_text() == "['a', 'b'] old;"


# What an answer does not count for


def another_path(state: Any) -> None:
    state["turns"][1]["calls"][0]["arguments"] = {"path": "/etc"}


def another_tool(state: Any) -> None:
    state["turns"][1]["calls"][0]["tool"] = "wipe"


def another_digest(state: Any, digest: str) -> None:
    another_tool(state)
    state["turns"][2]["results"][0]["pending"]["digest"] = digest


@pytest.mark.parametrize("same_process", [True, False])
@pytest.mark.parametrize("tamper", [another_path, another_tool, another_digest])
async def test_a_state_that_was_changed_lends_its_approval_to_no_other_call(tamper: Any, same_process: bool) -> None:
    shared = Stores() if same_process else None
    waits = await pended(call("delete", path="a"), at=bench(store=shared), key=None)
    state = stored(waits)
    if tamper is another_digest:
        # With the right digest for the call that was put in; but what was shown, and approved, is the harmless one.
        wiped = await pended(call("wipe", path="a"))
        another_digest(state, wiped.pendings[0].digest)
    else:
        tamper(state)

    agent, model = elsewhere(key=None, store=shared)
    try:
        outcome = await agent.resume(state, {waits.pendings[0].id: Approve()}, by="ada")
    except AnswerError as error:
        assert (same_process, tamper, error.reason) == (True, another_digest, "invalid")
    else:
        assert outcome.status == "pending"
        assert outcome.pendings[0].id != waits.pendings[0].id
    assert (done, model.requests) == ([], [])


def everything_about_it(state: Any, digest: str) -> None:
    """The call, what was shown, and the digest, which anybody can compute: it has no key."""
    state["turns"][1]["calls"][0]["arguments"] = {"path": "/etc/passwd"}
    state["turns"][2]["results"][0]["pending"] |= {"digest": digest, "arguments": '{"path": "/etc/passwd"}'}


async def test_a_state_that_is_not_signed_lends_no_approval_in_another_process() -> None:
    waits = await pended(call("delete", path="a"), key=None)
    forged, other = stored(waits), await pended(call("delete", path="/etc/passwd"))
    everything_about_it(forged, other.pendings[0].digest)
    for state, path in ((forged, "/etc/passwd"), (stored(waits), "a")):
        agent, model = elsewhere(key=None)
        outcome = await agent.resume(state, {waits.pendings[0].id: Approve()}, by="ada")
        (asked,) = outcome.pendings
        assert (outcome.status, json.loads(asked.arguments)) == ("pending", {"path": path})
        assert asked.id != waits.pendings[0].id
        assert (done, model.requests) == ([], [])
        # The new question is this process's own, so it can be answered here.
        outcome = await Agent(ScriptedModel(["Done."]), agent.workbench).resume(
            stored(outcome), {asked.id: Deny("no")}, by="ada"
        )
        assert (outcome.status, done) == ("done", [])


async def test_a_shared_store_shows_what_an_answer_was_given_to() -> None:
    shared = Stores()
    waits = await pended(call("delete", path="a"), at=bench(store=shared), key=None)
    state, other = stored(waits), await pended(call("delete", path="/etc/passwd"))
    everything_about_it(state, other.pendings[0].digest)
    with pytest.raises(AnswerError, match="is not what the state shows"):
        await elsewhere(key=None, store=shared)[0].resume(state, {waits.pendings[0].id: Approve()}, by="ada")
    # Nor is it used where it was given first: it is for the call that was shown.
    await bench(store=shared).answer(waits.pendings[0].id, Approve(), by="ada")
    outcome = await elsewhere(key=None, store=shared)[0].resume(state)
    assert (outcome.status, done) == ("pending", [])


@pytest.mark.parametrize("same_process", [True, False])
async def test_arguments_shown_falsely_are_not_approved(same_process: bool) -> None:
    shared = Stores() if same_process else None
    waits = await pended(call("delete", path="/etc"), at=bench(store=shared), key=None)
    state = stored(waits)
    state["turns"][2]["results"][0]["pending"]["arguments"] = '{"path": "a"}'
    agent, _ = elsewhere(key=None, store=shared)
    if same_process:
        with pytest.raises(AnswerError, match="is not what the state shows") as raised:
            await agent.resume(state, {waits.pendings[0].id: Approve()}, by="ada")
        assert raised.value.reason == "invalid"
    else:
        outcome = await agent.resume(state, {waits.pendings[0].id: Approve()}, by="ada")
        assert [pending.arguments for pending in outcome.pendings] == ['{"path": "/etc"}']
    assert done == []


async def test_a_call_that_was_done_and_is_made_to_wait_again_is_asked_for() -> None:
    waits = await pended(call("delete", path="a"))
    outcome = await elsewhere()[0].resume(stored(waits), {waits.pendings[0].id: Approve()}, by="ada")
    assert outcome.status == "done"
    again = await elsewhere()[0].resume(stored(waits))
    assert (again.status, done) == ("pending", ["deleted a"])


async def test_a_tool_that_is_defined_again_or_another_caller_is_asked_for_again() -> None:
    @tool(name="delete", destructive=True)
    def other(path: str) -> str:
        """Delete a file, and all that is like it."""
        raise AssertionError("this must not run")

    waits = await pended(call("delete", path="a"))
    for at in (bench(other), bench(caller=Caller("mallory")), bench(caller=Caller(thread="other"))):
        agent = agent_of(ScriptedModel([]), at)
        outcome = await agent.resume(stored(waits), {waits.pendings[0].id: Approve()}, by="ada")
        assert outcome.status == "pending"
    assert done == []


async def test_what_the_policy_says_now_holds() -> None:
    waits = await pended(call("delete", path="a"), call("wipe", path="b"))
    agent, _ = elsewhere(policy=lambda spec, *_: "allow" if spec.name == "delete" else Deny("not now"))
    outcome = await agent.resume(stored(waits))
    assert outcome.status == "done"
    assert [trace.code for trace in outcome.trace] == [None, "denied"]


@pytest.mark.parametrize("same_process", [True, False])
async def test_an_answer_that_does_not_count_is_refused_before_anything_runs(same_process: bool) -> None:
    shared = Stores() if same_process else None
    now = datetime(2026, 11, 2, tzinfo=UTC)
    options: dict[str, Any] = {
        "store": shared,
        "clock": lambda: now,
        "may_answer": lambda _pending, by: by != "mallory",
    }
    waits = await pended(call("delete", path="a"), call("look", path="b"), at=bench(**options))
    state, id = stored(waits), waits.pendings[0].id
    done.clear()

    async def refused(answers: Any, by: str = "ada") -> str:
        agent, model = elsewhere(**options)
        with pytest.raises(AnswerError) as raised:
            await agent.resume(state, answers, by=by)
        assert (done, model.requests) == ([], [])
        return raised.value.reason

    assert await refused({"pending_other": Approve()}) == "unknown"
    assert await refused({id: Approve()}, by="") == "foreign"
    assert await refused({id: Approve()}, by="mallory") == "foreign"
    assert await refused({id: Input("yes")}) == "invalid"
    now += timedelta(seconds=901)
    assert await refused({id: Approve()}) == "expired"
    # The way out that the error names.
    agent, _ = elsewhere(**options)
    waits = await agent.resume(state)
    assert waits.status == "pending"
    outcome = await agent.resume(stored(waits), {waits.pendings[0].id: Approve()}, by="ada")
    assert (outcome.status, done) == ("done", ["deleted a"])


async def test_the_one_who_called_does_not_answer_what_is_for_others_in_another_process_either() -> None:
    others: dict[str, Any] = {"policy": lambda *_: Ask("May it?", others_only=True), "caller": Caller("ada")}
    waits = await pended(call("delete", path="a"), at=bench(**others))
    state = stored(waits)
    with pytest.raises(AnswerError) as raised:
        await elsewhere(**others)[0].resume(state, {waits.pendings[0].id: Approve()}, by="ada")
    assert raised.value.reason == "foreign"
    outcome = await elsewhere(**others)[0].resume(state, {waits.pendings[0].id: Approve()}, by="bob")
    assert (outcome.status, done) == ("done", ["deleted a"])


async def test_an_answer_so_far_that_has_expired_is_asked_for_again() -> None:
    now = datetime(2026, 11, 2, tzinfo=UTC)
    options: dict[str, Any] = {"clock": lambda: now, "policy": lambda *_: "ask"}
    waits = await pended(call("ship", item="it"), at=bench(**options), key=KEY)
    waits = await elsewhere(key=KEY, **options)[0].resume(stored(waits), {waits.pendings[0].id: Approve()}, by="ada")
    assert waits.pendings[0].kind == "input"
    now += timedelta(seconds=901)
    again = await elsewhere(key=KEY, **options)[0].resume(stored(waits))
    assert [pending.kind for pending in again.pendings] == ["approval"]


# Bounds, errors and cancelling


async def test_steps_and_errors_are_counted_over_the_whole_run() -> None:
    wrong = {"calls": [call("look")]}
    script = [wrong, {"calls": [call("delete", path="a")]}]
    waits = await agent_of(ScriptedModel(script), bench(), max_errors=2).run("Go.")

    denied = agent_of(ScriptedModel(["never"]), bench(), max_errors=2)
    outcome = await denied.resume(stored(waits), {waits.pendings[0].id: Deny()}, by="ada")
    assert (outcome.status, outcome.why) == (
        "failed",
        "No call succeeded in 2 turns in a row (max_errors=2).",
    )

    short = agent_of(ScriptedModel(["never"]), bench(), max_steps=2)
    outcome = await short.resume(stored(waits), {waits.pendings[0].id: Approve()}, by="ada")
    assert (outcome.status, outcome.why) == ("stopped", "The model was asked 2 times and was not done (max_steps=2).")


async def test_what_a_model_must_call_holds_for_the_first_turn_of_the_whole_run() -> None:
    waits = await agent_of(ScriptedModel([{"calls": [call("delete", path="a")]}]), bench(), tool_choice="any").run(
        "Go."
    )
    model = ScriptedModel(["done"])
    await agent_of(model, bench(), tool_choice="any").resume(stored(waits), {waits.pendings[0].id: Approve()}, by="ada")
    assert [request.choice for request in model.requests] == ["auto"]


async def test_a_resumed_run_can_be_cancelled() -> None:
    token = CancellationToken()
    running = asyncio.Event()

    @tool
    async def slow() -> None:
        """Takes for ever."""
        running.set()
        await asyncio.Event().wait()

    before = asyncio.all_tasks()
    ask: dict[str, Any] = {"policy": lambda *_: "ask"}
    waits = await pended(call("slow"), at=bench(slow, **ask))
    agent = agent_of(ScriptedModel(["never"]), bench(slow, **ask))
    answers = {waits.pendings[0].id: Approve()}
    task = asyncio.create_task(agent.resume(stored(waits), answers, by="ada", cancellation=token))
    await running.wait()
    token.cancel()
    outcome = await task
    assert (outcome.status, [trace.code for trace in outcome.trace]) == ("cancelled", ["cancelled"])
    assert asyncio.all_tasks() == before


def without(name: str) -> Any:
    return lambda state: {key: value for key, value in state.items() if key != name}


def twice(state: Any) -> Any:
    for turn, of in ((1, "calls"), (2, "results")):
        state["turns"][turn][of] *= 2
    return state


def but(**changed: Any) -> Any:
    return lambda state: {**state, **changed}


def put(state: Any, *path: Any) -> Any:
    *way, last, value = path
    inner = state
    for step in way:
        inner = inner[step]
    inner[last] = value
    return state


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda _: None, "a NoneType"),
        (lambda _: {}, "version None"),
        (but(version=1), "version 1"),
        *((without(name), f"malformed: state.{name}: Field required") for name in ("turns", "usage", "began")),
        (lambda state: {**state, "turns": state["turns"][:2]}, "malformed: .* have no results: the conversation ends"),
        (lambda state: {**state, "turns": state["turns"][:1]}, "malformed"),
        (twice, "malformed: two calls of the last turn have the same id"),
        (but(turns=[{"kind": "user", "content": []}, {"kind": "usr"}]), "malformed: turn: Input tag 'usr' found"),
        (but(turns=[]), "malformed"),
        (but(steps=-1), "malformed: state.steps"),
        (lambda state: put(state, "turns", 2, "results", 0, "started_at", 10**400), r"results\[0\].started_at"),
    ],
)
async def test_what_is_no_state_is_refused(change: Any, says: str) -> None:
    waits = await pended(call("delete", path="a"), key=None)
    agent, model = elsewhere(key=None)
    with pytest.raises(SetupError, match=says):
        await agent.resume(change(stored(waits)))
    assert model.requests == []


async def test_the_trace_of_a_resumed_run_is_of_all_of_it_and_has_each_call_once() -> None:
    script = [{"calls": [call("look", path="a")]}, {"calls": [call("delete", path="b")]}]
    first = await Agent(ScriptedModel(["Hello."]), bench()).run("Hi.")
    waits = await agent_of(ScriptedModel(script), bench()).run("Go.", after=first.turns)
    agent = agent_of(ScriptedModel([{"calls": [call("look", path="c")]}, "Done."]), bench())
    outcome = await agent.resume(stored(waits), {waits.pendings[0].id: Approve()}, by="ada")
    assert [trace.text for trace in outcome.trace] == ["looked at a", "deleted b", "looked at c"]
    assert outcome.trace[0] == waits.trace[0]
    assert [type(turn) for turn in outcome.turns].count(Reply) == 5


async def streamed(agent: Agent, *args: Any, **options: Any) -> list[Any]:
    return [event async for event in agent.resume_stream(*args, **options)]


@pytest.mark.parametrize("shared", [False, True])
async def test_a_resumed_run_can_be_streamed_and_each_call_starts_and_ends_once(shared: bool) -> None:
    options: dict[str, Any] = {"store": Stores()} if shared else {}
    waits = await pended(
        call("delete", path="a"), call("delete", path="b"), call("look", path="c"), at=bench(**options)
    )
    first, _ = waits.pendings
    agent, _ = elsewhere(**options)
    events = await streamed(agent, stored(waits), {first.id: {"kind": "approve"}}, by="ada")
    *_, outcome = events
    assert [event.call.arguments for event in events if isinstance(event, CallStarted)] == [
        {"path": "a"},
        {"path": "b"},
    ]
    ended = {event.result.text: event.result.status for event in events if isinstance(event, CallFinished)}
    assert (ended.pop("deleted a"), [*ended.values()]) == ("success", ["pending"])
    assert sum(isinstance(event, CallFinished) for event in events) == 2
    assert (outcome.status, [pending.tool for pending in outcome.pendings]) == ("pending", ["delete"])

    agent, _ = elsewhere(**options)
    events = await streamed(agent, stored(outcome), {outcome.pendings[0].id: Deny("no")}, by="ada")
    kinds = [type(event).__name__ for event in events]
    assert kinds == ["CallStarted", "CallFinished", "TextDelta", "Outcome"]
    assert (events[1].result.error.code, events[-1].status, events[-1].text) == ("denied", "done", "Done.")
    assert done == ["looked at c", "deleted a"]


async def test_a_resumed_stream_ends_as_a_resumed_run_and_raises_what_it_raises() -> None:
    waits = await pended(call("delete", path="a"))
    answers = {waits.pendings[0].id: Approve()}
    with pytest.raises(AnswerError, match="needs a name"):
        await streamed(elsewhere()[0], stored(waits), answers)
    with pytest.raises(SetupError, match="version None"):
        await streamed(elsewhere()[0], {})
    *_, outcome = await streamed(elsewhere()[0], stored(waits), answers, by="ada")
    run = await elsewhere()[0].resume(stored(waits), answers, by="ada")
    assert (outcome.status, outcome.text, len(outcome.trace)) == (run.status, run.text, len(run.trace))
