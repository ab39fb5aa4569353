"""What a tool in a worker process has around it, and how what it does there reaches the host."""

import asyncio
import dataclasses
import logging
import os
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Call, Caller, CancellationToken, Text, Workbench
from toolcrib.core import Broker, Credential, Emitted, Progress, Requirement
from toolcrib.sandbox import Limits, Processes
from toolcrib.sandbox.guard import descendants
from toolcrib.sandbox.work import PrintedOutput, _sendable

from ..doubled import doubled
from ..waiting import until
from .family import family, lives


async def test_a_tool_has_no_file_and_no_signal_handler_of_its_guards(tools: str) -> None:
    limit = 3 * 2**30
    async with (
        Processes(limits=Limits(memory_bytes=limit)) as processes,
        doubled([tools], processes=processes) as bench,
    ):
        facts = (await bench.call("process_facts")).unwrap()
        assert len(family()) == 3, "two guards and the worker itself"
    assert facts == {
        "pipes": [],
        "inheritable": [],
        "core": [0, 0],
        "memory": [limit, limit],
        "oom_score": 500,
        "handlers": [True, True],
        "adopts_orphans": True,
    }


@pytest.mark.parametrize(
    ("then", "events"), [("return", [Progress(1)]), ("emit", [Progress(1), Emitted((Text("some text"),))])]
)
async def test_progress_arrives_before_what_follows_it(
    tools: str, warm: Processes, then: str, events: list[Any]
) -> None:
    async with doubled([tools], processes=warm) as bench:
        *seen, result = [event async for event in bench.stream("report_and", {"then": then})]
    assert seen == events
    assert result.value == then


async def test_the_deadline_of_a_call_holds_for_the_calls_that_it_makes_in_a_worker(
    tools: str, warm: Processes
) -> None:
    async with doubled([tools], processes=warm) as bench:
        assert (await bench.call("time_within")).value is True


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("memory", "trapped", ""),
        ("interrupt", "failed", "KeyboardInterrupt"),
        ("cancelled", "failed", "CancelledError"),
    ],
)
async def test_what_ends_more_than_a_tool_ends_its_call_alone(tools: str, how: str, code: str, words: str) -> None:
    async with Workbench([tools], show_errors=True) as bench:
        first = (await bench.call("pid")).value
        result = await bench.call("give_up", {"how": how})
        assert (result.error.code, words in result.text) == (code, True)
        assert ((await bench.call("pid")).value == first) == (how != "memory"), "only that one wears a worker out"


async def test_a_cancelled_tool_in_a_thread_sees_it_and_tidies_up(tools: str, tmp_path: Path) -> None:
    async def tidies_up(path: Path) -> bool:
        token = CancellationToken()
        call = Call("tidy_in_a_thread", {"path": str(path)}, cancellation=token)
        task = asyncio.create_task(bench.call(call))
        await until(path.with_suffix(".begun").exists)
        token.cancel()
        assert (await task).status == "error"
        return path.exists()

    async with Workbench([tools]) as bench:
        # It has a moment only, which may be over before a busy machine lets it run.
        for number in range(20):
            if await tidies_up(tmp_path / str(number)):
                return
    pytest.fail("it never tidied up")


async def test_where_a_worker_crashed_is_in_its_log(tools: str, caplog: pytest.LogCaptureFixture) -> None:
    async with Workbench([tools]) as bench:
        with caplog.at_level(logging.INFO):
            assert (await bench.call("die", {"how": "segfault"})).status == "error"
    assert "Fatal Python error: Segmentation fault" in caplog.messages
    assert any("isolated_tools.py" in line and "in die" in line for line in caplog.messages)


async def test_what_is_printed_and_logged_arrives_while_the_tool_runs_and_all_of_it_at_its_end(
    tools: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    async with Workbench([tools]) as bench:
        with caplog.at_level(logging.INFO):
            running = asyncio.create_task(bench.call("narrate", {"folder": str(tmp_path)}))
            await until(lambda: "begun \\ud800" in caplog.messages)
            (tmp_path / "seen").touch()
            assert (await running).value == "done"
        assert {*caplog.messages} == {"begun \\ud800", "logged", "ended"}
        caplog.clear()
        assert (await bench.call("narrate", {"folder": str(tmp_path)})).value == "done"
        assert caplog.messages == [], "the host takes warnings only"
        assert (await bench.call("close_output")).value == "done"


async def test_what_a_tool_had_begun_is_not_begun_again_in_another_worker(tools: str, tmp_path: Path) -> None:
    async with Workbench([tools]) as bench:
        assert "What it had done by then is done." in (await bench.call("die_noting", {"path": f"{tmp_path}/a"})).text
    assert (tmp_path / "a").read_text() == "ran "


async def test_a_tool_whose_workers_die_before_it_begins_is_lost_after_three(tmp_path: Path) -> None:
    file, imports = tmp_path / "dying.py", tmp_path / "imports"
    file.write_text(
        f"import os, sys\nfrom toolcrib import tool\nif 'guard' in sys.argv[0]:\n"
        f"    with open({str(imports)!r}, 'a') as file: file.write('.')\n    os._exit(3)\n"
        "@tool(isolation='process')\ndef never() -> None: ...\n"
    )
    async with Workbench([file]) as bench:
        result = await bench.call("never")
    assert (result.error.code, "exited with status 3 before it began" in result.text) == ("lost", True)
    assert imports.read_text() == "..."


def test_what_is_json_is_sent_and_of_the_rest_its_type() -> None:
    sent = {"none": None, "true": True, "list": [1, 2.5, ["x"]], "dict": {"a": {"b": None}}}
    withheld = {"key": {1: 2}, "inner": {"a": object()}, "listed": [object()], "pair": (1, 2), "set": {1}}
    assert _sendable({**sent, **withheld}) == (
        sent,
        {"key": "dict", "inner": "dict", "listed": "list", "pair": "tuple", "set": "set"},
    )


class Keys(Broker):
    def __init__(self, *granted: Credential) -> None:
        self.granted = granted

    async def authorize(
        self, requirements: Sequence[Requirement], caller: Caller, call: Call, /
    ) -> Sequence[Credential]:
        return self.granted


async def test_credentials_arrive_in_a_worker_as_they_were_given(tools: str, warm: Processes) -> None:
    async def refused() -> None:
        """Stand for what a broker does where a provider refuses the credential, which stays in the host."""

    granted = Credential(
        "github",
        "a-key-of-github",
        "key",
        ["repo"],
        datetime(2030, 1, 2, 3, 4, 5, 6, UTC),
        {"instance_url": "https://example.com"},
        ["api.github.com"],
        ["10.0.0.0/8"],
        "X-Key",
        "",
        refused,
    )
    lasting = Credential("slack", "a-key-of-slack")
    async with doubled([tools], processes=warm, broker=Keys(granted, lasting)) as bench:
        arrived = (await bench.call("credentials")).unwrap()
    assert arrived == [
        {**dataclasses.asdict(granted), "expires_at": "2030-01-02T03:04:05.000006Z", "refused": None},
        {**dataclasses.asdict(lasting), "scopes": [], "hosts": [], "allow": []},
    ]


async def test_a_worker_that_served_many_callers_with_secrets_is_replaced(
    tools: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.sandbox.work._MAX_CALLERS", 2)
    pids: list[int] = []
    async with Processes(size=1) as processes:
        for number in range(4):
            async with doubled([tools], processes=processes, secrets=[f"secret-{number}"]) as bench:
                pids.append((await bench.call("pid")).unwrap())
    assert list(Counter(pids).values()) == [3, 1]


async def test_a_call_survives_any_number_of_workers_that_died_while_idle(tools: str) -> None:
    async with Processes(size=5) as processes, doubled([tools], processes=processes) as bench:
        await asyncio.gather(*(bench.call("nap", {"seconds": 0.5}) for _ in range(5)))
        idle = family()
        assert len(idle) == 15, "two guards and the worker itself, of each"
        for pid in idle:
            with suppress(ProcessLookupError):  # a guard that is gone takes what it guards with it
                os.kill(pid, signal.SIGKILL)
        for pid in idle:
            assert not await lives(pid)
        assert (await bench.call("add", {"a": 1, "b": 2})).value == 3


@pytest.mark.full
@pytest.mark.parametrize(("tool", "arguments"), [("add", {"a": 1, "b": 2}), ("nap", {"seconds": 0})])
async def test_a_call_survives_any_number_of_workers_that_die_once_it_has_asked_them(
    tools: str, tool: str, arguments: dict[str, Any]
) -> None:
    """Workers that do not know the tool yet, and workers that do."""
    async with Processes(size=4) as processes, doubled([tools], processes=processes) as bench:
        await asyncio.gather(*(bench.call("nap", {"seconds": 0.5 + number / 5}) for number in range(4)))
        guards = [pid for pid in family() if len([*descendants(pid)]) == 2]
        pids = [[*descendants(guard)][-1] for guard in guards]
        assert len(pids) == 4
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)  # it answers nobody, and hangs up on nobody
        asked = asyncio.create_task(bench.call(tool, arguments))
        await asyncio.sleep(0.2)
        assert not asked.done(), "it waits for one of them"
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        assert (await asked).error is None


def test_of_what_is_printed_a_mebibyte_is_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    printed = PrintedOutput("noisy", None, str)
    with caplog.at_level(logging.INFO):
        printed.write((b"x" * 1023 + b"\n") * 1024)
        printed.write(b"y\n")
        printed.finish()
    assert Counter(caplog.messages) == {"x" * 1023: 1024, "[the rest of what was printed is left out]": 1}
