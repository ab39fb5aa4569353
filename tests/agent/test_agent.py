"""The loop: what a model is asked, how its calls are made, and how a run ends."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib import Call, Caller, CancellationToken, Crib, Image, Result, SetupError, Text, Tool, Workbench, tool
from toolcrib.agent import Agent, Outcome, Request, ScriptedModel, model_from_name
from toolcrib.formats import Reply, Results, Turn, Usage, User
from toolcrib.record import CallLog

from .wire import add


@tool
async def wait_long() -> str:
    """Wait until somebody gives up."""
    await asyncio.Event().wait()
    return "never"


def message(request: Request) -> list[tuple[str, str]]:
    """The results that a model got last: ids and texts."""
    last = request.turns[-1]
    assert isinstance(last, Results)
    return [(result.call_id, result.text) for result in last.results]


async def test_a_run_asks_makes_the_calls_and_asks_again_until_the_model_is_done() -> None:
    model = ScriptedModel(
        [
            {"text": "Let me see.", "calls": [("add", {"a": 1, "b": 2})], "usage": {"input": 10, "output": 5}},
            {"text": "It is 3.", "usage": {"input": 20, "output": 4, "cached": 8}},
        ]
    )
    agent = Agent(model, [add], instructions="Be short.")

    outcome = await agent.run("What is 1 + 2?")

    assert (outcome.status, outcome.text, outcome.why) == ("done", "It is 3.", "")
    assert outcome.usage == Usage(30, 9, 8)
    assert (outcome.pendings, outcome.state) == ((), None)
    question = User((Text("What is 1 + 2?"),))
    asked = Reply("Let me see.", (Call("add", {"a": 1, "b": 2}, "call_1"),), "calls", Usage(10, 5))
    first, second = model.requests
    assert first == Request((question,), "Be short.", agent.workbench.specs(), "auto", True)
    assert list(second.turns[:2]) == [question, asked]
    assert message(second) == [("call_1", "3")]
    assert outcome.turns == (*second.turns, Reply("It is 3.", usage=Usage(20, 4, 8)))


async def test_the_next_run_goes_on_after_the_last() -> None:
    model = ScriptedModel([{"calls": [("add", {"a": 1, "b": 2})]}, "3", "As before: 3"])
    agent = Agent(model, [add])

    first = await agent.run("What is 1 + 2?")
    second = await agent.run("Sure?", after=first.turns)

    assert model.requests[2].turns == (*first.turns, User((Text("Sure?"),)))
    assert second.turns == (*first.turns, User((Text("Sure?"),)), Reply("As before: 3"))
    assert second.trace == ()  # of this run alone


async def test_the_calls_of_one_turn_run_side_by_side() -> None:
    all_here = asyncio.Barrier(3)

    async def meet(n: int) -> int:
        await all_here.wait()
        return n

    model = ScriptedModel([{"calls": [("meet", {"n": n}) for n in range(3)]}, "done"])
    async with asyncio.timeout(30):
        await Agent(model, [meet]).run("Meet.")
    assert message(model.requests[1]) == [("call_1", "0"), ("call_2", "1"), ("call_3", "2")]


async def test_without_parallel_the_calls_of_one_turn_run_one_after_the_other() -> None:
    output: list[str] = []

    async def step(n: int) -> None:
        output.append(f"{n} begins")
        await asyncio.sleep(0)
        output.append(f"{n} ends")

    model = ScriptedModel([{"calls": [("step", {"n": n}) for n in range(3)]}, "done"])
    await Agent(model, [step], parallel=False).run("Go.")
    assert output == ["0 begins", "0 ends", "1 begins", "1 ends", "2 begins", "2 ends"]
    assert not model.requests[0].parallel


async def test_every_call_has_one_result_however_it_ends() -> None:
    def fail() -> None:
        raise RuntimeError("no")

    gone = CancellationToken()
    gone.cancel()
    late = Tool(wait_long, name="late", timeout_s=0.01)
    bench = Workbench(
        [add, fail, late, wait_long, Tool(add, name="forbidden")],
        policy=lambda spec, _arguments, _caller: "deny" if spec.name == "forbidden" else "allow",
    )
    calls = (
        Call("add", '{"a": 1, "b": 2}', "a"),
        Call("ad", '{"a": 1, "b": 2}', "b"),
        Call("add", '{"a": 1, "b"', "c"),
        Call("add", '{"a": 1, "c": 2}', "d"),
        Call("fail", None, "e"),
        Call("late", None, "f"),
        Call("forbidden", {"a": 1, "b": 2}, "g"),
        Call("wait_long", None, "h", cancellation=gone),
    )
    outcome = await Agent(ScriptedModel([Reply(calls=calls), "done"]), bench).run("Go.")

    assert [(trace.call_id, trace.code) for trace in outcome.trace] == [
        ("a", None),
        ("b", "unknown_tool"),
        ("c", "invalid_arguments"),
        ("d", "invalid_arguments"),
        ("e", "failed"),
        ("f", "timeout"),
        ("g", "denied"),
        ("h", "cancelled"),
    ]
    assert outcome.trace[1].text == (
        "There is no tool 'ad'. Did you mean 'add'? The tools are: add, fail, late, wait_long, forbidden."
    )


async def test_calls_without_an_id_of_their_own_get_one() -> None:
    calls = tuple(Call("add", {"a": n, "b": 0}, id) for n, id in enumerate(["", "same", "same", ""]))
    model = ScriptedModel(
        [
            Reply(calls=calls, native={"raw": True}),
            Reply(calls=(Call("add", {"a": 4, "b": 0}, "same"),), native={"raw": True}),
            "done",
        ]
    )

    outcome = await Agent(model, [add]).run("Go.")

    first, second = (turn for turn in outcome.turns if isinstance(turn, Reply) and turn.calls)
    ids = [call.id for call in (*first.calls, *second.calls)]
    assert len({*ids, ""}) == 6
    assert ids[1] == "same"  # the first that has it keeps it
    assert [(call.tool, call.arguments) for call in first.calls] == [(call.tool, call.arguments) for call in calls]
    assert [trace.call_id for trace in outcome.trace] == ids
    assert [trace.text for trace in outcome.trace] == ["0", "1", "2", "3", "4"]
    # The provider's own messages have other ids than the results now.
    assert (first.native, second.native) == (None, None)


async def test_a_result_that_was_kept_from_another_call_has_the_id_of_its_own() -> None:
    results: list[Result[Any]] = []

    async def cached(tool: Any, call: Call, caller: Caller, go_on: Any) -> Result[Any]:
        if not results:
            results.append(await go_on())
        return results[0]

    model = ScriptedModel([{"calls": [("add", {"a": 1, "b": 2})] * 2}, "done"])
    await Agent(model, Workbench([add], middleware=[cached])).run("Go.")
    assert message(model.requests[1]) == [("call_1", "3"), ("call_2", "3")]


JSON = st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3), lambda inner: st.lists(inner))
ARGUMENTS = (
    st.none()
    | st.text(max_size=8)
    | st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.integers(0, 9)})
    | st.dictionaries(st.sampled_from(["a", "b", "c"]), JSON)
    | st.sampled_from(['{"a": 1, "b": 2}', '{"a": "1", "b": 2}', '{"a": 1', "[]", '"{}"'])
)
CALLS = st.builds(
    Call,
    st.sampled_from(["add", "pause", "ask_first", "ad", "", "add\n", "read_result"]),
    ARGUMENTS,
    st.sampled_from(["", "1", "2", "3"]),
)


@settings(max_examples=15, deadline=None)
@given(turns=st.lists(st.lists(CALLS, min_size=1, max_size=4), max_size=4), parallel=st.booleans())
async def test_whatever_calls_a_model_makes_each_has_exactly_one_result_in_order(
    turns: list[list[Call]], parallel: bool
) -> None:
    async def pause(a: int, b: int) -> int:
        await asyncio.sleep(0)
        return a * b

    bench = Workbench(
        [add, pause, Tool(add, name="ask_first")],
        policy=lambda spec, _arguments, _caller: "ask" if spec.name == "ask_first" else "allow",
    )
    model = ScriptedModel([*(Reply("", tuple(calls), "calls") for calls in turns), "done"])
    outcome = await Agent(model, bench, parallel=parallel, max_errors=9).run("Go.")

    assert outcome.status in ("done", "pending")
    seen: set[str] = set()
    for turn, following in zip(outcome.turns, outcome.turns[1:], strict=False):
        if isinstance(turn, Reply):
            assert isinstance(following, Results)
            assert [result.call_id for result in following.results] == [call.id for call in turn.calls]
            assert [result.tool for result in following.results] == [call.tool for call in turn.calls]
            ids = {call.id for call in turn.calls}
            assert len(ids) == len(turn.calls)
            assert not ids & {*seen, ""}
            seen |= ids
    made = [turn for turn in outcome.turns if isinstance(turn, Reply) and turn.calls]
    assert [[(c.tool, c.arguments) for c in turn.calls] for turn in made] == [
        [(c.tool, c.arguments) for c in calls] for calls in turns[: len(made)]
    ]
    assert [trace.call_id for trace in outcome.trace] == [call.id for turn in made for call in turn.calls]


# How a run ends


async def test_a_run_that_is_not_done_within_its_steps_stops_and_can_go_on() -> None:
    model = ScriptedModel([*({"text": f"step {n}", "calls": [("add", {"a": n, "b": 0})]} for n in range(3)), "done"])
    agent = Agent(model, [add], max_steps=2)

    stopped = await agent.run("Count.")
    assert (stopped.status, stopped.text) == ("stopped", "step 1")
    assert stopped.why == "The model was asked 2 times and was not done (max_steps=2)."
    assert [trace.text for trace in stopped.trace] == ["0", "1"]

    done = await agent.run(stopped.turns)
    assert (done.status, done.text, [trace.text for trace in done.trace]) == ("done", "done", ["2"])


async def test_a_model_may_correct_itself_within_a_bound() -> None:
    wrong, right = {"calls": [("add", {"a": 1})]}, {"calls": [("add", {"a": 1, "b": 2})]}
    both = {"calls": [*wrong["calls"], *right["calls"]]}

    corrected = await Agent(ScriptedModel([wrong, wrong, right, wrong, both, wrong, "done"]), [add]).run("Go.")
    assert corrected.status == "done"

    failed = await Agent(ScriptedModel([right, wrong, wrong, wrong, "done"]), [add]).run("Go.")
    assert (failed.status, failed.why) == ("failed", "No call succeeded in 3 turns in a row (max_errors=3).")
    assert [trace.code for trace in failed.trace] == [None, *["invalid_arguments"] * 3]

    once = await Agent(ScriptedModel([wrong]), [add], max_errors=1).run("Go.")
    assert (once.status, once.why) == ("failed", "No call succeeded in one turn (max_errors=1).")


@pytest.mark.parametrize(
    ("stop", "status", "why"),
    [
        ("length", "stopped", "The answer was cut off at a token limit."),
        ("refused", "failed", "The model refused to answer."),
        ("other", "done", ""),
    ],
)
async def test_an_answer_that_is_cut_or_refused_is_not_done(stop: str, status: str, why: str) -> None:
    outcome = await Agent(ScriptedModel([{"text": "So far", "stop": stop}])).run("Go.")
    assert (outcome.status, outcome.text, outcome.why) == (status, "So far", why)


async def test_calls_of_a_reply_that_was_refused_in_the_middle_are_not_made() -> None:
    made: list[int] = []

    @tool
    async def add(a: int) -> None:
        made.append(a)

    calls = [("add", {"a": 1}), ("add", {"a": 2})]
    outcome = await Agent(ScriptedModel([{"text": "So", "stop": "refused", "calls": calls}]), [add]).run("Go.")
    assert (outcome.status, outcome.why) == ("failed", "The model refused to answer.")
    assert [(trace.status, trace.code) for trace in outcome.trace] == [("error", "denied")] * 2
    assert made == []


@pytest.mark.parametrize("fault", ["model", "shorten"])
async def test_a_run_that_fails_by_any_exception_leaves_what_was_done(fault: str) -> None:
    """Also by one that cannot be changed, and with its secrets redacted."""

    @dataclass(frozen=True)
    class Broken(Exception):
        text: str

    requests = 0

    def fail(turns: Any) -> Any:
        nonlocal requests
        requests += 1
        if requests == 2:
            raise Broken("no hunter2 today")
        return turns if fault == "shorten" else {"calls": [("add", {"a": 1, "b": 2})]}

    script: Any = [{"calls": [("add", {"a": 1, "b": 2})]}, "3"] if fault == "shorten" else fail
    bench = Workbench([add], secrets=["hunter2"])
    agent = Agent(ScriptedModel(script), bench, shorten=fail if fault == "shorten" else None)
    with pytest.raises(Broken) as raised:
        await agent.run("What is 1 + 2?")
    so_far: Any = vars(raised.value)["so_far"]
    assert (so_far.status, [trace.text for trace in so_far.trace]) == ("failed", ["3"])
    assert "Broken" in so_far.why and "hunter2" not in so_far.why
    if fault == "shorten":
        assert (await agent.run(so_far.turns)).text == "3"


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_tool_that_cancels_the_task_it_runs_in_ends_no_run(is_streamed: bool) -> None:
    """It leaves that for later (the case); or does so and returns, alone in its turn or beside others."""

    @tool
    async def later() -> str:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_later(0.01, task.cancel)
        return "done"

    @tool
    async def at_once() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "done"

    async def answer(_: Any) -> str:
        await asyncio.sleep(0.05)
        return "3"

    calls: list[Any] = [("later", {}), ("at_once", {}), ("add", {"a": 1, "b": 2})]
    turns = iter([{"calls": [calls[0]]}, {"calls": [calls[1]]}, {"calls": calls}])

    async def reply(request: Any) -> Any:
        return next(turns, None) or await answer(request)

    agent = Agent(ScriptedModel(reply), [later, at_once, add], parallel=False)
    if is_streamed:
        outcome: Any = [event async for event in agent.stream("Go.")][-1]
    else:
        outcome = await agent.run("Go.")
    assert (outcome.status, outcome.text) == ("done", "3")
    assert [trace.code or trace.text for trace in outcome.trace] == ["done", "cancelled", "done", "cancelled", "3"]


async def test_what_was_done_is_kept_where_a_run_ends_by_what_is_no_exception() -> None:
    """By the interrupt of a person; the model's own is the second case."""

    class Ended(BaseException):
        pass

    for error in (KeyboardInterrupt(), Ended()):
        turns = iter([{"calls": [("add", {"a": 1, "b": 2})]}])

        def reply(_: Any, turns: Any = turns, error: BaseException = error) -> Any:
            if turn := next(turns, None):
                return turn
            raise error

        with pytest.raises((KeyboardInterrupt, Ended)) as raised:
            await Agent(ScriptedModel(reply), [add]).run("Go.")
        assert [trace.text for trace in vars(raised.value)["so_far"].trace] == ["3"]


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_calls_that_a_stopped_workbench_did_not_make_are_lost_in_what_was_done(is_streamed: bool) -> None:
    bench = Workbench([add])

    async def reply(_: Any) -> Any:
        await bench.stop()
        return {"calls": [("add", {"a": 1, "b": 2})]}

    agent = Agent(ScriptedModel(reply), bench)
    with pytest.raises(SetupError, match="stopped") as raised:
        if is_streamed:
            _ = [event async for event in agent.stream("Go.")]
        else:
            await agent.run("Go.")
    so_far: Any = vars(raised.value)["so_far"]
    assert [trace.code for trace in so_far.trace] == ["lost"]
    assert (await Agent(ScriptedModel(["done"]), [add]).run(so_far.turns)).text == "done"


# Which tools


@pytest.mark.parametrize("choice", ["any", "add"])
async def test_what_a_model_must_call_holds_for_the_first_turn_alone(choice: str) -> None:
    model = ScriptedModel([{"calls": [("add", {"a": 1, "b": 2})]}, {"calls": [("add", {"a": 1, "b": 2})]}, "done"])
    outcome = await Agent(model, [add], tool_choice=choice).run("Go.")
    assert outcome.status == "done"
    assert [request.choice for request in model.requests] == [choice, "auto", "auto"]


async def test_without_choice_the_model_sees_the_tools_and_may_call_none() -> None:
    def effect() -> str:
        raise AssertionError("this must not run")

    model = ScriptedModel([{"calls": [("effect", {}), ("effect", {})]}, "fine"])
    outcome = await Agent(model, [effect], tool_choice="none").run("Go.")
    assert [request.choice for request in model.requests] == ["none", "none"]
    assert [spec.name for spec in model.requests[0].specs] == ["effect"]
    assert [(trace.code, trace.text) for trace in outcome.trace] == [
        ("denied", "No tool may be called in this conversation. Answer without tools.")
    ] * 2


async def test_a_choice_that_is_no_tool_is_refused_with_the_nearest() -> None:
    model = ScriptedModel(["done"])
    with pytest.raises(SetupError, match=r"The tool choice 'ad' is not .*\. Did you mean 'add'\?"):
        await Agent(model, [add], tool_choice="ad").run("Go.")
    with pytest.raises(SetupError, match="this agent has none"):
        await Agent(model, tool_choice="any").run("Go.")
    assert model.requests == []


async def test_tools_that_come_and_go_are_shown_as_they_are() -> None:
    there = False

    def grow() -> str:
        nonlocal there
        there = True
        return "grown"

    model = ScriptedModel([{"calls": [("grow", {})]}, "done"])
    await Agent(model, [grow, Tool(add, available=lambda _: there)]).run("Go.")
    assert [[spec.name for spec in request.specs] for request in model.requests] == [["grow"], ["grow", "add"]]


# Giving up


async def until_running(log: list[str]) -> None:
    while not log:
        await asyncio.sleep(0)


def slow_tools(log: list[str]) -> list[Any]:
    async def slow(n: int) -> None:
        """Takes for ever."""
        log.append(f"{n} runs")
        try:
            await asyncio.Event().wait()
        finally:
            log.append(f"{n} ends")

    return [slow]


@pytest.mark.parametrize("parallel", [True, False])
async def test_cancelling_the_task_cancels_the_calls_and_leaves_no_tasks(parallel: bool) -> None:
    log: list[str] = []
    before = asyncio.all_tasks()
    model = ScriptedModel([{"calls": [("slow", {"n": 1}), ("slow", {"n": 2})]}])
    task = asyncio.create_task(Agent(model, slow_tools(log), parallel=parallel).run("Go."))
    await until_running(log)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(log) == (["1 ends", "1 runs", "2 ends", "2 runs"] if parallel else ["1 ends", "1 runs"])
    assert asyncio.all_tasks() == before


async def test_a_cancelled_token_ends_the_run_with_a_result_for_every_call() -> None:
    log: list[str] = []
    before = asyncio.all_tasks()
    token = CancellationToken()
    model = ScriptedModel([{"text": "Wait.", "calls": [("slow", {"n": 1}), ("slow", {"n": 2})]}, "never"])
    agent = Agent(model, slow_tools(log), max_errors=1)
    task = asyncio.create_task(agent.run("Go.", cancellation=token))
    await until_running(log)
    threading.Thread(target=token.cancel).start()
    outcome = await task
    assert (outcome.status, outcome.text, outcome.why) == ("cancelled", "Wait.", "The run was cancelled.")
    assert [trace.code for trace in outcome.trace] == ["cancelled", "cancelled"]
    assert sorted(log) == ["1 ends", "1 runs", "2 ends", "2 runs"]
    assert len(model.requests) == 1
    assert asyncio.all_tasks() == before
    # The tokens are the run's; the conversation has none.
    assert all(call.cancellation is None for turn in outcome.turns if isinstance(turn, Reply) for call in turn.calls)


async def test_a_cancelled_token_ends_a_run_that_waits_for_its_model() -> None:
    asked, log = asyncio.Event(), list[str]()

    async def never(request: Request) -> str:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            log.append("ended")
        return ""

    before = asyncio.all_tasks()
    token = CancellationToken()
    task = asyncio.create_task(Agent(ScriptedModel(never)).run("Go.", cancellation=token))
    await asked.wait()
    token.cancel()
    assert await task == Outcome("cancelled", "", "The run was cancelled.", (User((Text("Go."),)),))
    assert log == ["ended"]
    assert asyncio.all_tasks() == before

    task = asyncio.create_task(Agent(ScriptedModel(never)).run("Go.", cancellation=CancellationToken()))
    asked.clear()
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before


async def test_a_token_that_is_cancelled_before_asks_nobody() -> None:
    token = CancellationToken()
    token.cancel()
    model = ScriptedModel(["never"])
    assert (await Agent(model).run("Go.", cancellation=token)).status == "cancelled"
    assert model.requests == []


# Sync doors


def sum_agent() -> Agent:
    return Agent(ScriptedModel([{"calls": [("add", {"a": 1, "b": 2})]}, "3"]), [add])


def test_run_sync_works_from_plain_code_and_from_a_thread() -> None:
    assert sum_agent().run_sync("Go.").text == "3"
    output: list[str] = []
    thread = threading.Thread(target=lambda: output.append(sum_agent().run_sync("Go.").text))
    thread.start()
    thread.join()
    assert output == ["3"]


async def test_run_sync_works_inside_a_running_loop() -> None:
    assert sum_agent().run_sync("Go.").text == "3"


# What is stored


async def test_the_trace_has_each_call_with_its_repairs_and_known_secrets_redacted() -> None:
    def echo(text: str, times: int) -> str:
        return text * times

    log = CallLog()
    bench = Workbench([echo], secrets=["hunter2hunter2"], recorder=log)
    model = ScriptedModel(
        [{"calls": [("echo", '{"text": "hunter2hunter2", "times": "2"}'), ("echo", {"text": 7})]}, "ok"]
    )
    outcome = await Agent(model, bench).run("Go.")

    first, second = outcome.trace
    assert (first.tool, first.arguments, first.text) == (
        "echo",
        '{"text": "[secret]", "times": "2"}',
        "[secret]",
    )
    assert [(repair.path, repair.from_kind, repair.to_kind) for repair in first.repairs] == [
        ("/times", "string", "integer")
    ]
    assert (second.arguments, second.status, second.code) == ('{"text": 7}', "error", "invalid_arguments")
    assert {(trace.call_id, trace.started_at) for trace in outcome.trace} == {(r.call_id, r.started_at) for r in log}
    assert first.to_dict() == {
        "call_id": "call_1",
        "tool": "echo",
        "arguments": '{"text": "[secret]", "times": "2"}',
        "text": "[secret]",
        "status": "success",
        "repairs": [{"path": "/times", "from": "string", "to": "integer"}],
        "started_at": first.started_at.isoformat(),
        "finished_at": first.finished_at.isoformat(),
    }


async def test_an_agent_stops_the_workbench_it_has_made_and_no_other() -> None:
    async with Agent(ScriptedModel(["hi"]), [add]) as agent:
        await agent.run("Go.")
    with pytest.raises(SetupError, match="This workbench is stopped"):
        await agent.workbench.call(add, 1, 2)

    bench = Workbench([add])
    async with Agent(ScriptedModel(["hi"]), bench) as agent:
        await agent.run("Go.")
    assert (await bench.call(add, 1, 2)).value == 3


async def test_one_agent_has_many_runs_at_a_time() -> None:
    async def echo(request: Request) -> Any:
        await asyncio.sleep(0)
        if isinstance(request.turns[-1], User):
            return {"calls": [{"tool": "add", "arguments": {"a": int(request.turns[0].content[0].text), "b": 1}}]}
        return message(request)[0][1]

    agent = Agent(ScriptedModel(echo), [add])
    outcomes = await asyncio.gather(*(agent.run(str(n)) for n in range(20)))
    assert [outcome.text for outcome in outcomes] == [str(n + 1) for n in range(20)]


# How a run begins


IMAGE = Image(b"\x89PNG", "image/png")
HELLO = User((Text("Hello"),))


@pytest.mark.parametrize(
    ("prompt", "turns"),
    [
        ("Hello", (HELLO,)),
        (Text("Hello"), (HELLO,)),
        (HELLO, (HELLO,)),
        (["What is this?", IMAGE], (User((Text("What is this?"), IMAGE)),)),
        ([HELLO, Reply("Hi."), HELLO], (HELLO, Reply("Hi."), HELLO)),
    ],
)
async def test_a_run_begins_with_text_content_or_turns(prompt: Any, turns: tuple[Turn, ...]) -> None:
    model = ScriptedModel(["done"])
    await Agent(model).run(prompt)
    assert model.requests[0].turns == turns


CALLED = Reply("", (Call("add", {"a": 1, "b": 2}, "1"),), "calls")
RESULT = Result(3, (Text("3"),), call_id="1", tool="add")


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ("", "A run needs a prompt"),
        ([], "A run needs a prompt"),
        (7, "not with a int"),
        ([HELLO, "Hello"], "not with a list"),
        ([HELLO, CALLED], "The calls 1 have no results: the conversation ends"),
        ([HELLO, CALLED, HELLO], r"The calls 1 have no results: turns\[2\] comes first"),
        ([HELLO, Results((RESULT,))], r"turns\[1\]: there must be one result for each call"),
        ([HELLO, CALLED, Results((RESULT, RESULT))], r"turns\[2\]: there must be one result for each call"),
    ],
)
async def test_a_run_that_cannot_begin_says_why(prompt: Any, says: str) -> None:
    model = ScriptedModel(["done"])
    with pytest.raises(SetupError, match=says):
        await Agent(model, [add]).run(prompt)
    assert model.requests == []


@pytest.mark.parametrize(
    ("tools", "options", "says"),
    [
        ([], {"max_steps": 0}, "Agent: 'max_steps': expected at least 1"),
        (
            [],
            {"max_calls_per_turn": True},
            r"Agent: 'max_calls_per_turn': expected integer \(at least 1\), got boolean",
        ),
        ([], {"max_tokens": 1.5}, "Agent: 'max_tokens'"),
        ([], {"instructions": lambda: "Be kind."}, "Agent: 'instructions': expected a valid string"),
        ([], {"tool_choice": None}, "Agent: 'tool_choice'"),
        (Crib([add]), {}, r"crib.workbench\(caller\)"),
        (add, {}, r"Workbench\(\[add\]\)"),
    ],
)
def test_what_an_agent_cannot_be_made_of_is_refused(tools: Any, options: Any, says: str) -> None:
    with pytest.raises(SetupError, match=says):
        Agent(ScriptedModel([]), tools, **options)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("opnai:gpt-5-mini", "There is no model provider 'opnai'. Did you mean 'openai'?"),
        ("gpt-5-mini", "The model name 'gpt-5-mini' names no provider."),
        ("openai", "'openai' has no model after the provider."),
        ("anthropic:", "'anthropic:' has no model after the provider."),
    ],
)
def test_a_model_that_nobody_has_is_refused_with_the_nearest(name: str, says: str) -> None:
    with pytest.raises(SetupError) as raised:
        model_from_name(name)
    assert str(raised.value).startswith(says)
    assert '"openai:MODEL"' in str(raised.value)
    with pytest.raises(SetupError, match="Write it as"):
        Agent(name)


@pytest.mark.parametrize(
    "name",
    ["openai:gpt-5-mini", "responses:gpt-5", "anthropic:claude-x", "gemini:gemini-x", "bedrock:us.amazon.nova-x:0"],
)
def test_a_model_is_called_as_it_was_asked_for(name: str) -> None:
    assert model_from_name(name).name == name
    assert repr(Agent(name)) == f"<Agent of {name} with <Workbench of 0 tools for local>>"


def test_what_is_no_model_is_reported_when_the_agent_is_made() -> None:
    for wrong in (lambda request: "hello", ScriptedModel, None):
        with pytest.raises(SetupError, match="a Model or its name"):
            Agent(wrong)  # type: ignore[arg-type]


async def test_the_trace_has_the_handle_of_a_large_result() -> None:
    def numbers(to: int) -> list[int]:
        return list(range(to))

    bench = Workbench([numbers])
    script = [{"calls": [("numbers", {"to": 20_000}), ("numbers", {"to": 2})]}, "Done."]
    large, small = (await Agent(ScriptedModel(script), bench).run("Count.")).trace
    assert large.handle is not None
    assert large.handle.startswith("result_")
    assert large.to_dict()["handle"] == large.handle
    assert (small.handle, "handle" in small.to_dict()) == (None, False)
    (whole,) = await bench.stored_result(large.handle)
    assert len(whole.text) > len(large.text)


async def test_a_turn_and_a_run_make_so_many_calls_and_no_more() -> None:
    ran: list[int] = []

    def count(number: int) -> int:
        ran.append(number)
        return number

    def calls(*numbers: int) -> dict[str, Any]:
        return {"calls": [("count", {"number": number}) for number in numbers]}

    agent = Agent(ScriptedModel([calls(*range(5000)), "Done."]), [count])
    outcome = await agent.run("Go.")
    assert (outcome.status, len(ran), len(outcome.trace)) == ("stopped", 100, 5000)
    assert outcome.why == "The model made 5000 calls, of which 1000 may run (max_calls=1000)."

    ran.clear()
    model = ScriptedModel([calls(1, 2, 3), calls(4, 5), "Done."])
    outcome = await Agent(model, [count], max_calls_per_turn=2).run("Go.")
    assert (outcome.status, ran) == ("done", [1, 2, 4, 5])
    assert [trace.code for trace in outcome.trace] == [None, None, "limited", None, None]
    assert "at most 2 calls run in one turn" in outcome.trace[2].text

    ran.clear()
    outcome = await Agent(ScriptedModel([calls(1, 2), calls(3, 4), "never"]), [count], max_calls=3).run("Go.")
    assert (outcome.status, ran) == ("stopped", [1, 2, 3])


async def test_a_run_that_has_used_its_tokens_is_stopped() -> None:
    turn = {"calls": [("ping", {})], "usage": {"input": 60, "output": 5}}
    outcome = await Agent(
        ScriptedModel([turn, turn, "never"]), [Tool(lambda: "pong", name="ping")], max_tokens=100
    ).run("Go.")
    assert (outcome.status, len(outcome.trace)) == ("stopped", 2)
    assert outcome.why == "The run has used 130 tokens, and was not done (max_tokens=100)."


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_turns_of_a_request_may_be_shortened(is_async: bool) -> None:
    def shorten(turns: Sequence[Turn]) -> Sequence[Turn]:
        return [turns[0], *turns[-2:]] if len(turns) > 3 else turns

    async def later(turns: Sequence[Turn]) -> Sequence[Turn]:
        return shorten(turns)

    ping: dict[str, Any] = {"calls": [("ping", {})]}
    model = ScriptedModel([ping, ping, ping, "Done."])
    agent = Agent(model, [Tool(lambda: "pong", name="ping")], shorten=later if is_async else shorten)
    outcome = await agent.run("Go.")
    assert [len(request.turns) for request in model.requests] == [1, 3, 3, 3]
    assert (outcome.status, len(outcome.turns)) == ("done", 8)
    # What would leave calls without their results is refused.
    with pytest.raises(SetupError, match="one result for each call"):
        await Agent(
            ScriptedModel([ping, "never"]), [Tool(lambda: "pong", name="ping")], shorten=lambda turns: turns[-1:]
        ).run("Go.")
