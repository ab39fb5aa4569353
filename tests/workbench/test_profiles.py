"""`bench.specs(profiles=[...])`: a model chooses as which identity of its caller a call runs, among those listed."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from toolcrib import Approve, Call, Caller, Context, Result, Secret, SetupError, Source, ToolAuth, Workbench, tool
from toolcrib.core import Credential
from toolcrib.record import CallLog
from toolcrib.workbench import Rule, Rules

from ..call.outcomes import code

ADA = Caller("ada", "home", "t1")


class Tokens:
    """A broker whose credentials name whose they are."""

    async def authorize(self, requirements: Sequence[Any], caller: Caller, call: Call, /) -> list[Credential]:
        return [
            Credential(getattr(one, "provider", getattr(one, "name", "")), f"{caller.principal}/{caller.profile}")
            for one in requirements
        ]


@tool(auth=ToolAuth("github"))
def read(context: Context, n: int = 1) -> list[Any]:
    caller = context.caller
    return [caller.principal, caller.profile, caller.thread, len(context.credentials["github"].secret), n]


@tool(auth=Secret("KEY"))
def stars(profile: str, context: Context) -> list[str]:
    return [profile, context.caller.profile]


@tool
def plain(n: int = 1) -> int:
    return n


def bench(**options: Any) -> Workbench:
    return Workbench([read, stars, plain], caller=ADA, broker=Tokens(), **options)


async def test_a_call_runs_for_the_profile_that_it_chooses_and_for_nobody_else() -> None:
    async with bench() as made:
        by_name = {spec.name: spec for spec in made.specs(profiles=["work", "home"])}
        assert by_name["read"].input_schema["properties"]["profile"] == {
            "type": "string",
            "enum": ["work", "home"],
            "description": "The profile whose credentials are used.",
            "default": "home",
        }
        assert "profile" not in by_name["plain"].input_schema["properties"]
        for arguments in ({"profile": "work", "n": 2}, '{"profile": "work", "n": 2}', b'{"n": 2, "profile" : "work"}'):
            assert (await made.call("read", arguments)).value == ["ada", "work", "t1", 8, 2]
        assert (await made.call("read", {"profile": "home"})).value == ["ada", "home", "t1", 8, 1]
        assert (await made.call("read")).value == ["ada", "home", "t1", 8, 1]
        assert (await made.call(read, n=3)).value == ["ada", "home", "t1", 8, 3]
        assert made.specs() == made.specs(profiles=["work", "home"])
        events = [event async for event in made.stream("read", {"profile": "work"})]
        assert isinstance(events[-1], Result)
        assert events[-1].value[1] == "work"
        checked = await made.check("read", {"profile": "work", "n": "4"})
        assert (checked.value, len(checked.repairs)) == ({"n": 4}, 1)


@pytest.mark.parametrize(
    "profile",
    ["bob", "", "work ", "WORK", "%", None, 1, ["work"]],
)
async def test_a_profile_that_is_not_listed_is_refused_whatever_it_looks_like(profile: Any) -> None:
    async with bench() as made:
        made.specs(profiles=["work", "home"])
        result = await made.call("read", json.dumps({"profile": profile}))
        assert result.text == "Tool 'read' needs the argument 'profile', one of: 'work', 'home'."
        assert (result.error.code, code(await made.call("read", {"profile": profile}))) == (("invalid_arguments",) * 2)


async def test_neither_the_principal_nor_the_thread_is_an_argument() -> None:
    async with bench() as made:
        made.specs(profiles=["work", "home"])
        for name in ("principal", "thread", "thread_id", "caller", "Profile", "profile\0"):
            result = await made.call("read", {name: "bob", "profile": "work"})
            assert code(result) == "invalid_arguments"
            assert "takes no argument" in result.text


async def test_without_listed_profiles_there_is_no_such_argument() -> None:
    async with bench() as made:
        for end in (None, ["work"]):
            if end is not None:
                made.specs(profiles=end)
                assert (await made.call("read", {"profile": "work"})).value[1] == "work"
                made.specs(profiles=[])
            assert "profile" not in made.specs()[0].input_schema["properties"]
            result = await made.call("read", {"profile": "work"})
            assert (code(result), "takes no argument 'profile'" in result.text) == ("invalid_arguments", True)


async def test_where_the_callers_own_profile_is_not_listed_one_must_be_chosen() -> None:
    log = CallLog()
    async with bench(recorder=log) as made:
        (spec, *_) = made.specs(profiles=["work"])
        assert spec.input_schema["required"] == ["profile"]
        for arguments in (
            None,
            {},
            "{}",
            '{"profile": "home"}',
            '{"profile": "work", "profile": "work"}',
            "no",
            b"\xff",
        ):
            assert code(await made.call("read", arguments)) == "invalid_arguments"
        assert code(await made.call("read", '{"profile": "work"} and more')) == "invalid_arguments"
        assert (await made.call("read", '{"profile": "work"}')).value[1] == "work"
        assert (await made.call("plain")).value == 1
    assert [record.caller.profile for record in log if record.status == "success"] == ["work", "home"]
    assert [record.status for record in log].count("error") == 8


async def test_what_is_written_reaches_the_tool_as_it_was_written() -> None:
    from decimal import Decimal

    @tool(auth=ToolAuth("github"))
    def pay(amount: Decimal, to: str) -> str:
        return f"{amount} {to}"

    async with Workbench([pay], caller=ADA, broker=Tokens()) as made:
        made.specs(profiles=["work", "home"])
        text = '{"amount": 1.1000000000000000000001, "profile": "work", "to": "a\\u0000\\"b"}'
        assert (await made.call("pay", text)).value == '1.1000000000000000000001 a\0"b'
        twice = '{"amount": 1, "to": "a", "profile": "work", "to": "b"}'
        assert "appears twice" in (await made.call("pay", twice)).text


async def test_an_approval_for_one_profile_is_none_for_another() -> None:
    rules = Rules([Rule(tools="read", do="ask"), Rule(do="allow")])
    async with bench(policy=rules) as made:
        made.specs(profiles=["work", "home"])
        waits = (await made.call("read", {"profile": "work"})).pending
        assert waits.message == "May 'read' run with these arguments?\nFor the profile 'work'."
        await made.answer(waits.id, Approve(), by="eve")
        other = await made.call("read", {"profile": "home"})
        assert other.pending.id != waits.id
        assert (await made.call("read", {"profile": "work"})).value[1] == "work"
        assert (await made.call("read", {"profile": "work"})).status == "pending"


@pytest.mark.parametrize("profiles", ["work", [""], [1], [None], [["work"]]])
def test_profiles_are_a_list_of_names(profiles: Any) -> None:
    with pytest.raises(SetupError, match="Profiles are a list of names"):
        bench().specs(profiles=profiles)


async def test_a_tool_that_comes_with_a_late_source_is_no_way_around_the_choice() -> None:
    class Late(Source):
        required = False
        has_started = False

        async def start(self) -> None:
            await asyncio.sleep(0)
            self.has_started = True

        def tools(self) -> list[Any]:
            return [read] if self.has_started else []

    for arguments, expected in (({}, "invalid_arguments"), ({"profile": "work"}, None)):
        made = Workbench([Late()], caller=ADA, broker=Tokens())
        made.specs(profiles=["work"])
        result = await made.call("read", arguments)
        assert code(result) == expected
        assert result.value is None or result.value[1] == "work"
        await made.stop()
