"""What a host needs that did not make the workbench: to enter it again, to ask before it calls, to answer by call."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from toolcrib import Approve, Call, Caller, Context, Crib, Deny, SetupError, Source, ToolSpec, Workbench, tool
from toolcrib.bridges.host import Host
from toolcrib.core import AnswerError, Decision
from toolcrib.machinery import ApprovalPort
from toolcrib.tools import from_work
from toolcrib.workbench import Ask

events: list[str] = []


@pytest.fixture(autouse=True)
def no_events() -> None:
    events.clear()


@tool
async def wipe(path: str) -> str:
    events.append(path)
    return f"wiped {path}"


class Live(Source):
    async def start(self) -> None:
        events.append("start")

    async def stop(self) -> None:
        events.append("stop")

    def tools(self) -> list[Any]:
        return [wipe]


class Counter:
    def __init__(self) -> None:
        self.count = 0

    @tool
    def add(self) -> int:
        self.count += 1
        return self.count


def asks(spec: ToolSpec, arguments: Any, caller: Caller) -> Any:
    return Ask("Really?") if arguments.get("path") != "/tmp" else "allow"


async def test_a_workbench_can_be_entered_again() -> None:
    bench = Workbench([Live()])
    for _ in range(2):
        async with bench:
            assert (await bench.call("wipe", {"path": "/"})).text == "wiped /"
        with pytest.raises(SetupError, match="Or start it again"):
            await bench.call("wipe", {"path": "/"})
    assert events == ["start", "/", "stop"] * 2


async def test_what_a_workbench_opens_for_itself_is_opened_anew() -> None:
    async with Crib([Counter]) as crib:
        bench = crib.workbench()
        for _ in range(2):
            async with bench:
                assert [(await bench.call("add")).value for _ in range(2)] == [1, 2]
    with pytest.raises(SetupError, match="The crib is stopped"):
        await bench.start()


async def test_a_workbench_with_a_database_can_be_entered_again(tmp_path: Path) -> None:
    bench = Workbench([wipe], policy=asks, store=tmp_path / "crib.db")
    async with bench:
        waits = await bench.call("wipe", {"path": "/"})
    async with bench:
        await bench.answer(waits.pending.id, Approve())
        assert (await bench.call("wipe", {"path": "/"})).text == "wiped /"


async def test_whether_a_call_would_ask_is_known_without_making_it() -> None:
    bench = Workbench([wipe], policy=asks)
    assert await bench.needs_approval("wipe", {"path": "/"}) == "approval"
    assert await bench.needs_approval(Call("wipe", '{"path": "/tmp"}')) is None
    assert await bench.needs_approval("wipe", {"pfad": 1}) is None
    assert await bench.needs_approval("wash") is None
    assert await Workbench([wipe]).needs_approval("wipe", {"path": "/"}) is None
    assert events == [] and await bench.pendings() == []


class Hanging:
    """A policy that asks a service, which does not answer; it hides what the caller may not see."""

    def __init__(self, hidden: str = "") -> None:
        self.hidden = hidden

    def hides(self, tool: ToolSpec, caller: Caller) -> bool:
        return tool.name == self.hidden

    async def __call__(self, tool: ToolSpec, arguments: object, caller: Caller) -> Decision:
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize("options", [{"timeout_s": 0.05}, {"pending_timeout_s": 0.05}], ids=["call", "pending"])
async def test_a_policy_that_does_not_answer_holds_neither_the_question_nor_a_check(options: dict[str, Any]) -> None:
    """The second case is a check: of a tool that is hidden from its caller, the policy is asked why."""
    async with asyncio.timeout(30):
        assert await Workbench([wipe], policy=Hanging(), **options).needs_approval("wipe", {"path": "/"}) is None
        result = await Workbench([wipe], policy=Hanging("wipe"), **options).check("wipe", {"path": "/"})
        assert (result.error is not None and result.error.code, events) == ("timeout", [])


async def test_an_answer_may_name_the_call() -> None:
    async with Crib([wipe], policy=asks) as crib:
        alice, bob = crib.workbench(Caller("alice")), crib.workbench(Caller("bob"))
        call = Call("wipe", {"path": "/"}, "call_1")
        assert (await alice.call(call)).status == (await bob.call(call)).status == "pending"
        assert (await alice.answer(call_id="call_1", answer=Approve())).principal == "alice"
        assert (await bob.answer(call_id="call_1", answer=Deny("no"), by="carol")).principal == "bob"
        assert ((await alice.call(call)).text, events) == ("wiped /", ["/"])
        assert (await bob.call(call)).shown().code == "denied"
        with pytest.raises(AnswerError, match="No call 'call_2' of this workbench waits"):
            await alice.answer(call_id="call_2", answer=Approve())
        for named in ({}, {"call_id": "call_1", "pending_id": "call_1"}):
            with pytest.raises(SetupError, match="takes the id of what is pending, or call_id="):
                await alice.answer(answer=Approve(), **named)


async def test_the_ids_of_one_principals_calls_push_out_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.call.pending.MAX_REMEMBERED", 10)
    async with Crib([wipe], policy=asks) as crib:
        alice, bob = crib.workbench(Caller("alice")), crib.workbench(Caller("bob"))
        assert (await alice.call(Call("wipe", {"path": "/"}, "call_1"))).status == "pending"
        for number in range(20):
            assert (await bob.call(Call("wipe", {"path": "/"}, f"call_{number}"))).status == "pending"
        assert (await alice.answer(call_id="call_1", answer=Approve())).principal == "alice"


async def test_the_id_of_a_call_is_never_taken_for_that_of_what_is_pending() -> None:
    """A model chooses the ids of its calls, and is shown those of what is pending."""
    bench = Workbench([wipe], policy=asks)
    harmless, wanted = await bench.call("wipe", {"path": "/var/tmp"}), {"path": "/"}
    call = Call("wipe", wanted, harmless.pending.id)
    assert (await bench.call(call)).status == "pending"
    await bench.answer(harmless.pending.id, Approve())
    assert ((await bench.call(call)).status, events) == ("pending", [])
    # Nor does the denial of a call in a framework deny what is pending under that name.
    other = Workbench([wipe], policy=asks)
    waits = await other.call("wipe", wanted)
    await Host(other).deny(None, waits.pending.id, "no")
    assert [pending.id for pending in await other.pendings()] == [waits.pending.id]


async def test_a_kind_of_tool_may_ask_for_an_approval_of_its_own() -> None:
    async def work(arguments: dict[str, Any], context: Context) -> str:
        await cast(ApprovalPort, context.port).approve("It deletes.")
        events.append(arguments["path"])
        return "wiped"

    own = from_work(SPEC, work, home="here")
    bench = Workbench([own])
    result = await bench.call(call := Call("wipe", {"path": "/"}))
    assert (result.pending.kind, result.pending.message, events) == ("approval", "It deletes.", [])
    await bench.answer(call_id=call.id, answer=Approve())
    assert (await bench.call(call)).text == "wiped"
    asked = Workbench([own], policy=asks)
    await asked.call(call)
    await asked.answer(call_id=call.id, answer=Approve())
    assert (await asked.call(call)).text == "wiped"
    await bench.call(call)
    await bench.answer(call_id=call.id, answer=Deny("not today"))
    assert (await bench.call(call)).shown() == (
        "Tool 'wipe' was not executed: 'local' denied it: not today",
        (),
        True,
        "denied",
    )


SPEC = ToolSpec("wipe", "", {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]})
