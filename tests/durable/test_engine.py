"""Tasks, in real databases and processes: what they wait for, what interrupts them, and what is not repeated."""

import asyncio
import subprocess
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from toolcrib import Approve, Caller, Context, Crib, Deny, Input, Pending, Registry, Result, Tool, Workbench, tool
from toolcrib.core import AnswerError, DefinitionError, Emitted, Progress, SetupError, ToolcribError
from toolcrib.machinery import LedgerEntry
from toolcrib.record import CallLog
from toolcrib.store import Store
from toolcrib.store.tasks import DatabaseTasks
from toolcrib.workbench import LogLine, Rule, Rules, TaskLimits

from ..waiting import until

WAIT_S = 60
KEY = b"k" * 32
ANN = Caller("ann", thread="t")


@tool(task=True, idempotent=True)
async def ask(context: Context) -> str:
    return f"for {await context.ask('who', str, 'Who?')}"


@tool(task=True, idempotent=True)
async def dig(depth: int) -> int:
    return depth


async def submitted(crib: Crib, name: str, arguments: Any = None, caller: str = "ann", key: str | None = None) -> str:
    result = await crib.workbench(Caller(caller, thread="t")).call(name, arguments, idempotency_key=key)
    assert result.pending is not None, result
    assert result.pending.kind == "task"
    return result.pending.id


async def question(crib: Crib) -> Pending:
    """Return the question that waits, once there is one."""
    return (await until(crib.pendings))[0]


async def state(crib: Crib, id: str, expected: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while (await crib.tasks.get(id)).state != expected:
            await asyncio.sleep(0.02)


async def test_a_task_is_acknowledged_at_once_and_its_result_comes_later(path: Path) -> None:
    go_on = asyncio.Event()

    @tool(task=True)
    async def dig(depth: int, context: Context) -> dict[str, int]:
        context.progress(1, 2, "half")
        await go_on.wait()
        await context.emit("nearly")
        return {"depth": depth}

    async with Crib([dig], store=path) as crib:
        id = await submitted(crib, "dig", {"depth": "3"})
        with pytest.raises(TimeoutError):
            await crib.tasks.wait(id, timeout_s=0.05)
        go_on.set()
        result = await crib.tasks.wait(id, timeout_s=WAIT_S)
        assert (result.value, result.call_id) == ({"depth": 3}, id)
        events = [event async for event in crib.tasks.follow(id)]
        task = await crib.tasks.get(id)
    assert isinstance(events[-1], Result)
    assert Progress(1, 2, "half") in events
    assert [event.content[0].text for event in events if isinstance(event, Emitted)] == ["nearly"]
    assert (task.state, task.tool, task.principal, task.arguments) == ("ended", "dig", "ann", '{"depth": 3}')
    assert task.to_dict()["result"]["status"] == "success"


async def test_a_key_stands_for_one_task(path: Path) -> None:
    runs = 0

    @tool(task=True)
    async def dig() -> int:
        nonlocal runs
        runs += 1
        return runs

    async with Crib([dig], store=path) as crib:
        ids = {await submitted(crib, "dig", key="k") for _ in range(2)}
        assert len(ids) == 1
        await crib.tasks.wait(*ids, timeout_s=WAIT_S)
        again = await crib.workbench(ANN).call("dig", idempotency_key="k")
    assert (again.value, again.metadata["repeated"], runs) == (1, True, 1)


async def test_what_is_finished_is_not_repeated_and_what_waits_holds_nothing(path: Path) -> None:
    effects: list[str] = []
    runs = 0

    @tool(task=True, idempotent=True)
    async def night(context: Context) -> str:
        nonlocal runs
        runs += 1

        async def two() -> dict[str, int]:
            effects.append("two")
            return {"two": 2}

        await context.step("one", effects.append, "one")
        await context.sleep(0.2)
        two_done = await context.step("two", two)
        name = await context.ask("name", str, "Who?")
        city = await context.ask("city", str, "Where?")
        return f"{two_done['two']} {name} {city}"

    async with Crib([night], store=path) as crib:
        id = await submitted(crib, "night")
        await crib.answer((await question(crib)).id, Input("Bob"), by="carol")
    async with Crib([night], store=path) as crib:  # everything is restarted

        async def asks_where() -> Pending | None:
            return next((pending for pending in await crib.pendings() if pending.key == "city"), None)

        pending = await until(asks_where)
        await state(crib, id, "waiting")
        await crib.answer(pending.id, Input("Oslo"), by="dave")
        assert (await crib.tasks.wait(id, timeout_s=WAIT_S)).value == "2 Bob Oslo"
    assert (effects, runs) == (["one", "two"], 4)


async def test_a_refusal_ends_the_task(path: Path) -> None:
    async with Crib([ask], store=path) as crib:
        id = await submitted(crib, "ask")
        await crib.answer((await question(crib)).id, Deny("Not tonight."), by="carol")
        error = (await crib.tasks.wait(id, timeout_s=WAIT_S)).error
    assert (error.code, "Not tonight" in error.message) == ("denied", True)


async def test_the_policy_asks_before_the_task_and_not_again(path: Path) -> None:
    ran: list[int] = []

    @tool(task=True)
    async def dig(depth: int) -> int:
        ran.append(depth)
        return depth

    async with Crib([dig], store=path, policy=Rules([Rule(tools="dig", do="ask")])) as crib:
        bench = crib.workbench(ANN)
        waiting = (await bench.call("dig", {"depth": 3})).pending
        assert (waiting.kind, await crib.tasks.list()) == ("approval", [])
        await crib.answer(waiting.id, Approve(), by="bob")
        result = await crib.tasks.wait(await submitted(crib, "dig", {"depth": 3}), timeout_s=WAIT_S)
        assert (result.value, result.metadata["decision"]["by"], ran) == (3, "bob", [3])
        assert await crib.pendings() == []


async def test_the_log_has_the_grant_that_a_task_was_let_through_by_and_ran_under(path: Path) -> None:
    log = CallLog()
    rules = Rules([Rule(tools="dig", do="ask", approvers={"principals": "bob"})])
    async with Crib([dig], store=path, policy=rules, recorder=log) as crib:
        bench = crib.workbench(ANN)
        waiting = (await bench.call("dig", {"depth": 3})).pending
        await crib.answer(waiting.id, Approve(until="conversation"), by="bob")
        for depth in (3, 4):  # the first by the approval itself
            task = (await bench.call("dig", {"depth": depth})).pending
            result = await crib.tasks.wait(task.id, timeout_s=WAIT_S)
            assert result.value == depth
        ((grant,), _) = await crib.grants.list()
    assert (result.metadata["decision"]["by"], result.metadata["decision"]["grant"]) == ("bob", grant.id)
    ends = [(record.status, record.answered_by, record.grant) for record in log][1:]
    ran_by_approval = [("pending", "bob", None), ("success", "bob", None)]
    assert ends == [*ran_by_approval, ("pending", "bob", grant.id), ("success", "bob", grant.id)]


async def test_a_rule_that_denies_meanwhile_counts(path: Path) -> None:
    async with Crib([ask], store=path) as crib:
        id = await submitted(crib, "ask")
        pending = await question(crib)
        await state(crib, id, "waiting")
    async with Crib([ask], store=path, policy=lambda *_: "deny") as crib:
        await crib.answer(pending.id, Input("Bob"), by="carol")
        error = (await crib.tasks.wait(id, timeout_s=WAIT_S)).error
    assert error.code == "denied"


async def test_steps_that_changed_are_a_conflict(path: Path) -> None:
    def version(step: str) -> Any:
        @tool(task=True)
        async def night(context: Context) -> str:
            await context.step(step, str)
            return await context.ask("name", str, "Who?")

        return night

    async with Crib([version("one")], store=path) as crib:
        id = await submitted(crib, "night")
        await crib.answer((await question(crib)).id, Input("Bob"), by="carol")
        assert (await crib.tasks.wait(id, timeout_s=WAIT_S)).value == "Bob"
        id = await submitted(crib, "night", {})
        pending = await question(crib)
        await state(crib, id, "waiting")
    async with Crib([version("two")], store=path) as crib:
        await crib.answer(pending.id, Input("Bob"), by="carol")
        error = (await crib.tasks.wait(id, timeout_s=WAIT_S)).error
    assert (error.code, error.retry) == ("conflict", "never")
    assert "code changed" in error.message


async def test_steps_at_the_same_time_and_in_others_are_found_again(path: Path) -> None:
    effects: list[str] = []

    @tool(task=True, idempotent=True)
    async def night(context: Context) -> list[str]:
        c_done = asyncio.Event()

        async def last(name: str) -> str:
            await c_done.wait()
            return done(name)

        async def outer() -> str:
            return await context.step("inner", done, "inner") + done("outer")

        def done(name: str) -> str:
            effects.append(name)
            return name

        async def one() -> list[str]:
            return [await context.step("a", last, "a"), await context.step("b", done, "b")]

        async def two() -> list[str]:
            values = [await context.step("c", done, "c"), await context.step("d", done, "d")]
            c_done.set()
            return values

        values = await asyncio.gather(one(), two())
        await context.sleep(0)
        outside = await context.step("outer", outer)
        await context.sleep(0.05)
        return [*values[0], *values[1], outside]

    async with Crib([night], store=path) as crib:
        result = await crib.tasks.wait(await submitted(crib, "night"), timeout_s=WAIT_S)
    assert result.value == ["a", "b", "c", "d", "innerouter"], result.text
    assert effects == ["c", "d", "a", "b", "inner", "outer"]


@pytest.mark.parametrize(
    ("value", "code"), [(object(), "invalid_result"), (float("nan"), "invalid_result"), ("x" * 2**20, "too_large")]
)
async def test_the_value_of_a_step_is_json_of_bounded_size(path: Path, value: Any, code: str) -> None:
    @tool(task=True)
    async def night(context: Context) -> None:
        await context.step("one", lambda: value)

    async with Crib([night], store=path) as crib:
        error = (await crib.tasks.wait(await submitted(crib, "night"), timeout_s=WAIT_S)).error
    assert error.code == code


@pytest.mark.parametrize("waits", ["runs", "sleeps"])
async def test_a_cancelled_task_stops(path: Path, waits: str) -> None:
    stopped = asyncio.Event()
    begun = asyncio.Event()

    @tool(task=True)
    async def night(context: Context) -> None:
        begun.set()
        if waits == "sleeps":
            await context.sleep(3600)
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()

    async with Crib([night], store=path) as crib, Crib([], store=path) as other:
        id = await submitted(crib, "night")
        await begun.wait()
        await state(crib, id, "running" if waits == "runs" else "waiting")
        assert await other.tasks.cancel(id)
        error = (await crib.tasks.wait(id, timeout_s=WAIT_S)).error
        assert not await crib.tasks.cancel(id)
    assert (error.code, stopped.is_set()) == ("cancelled", waits == "runs")


async def test_outside_of_tasks_steps_run_and_sleep_waits() -> None:
    @tool
    async def night(context: Context) -> int:
        await context.sleep(0)
        return await context.step("one", lambda: 7)

    assert (await Workbench([night]).call("night")).value == 7


async def test_a_task_needs_a_database() -> None:
    @tool(task=True)
    async def night() -> None:
        pass

    crib = Crib([night])
    for _ in range(2):  # nor is it started in part
        with pytest.raises(SetupError, match="'night' runs as a task, which needs a database: store="):
            await crib.start()
    with pytest.raises(SetupError, match="store="):
        _ = Crib([]).tasks


async def test_a_task_tool_that_comes_later_runs_too(path: Path) -> None:
    @tool(task=True)
    async def night() -> int:
        return 7

    registry = Registry()
    async with Crib(registry, store=path) as crib:
        registry.add(night)
        result = await crib.tasks.wait(await submitted(crib, "night"), timeout_s=WAIT_S)
    assert result.value == 7


def started(path: Path, job: str, python: str) -> "subprocess.Popen[str]":
    command = [python, str(Path(__file__).with_name("night.py")), str(path), f"{path}.effects", job]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def test_a_killed_process_leaves_its_tasks_to_the_next(path: Path, forked_python: str) -> None:
    process = started(path, "hang", forked_python)
    lines = [await asyncio.to_thread(process.stdout.readline) for _ in range(4)]
    process.kill()
    process.communicate()
    night, pay = [line.strip() for line in lines if line.startswith("task_")]
    process = started(path, "go on", forked_python)
    try:
        async with Crib([], store=path) as crib:
            pending = await question(crib)
            assert pending.message == "Who?"
            await crib.answer(pending.id, Input("Bob"), by="carol")
            assert (await crib.tasks.wait(night, timeout_s=WAIT_S)).value == "done for Bob"
            await state(crib, pay, "lost")
            lost = (await crib.tasks.wait(pay, timeout_s=WAIT_S)).error
            assert (lost.code, f"settle {pay} --done or --not-done" in lost.message) == ("lost", True)
            (result,) = [event async for event in crib.tasks.follow(pay)]
            assert isinstance(result, Result)
            assert result.text == lost.message
            assert (await crib.tasks.get(night)).attempts == 1
    finally:
        process.kill()
        process.communicate()
    assert Path(f"{path}.effects").read_text().splitlines().count("one") == 1
    assert sorted(Path(f"{path}.effects").read_text().splitlines()) == ["one", "paid", "three Bob", "two"]


async def test_a_program_can_wait_for_a_task_as_for_any_pending(path: Path) -> None:
    async with Crib([ask], store=path) as crib:
        pending = (await crib.workbench(ANN).call("ask")).pending
        assert not await crib.wait_for(pending, timeout_s=0.01)
        await crib.answer((await question(crib)).id, Input("bob"), by="ann")
        assert await crib.wait_for(pending, timeout_s=WAIT_S)
        assert (await crib.tasks.get(pending.id)).state == "ended"


@pytest.mark.parametrize("order", ["ab", "ba"])
async def test_two_questions_may_be_open_at_once(path: Path, order: str) -> None:
    @tool(task=True, idempotent=True)
    async def ask(context: Context) -> str:
        names = await asyncio.gather(*(context.ask(key, str, f"Who is {key}?") for key in "ab"))
        return "-".join(names)

    async with Crib([ask], store=path) as crib:
        task = await submitted(crib, "ask")

        async def both() -> dict[str, str]:
            by_key = {pending.key: pending.id for pending in await crib.pendings()}
            return by_key if len(by_key) == 2 else {}

        ids = await until(both)
        for key in order:
            await crib.answer(ids[key], Input(key.upper()), by="ann")
            await state(crib, task, "waiting" if key == order[0] else "ended")
        assert (await crib.tasks.wait(task, timeout_s=WAIT_S)).value == "A-B"


async def test_an_answer_is_not_lost_where_its_run_is_interrupted_before_it_is_stored(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_step, others = DatabaseTasks.add_step, iter(["another process"])

    async def add(self: DatabaseTasks, *args: Any) -> bool:
        if owner := next(others, None):  # takes the task over, and dies
            overtake = f"UPDATE toolcrib_ledger SET owner = '{owner}', fence = fence + 1, lease_until = 0"
            await crib.store.transact(lambda connection: connection.execute(text(overtake)).rowcount)
        return await add_step(self, *args)

    monkeypatch.setattr(DatabaseTasks, "add_step", add)
    async with Crib([ask], store=path) as crib:
        task = await submitted(crib, "ask")
        await crib.answer((await question(crib)).id, Input("bob"), by="ann")
        assert (await crib.tasks.wait(task, timeout_s=WAIT_S)).value == "for bob"
        assert (await crib.tasks.get(task)).attempts == 1


async def test_what_a_task_logs_is_stored_and_shown_without_secrets(path: Path) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def pause() -> None:
        begun.set()
        await go_on.wait()

    @tool(task=True)
    def dig(context: Context) -> str:
        context.log.warning("depth %d", 3)
        context.log.error("the key is %s", "canary-secret-1")
        context.wait(pause())
        return "dug"

    @tool
    def other(context: Context) -> str:
        context.log.warning("not of the task")
        return "x"

    async with Crib([dig, other], store=path, secrets=["canary-secret-1"]) as crib:
        events = crib.tasks.follow(await submitted(crib, "dig"))
        await begun.wait()
        await crib.workbench(ANN).call("other")
        lines = [await anext(events), await anext(events)]
        go_on.set()
        assert [type(event) async for event in events] == [Result]
    assert lines == [LogLine("warning", "depth 3"), LogLine("error", "the key is [secret]")]


async def test_a_program_that_ends_lets_its_tasks_end_or_leaves_them_to_the_next(path: Path) -> None:
    begun: list[str] = []
    may_end = {name: asyncio.Event() for name in ("short", "long", "late")}

    @tool(task=True, idempotent=True)
    async def work(name: str) -> str:
        begun.append(name)
        await may_end[name].wait()
        return f"{name} is done"

    async with Crib([work], store=path) as crib:
        short, long = [await submitted(crib, "work", {"name": name}) for name in ("short", "long")]

        await until(lambda: len(begun) == 2)
        draining = asyncio.create_task(crib.drain(0.5))
        await asyncio.sleep(0)
        late = await submitted(crib, "work", {"name": "late"})
        may_end["short"].set()
        await draining
        assert [(await crib.tasks.get(id)).state for id in (short, long, late)] == ["ended", "running", "queued"]
    for event in may_end.values():
        event.set()
    async with Crib([work], store=path) as crib:
        results = [await crib.tasks.wait(id, timeout_s=WAIT_S) for id in (short, long, late)]
        assert [result.value for result in results] == ["short is done", "long is done", "late is done"]
        assert (await crib.tasks.get(long)).attempts == 0
    assert sorted(begun) == ["late", "long", "long", "short"]


async def test_a_task_that_is_taken_while_its_program_ends_is_left_to_the_next(path: Path) -> None:
    begun: list[str] = []
    is_taken, may_go_on = asyncio.Event(), asyncio.Event()

    class Slow(DatabaseTasks):
        async def take(self, *args: Any, **options: Any) -> Any:
            if entries := await super().take(*args, **options):
                is_taken.set()
                await may_go_on.wait()
            return entries

    @tool(task=True)
    async def work(name: str) -> str:
        begun.append(name)
        return f"{name} is done"

    store = Store(path)
    store.ledger = Slow(store)
    async with Crib([work], store=store) as crib:
        id = await submitted(crib, "work", {"name": "it"})
        await is_taken.wait()
        await crib.drain(0)
        may_go_on.set()
        await state(crib, id, "waiting")
    store.close()
    async with Crib([work], store=path) as crib:
        assert (await crib.tasks.wait(id, timeout_s=WAIT_S)).value == "it is done"
    assert begun == ["it"]


@pytest.mark.parametrize("how", ["cancelled", "refused"])
async def test_what_a_task_has_asked_is_closed_with_the_task(path: Path, how: str) -> None:
    @tool(task=True)
    async def ask(name: str, context: Context) -> str:
        names = await asyncio.gather(*(context.ask(key, str, f"{name}: who is {key}?") for key in "ab"))
        return "-".join(names)

    async with Crib([ask], store=path) as crib:
        task, other = [await submitted(crib, "ask", {"name": name}) for name in ("one", "two")]

        async def are_open() -> dict[str, str]:
            by_message = {pending.message: pending.id for pending in await crib.pendings()}
            return by_message if len(by_message) == 4 else {}

        ids = await until(are_open)
        await state(crib, task, "waiting")
        if how == "cancelled":
            assert await crib.tasks.cancel(task)
        else:
            for key in "ab":
                with suppress(AnswerError):
                    await crib.answer(ids[f"one: who is {key}?"], Deny("no"), by="ann")
            await state(crib, task, "ended")

        async def are_closed() -> bool:
            return {pending.message for pending in await crib.pendings()} <= {f"two: who is {key}?" for key in "ab"}

        await until(are_closed)
        with pytest.raises(
            AnswerError, match=r"has expired: .* or until its task ended\." if how == "cancelled" else None
        ):
            await crib.answer(ids["one: who is a?"], Input("x"), by="ann")
        assert (await crib.tasks.get(other)).state == "waiting"


async def test_the_log_says_which_task_no_process_has_taken_for_a_minute(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(task=True)
    async def dig() -> None:
        pass

    async with Crib([dig], store=path, tasks=0) as crib:
        await submitted(crib, "dig")
        await crib.store.transact(lambda connection: connection.execute(text("UPDATE toolcrib_ledger SET run_at = 0")))
    async with Crib([dig], store=path, tasks=0) as crib:
        await until(lambda: crib.unclaimed_tasks)
        assert crib.unclaimed_tasks == ["dig"]
    assert "start one that has the tool 'dig', such as `toolcrib worker`" in caplog.text
    async with Crib([dig], store=path) as crib:
        (task,) = await crib.tasks.list()
        await crib.tasks.wait(task.id, timeout_s=WAIT_S)
        assert not crib.unclaimed_tasks


def test_how_many_tasks_run_is_a_number() -> None:
    with pytest.raises(SetupError, match="'concurrency' is a number from 0, not -1"):
        Crib([], tasks=-1)
    with pytest.raises(SetupError, match="'per_principal' is a number from 1, not 0"):
        TaskLimits(per_principal=0)
    with pytest.raises(DefinitionError, match=r"priority is a whole number, as in priority=10"):
        Tool(state, task=True, priority=True)


async def test_a_task_that_was_approved_of_a_definition_that_is_gone_asks_anew(path: Path) -> None:
    policy = Rules([Rule(tools="dig", do="ask")])
    async with Crib([dig], store=path, policy=policy, tasks=0) as crib:
        await crib.workbench(ANN).call("dig", {"depth": 3})
        await crib.answer((await question(crib)).id, Approve(), by="bob")
        id = await submitted(crib, "dig", {"depth": 3})
        minute_ago = text("UPDATE toolcrib_ledger SET run_at = 0, lease_until = 0")
        await crib.store.transact(lambda connection: connection.execute(minute_ago))
    async with Crib([Tool(dig, version="2")], store=path, policy=policy) as crib:
        again = await question(crib)
        await state(crib, id, "waiting")
        await crib.answer(again.id, Approve(), by="eve")
        result = await crib.tasks.wait(id, timeout_s=WAIT_S)
    assert (result.value, result.metadata["decision"]["by"]) == (3, "eve")


async def test_the_tasks_of_a_tool_with_a_higher_priority_run_first(path: Path) -> None:
    order: list[str] = []

    @tool(task=True)
    async def low(name: str) -> None:
        order.append(name)

    @tool(task=True, priority=10)
    async def high(name: str) -> None:
        order.append(name)

    tools = [low, high]
    async with Crib(tools, store=path, tasks=0) as crib:
        ids = [
            await submitted(crib, name, {"name": f"{name}{number}"}) for number in (1, 2) for name in ("low", "high")
        ]
    async with Crib(tools, store=path, tasks=1) as crib:
        for id in ids:
            await crib.tasks.wait(id, timeout_s=WAIT_S)
    assert order == ["high1", "high2", "low1", "low2"]


@pytest.mark.full
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_on_postgresql_a_task_of_another_process_starts_without_a_poll(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.durable.engine._POLL_S", 3600)
    store, other = Store(url, key=lambda: [KEY]), Store(url, key=lambda: [KEY])
    async with Crib([dig], store=store) as worker:
        entry = task_entry(1)
        await other.ledger.submit(entry)
        await state(worker, entry.id, "ended")  # `wait` would poll as seldom
        pid = await until(lambda: listener(other))
        monkeypatch.setattr("toolcrib.durable.engine._LISTEN_AGAIN_S", 0.05)
        end = text("SELECT pg_terminate_backend(:pid, 60000)")
        await other.transact(lambda connection: connection.execute(end, {"pid": pid}).scalar())
        entry = task_entry(2)
        await other.ledger.submit(entry)  # whether it is listened to again or not yet
        await state(worker, entry.id, "ended")
    store.close()
    other.close()


async def listener(store: Store) -> int:
    """Return the process of the database that a connection listens by; 0 where none does."""
    query = text("SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()")
    return int(await store.transact(lambda connection: connection.execute(query).scalar() or 0))


def task_entry(depth: int) -> LedgerEntry:
    """Return a task as another process stores it."""
    now = datetime.now(UTC)
    arguments = f'{{"depth": {depth}}}'
    call = {"arguments": arguments, "profile": "default", "groups": [], "claims": [], "traceparent": None}
    identity = (f"task_{depth}", "ann", f"task_{depth}", "digest", "dig", "default", True, now)
    return LedgerEntry(*identity, state="queued", call=call, run_at=now - timedelta(seconds=1))


@pytest.mark.full
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_what_is_settled_as_not_done_begins_again_without_a_poll(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = (Store(url, key=lambda: [KEY]) for _ in range(2))
    await other.ledger.submit(replace(task_entry(1), is_idempotent=False))
    (taken,) = await other.ledger.take([{"dig": ""}], 1)
    other.ledger.give_up(taken)
    (entry,) = await until(other.ledger.lost)
    monkeypatch.setattr("toolcrib.durable.engine._POLL_S", 3600)
    async with Crib([dig], store=store) as worker:
        await until(lambda: listener(other))
        assert await other.ledger.settle(entry, None)
        await state(worker, entry.id, "ended")
    store.close()
    other.close()


async def test_a_list_of_tasks_is_of_a_known_state_and_a_bounded_length(path: Path) -> None:
    async with Crib([dig], store=path) as crib:
        for wrong in ({"state": "nope"}, {"limit": 0}, {"limit": 10**30}):
            with pytest.raises(ToolcribError, match=r"a state \(queued, .*\) and a limit from 1"):
                await crib.tasks.list(**wrong)  # type: ignore[arg-type]
