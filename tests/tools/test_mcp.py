"""MCP servers as sources: real processes that answer, hang, die, flood, lie and change."""

import asyncio
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Call, Input, Text, Workbench, tool
from toolcrib.core import LoadError
from toolcrib.core.source import OffersChange
from toolcrib.tools import load
from toolcrib.tools.mcp.transports import StderrTail, process
from toolcrib.tools.remote import MCPSource, remote_source
from toolcrib.workbench import filtered, prefixed, renamed

from ..waiting import until

SERVER = str(Path(__file__).with_name("mcp_server.py"))


def server(mode: str = "well", state: str = "", **options: Any) -> Any:
    source = MCPSource(command=[sys.executable, "-S", SERVER, mode, state], **options).source(mode)
    source.restart_after_s = 0.05
    return source


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that does not end by itself is ended soon."""
    monkeypatch.setattr("toolcrib.tools.mcp.transports._GRACE_TIMEOUT_S", 0.2)


@tool
def local() -> str:
    """A tool of this process."""
    return "here"


async def test_a_call_and_its_errors_go_through_the_checks_of_every_tool() -> None:
    async with Workbench([server()]) as bench:
        good = await bench.call("echo", {"n": 3})
        assert (good.value, good.text) == ({"n": 3}, '{"n":3}')
        repaired = await bench.call("echo", '{"n": "4"}')
        assert repaired.value == {"n": 4}
        assert len(repaired.repairs) == 1
        assert (await bench.call("echo", {"m": 3})).error.code == "invalid_arguments"


async def test_names_that_no_provider_takes_stay_what_they_are() -> None:
    async with Workbench([prefixed(server("names"), "far_")]) as bench:
        assert [spec.name for spec in bench.specs()] == ["far_echo", "far_a.b/c", "far_" + "x" * 120]
        assert (await bench.call("far_a.b/c", {})).text == "called a.b/c"
        assert [problem.reason for problem in bench.problems if "name" in problem.reason]


async def test_what_a_server_lies_about_costs_that_tool_alone() -> None:
    async with Workbench([server("lies"), local]) as bench:
        names = [spec.name for spec in bench.specs()]
        assert names == ["local", "echo", "wrong", "nothing", "slow_pattern", "not_base64"]
        assert len(bench.problems) == 4  # two schemas that are none, one too large, one name twice
        for name in ("wrong", "nothing", "not_base64", "slow_pattern"):
            async with asyncio.timeout(30):
                result = await bench.call(name, {})
            assert result.error is not None, name
            assert result.error.code == "invalid_result", name
        assert (await bench.call("echo", {"n": 1})).value == {"n": 1}


async def test_a_server_that_hangs_is_left_at_the_deadline_and_sent_a_cancellation(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    async with Workbench([server("hangs"), local]) as bench:
        await until(lambda: not bench.problems)
        assert (await bench.call(Call("echo", {"n": 1}, timeout_s=0.5))).error.code == "timeout"
        assert (await bench.call("local")).text == "here"
    async with Workbench([server("cancelled", str(seen))]) as bench:
        await until(lambda: not bench.problems)
        await bench.call(Call("echo", {"n": 1}, timeout_s=0.3))
        await until(lambda: seen.exists() and seen.read_text())
        assert seen.read_text() == "True"


@pytest.mark.parametrize("mode", ["dies", "floods"])
async def test_a_server_that_is_lost_costs_its_call_and_comes_back(mode: str) -> None:
    async with Workbench([server(mode), local]) as bench:
        lost = await bench.call("echo", {"n": 1})
        assert lost.error.code == "lost"
        assert (await bench.call("local")).text == "here"
        await until(lambda: not bench.problems)
        again = await bench.call("echo", {})  # it answers again: this is refused by its schema
        assert again.error.code in ("invalid_arguments", "lost")


async def test_noise_on_every_channel_disturbs_nothing() -> None:
    async with Workbench([server("talks")]) as bench:
        assert (await bench.call("echo", {"n": 5})).value == {"n": 5}


async def test_one_that_does_not_start_blocks_nobody_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.workbench.lifespan.PATIENCE_S", 0.5)
    async with Workbench([server("fails"), server("slow"), local]) as bench:
        assert (await bench.call("local")).text == "here"
        await until(lambda: "There is no key in the environment" in str(bench.problems))
        assert (await bench.call("echo", {"n": 1})).error.code == "unavailable"
    with pytest.raises(Exception, match="There is no key in the environment"):
        required = server("fails")
        required.required = True
        await Workbench([required]).start()


async def test_changes_of_the_list_are_followed() -> None:
    async with Workbench([server("changes")]) as bench:
        before = bench.registry.get("echo")
        await bench.call("echo", {"n": 1})
        await until(lambda: "added" in bench.registry)
        assert bench.registry.get("echo").spec.description == "Now something else."
        assert bench.registry.get("echo") is not before
        assert (await bench.call("added", {})).text == "called added"


async def test_a_name_that_another_source_has_costs_that_tool_alone() -> None:
    @tool
    def echo() -> str:
        """Ours."""
        return "ours"

    async with Workbench([echo, server("other")]) as bench:
        assert [spec.name for spec in bench.specs()] == ["echo", "other"]
        assert (await bench.call("echo", {})).text == "ours"
        assert "left out" in str(bench.problems)
        assert bench.registry.get("other").spec.hints.read_only


async def test_a_name_is_that_of_the_first_source_and_not_of_the_first_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where both are in one list of sources: the attacker is a remote server that is quick."""
    monkeypatch.setattr("toolcrib.workbench.lifespan.PATIENCE_S", 60.0)
    gate = tmp_path / "gate"
    first, quick = server("waits", str(gate)), server("imitates")
    bench = Workbench([[first, quick]])
    start = asyncio.create_task(bench.start())
    await until(lambda: bool(quick.tools()))
    assert not len(bench.registry)  # until the first one has been tried
    gate.touch()
    await start
    assert {spec.name for spec in bench.registry.specs()} == {"echo", "gh-echo", "GH_other", "other"}
    assert bench.registry.get("echo").source is first
    assert "a tool 'echo' too" in bench.problems[0].reason
    await bench.stop()


async def test_a_source_that_comes_late_takes_its_names_over_from_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("toolcrib.workbench.lifespan.PATIENCE_S", 0.2)
    gate = tmp_path / "gate"
    first, quick = server("waits", str(gate)), server("changes")
    async with Workbench([first, quick]) as bench:
        await until(lambda: "echo" in bench.registry)
        assert bench.registry.get("echo").source is quick
        gate.touch()
        await until(lambda: bench.registry.get("echo").source is first)
        assert (await bench.call("echo", {"n": 1})).value == {"n": 1}
        assert len([record for record in caplog.records if "takes the tool 'echo' over" in record.getMessage()]) == 1
        quick.changed()
        assert bench.registry.get("echo").source is first
        first.lost()
        await until(lambda: bool(bench.problems))
        quick.changed()  # while the first one is down
        assert bench.registry.get("echo").source is first


async def test_names_that_settings_give_a_source_are_kept_for_it_while_it_is_down() -> None:
    down = renamed(filtered(server("fails"), "echo", "issue"), {"issue": "other"})
    async with Workbench([down, server("imitates")]) as bench:
        assert {spec.name for spec in bench.registry.specs()} == {"gh-echo", "GH_other"}
        assert (await bench.call("other", {})).error.code == "unavailable"


async def test_a_prefix_keeps_its_names_in_every_spelling_and_from_sources_before_it_too() -> None:
    """Also `gh-` and `GH_`, which models and rules take for `gh_`; of two prefixes, the longer one decides."""
    sources = [server("imitates"), prefixed(server("fails"), "gh_"), prefixed(server("other"), "gh_deep_")]
    async with Workbench([*sources, prefixed(server("other"), "oth")]) as bench:
        assert {spec.name for spec in bench.registry.specs()} == {
            "echo",
            "gh_deep_echo",
            "gh_deep_other",
            "othecho",
            "othother",
        }
        assert str(bench.problems).count("is left out") == 3


async def test_a_process_gets_its_own_environment_and_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_OURS", "hush-hush")
    async with Workbench([server("environment", env={"ITS_MODE": "its-own"})]) as bench:
        seen = json.loads((await bench.call("echo", {"n": 1})).text)
    assert seen["ITS_MODE"] == "its-own"
    assert "SECRET_OF_OURS" not in seen
    passed_on = {"PATH", "HOME", "LOGNAME", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR"}
    assert set(seen) <= {"ITS_MODE", *passed_on}


async def test_no_process_is_left_by_a_session_that_is_cancelled_again_while_it_ends() -> None:
    started: list[int] = []

    async def hold() -> None:
        command = MCPSource(command=[sys.executable, "-S", SERVER, "slow"])
        async with process(command, lambda: None, StderrTail()):
            while not started:
                await asyncio.sleep(0.01)  # until it runs our program
                with suppress(IndexError):
                    started.append(int(await asyncio.to_thread(_child_of, os.getpid())))
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await until(lambda: bool(started))
    for _ in range(3):  # it does not end by itself, and what would wait for that is cancelled, too
        task.cancel()
        await asyncio.sleep(0.05)
    await asyncio.wait([task])
    (pid,) = started
    await until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text())


def _child_of(pid: int) -> str:
    children = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            state, parent = (each / "stat").read_text().rpartition(") ")[2].split()[:2]
            if SERVER in (each / "cmdline").read_text() and state != "Z" and parent == str(pid):
                children.append(each.name)
    return children[0]


async def test_what_a_server_asks_for_the_caller_answers_at_once_or_later() -> None:
    async def answer(pending: Any) -> Any:
        assert "Which one?" in pending.message
        return Input({"color": "red"})

    async with Workbench([server("asks")], ask=answer) as bench:
        result = await bench.call("ask", {})
        assert json.loads(result.text) == {"action": "accept", "content": {"color": "red", "size": 7}}
    async with Workbench([server("asks")]) as bench:
        waiting = await bench.call("ask", {})
        assert waiting.pending.kind == "input"
        await bench.answer(waiting.pending.id, Input({"color": "blue", "size": 1}), by="local")
        result = await bench.call("ask", {})
        assert json.loads(result.text)["content"] == {"color": "blue", "size": 1}
        refused = await bench.call("ask", {})
        await bench.answer(refused.pending.id, {"kind": "deny", "reason": "no"}, by="local")
        assert json.loads((await bench.call("ask", {})).text) == {"action": "decline"}


async def test_an_address_that_a_server_wants_visited_reaches_the_caller() -> None:
    async with Workbench([server("asks_url")]) as bench:
        waiting = await bench.call("ask", {})
        assert "https://example.com/in" in waiting.pending.message
        await bench.answer(waiting.pending.id, Input({}), by="local")
        assert json.loads((await bench.call("ask", {})).text) == {"action": "accept"}


async def test_resources_and_prompts_are_there_to_be_passed_on() -> None:
    source = server()
    async with Workbench([source]):
        (resource,) = await source.resources()
        assert (resource.uri, resource.media_type) == ("own:a", "text/plain")
        assert (await source.read_resource("own:a"))[0].data == "what it says"
        (prompt,) = await source.prompts()
        assert (prompt.name, prompt.arguments[0].required) == ("greet", True)
        (message,) = await source.get_prompt("greet", {"who": "Ann"})
        assert (message.role, message.content) == ("user", Text("Hello Ann"))


async def test_changes_of_what_is_offered_are_reported_and_updates_of_what_is_followed_also_by_its_next_session() -> (
    None
):
    source = server("reports")
    seen: list[OffersChange] = []
    lists = [OffersChange("resources"), OffersChange("prompts")]
    async with Workbench([source]) as bench:
        await bench.call("echo", {"n": 1})
        source.on_offers_change(seen.append)
        await source.follow_resource("own:a")
        await source.follow_resource("own:a")
        await bench.call("echo", {"n": 1})
        await until(lambda: len(seen) == 3)
        assert seen == [OffersChange("resources", "own:a"), *lists]
        await source.unfollow_resource("own:a")
        await bench.call("echo", {"n": 0})  # it ends, and is started again
        await until(lambda: len(seen) == 5)
        assert seen[3:] == lists
        await until(lambda: not bench.problems)
        await bench.call("echo", {"n": 1})
        await until(lambda: len(seen) == 8)
        assert seen[5:] == seen[:3]
        await source.unfollow_resource("own:a")
        await bench.call("echo", {"n": 1})
        await until(lambda: len(seen) == 10)
        assert seen[8:] == lists


def test_text_that_names_a_server(tmp_path: Path) -> None:
    assert str(load("mcp:https://example.com/mcp").source) == "example.com"
    assert str(load("http://127.0.0.1:9/mcp").source) == "127.0.0.1"
    assert load(f"{sys.executable} -m nothing").source is not None
    first, second = (MCPSource(url=f"https://example.com/mcp?key=hush-{n}").source() for n in "ab")
    for shown in (str(first), repr(first), first.name, first.target.label):
        assert ("example.com" in shown, "hush" in shown) == (True, False)
    assert first.state_key != second.state_key
    file = tmp_path / "clients.json"
    file.write_text(
        json.dumps({"mcpServers": {"a": {"command": "x", "args": ["${HOME}"]}, "b": {"url": "https://b/mcp"}}})
    )
    Workbench([f"mcp:{file}#a", f"mcp:{file}#b"])
    assert remote_source(f"mcp:{file}#a").target.command == ["x", os.environ["HOME"]]
    for wrong, why in (
        ("mcp:", "does not name"),
        ("mcp:http://example.com/mcp", "Use https"),
        ("https://user:pass@example.com/", "no name or password"),
        (f"mcp:{file}#c", "no server 'c'"),
        (str(file), "2 servers"),
        ("mcp:x 'y", "never closed"),
    ):
        with pytest.raises(LoadError, match=why):
            load(wrong)
    with pytest.raises(LoadError) as caught:
        MCPSource(url="https://user:hush-hush@example.com/").source()
    assert "hush" not in str(caught.value)
