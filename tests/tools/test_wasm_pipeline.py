"""A tool in the sandbox is a tool like any other: all that holds for calls holds for its calls."""

import asyncio
from typing import Any

import pytest

from toolcrib import Approve, Call, Caller, CallLog, Permissions, Workbench
from toolcrib.core import CancellationToken
from toolcrib.workbench import Limit, Rule, Rules

from .guests import ECHO, ENVIRONMENT, GIVES_UP, LOOPS, Module, broker, folder


@pytest.fixture(params=[pytest.param("worker", marks=pytest.mark.full), "in process"])
def permissions(request: pytest.FixtureRequest) -> Permissions:
    return Permissions(trusted=True, in_process=request.param == "in process")


async def test_a_policy_denies_its_call_and_nothing_runs(module: Module, permissions: Permissions) -> None:
    # A call that ran would not end.
    async with Workbench([permissions.to(module(LOOPS))], policy=Rules([Rule(tools="guest", do="deny")])) as bench:
        result = await bench.call("guest")
    assert result.error is not None
    assert result.error.code == "denied"


async def test_an_approval_runs_its_call_once_with_what_was_approved(module: Module, permissions: Permissions) -> None:
    async with Workbench([permissions.to(module(ECHO, "echo"))], policy=lambda *_: "ask") as bench:
        waits = await bench.call("echo", {"a": 1})
        assert waits.pending is not None and waits.pending.kind == "approval"
        await bench.answer(waits.pending.id, Approve(), by="bob")
        assert (await bench.call("echo", {"a": 2})).status == "pending"
        assert (await bench.call("echo", {"a": 1})).value == {"a": 1}
        assert (await bench.call("echo", {"a": 1})).status == "pending"


async def test_its_credentials_are_those_of_the_caller_and_are_nowhere_shown(
    module: Module, permissions: Permissions
) -> None:
    made = folder(module, ENVIRONMENT.format(to=1, status=0), 'auth = [{ secret = "WEATHER_KEY" }]')
    log = CallLog()
    source = permissions.to(made)
    async with Workbench([source], caller=Caller("a"), broker=broker(WEATHER_KEY="canary-5521"), recorder=log) as bench:
        result = await bench.call("guest")
    assert result.text == "WEATHER_KEY=[secret]\0"
    assert "canary" not in repr(list(log))
    async with Workbench([source], caller=Caller("a"), broker=broker()) as bench:
        refused = await bench.call("guest")
    assert refused.status != "success"


async def test_its_deadline_is_the_one_of_the_workbench_where_that_is_sooner(
    module: Module, permissions: Permissions
) -> None:
    async with Workbench([permissions.to(module(LOOPS))], timeout_s=0.3) as bench:
        result = await bench.call("guest")
    assert result.error is not None
    assert (result.error.code, result.error.retry) == ("timeout", "later")


async def test_a_large_result_is_stored_under_a_handle(module: Module, permissions: Permissions) -> None:
    async with Workbench([permissions.to(module(ECHO, "echo"))], max_result_chars=1000) as bench:
        result = await bench.call("echo", {"rows": [{"n": n} for n in range(2000)]})
        read = await bench.call("read_result", {"handle": result.metadata["handle"], "pointer": "/rows/1999/n"})
    assert len(result.text) < 2000
    assert "1999" in read.text


async def test_its_calls_are_recorded_with_how_they_ended(module: Module, permissions: Permissions) -> None:
    log = CallLog()
    sources = [permissions.to(module(ECHO, "echo")), permissions.to(module(GIVES_UP, "traps"))]
    async with Workbench(sources, recorder=log) as bench:
        await bench.call(Call("echo", {"a": 1}, "one"))
        await bench.call(Call("traps", {}, "two"))
    assert [(record.tool, record.status, record.code) for record in log] == [
        ("echo", "success", None),
        ("traps", "error", "trapped"),
    ]


async def test_a_token_cancels_its_call(module: Module, permissions: Permissions) -> None:
    token = CancellationToken()
    async with Workbench([permissions.to(module(LOOPS))]) as bench:
        asyncio.get_running_loop().call_later(0.3, token.cancel)
        result: Any = await bench.call("guest", {}, cancellation=token)
    assert result.error.code == "cancelled"


async def test_a_limit_holds_for_its_calls(module: Module, permissions: Permissions) -> None:
    limit = Limit("echo", rate="1/h", wait_s=0)
    async with Workbench([permissions.to(module(ECHO, "echo"))], limits=[limit]) as bench:
        results = [await bench.call("echo") for _ in range(2)]
    assert [result.error and result.error.code for result in results] == [None, "limited"]


async def test_arguments_over_its_own_limit_are_refused(module: Module, permissions: Permissions) -> None:
    made = folder(module, ECHO, "input_mb = 1")
    async with Workbench([permissions.to(made)]) as bench:
        result = await bench.call("guest", {"text": "x" * 2_000_000})
    assert result.error is not None
    assert (result.error.code, result.text) == (
        "too_large",
        "The arguments of 'guest' are larger than 1048576 bytes, its limit.",
    )


async def test_variables_that_are_too_large_together_are_refused(module: Module, permissions: Permissions) -> None:
    made = folder(module, ECHO, 'variables = ["A"]')
    async with Workbench([permissions.to(made)], variables={"A": "x" * 200_000}) as bench:
        result = await bench.call("guest")
    assert result.text == "The variables of tool 'guest' are larger than 128 KiB together."
