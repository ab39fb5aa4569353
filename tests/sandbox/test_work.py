"""A tool with `isolation="process"` is the tool it was, and is stopped, with all that it started, when it must be."""

import asyncio
import json
import logging
import os
import threading
import time
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AliasChoices, BaseModel, Field, Json, SecretStr, computed_field

from toolcrib import Call, Caller, Context, Crib, Depends, File, Image, Input, Result, Text, Tool, Workbench, tool
from toolcrib.core import CancellationToken, Data, DefinitionError, Emitted, Progress
from toolcrib.sandbox import Limits, Processes

from ..doubled import doubled
from ..waiting import until
from .family import all_ended, lives

SECRET = "hunter2-secret"


@tool(isolation="process")
def here(n: int) -> list[int]:
    """Defined in a module that a test runner has imported in its own way."""
    return [n, os.getpid()]


class Pet(BaseModel):
    name: str = Field(alias="theName")
    lives: int = Field(9, validation_alias=AliasChoices("lives", "n"), serialization_alias="L")

    @computed_field
    def loud(self) -> str:
        return self.name.upper()


def every_kind(
    pet: Pet,
    when: datetime,
    lasts: timedelta,
    cost: Decimal,
    data: bytes,
    names: frozenset[str],
    either: int | str,
    listed: Json[list[int]],
    aliased: Annotated[int, Field(alias="with-dash")] = 3,
    *more: int,
    **others: Decimal,
) -> None: ...


# The same tool


async def test_arguments_and_values_keep_their_types(tools: str, warm: Processes) -> None:
    sent = {"order": {"id": 1, "dueDate": "2026-01-31", "price": "1.50", "colour": "red"}, "tags": ["a"], "extra": 3}
    async with doubled([tools], processes=warm) as bench:
        assert (await bench.call("add", '{"a": 1, "b": "2"}')).value == 3
        result = await bench.call("receipt", sent)
        receipt = result.unwrap()
        assert type(receipt).__name__ == "Receipt"
        assert (receipt.order.due.year, str(receipt.order.price), receipt.order.colour.name) == (2026, "1.50", "RED")
        assert receipt.tags == {"a", "extra"}
        assert json.loads(result.text)["order"]["dueDate"] == "2026-01-31"
        assert (await bench.call("passed-through", '{"x": [1, 2.5, {"y": null}]}')).value == [1, 2.5, {"y": None}]
        assert (await bench.call("passed-through")).value == "nothing"


def test_arguments_of_every_kind_arrive_as_they_were_checked() -> None:
    codec = Tool(every_kind, isolation="process").codec
    sent = {
        "pet": {"theName": "Rex"},
        "when": "2026-01-01T10:00:00.123456+02:00",
        "lasts": "PT1.5S",
        "cost": "1.10",
        "data": "bytes",
        "names": ["b", "a"],
        "either": "5",
        "listed": "[1, 2]",
        "with-dash": 4,
        "more": [1, 2],
        "other": "2.50",
    }
    arguments, _ = Tool(every_kind).check(json.dumps(sent), False)
    assert codec.read_arguments(codec.write_arguments(arguments)) == arguments


async def test_any_value_comes_back_as_it_was(tools: str, warm: Processes) -> None:
    file = File(b"\x00", "x/y", "z")
    values: dict[str, tuple[Any, Any]] = {
        "text": ("plain ü text", (Text("plain ü text"),)),
        "bytes": (b"\x00\xff", (File(b"\x00\xff"),)),
        "none": (None, (Data("null"),)),
        "image": (Image(b"\x89PNG"), (Image(b"\x89PNG"),)),
        "mixed": ([Text("see"), file, {"a": 1}], (Text("see"), file, Data('{"a":1}'))),
        "table": ({"rows": [1, 2.5, None]}, (Data('{"rows":[1,2.5,null]}'),)),
    }
    async with doubled([tools], processes=warm) as bench:
        for kind, (value, content) in values.items():
            result = await bench.call("of_kind", {"kind": kind})
            assert (result.value, result.content, result.error) == (value, content, None)


async def test_generators_stream_from_processes(tools: str, warm: Processes) -> None:
    async with doubled([tools], processes=warm) as bench:
        for name in ("count", "count_in_a_thread"):
            *events, result = [event async for event in bench.stream(name, {"to": 3})]
            assert events == [Emitted((Data("0"),)), Emitted((Data("1"),))]
            assert isinstance(result, Result)
            assert result.value == 2


async def test_the_context_works_over_the_pipe(tools: str, caplog: pytest.LogCaptureFixture) -> None:
    caller = Caller("alice", "work", "t1", frozenset({"staff"}), frozenset({("org", "acme")}))
    variables = {"region": "eu", "pool": object()}
    async with Workbench([tools], caller=caller, variables=variables, secrets=[SECRET], timeout_s=60) as bench:
        *events, result = [event async for event in bench.stream(Call("look_around", id="call_7"))]
        assert events[0] == Progress(1, 2, "half of [secret]")
        assert events[1:] == [Emitted((Text("some text"),))]
        seen = result.value
        assert (seen["caller"], seen["variables"], seen["call"]) == (
            repr((caller, caller.claims)),
            {"region": "eu"},
            "call_7",
        )
        assert 0 < seen["left_s"] <= 60
        records = [each for each in caplog.records if each.name == "toolcrib.tool.look_around"]
        assert [each.getMessage() for each in records] == ["logged [secret]"]
        assert SECRET not in caplog.text
        assert (await bench.call("variable", {"name": "region"})).value == "eu"
        await bench.call("variable", {"name": "pool"})
        assert "The variable 'pool' is a object, which stays in the host's process" in caplog.text


async def test_steps_of_a_task_in_a_process_are_done_once(tmp_path: Path) -> None:
    notes, crib = (
        tmp_path / "notes",
        Crib([str(Path(__file__).with_name("isolated_tasks.py"))], store=tmp_path / "store.db"),
    )
    async with crib:
        task = (await crib.workbench().call("night", {"file": str(notes)})).pending
        questions = await until(crib.pendings)
        assert await crib.answer(questions[0].id, Input("Bob"), by="carol")
        assert (await crib.tasks.wait(task.id, timeout_s=60)).value == "one two Bob"
        bad = (await crib.workbench().call("set_of_a_step")).pending
        error = (await crib.tasks.wait(bad.id, timeout_s=60)).error
    assert notes.read_text() == "one\ntwo\n"
    assert (error.code, error.message[:47]) == ("invalid_result", "The value of 'step one' is not JSON data, and c")


async def test_questions_travel_to_the_host_and_answers_back(tools: str) -> None:
    async def answer(pending: Any) -> Input:
        return Input(3 if pending.key == "nights" else {"id": 1, "dueDate": "2026-01-31", "price": "2"})

    async with Workbench([tools], ask=answer) as bench:
        assert (await bench.call("book", {"city": "Oslo"})).text == "3 nights in Oslo"
        assert (await bench.call("book_in_a_thread")).text == "2026"
    async with Workbench([tools]) as bench:
        waits = await bench.call("book", {"city": "Oslo"})
        assert (waits.pending.message, waits.pending.schema) == ("How many nights in Oslo?", {"type": "integer"})
        await bench.answer(waits.pending.id, Input(2), by="bob")
        assert (await bench.call("book", {"city": "Oslo"})).text == "2 nights in Oslo"


async def test_what_lives_for_a_call_is_provided_in_the_worker(
    tools: str, warm: Processes, caplog: pytest.LogCaptureFixture
) -> None:
    async with doubled([tools], processes=warm) as bench:
        value, pid = (await bench.call("provided")).unwrap()
        assert value == f"opened in {pid}"
        assert pid != os.getpid()
        assert "closed" in caplog.text


async def test_an_override_that_can_be_imported_holds_in_the_worker(tmp_path: Path) -> None:
    (tmp_path / "overridden_tools.py").write_text(
        "from typing import Annotated\nfrom toolcrib import Depends, tool\n"
        "def real() -> str: return 'real'\n"
        "def double() -> str: return 'double'\n"
        "@tool(isolation='process')\n"
        "def use(value: Annotated[str, Depends(real, scope='call')]) -> str: return value\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        import overridden_tools as given  # type: ignore[import-not-found]

        async with doubled([given.use], overrides={given.real: given.double}) as bench:
            assert (await bench.call("use")).value == "double"
        async with doubled([given.use], overrides={given.real: lambda: "local"}) as bench:
            result = await bench.call("use")
            assert (result.error.code, "the override of 'real' cannot be sent" in result.text) == ("unavailable", True)


async def test_a_tool_of_a_test_module_is_found_by_its_file() -> None:
    async with Workbench([here]) as bench:
        n, pid = (await bench.call(here, 7)).unwrap()
        assert (n, pid == os.getpid()) == (7, False)


# What is printed


async def test_what_a_tool_prints_goes_to_its_log_and_never_to_stdout(
    tools: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    async with Workbench([tools], secrets=[SECRET]) as bench:
        with caplog.at_level(logging.INFO):
            assert (await bench.call("speak")).text == "done"
        printed = [each.getMessage() for each in caplog.records if each.name == "toolcrib.tool.speak"]
        assert printed == ["printed hunter2-", "[secret] by a child", "on stderr"]
        await bench.call("speak")
    out, err = capfd.readouterr()
    assert out == ""
    assert err == "speak: printed hunter2-\nspeak: [secret] by a child\nspeak: on stderr\n"


# What goes wrong


async def test_errors_read_as_in_this_process(tools: str, warm: Processes, caplog: pytest.LogCaptureFixture) -> None:
    async with doubled([tools], processes=warm, secrets=[SECRET]) as bench:
        refused = (await bench.call("refuse")).error
        assert refused.to_dict() == {
            "code": "unavailable",
            "message": "not today",
            "retry": "later",
            "details": {"when": "tomorrow"},
        }
        first = (await bench.call("pid")).value
        failed = await bench.call("fail")
        assert failed.text.startswith("Tool 'fail' failed: RuntimeError (reference ")
        assert failed.text.partition("(reference ")[2][:8] in caplog.text
        assert "in fail" in caplog.text
        assert SECRET not in caplog.text
        assert (await bench.call("leave")).text.startswith("Tool 'leave' failed: SystemExit")
        assert (await bench.call("pid")).value == first, "an error is no reason to start another worker"


@pytest.mark.parametrize(("how", "reason"), [("exit", "exited with status 3"), ("SIGKILL", "was ended by SIGKILL")])
async def test_a_worker_that_dies_takes_no_other_call_with_it(tools: str, how: str, reason: str) -> None:
    async with Workbench([tools]) as bench:
        other = asyncio.create_task(bench.call("nap", {"seconds": 1}))
        result = await bench.call("die", {"how": how})
        assert (result.error.code, result.error.retry, reason in result.text) == ("lost", "never", True)
        assert (await bench.call("add", {"a": 1, "b": 2})).value == 3
        assert (await other).value == "slept"


async def test_memory_over_the_cap_is_an_error_with_clear_words(tools: str) -> None:
    async with Workbench([tools]) as bench:
        result = await bench.call("fill_memory")
        assert result.error.code == "trapped"
        assert result.text == "Tool 'fill_memory' needed more memory than it may have (2048 MiB). Ask for less."
        assert (await bench.call("add", {"a": 1, "b": 2})).value == 3


async def test_output_over_the_cap_is_too_large(tools: str) -> None:
    async with (
        Processes(limits=Limits(output_bytes=100_000)) as processes,
        doubled([tools], processes=processes) as bench,
    ):
        pids = [(await bench.call("pid")).unwrap()]
        for name in ("much", "emit_much"):
            result = await bench.call(name, {"size": 200_000})
            assert (result.error.code, "100000" in result.text) == ("too_large", True)
            pids.append((await bench.call("pid")).unwrap())
        assert pids[0] != pids[1], "one that had too large a value is replaced"
        assert (await bench.call("much", {"size": 50_000})).value == "x" * 50_000


async def test_a_file_that_cannot_be_imported_any_more_is_unavailable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "changing.py"
    tool_text = "from toolcrib import tool\n@tool(isolation='process')\ndef f(a: int) -> int: return a + {}\n"
    file.write_text(tool_text.format(1))
    async with Workbench([file]) as bench:
        assert (await bench.call("f", {"a": 1})).value == 2
        file.write_text(tool_text.format(10))
        assert (await bench.call("f", {"a": 1})).value == 2, "a worker keeps what it has imported"
        processes = bench.crib.executors.get(Processes)
        async with doubled([file], processes=processes) as reloaded:
            assert (await reloaded.call("f", {"a": 1})).value == 11
        processes.forget()
        await asyncio.sleep(0)
        for text in (tool_text.format(10), "syntax error"):
            file.write_text(text)
            result = await bench.call("f", {"a": 1})
            assert result.error.code == "unavailable", "a new one imports nothing else than the host did"
            assert "has changed since the host loaded it" in caplog.text
            assert "SyntaxError" not in caplog.text
            caplog.clear()


# Deadlines


async def test_what_a_tool_leaves_behind_ends_with_its_call(tools: str, tmp_path: Path) -> None:
    async with Workbench([tools]) as bench:
        pid = (await bench.call("start_others", {"folder": str(tmp_path), "wait_s": 0})).unwrap()
        assert not await lives(pid)
        await all_ended(tmp_path)


@pytest.mark.parametrize("name", ["nap", "hold_the_interpreter"])
async def test_a_blocked_worker_is_stopped_on_time(tools: str, name: str) -> None:
    async with Workbench([tools]) as bench:
        pid = (await bench.call("pid")).unwrap()
        started = time.monotonic()
        result = await bench.call(Call(name, {"seconds": 60} if name == "nap" else {}, timeout_s=0.5))
        assert time.monotonic() - started < 50
        assert result.text.startswith(f"Tool '{name}' did not answer in time. Whether it took effect is unknown")
        assert not await lives(pid)


async def test_importing_a_tool_is_not_in_its_deadline(tmp_path: Path) -> None:
    file = tmp_path / "heavy.py"
    file.write_text(
        "import time\nfrom toolcrib import tool\ntime.sleep(1.5)\n"
        "@tool(isolation='process', timeout_s=1)\ndef quick() -> str: return 'quick'\n"
    )
    async with Workbench([file]) as bench:
        assert (await bench.call("quick")).text == "quick"


async def test_an_import_that_does_not_end_is_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "endless.py"
    file.write_text(
        "import sys, time\nfrom toolcrib import tool\nif 'guard' in sys.argv[0]: time.sleep(60)\n"
        "@tool(isolation='process')\ndef never() -> None: ...\n"
    )
    async with Processes(limits=Limits(start_s=1.5)) as processes, doubled([file], processes=processes) as bench:
        assert (await bench.call("never")).error.code == "unavailable"
        assert "It was not loaded within 1.5 s." in caplog.text


async def test_waiting_for_a_turn_is_in_the_deadline(tools: str) -> None:
    async with Processes(size=1) as processes, doubled([tools], processes=processes) as bench:
        await bench.call("pid")
        busy = asyncio.create_task(bench.call("nap", {"seconds": 1}))
        await asyncio.sleep(0)
        assert (await bench.call(Call("add", {"a": 1, "b": 2}, timeout_s=0.2))).error.code == "timeout"
        assert (await busy).value == "slept"
        first, second = await asyncio.gather(bench.call("pid"), bench.call("pid"))
        assert first.value == second.value, "one serves at a time, as before"


@pytest.mark.parametrize("way", ["token", "task"])
async def test_giving_up_stops_the_worker_after_it_could_tidy_up(tools: str, tmp_path: Path, way: str) -> None:
    async with Workbench([tools]) as bench:
        pid = (await bench.call("pid")).unwrap()
        token = CancellationToken()
        call = Call("tidy", {"path": str(tmp_path / "tidied")}, cancellation=token)
        task = asyncio.create_task(bench.call(call))
        await until((tmp_path / "tidied.begun").exists)
        if way == "token":
            threading.Thread(target=token.cancel).start()
            result = await task
            assert (result.error.code, result.text) == ("cancelled", "Tool 'tidy' was cancelled.")
        else:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert not await lives(pid)
        assert (tmp_path / "tidied").read_text() == "tidied"
        assert (await bench.call("add", {"a": 1, "b": 2})).value == 3


# What cannot cross is refused where it is defined


def _closure() -> Any:
    def inner() -> None: ...

    return inner


class Thing:
    def method(self) -> None: ...

    def __call__(self) -> None: ...


def pool() -> str:
    return "pool"


def borrowed(value: Annotated[str, Depends(pool)]) -> str:
    return value


def inner_need(value: Annotated[str, Depends(pool, scope="session")]) -> str:
    return value


def borrowed_inside(value: Annotated[str, Depends(inner_need, scope="call")]) -> str:
    return value


def with_secret(key: SecretStr) -> None: ...


class Hiding(BaseModel):
    shown: int
    hidden: int = Field(0, exclude=True)


def with_hidden(items: list[Hiding]) -> None: ...


def shadowed() -> None: ...


_first_shadowed = shadowed


def shadowed() -> None: ...  # type: ignore[no-redef]


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (_closure(), "is defined inside another function (_closure)"),
        (lambda: None, "is a lambda"),
        (Thing().method, "is bound to an object (Thing)"),
        (Thing(), "is an object"),
        (_first_shadowed, "is something else"),
        (borrowed, "'value' lives as long as a session"),
        (borrowed_inside, "'value' lives as long as a session"),
        (with_secret, "no dump (SecretStr)"),
        (with_hidden, "no dump (exclude=True)"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_the_remedy(fn: Any, reason: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        Tool(fn, name="it", isolation="process")
    assert str(refused.value).startswith("Tool 'it': ")
    assert reason in str(refused.value)
    assert any(way in str(refused.value) for way in ("at the top of", 'scope="call"', "Take a"))


# Callers


async def test_nothing_of_a_callers_process_is_there_for_another(tools: str, tmp_path: Path) -> None:
    """By accident of a tool: its threads, builtins, folder and environment; and a patched module and the umask."""
    alice, bob = Caller("alice"), Caller("bob")
    async with Crib([tools]) as crib:
        async with crib.workbench(alice) as hers, crib.workbench(bob) as his:
            before = (await his.call("process_state")).unwrap()
            assert (await hers.call("change_process", {"folder": str(tmp_path)})).error is None
            assert (await his.call("process_state")).unwrap() == before, "and his worker is warm"
        async with crib.workbench(Caller("alice", "work", "other thread")) as bench:
            again = (await bench.call("process_state")).unwrap()
        async with crib.workbench(Caller("carol")) as bench:
            assert {**(await bench.call("process_state")).unwrap(), "pid": before["pid"]} == before
    assert (again["environ"], again["threads"]) == ("yes", ["left_behind"]), "her own is warm"


async def test_a_caller_whose_calls_occupy_all_workers_keeps_no_other_from_theirs(tools: str, tmp_path: Path) -> None:
    """Another caller floods a tool that takes long. Also a third one's flood: who waits is served in turn."""
    go_on = tmp_path / "go on"
    async with Processes(size=1) as processes, doubled([tools], processes=processes) as bench:
        flooders = [bench.crib.workbench(Caller(name)) for name in ("mallory", "trudy")]
        floods = [
            asyncio.create_task(one.call(Call("wait_for", {"file": str(go_on)}, timeout_s=600)))
            for one in flooders
            for _ in range(8)
        ]
        await until(lambda: len(processes._busy) == 2)
        waiting = asyncio.create_task(bench.crib.workbench(Caller("bob")).call(Call("add", {"a": 1, "b": 2})))
        await until(lambda: "bob" in processes.turns._waiters)
        floods[0].cancel()
        result = await asyncio.wait_for(waiting, 60)
        assert (result.value, sum(task.done() for task in floods)) == (3, 1)
        go_on.touch()
        results = await asyncio.gather(*floods, return_exceptions=True)
    assert [result for result in results[1:] if not isinstance(result, Result) or result.error] == []


# Within other calls, while a bench stops, and with what the host gives


@pytest.mark.parametrize("given", [None, {}, {"tenant": 7, "path": ["a", {"b": None}], "text": "\u00e9"}])
async def test_the_data_of_a_call_is_what_it_is_in_process(tools: str, warm: Processes, given: Any) -> None:
    async with doubled([tools], processes=warm) as bench:
        result = await bench.call(Call("data", {}, data=given))
    assert result.unwrap() == given


async def test_data_that_cannot_be_sent_is_missing_with_its_reason(tools: str, warm: Processes) -> None:
    async with doubled([tools], processes=warm, show_errors=True) as bench:
        result = await bench.call(Call("data", {"name": "lock"}, data={"lock": asyncio.Lock()}))
    assert "'lock' is a Lock, which stays in the host's process" in result.text


async def test_the_deadline_of_a_calling_tool_holds_while_a_worker_starts(tools: str) -> None:
    results: list[Result[Any]] = []

    @tool
    async def outer(ctx: Context) -> str:
        results.append(await bench.call(Call("pid", timeout_s=30)))
        return "done"

    async with doubled([outer, tools], processes=(processes := Processes(size=1))) as bench:
        began = asyncio.get_running_loop().time()
        assert (await bench.call(Call("outer", timeout_s=0.05))).error.code == "timeout"
        assert asyncio.get_running_loop().time() - began < 25
        # Starting a worker does not count towards a deadline of the call's own.
        assert (await bench.call(Call("pid", timeout_s=5))).status == "success"
    await processes.close()


async def test_calls_that_wait_for_a_worker_when_the_bench_stops_are_lost_and_not_broken(tools: str) -> None:
    bench = doubled([tools], processes=(processes := Processes(size=1)))
    await bench.start()
    calls = [asyncio.create_task(bench.call(Call("spin"))) for _ in range(3)]
    await until(lambda: len(processes.turns._waiters.get("local", ())) == 2)
    await processes.close()
    codes = [result.error and result.error.code for result in await asyncio.gather(*calls)]
    await bench.stop()
    assert codes == ["lost"] * 3


async def test_a_cancellation_that_comes_late_cancels_no_other_call(tools: str) -> None:
    async with Processes(size=1) as processes, doubled([tools], processes=processes) as bench:
        await bench.call("pid")
        (worker,) = processes._idle
        await worker.send({"do": "cancel", "call": -1})  # before any other, and while another runs
        running = asyncio.create_task(bench.call("nap", {"seconds": 0.3}))
        await asyncio.sleep(0.1)
        await worker.send({"do": "cancel", "call": -1})
        assert (await running).value == "slept"
