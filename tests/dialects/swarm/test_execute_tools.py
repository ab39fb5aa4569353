"""What `execute_tools` does with the tool calls of one turn."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from toolcrib import CancellationToken, SetupError
from toolcrib.dialects.swarm import (
    Execution,
    IAgentTool,
    IAgentToolCallbacks,
    commit_stop_tools,
    commit_tool_output,
    commit_tool_output_force,
    execute_tools,
)

PARAMETERS = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What to look for."},
        "sort": {"type": "string", "description": "How to sort.", "enum": ["asc", "desc"]},
        "limit": {"type": "integer", "description": "How many."},
    },
    "required": ["query"],
}


def make(name: str, call: Callable[..., Any], **parts: Any) -> IAgentTool:
    """A tool in the swarm under `<name>-tool`, that models call *name*."""
    function = {"name": name, "description": f"Does {name}.", "parameters": PARAMETERS}
    return IAgentTool(tool_name=f"{name}-tool", function=function, call=call, **parts)


def requests(name: str, tool_id: str = "", **arguments: Any) -> dict[str, Any]:
    call = {"type": "function", "function": {"name": name, "arguments": arguments or {"query": "x"}}}
    return {**call, "id": tool_id} if tool_id else call


def steps(done: Execution) -> list[str]:
    return [f"{event.kind} {event.tool_id}" for event in done.events]


async def returns(dto: Any) -> Any:
    return f"{dto.tool_id}:{dto.params['query']}"


async def test_all_calls_are_validated_before_any_runs_and_then_run_in_order() -> None:
    done = await execute_tools(
        "client", "agent", [requests("a", "1"), requests("b", "2")], [make("a", returns), make("b", returns)]
    )
    prepared = [f"{kind} {i}" for i in "12" for kind in ("on_validate", "validate", "on_before_call")]
    assert steps(done) == prepared + [f"{kind} {i}" for i in "12" for kind in ("call", "return", "on_after_call")]
    assert (done.status, dict(done.outputs), done.errors) == ("success", {"1": "1:x", "2": "2:x"}, {})
    assert [event.function for event in done.events[::3]] == ["a", "b", "a", "b"]


async def test_the_next_call_begins_when_the_one_before_commits_and_not_when_it_ends() -> None:
    second_ran = asyncio.Event()

    async def first(dto: Any) -> str:
        assert await commit_tool_output(dto.tool_id, "early", dto.client_id, dto.agent_name)
        await second_ran.wait()
        return "late"

    async def second(dto: Any) -> dict[str, int]:
        second_ran.set()
        return {"é": 1}

    done = await execute_tools(
        "client", "agent", [requests("a", "1"), requests("b", "2")], [make("a", first), make("b", second)]
    )
    assert steps(done)[6:] == [
        *("call 1", "commit 1", "call 2", "return 2", "on_after_call 2", "return 1", "on_after_call 1"),
    ]
    assert dict(done.outputs) == {"1": "early", "2": '{"é":1}'}
    assert done.messages() == [
        {"role": "tool", "tool_call_id": "1", "content": "early"},
        {"role": "tool", "tool_call_id": "2", "content": '{"é":1}'},
    ]


async def test_a_commit_by_force_needs_no_agent() -> None:
    async def commits(dto: Any) -> None:
        assert await commit_tool_output_force(dto.tool_id, "forced", dto.client_id)

    done = await execute_tools("client", "agent", [requests("a", "1")], [make("a", commits)])
    assert dict(done.outputs) == {"1": "forced"}
    assert not await commit_tool_output_force("1", "late", "client")


async def test_a_tool_stops_the_tools_of_its_turn_and_ends_itself() -> None:
    ran: list[Any] = []

    async def stops(dto: Any) -> str:
        assert await commit_stop_tools(dto.client_id, dto.agent_name)
        assert dto.abort_signal.aborted
        return "stopped"

    calls = [requests("a", "1"), requests("b", "2")]
    done = await execute_tools("client", "agent", calls, [make("a", stops), make("b", ran.append)])
    assert (done.status, dict(done.outputs), ran) == ("aborted", {"1": "stopped"}, [])
    assert done.errors["2"].message == "This call was not run, because a tool has stopped the tools of the turn."
    assert not await commit_stop_tools("client", "agent")


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (requests("b", "2", sort="asc"), "Tool 'b': 'query' is missing. Expected string."),
        (requests("b", "2", query=["x"]), "Tool 'b': 'query': expected string, got array."),
        (requests("b", "2", query="x", sort="up"), "Tool 'b': 'sort': expected one of \"asc\", \"desc\"."),
        (requests("c", "2"), "Tool 'c' does not accept these arguments."),
        (requests("d", "2"), "Tool 'd' failed: KeyError"),
        (requests("bb", "2"), "There is no tool 'bb'."),
        (requests("b-tool", "2"), "There is no tool 'b-tool'."),
        ({**requests("b", "2"), "type": "api"}, "'api' is not a type of tool. The types are: 'function'."),
    ],
)
async def test_when_one_call_is_refused_none_runs(refused: Any, message: str) -> None:
    validated: list[str] = []

    def no(dto: Any) -> bool:
        validated.append(dto.params["query"])
        return False

    async def raises(dto: Any) -> bool:
        raise KeyError("x")

    ran: list[Any] = []
    tools = [
        make("a", ran.append),
        make("b", ran.append, validate=lambda dto: bool(validated.append("b")) or True),
        make("c", ran.append, validate=no),
        make("d", ran.append, validate=raises),
    ]
    done = await execute_tools("client", "agent", [requests("a", "1"), refused, requests("a", "3")], tools)
    assert (done.status, ran, dict(done.outputs)) == ("refused", [], {})
    assert validated == (["x"] if refused["function"]["name"] == "c" else [])  # types come before `validate`
    assert done.errors["2"].message.startswith(message)
    assert (
        done.errors["1"].message
        == done.errors["3"].message
        == ("This call was not run, because the call '2' was refused.")
    )
    assert [event.tool_id for event in done.events if event.kind in ("refused", "skipped")] == ["2", "1", "3"]
    assert [each["content"] for each in done.messages()][1].startswith(message)


async def test_aborting_cancels_what_runs_and_its_signal_and_skips_the_rest() -> None:
    abort = CancellationToken()
    signals: list[Any] = []

    async def runs(dto: Any) -> None:
        dto.abort_signal.add_callback(lambda: signals.append(dto.abort_signal.aborted))
        signals.append(dto.abort_signal.aborted)
        abort.cancel()
        await asyncio.Event().wait()

    calls = [requests("a", "1"), requests("b", "2")]
    done = await execute_tools("client", "agent", calls, [make("a", runs), make("b", returns)], abort=abort)
    assert (done.status, signals) == ("aborted", [False, True])
    assert done.errors["1"].message == "Tool 'a' was cancelled."
    assert done.errors["2"].message == "This call was not run, because the turn was aborted."
    assert steps(done)[-3:] == ["error 1", "on_call_error 1", "skipped 2"]


async def test_callbacks_are_awaited_in_their_order_and_what_they_raise_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[Any] = []

    def observer(name: str) -> Callable[..., Any]:
        async def observe(*arguments: Any) -> bool:
            await asyncio.sleep(0)
            seen.append((name, arguments))
            raise RuntimeError(name)

        return observe

    async def call(dto: Any) -> str:
        seen.append(("call", dto.params))
        return "done"

    names = ("on_before_call", "on_after_call", "on_validate", "on_call_error")
    callbacks: Any = IAgentToolCallbacks(**{name: observer(name) for name in names})
    calls = [requests("a", "1", query="y")]
    done = await execute_tools("client", "agent", calls, [make("a", call, callbacks=callbacks)])
    params = {"query": "y"}
    assert seen == [
        ("on_validate", ("client", "agent", params)),
        ("on_before_call", ("1", "client", "agent", params)),
        ("call", params),
        ("on_after_call", ("1", "client", "agent", params)),
    ]
    assert (done.status, dict(done.outputs)) == ("success", {"1": "done"})
    logged = [record.getMessage().splitlines()[-1] for record in caplog.records if record.levelno == logging.ERROR]
    assert logged == [f"RuntimeError: {name}" for name in ("on_validate", "on_before_call", "on_after_call")]


async def test_without_a_limit_all_calls_run_and_with_one_the_last_do() -> None:
    last: list[tuple[str, bool, int]] = []

    async def call(dto: Any) -> str:
        last.append((dto.tool_id, dto.is_last, len(dto.tool_calls)))
        return "done"

    calls = [requests("a", tool_id) for tool_id in "123"]
    done = await execute_tools("client", "agent", calls, [make("a", call)])
    assert last == [("1", False, 3), ("2", False, 3), ("3", True, 3)]
    last.clear()
    done = await execute_tools("client", "agent", calls, [make("a", call)], max_tool_calls=2)
    assert (last, list(done.outputs)) == ([("2", False, 2), ("3", True, 2)], ["2", "3"])
    assert (steps(done)[0], done.errors["1"].code, len(done.tool_calls)) == ("dropped 1", "limited", 2)
    done = await execute_tools("client", "agent", calls, [make("a", call)], max_tool_calls=0)
    assert (done.status, steps(done)) == ("success", ["dropped 1", "dropped 2", "dropped 3"])


async def test_missing_ids_are_generated_and_duplicate_ids_are_refused() -> None:
    done = await execute_tools("client", "agent", [requests("a"), requests("a")], [make("a", returns)])
    ids = [call["id"] for call in done.tool_calls]
    assert (len(set(ids)), list(done.outputs)) == (2, ids)
    ran: list[Any] = []
    done = await execute_tools(
        "client", "agent", [requests("a", "1"), requests("a", "1"), requests("a", "2")], [make("a", ran.append)]
    )
    assert (done.status, ran, done.errors["1"].code) == ("refused", [], "conflict")
    assert done.errors["1"].message == "2 calls have the id '1'. Give each its own."


async def test_only_the_first_commit_of_a_call_that_is_under_way_counts(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[bool] = []

    async def call(dto: Any) -> None:
        for tool_id, agent in (
            ("no", "agent"),
            (dto.tool_id, "another"),
            (dto.tool_id, "agent"),
            (dto.tool_id, "agent"),
        ):
            counted.append(await commit_tool_output(tool_id, {"n": len(counted)}, "client", agent))

    done = await execute_tools("client", "agent", [requests("a", "1")], [make("a", call)])
    assert (counted, dict(done.outputs)) == ([False, False, True, False], {"1": '{"n":2}'})
    assert "it is not under way for this client and agent 'agent'. Under way are: '1'." in caplog.text


async def test_two_turns_may_not_have_a_call_of_one_id_under_way_for_one_client_and_agent() -> None:
    inner: list[Execution] = []

    async def call(dto: Any) -> str:
        if not inner:
            for client in ("client", "another"):
                inner.append(await execute_tools(client, "agent", [requests("a", "1")], [make("a", returns)]))
        return "outer"

    done = await execute_tools("client", "agent", [requests("a", "1")], [make("a", call)])
    assert [each.status for each in inner] == ["error", "success"]
    assert (inner[0].errors["1"].code, dict(done.outputs)) == ("conflict", {"1": "outer"})


async def test_secrets_are_redacted_in_outputs_errors_and_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def returned(dto: Any) -> str:
        return "the key is hunter2hunter2"

    async def committed(dto: Any) -> None:
        await commit_tool_output(dto.tool_id, {"key": "hunter2hunter2"}, dto.client_id, dto.agent_name)

    def observe(*arguments: Any) -> None:
        raise RuntimeError("hunter2hunter2")

    tools = [make("a", returned, callbacks={"on_before_call": observe}), make("b", committed)]
    calls = [requests("a", "1"), requests("b", "2")]
    done = await execute_tools("client", "agent", calls, tools, secrets=["hunter2hunter2"])
    assert dict(done.outputs) == {"1": "the key is [secret]", "2": '{"key":"[secret]"}'}
    assert [result.text for result in done.results.values()] == list(done.outputs.values())
    assert "RuntimeError: [secret]" in caplog.text
    assert "hunter2hunter2" not in caplog.text


@pytest.mark.parametrize(
    ("calls", "options", "message"),
    [
        ([{"id": "1"}], {}, "A tool call is "),
        ("a", {}, "tool_calls is a list of tool calls."),
        ([], {"timeout_s": 0}, "timeout_s is a number of seconds above 0."),
        ([], {"max_tool_calls": -1}, "max_tool_calls is how many calls are run"),
    ],
)
async def test_what_the_program_did_wrong_is_raised(calls: Any, options: Any, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        await execute_tools("client", "agent", calls, [], **options)
