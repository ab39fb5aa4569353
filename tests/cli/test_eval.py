"""`toolcrib eval`: a table or JSON, a status, and an end at Ctrl-C; and scenarios from the call log."""

import asyncio
import json
import signal
import tomllib
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from toolcrib import Caller
from toolcrib.core import CallRecord
from toolcrib.record import DatabaseCalls
from toolcrib.store import Store

from ..agent.wire import answer, unfinished, wire
from .conftest import Run, Start

TOOLS = '''
from toolcrib import tool


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    print("it runs")
    return a + b


@tool
def note(text: str, tags: list[str] | None = None, more: list[int | None] | None = None) -> str:
    """Note something."""
    return text
'''

SETTINGS = """
[[source]]
from = "tools.py"
[store]
url = "store.db"
[calls]
content = true
"""

SCENARIOS = """
currency = "USD"
[[scenario]]
name = "sum"
prompt = "1 + 2?"
[[scenario.call]]
tool = "add"
arguments = { a = 1, b = 2 }
"""

USAGE = {"input": 100, "output": 10}
SCRIPT = [{"calls": [["add", {"a": "1", "b": 2}]], "usage": USAGE}, "3", {"calls": [["note", {"text": "1"}]]}, "3"]


@pytest.fixture
def folder(folder: Path) -> Path:
    (folder / "scenarios.toml").write_text(SCENARIOS)
    (folder / "script.json").write_text(json.dumps(SCRIPT))
    return folder


def test_an_eval_is_a_table_and_a_status_and_runs_and_records_nothing(toolcrib: Run) -> None:
    model = ("--model", "scripted:script.json", "--price", "scripted:script.json=1,10")
    done = toolcrib("eval", "scenarios.toml", *model, "--runs", "2", "--max-tokens", "5000")
    assert (done.returncode, done.stdout) == (
        1,
        "scripted:script.json\tsum\t1/2\t1/2\t1/2\t1\t0\t0-110\t175\t0.0002 USD\n"
        "scripted:script.json\t(all)\t1/2\t1/2\t1/2\t1\t0\t0-110\t175\t0.0002 USD\n",
    )
    assert done.stderr == (
        "2 runs: about 1,304 tokens, a price of about 0.0049 USD. At most 5,000 tokens are used.\n"
        "[1/2] scripted:script.json, 'sum': passed\n"
        "[2/2] scripted:script.json, 'sum': failed. 'add' was not called.\n"
        "scripted:script.json, 'sum': 1 of 2 failed. 'add' was not called.\n"
    )
    done = toolcrib("eval", "scenarios.toml", *model, "--runs", "2", "--pass-rate", "0.5")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "Passed.")
    assert toolcrib("calls", "list", "--json").stdout == "[]\n"
    done = toolcrib("eval", "scenarios.toml", *model, "--json", "--execute")
    assert (done.returncode, json.loads(done.stdout)["ok"], "it runs" in done.stderr) == (0, True, True)
    assert len(json.loads(toolcrib("calls", "list", "--json").stdout)) == 1


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["scenarios.toml"], 2, "No model is named. Name one or more: "),
        (["scenarios.toml", "-m", "scripted:script.json", "--price", "m=1"], 2, "--price takes a model and two prices"),
        (
            ["scenarios.toml", "-m", "scripted:script.json", "--price", "m=-1,1"],
            1,
            "scenarios.toml: 'price.m.input': expected at least 0.",
        ),
        (["scenarios.toml", "tools.py", "gone.py", "-m", "scripted:script.json"], 1, "There is no file gone.py. "),
        (["gone.toml", "-m", "scripted:script.json"], 1, "gone.toml cannot be read: No such file or directory."),
        (["scenarios.toml", "-m", "opnai:m"], 1, "There is no model provider 'opnai'. Did you mean 'openai'?"),
    ],
)
def test_an_eval_that_cannot_begin_says_why(toolcrib: Run, arguments: list[str], status: int, message: str) -> None:
    done = toolcrib("eval", *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(f"Error: {message}"), done.stderr


def test_ctrl_c_ends_an_eval_with_what_there_is(start: Start) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
    messages = ({"role": "assistant", "tool_calls": [call]}, {"role": "assistant", "content": "3"})
    head = {"id": "x", "object": "chat.completion", "created": 0, "model": "m"}
    made, done = (answer({**head, "choices": [{"index": 0, "message": m, "finish_reason": "stop"}]}) for m in messages)
    with wire(made, done, unfinished(answer({}))) as provider:
        variables = {"OPENAI_BASE_URL": f"{provider.url}/v1", "OPENAI_API_KEY": "none"}
        with start("eval", "scenarios.toml", "-m", "openai:m", "--runs", "5", **variables) as process:
            lines = [process.stderr.readline() for _ in range(2)]
            process.send_signal(signal.SIGINT)  # while the second run is under way, or before it
            ended = process.wait(30), process.stdout.read(), process.stderr.read()
    assert lines[1] == "[1/5] openai:m, 'sum': passed\n"
    row = "1/1\t1/1\t1/1\t0\t0\t0-0\t175\n"
    assert ended == (130, f"openai:m\tsum\t{row}openai:m\t(all)\t{row}", "The eval was interrupted.\n")


async def read_of_a_resource(folder: Path) -> None:
    with closing(Store(folder / "store.db")) as store:
        log, now = DatabaseCalls(store, with_content=True), datetime.now(UTC)
        await log.finished(CallRecord("c", "resources/read a://b", Caller("ann"), now, "success", arguments="{}"))
        await log.flush()


def test_calls_of_the_log_become_scenarios_that_lack_only_a_prompt(toolcrib: Run, folder: Path) -> None:
    assert toolcrib("calls", "to-scenarios").returncode == 1
    for arguments in (["a=1", "b=2"], ["a=1", "b=2"], ["a=x", "b=2"]):
        toolcrib("call", "add", *arguments)
    toolcrib("call", "note", "--json", '{"text": "say \\"\\u007f\\u00e9\\"", "tags": ["a", "b"]}')
    toolcrib("call", "note", "text=x")  # with the default of `tags`, which is null
    toolcrib("call", "note", "--json", '{"text": "x", "more": [null]}')
    asyncio.run(read_of_a_resource(folder))
    done = toolcrib("calls", "to-scenarios")
    assert (done.returncode, done.stderr.count("Left out: "), "TOML has no null" in done.stderr) == (0, 1, True)
    scenarios = tomllib.loads(done.stdout)["scenario"]
    assert [{name: value for name, value in one.items() if name != "name"} for one in scenarios] == [
        {"prompt": "", "results": {"add": "3"}, "call": [{"tool": "add", "arguments": {"a": 1, "b": 2}}]},
        {
            "prompt": "",
            "results": {"note": 'say "\x7fé"'},
            "call": [{"tool": "note", "arguments": {"text": 'say "\x7fé"', "tags": ["a", "b"]}}],
        },
        {"prompt": "", "results": {"note": "x"}, "call": [{"tool": "note", "arguments": {"text": "x"}}]},
    ]
    (folder / "new.toml").write_text(done.stdout)
    refused = toolcrib("eval", "new.toml", "-m", "scripted:script.json")
    assert refused.stderr.startswith(f"Error: new.toml:3: '{scenarios[0]['name']}' has no prompt."), refused.stderr
    (folder / "new.toml").write_text(done.stdout.partition("\n\n[[scenario]]")[0].replace('""', '"1 + 2?"'))
    assert toolcrib("eval", "new.toml", "-m", "scripted:script.json").returncode == 0
