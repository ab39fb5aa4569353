"""What all bridges have in common: whose workbench a run uses, its life, and calls that never raise."""

import asyncio
from typing import Any

import pytest

from toolcrib import Approve, Caller, Crib, Deny, Image, Result, SetupError, Source, Text, ToolSpec, Workbench, tool
from toolcrib.bridges import host as host_module
from toolcrib.bridges.host import Host, metadata
from toolcrib.core import AnswerError, Data
from toolcrib.workbench import Ask

from ..waiting import until
from .bridged_tools import events, no_events, whoami, wipe  # noqa: F401 - no_events is for each test


class Live(Source):
    async def start(self) -> None:
        events.append("start")
        if len(events) > 4:
            raise ValueError("no more")

    async def stop(self) -> None:
        await asyncio.sleep(0)
        events.append("stop")

    def tools(self) -> list[Any]:
        return [wipe]


def asks(spec: ToolSpec, arguments: Any, caller: Caller) -> Any:
    return Ask("Really?", others_only=arguments["path"] == "/etc") if arguments["path"] != "/tmp" else "allow"


async def test_each_run_has_the_workbench_of_its_caller() -> None:
    async with Crib([whoami]) as crib:
        host = Host(crib, lambda context: Caller(context["user"]))
        assert await host.bench({"user": "alice"}) is await host.bench({"user": "alice"})
        results = [await host.call({"user": user}, "whoami", None) for user in ("alice", "bob")]
        assert [result.value for result in results] == ["alice", "bob"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Crib([whoami]),), "a crib needs one for each run"),
        ((Workbench([whoami]), lambda _: Caller()), "A workbench has its caller"),
        (([whoami],), "takes a Workbench or a Crib, not list"),
    ],
)
def test_what_cannot_have_a_caller_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        Host(*arguments)


async def test_who_has_many_conversations_takes_no_workbench_from_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """One user of the host's application begins conversation after conversation."""
    monkeypatch.setattr(host_module, "MAX_KEPT", 5)
    async with Crib([whoami]) as crib:
        host = Host(crib, lambda context: Caller(**context))
        alice = await host.bench({"principal": "alice"})
        for number in range(20):
            mallory = await host.bench({"principal": "mallory", "thread": str(number)})
        assert await host.bench({"principal": "alice"}) is alice
        assert await host.bench({"principal": "mallory", "thread": "19"}) is mallory
        assert len(host._benches) == 5


async def test_a_workbench_stops_with_the_last_run_if_a_run_has_started_it() -> None:
    bench = Workbench([Live()])
    host = Host(bench)

    async def one() -> None:
        await host.enter()
        await asyncio.sleep(0)
        assert (await host.call(None, "wipe", {"path": "/"})).text == "wiped /"
        await host.leave()

    await asyncio.gather(one(), one())
    assert events == ["start", "/", "/", "stop"]
    with pytest.raises(SetupError, match="no more"):
        await host.enter()
    events.clear()
    async with bench:
        await one()
        assert events == ["start", "/"]


async def test_runs_of_several_frameworks_share_a_workbench_until_the_last_has_left() -> None:
    bench = Workbench([Live()])
    first, second = Host(bench), Host(bench)
    await first.enter()
    await second.enter()
    await first.leave()
    assert (await second.call(None, "wipe", {"path": "/"})).text == "wiped /"
    await second.leave()
    assert (events, bench.is_started) == (["start", "/", "stop"], False)


async def test_a_run_that_has_started_a_workbench_leaves_it_to_the_host_who_has_entered_it_since() -> None:
    """The host comes second: `async with` finds the workbench started, and owns it from then on."""
    host = Host(bench := Workbench([Live()]))
    await host.enter()
    async with bench:
        await host.leave()
        assert (await bench.call("wipe", {"path": "/"})).text == "wiped /"
        await _enter_and_leave(host)
        assert events == ["start", "/"]
    assert events == ["start", "/", "stop"]


async def test_the_caller_of_a_run_can_be_had_from_an_async_function() -> None:
    async def caller(context: Any) -> Caller:
        await asyncio.sleep(0)
        return Caller(context["user"])

    async with Crib([whoami]) as crib:
        host = Host(crib, caller)
        assert (await host.call({"user": "alice"}, "whoami", None)).value == "alice"
        assert [tool.name for tool in await host.shown({"user": "alice"})] == ["whoami"]


async def test_where_nobody_is_identified_a_run_is_offered_nothing_and_goes_on(caplog: Any) -> None:
    """Also where a caller is known, but what it is asked of (here, of a coroutine) raises later than the function."""

    async def unknown(context: Any) -> Caller:
        raise PermissionError("secret-token")

    async with Crib([whoami], secrets=["secret-token"]) as crib:
        for caller in (unknown, lambda context: context["user"], lambda context: None):
            host = Host(crib, caller)  # type: ignore[arg-type]  # what callers get wrong
            assert await host.shown({}) == ()
            view = (await host.call({}, "whoami", None)).shown()
            assert view.code == "unavailable"
            assert view.text.startswith("Tool 'whoami' is not available now: ")
    assert "PermissionError" in caplog.text and "secret-token" not in caplog.text


async def test_runs_that_are_cancelled_leave_the_workbench_all_the_same() -> None:
    class Lasting(Live):
        async def start(self) -> None:
            events.append("start")

    host = Host(Workbench([Lasting()]))
    for count in range(1, 30):  # a cancellation at each step of entering and leaving
        runs = [asyncio.create_task(_enter_and_leave(host)) for _ in range(2)]
        for _ in range(count):
            await asyncio.sleep(0)
        for run in runs:
            run.cancel()
        await asyncio.wait(runs)
    await until(lambda: not host.tools.is_started)
    events.clear()
    await _enter_and_leave(host)
    assert events == ["start", "stop"]


async def _enter_and_leave(host: Host) -> None:
    await host.enter()
    try:
        await asyncio.sleep(0)
    finally:
        await host.leave()


async def test_an_answer_of_the_framework_is_one_of_the_caller() -> None:
    host = Host(Workbench([wipe], policy=asks))
    path = {"path": "/"}
    assert (await host.call(None, "wipe", path)).status == "pending"
    assert (await host.call(None, "wipe", path, answer=Deny("no"))).text.endswith("'local' denied it: no")
    assert (await host.call(None, "wipe", path, answer=Approve())).text == "wiped /"
    waits = await host.call(None, "wipe", {"path": "/etc"}, answer=Approve())
    assert waits.status == "pending"
    assert "The caller may not answer it: its rule has `others_only`." in waits.text
    assert metadata(waits)["pending"]["message"] == "Really?"
    assert events == ["/"]


async def test_a_denial_in_the_framework_is_an_answer_that_has_been_read() -> None:
    bench = Workbench([wipe], policy=asks)
    host, path = Host(bench), {"path": "/"}
    waits = await host.call(None, "wipe", path, "call_1")
    await host.deny(None, "call_1", "no")
    assert await bench.pendings() == []
    with pytest.raises(AnswerError, match="answered and used already, by 'local'"):
        await bench.answer(call_id="call_1", answer=Approve())
    again = await host.call(None, "wipe", path, "call_2")
    assert again.status == "pending" and again.pending is not None and waits.pending is not None
    assert again.pending.id != waits.pending.id
    await host.call(None, "wipe", {"path": "/etc"}, "call_3")
    for call_id in ("call_3", "call_4"):  # others have to answer; nothing waits
        await host.deny(None, call_id, "no")
    assert [pending.arguments for pending in await bench.pendings()] == ['{"path": "/"}', '{"path": "/etc"}']
    await Host(Crib([wipe]), lambda _: Caller(nobody=1)).deny(None, "call_1", "")  # type: ignore[call-arg]


async def test_whether_a_call_would_ask_never_raises() -> None:
    host = Host(Workbench([wipe], policy=asks))
    asked = [await host.needs_approval(None, "wipe", {"path": path}) for path in ("/", "/tmp")]
    assert (asked, await host.needs_approval(None, "wash", "{"), host.has_policy) == ([True, False], False, True)
    assert not await Host(Crib([wipe]), lambda _: Caller(nobody=1)).needs_approval(None, "wipe", None)  # type: ignore[arg-type]


async def test_what_a_framework_gets_can_be_sent_in_utf_8() -> None:
    @tool
    async def half() -> Any:
        return [Text("a\ud800"), Data('"\udfff"'), Text("\ud83e\udd8a"), Image(b"1")]

    result = await Host(Workbench([half])).call(None, "half", {})
    assert result.content == (Text("a\ufffd"), Data('"\ufffd"'), Text("\U0001f98a"), Image(b"1"))


def test_a_principal_who_is_answered_often_pushes_out_their_own_results_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "MAX_KEPT", 5)
    answered, result = host_module.AnsweredCalls(), Result("x", ())
    answered.put(("task", "of bob"), result, "bob")
    for number in range(20):
        answered.put(("task", str(number)), result, "eve")
    assert answered.get(("task", "of bob")) is result
    assert [number for number in range(20) if answered.get(("task", str(number)))] == [16, 17, 18, 19]
