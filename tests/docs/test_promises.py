"""Each promise of docs/promises.md has tests, named in tests/promises.md. Here are those of no one room."""

import asyncio
import os
import re
import subprocess
from pathlib import Path
from typing import Annotated

from toolcrib import (
    Approve,
    Caller,
    Context,
    Depends,
    Tool,
    Workbench,
    formats,
)
from toolcrib.workbench import Rule, Rules, Stores

TESTS = Path(__file__).resolve().parents[1]
DOCS = TESTS.parent / "docs"
_TESTS = re.compile(r" `((?:[\w/]+\.py::)?test_\w+)`(?= `|$)")


def _listed(page: Path) -> list[str]:
    text, _, _ = page.read_text().partition("## Attackers, doors and tests")
    return [line for line in text.splitlines() if line.startswith(("- ", "## "))]


def test_every_promise_names_its_test_and_every_test_its_promise() -> None:
    promises = [line for line in _listed(TESTS / "promises.md") if line.startswith("- ")]
    assert [line for line in promises if not _TESTS.search(line)] == []
    names = [name for line in promises for name in _TESTS.findall(line)]
    kept = [name for name in globals() if name.startswith("test_")]
    kept.remove("test_every_promise_names_its_test_and_every_test_its_promise")
    kept.remove("test_the_promises_to_users_are_those_that_have_tests")
    assert sorted(name for name in names if "::" not in name) == sorted(kept)
    attacked = re.findall(r"\| `([\w/]+\.py::test_\w+)` \|$", (TESTS / "promises.md").read_text(), re.MULTILINE)
    assert len(attacked) > 30
    for file, name in (name.split("::") for name in [*names, *attacked] if "::" in name):
        assert re.search(rf"^(async )?def {name}\(", (TESTS / file).read_text(), re.MULTILINE), f"{file}: no {name}"


def test_the_promises_to_users_are_those_that_have_tests() -> None:
    tested = [_TESTS.sub("", line) for line in _listed(TESTS / "promises.md")]
    assert _listed(DOCS / "promises.md") == tested
    assert len(tested) == len(set(tested))


def add(a: int, b: int = 1) -> int:
    return a + b


async def test_the_model_never_chooses_the_caller_nor_what_the_host_provides() -> None:
    def key() -> str:
        return "ada's key"

    def read(context: Context, key: Annotated[str, Depends(key)]) -> str:
        return f"{context.caller.principal} with {key}"

    bench = Workbench([read], caller=Caller("ada"))
    (spec,) = bench.specs()
    assert spec.input_schema == {"type": "object", "properties": {}, "additionalProperties": False}
    for name in ("caller", "principal", "profile", "thread", "thread_id", "context", "key"):
        refused = await bench.call("read", {name: "bob"})
        assert refused.error is not None
        assert refused.error.code == "invalid_arguments"
    assert (await bench.call("read")).text == "ada with ada's key"


async def test_a_denied_call_has_no_effect() -> None:
    happened: list[str] = []

    def get() -> str:
        happened.append("opened")
        return ""

    def erase(disk: Annotated[str, Depends(get)]) -> None:
        happened.append("erased")

    result = await Workbench([erase], policy=lambda spec, arguments, caller: "deny").call("erase")
    assert result.error is not None
    assert (result.error.code, happened) == ("denied", [])


async def test_an_approval_runs_one_call_once_with_the_arguments_that_were_approved() -> None:
    ran: list[int] = []

    def pay(amount: int) -> None:
        ran.append(amount)

    store = Stores()

    def bench(principal: str = "ada", thread: str = "a") -> Workbench:
        caller = Caller(principal, thread=thread)
        return Workbench([pay], policy=lambda spec, arguments, caller: "ask", store=store, caller=caller)

    waits = (await bench().call("pay", '{"amount": 5}')).pending
    assert waits is not None
    await bench("grace").answer(waits.id, Approve(), by="grace")
    others = [bench("eve").call("pay", {"amount": 5}), bench(thread="b").call("pay", {"amount": 5})]
    assert [(await other).status for other in others] == ["pending", "pending"]
    assert (await bench().call("pay", {"amount": 6})).status == "pending"
    statuses = [result.status for result in await bench().call_many([("pay", {"amount": 5})] * 10)]
    assert (sorted(statuses), ran) == (["pending"] * 9 + ["success"], [5])


def build(pids: str) -> None:
    children = [subprocess.Popen(["sleep", "60"]), subprocess.Popen(["sleep", "60"], start_new_session=True)]
    Path(pids).write_text(" ".join(str(child.pid) for child in children))
    while True:
        pass


async def test_a_tool_in_a_process_is_stopped_with_all_it_started(tmp_path: Path) -> None:
    noted = tmp_path / "pids"
    async with Workbench([Tool(build, isolation="process")], timeout_s=3) as bench:
        result = await bench.call("build", {"pids": str(noted)})
        assert result.error is not None
        assert (result.error.code, "may still be running" in result.text) == ("timeout", False)
        left = [int(pid) for pid in noted.read_text().split()]
        assert len(left) == 2
        async with asyncio.timeout(60):
            while any(_lives(pid) for pid in left):
                await asyncio.sleep(0.01)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_a_dialects_tool_is_a_tool_like_any_other() -> None:
    from toolcrib.dialects.autogen.tools import FunctionTool
    from toolcrib.dialects.spark.tools import tool as spark_tool

    @spark_tool(description="Erase a disk.")
    def erase(disk: str) -> str:
        return f"erased {disk}"

    bench = Workbench(
        [FunctionTool(add, description="Add."), erase],
        policy=Rules([Rule(tools="erase", where={"/disk": "*"}, do="deny")]),
    )
    assert [tool["function"]["name"] for tool in formats.openai.tools(bench.specs())] == ["add", "erase"]
    results = await bench.call_many([("add", {"a": 2}), ("add", {"c": 2}), ("erase", {"disk": "a"})])
    codes = [result.error and result.error.code for result in results]
    assert (results[0].value, codes) == (3, [None, "invalid_arguments", "denied"])
