"""Evals: what models are asked, what they call, and what is said of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Context, ToolAuth, tool
from toolcrib.agent import EvalEstimate, EvalRun, OpenAIChat, ScriptedModel, evaluate
from toolcrib.core import CancellationToken, SetupError
from toolcrib.testing import Cassette
from toolcrib.workbench import Limit, Rule, Rules

from .test_openai_client import completion, tool_call
from .wire import answer, refusal, wire

ran: list[str] = []


@tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    ran.append("add")
    return a + b


@tool(destructive=True, once=True, auth=ToolAuth("github"))
async def wipe(disk: str, context: Context) -> str:
    """Wipe a disk."""
    ran.append("wipe")
    return f"wiped {disk} {context}"


TOOLS = [add, wipe]


def asked(*expected: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"scenario": [{"name": "one", "prompt": "Go.", "call": [*expected], **more}]}


def calls(*made: tuple[str, Any]) -> dict[str, Any]:
    return {"calls": made, "usage": {"input": 100, "output": 10}}


async def problems(scenarios: dict[str, Any], *made: tuple[str, Any], **options: Any) -> tuple[str, ...]:
    report = await evaluate(scenarios, ScriptedModel([calls(*made), "Done."]), TOOLS, **options)
    [run] = report.runs
    assert bool(run.problems) == bool(report.failures) == (not run.passed)
    return run.problems


@pytest.mark.parametrize(
    ("expected", "arguments", "is_right"),
    [
        ({"arguments": {"a": 1}}, {"a": 1, "b": 5}, True),
        ({"arguments": {"a": 1}}, {"a": "1"}, True),
        ({"arguments": {"a": 1, "b": 2}}, {"a": 1}, True),
        ({"arguments": {"a": 1}}, {"a": 2}, False),
        ({"arguments": {"a": 1}}, {"a": 1, "c": 2}, False),
        ({"arguments": {}}, '{"a": ', False),
        ({"where": {"/b": {"gt": 2}}}, {"a": 1, "b": 3}, True),
        ({"where": {"/b": {"gt": 2}}}, {"a": 1}, False),
        ({"schema": {"properties": {"b": {"maximum": 3}}, "required": ["b"]}}, {"a": 1}, True),
        ({"schema": {"properties": {"b": {"maximum": 3}}, "required": ["b"]}}, {"a": 1, "b": 4}, False),
    ],
)
async def test_arguments_are_compared_after_the_check(expected: dict[str, Any], arguments: Any, is_right: bool) -> None:
    sentences = await problems(asked({"tool": "add", **expected}), ("add", arguments))
    assert (sentences == ()) == is_right
    assert all(sentence.startswith("'add' was called with other arguments: ") for sentence in sentences)


async def test_each_expected_call_needs_a_call_of_its_own() -> None:
    any_add, add_one = {"tool": "a*"}, {"tool": "add", "arguments": {"a": 1}}
    assert await problems(asked(any_add, add_one), ("add", {"a": 1}), ("add", {"a": 2})) == ()
    assert await problems(asked(any_add, any_add), ("add", {"a": 1})) == ("'a*' was not called.",)


async def test_what_must_not_be_called_is_a_failure_however_it_ends() -> None:
    message = ("'wipe' was called, which must not be.",)
    assert await problems(asked(not_called=["w*"]), ("wipe", {})) == message
    assert await problems(asked(not_called="*"), ("no_such", {})) == ("'no_such' was called, which must not be.",)
    assert await problems(asked(not_called="wipe"), ("add", {"a": 1})) == ()


async def test_no_tool_runs_and_rules_apply_and_the_model_gets_the_results_of_the_scenario() -> None:
    ran.clear()
    model = ScriptedModel([calls(("wipe", {"disk": "a"}), ("add", {"a": 1}), ("wipe", {"disk": "b"})), "Done."])
    scenarios = {"results": {"add": {"sum": 3}}, **asked({"tool": "wipe", "arguments": {"disk": "b"}})}
    rules = Rules([Rule(tools="wipe", where={"/disk": "b"}, do="deny", message="Not b."), Rule(tools="wipe", do="ask")])
    report = await evaluate(scenarios, model, TOOLS, policy=rules, limits=[Limit(tools="*", rate="1/min")])
    [run] = report.runs
    assert (run.passed, run.denials, run.repairs, ran) == (True, 1, 0, [])
    assert [result.text for result in model.requests[1].turns[-1].results] == [  # type: ignore[union-attr]
        "Done.",
        '{"sum": 3}',
        "Tool 'wipe' is not allowed to run with these arguments: Not b.",
    ]


async def test_what_rules_remember_of_one_run_is_nothing_to_another() -> None:
    rules = Rules([Rule(tools="add", after="wipe", do="deny")])
    model = ScriptedModel([calls(("wipe", {"disk": "a"})), calls(("add", {"a": 1})), "Done."] * 2)
    report = await evaluate(asked({"tool": "add"}), model, TOOLS, policy=rules, runs=2)
    assert [run.denials for run in report.runs] == [1, 1]
    model = ScriptedModel([calls(("wipe", {"disk": "a"})), "Done.", calls(("add", {"a": 1})), "Done."])
    report = await evaluate(asked({"tool": "*"}), model, TOOLS, policy=rules, runs=2)
    assert [(run.passed, run.denials) for run in report.runs] == [(True, 0), (True, 0)]


async def test_tools_run_where_that_is_asked_for() -> None:
    ran.clear()
    model = ScriptedModel([calls(("add", {"a": 1})), "Done."])
    report = await evaluate(asked({"tool": "add"}), model, [add], execute=True)
    assert (report.failures, ran, report.runs[0].calls[0].text) == ([], ["add"], "3")


async def test_tools_that_run_may_be_answered_from_a_cassette(tmp_path: Path) -> None:
    ran.clear()
    for _ in range(2):
        model = ScriptedModel([calls(("add", {"a": "1"})), "Done."])
        with Cassette(tmp_path / "tape.json") as tape:
            report = await evaluate(asked({"tool": "add"}), model, [add], execute=True, middleware=[tape])
        assert (report.failures, report.runs[0].calls[0].text, report.runs[0].repairs) == ([], "3", 1)
    assert ran == ["add"]


async def test_the_arguments_of_a_failure_are_shown_in_part() -> None:
    [problem] = await problems(asked({"tool": "add", "arguments": {"a": 1}}), ("add", {"a": "x" * 10_000}))
    assert len(problem) < 600


async def test_runs_are_counted_and_priced_by_model_and_scenario() -> None:
    scenarios = {
        "currency": "EUR",
        "price": {"scripted": {"input": 1.0, "output": 2.0}},
        "scenario": [
            {"name": "sum", "prompt": "1 + 2?", "call": [{"tool": "add", "arguments": {"a": 1}}]},
            {"name": "none", "prompt": "Hi.", "not_called": "*"},
        ],
    }
    turns = [calls(("add", {"a": "1"})), "3", "Hi.", calls(("add", {"a": 2})), "4", "Hi."]
    events: list[EvalEstimate | EvalRun] = []
    report = await evaluate(scenarios, ScriptedModel(turns), [add], runs=2, pass_rate=0.5, on_progress=events.append)
    assert events == [report.estimate, *report.runs]
    estimate = report.estimate
    assert (estimate.runs, estimate.tokens > 400, estimate.currency) == (4, True, "EUR")
    assert estimate.price is not None
    row = {"model": "scripted", "runs": 2, "denials": 0, "tool_tokens": estimate.tool_tokens["scripted"]}
    of_sum = {"passed": 1, "right_tool": 2, "right_arguments": 1, "repairs": 1, "calls": 2, "price": 0.00024}
    of_none = {"passed": 2, "right_tool": 2, "right_arguments": 2, "repairs": 0, "calls": 0, "price": 0.0}
    tokens = {"tokens": 220, "min_tokens": 110, "max_tokens": 110}
    no_tokens = {"tokens": 0, "min_tokens": 0, "max_tokens": 0}
    both = {"passed": 3, "right_tool": 4, "right_arguments": 3, "repairs": 1, "calls": 2, "price": 0.00024}
    assert report.summary() == [
        {**row, "scenario": "sum", **of_sum, **tokens},
        {**row, "scenario": "none", **of_none, **no_tokens},
        {**row, "scenario": None, "runs": 4, **both, "tokens": 220, "min_tokens": 0, "max_tokens": 110},
    ]
    assert report.failures == []
    assert json.loads(json.dumps(report.to_dict()))["runs"][2]["problems"] == [
        "'add' was called with other arguments: {\"a\": 2}."
    ]


@pytest.mark.parametrize(("limit", "most"), [({"max_tokens": 110}, "110"), ({"max_calls": 1}, "1")])
async def test_an_eval_ends_at_its_bounds(limit: dict[str, int], most: str) -> None:
    turns = [calls(("add", {"a": 1})), "Done."] if "max_calls" in limit else [calls(("add", {"a": 1}))]
    report = await evaluate(asked({"tool": "add"}), ScriptedModel(turns), TOOLS, runs=10**12, **limit)  # type: ignore[arg-type]
    [name] = limit
    assert ([run.passed for run in report.runs], report.failures) == (
        [True],
        [f"The eval was stopped: {name} is {most}."],
    )


async def test_an_eval_that_is_cancelled_has_the_runs_until_then() -> None:
    token = CancellationToken()
    model = ScriptedModel([calls(("add", {"a": 1})), "Done."])
    report = await evaluate(
        asked({"tool": "add"}),
        model,
        TOOLS,
        runs=9,
        cancellation=token,
        on_progress=lambda event: token.cancel() if isinstance(event, EvalRun) else None,
    )
    assert (len(report.runs), report.failures) == (1, ["The eval was interrupted."])


async def test_a_provider_is_asked_and_its_failure_is_one_of_the_run() -> None:
    add_call = tool_call(function={"name": "add", "arguments": '{"a": "1"}'})
    script = (
        answer(completion({"tool_calls": [add_call]}, "tool_calls")),
        answer(completion({"content": "3"})),
        refusal(400, {"error": {"message": "Too long."}}),
    )
    with wire(*script) as provider:
        model = OpenAIChat("m", api_key="secret-key", base_url=f"{provider.url}/v1", max_retries=0)
        prices = {"openai:m": {"input": 1.0, "output": 1.0}}
        scenarios = {"instructions": "Be short.", **asked({"tool": "add", "arguments": {"a": 1}})}
        report = await evaluate(scenarios, model, [add], runs=2, prices=prices)
        await model.close()
    first, second = report.runs
    assert (first.passed, first.tokens, first.price, first.repairs) == (True, 22, 0.000022, 1)
    assert provider.requests[0].body["messages"][0] == {"role": "system", "content": "Be short."}
    assert [definition["function"]["name"] for definition in provider.requests[0].body["tools"]] == ["add"]
    assert (second.passed, second.right_tool, second.right_arguments) == (False, False, False)
    [problem] = second.problems
    assert "Too long." in problem


ONE = '[[scenario]]\nname = "a"\nprompt = "p"\n'
ADD_CALL = f'{ONE}[[scenario.call]]\ntool = "add"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scenario = 1\n", "FILE:1: "),
        ("x =\n", "FILE:1: This is not valid TOML, column 4: Invalid value."),
        ('[[scenario]]\nname = "a"\nprompt = " "\nnot_called = "*"\n', "FILE:3: 'a' has no prompt."),
        (ONE, "FILE:1: 'a' expects nothing: "),
        (
            f'{ONE}[[scenario.call]]\ntol = "add"\n',
            "FILE:5: There is no key 'tol' in [[scenario.call]]. Did you mean 'tool'?",
        ),
        (
            '[price."m"]\ninput = 1\noutput = 2\nfree = 1\n' + ONE + 'not_called = "*"\n',
            "FILE:4: There is no key 'free' in [price.m]. It takes: input, output, cached.",
        ),
        (
            f'{ADD_CALL}[[scenario.call]]\ntool = "ad"\n',
            "FILE:6: This names 'ad', which no tool has. Did you mean 'add'?",
        ),
        (ADD_CALL + 'where = { "/c" = 1 }\n', "FILE:4: This call is never made: 'add' takes nothing at '/c'."),
        (ADD_CALL + "where = { a = 1 }\n", "FILE:4: 'a' in 'where' is not a JSON pointer, "),
        (ADD_CALL + "schema = { type = 1 }\n", "FILE:4: 'add': the root of 'schema' has type 1."),
        (
            ONE + 'not_called = "wip"\nresults = { ad = 1 }\n',
            "FILE:4: This names 'wip', which no tool has. Did you mean 'wipe'?\nFILE:5: This names 'ad', ",
        ),
    ],
)
async def test_what_is_wrong_in_a_file_is_said_with_its_line_before_a_model_is_asked(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "scenarios.toml"
    file.write_text(text)
    model = ScriptedModel([])
    with pytest.raises(SetupError) as error:
        await evaluate(file, model, TOOLS)
    assert str(error.value).replace(str(file), "FILE").startswith(message)
    assert model.requests == []


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: evaluate(asked({"tool": "add"}), [], TOOLS),
        lambda: evaluate(asked({"tool": "add"}), ScriptedModel([]), TOOLS, runs=0),
        lambda: evaluate(asked({"tool": "add"}), ScriptedModel([]), "tools.py"),
        lambda: evaluate(asked({"tool": "add"}), [ScriptedModel([]), ScriptedModel([])], TOOLS),
        lambda: evaluate(asked({"tool": "add"}), ScriptedModel([]), TOOLS, prices={"m": {"input": -1.0}}),
    ],
)
async def test_an_eval_that_makes_no_sense_is_refused(attempt: Callable[[], Any]) -> None:
    with pytest.raises(SetupError):
        await attempt()
