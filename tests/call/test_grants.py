"""Approvals for more than one call: what they let through, and everything else, which asks as before."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, cast

import pytest
from pydantic import BaseModel, Field
from sqlalchemy import text

from toolcrib import Approve, Caller, Crib, Deny, Handle, Result, tool
from toolcrib.core import AnswerError, Pending
from toolcrib.machinery import shares
from toolcrib.record import CallLog, DatabaseCalls
from toolcrib.store import Store
from toolcrib.store.events import EVENTS
from toolcrib.testing import doubles
from toolcrib.workbench import Ask, Rule, Rules, Workbench

from .outcomes import Clock, waiting

ADA = Caller("ada", thread="t1")
NOW = Clock().now
OSLO = Approve(until="conversation", where={"/city": {"like": "Oslo*"}})
ASKS = Rule(name="weather", do="ask")


@tool
def weather(city: str, days: int = 1) -> str:
    return f"{days} days of sun in {city}"


@tool
def tides(city: str) -> str:
    return f"high in {city}"


@pytest.fixture
def clock() -> Clock:
    return Clock()


Make = Callable[..., Crib]


@pytest.fixture(params=["memory", "database"])
async def make(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Make]:
    """Make a crib, and others that share what it stores."""
    store = None if request.param == "memory" else tmp_path / "store.db"
    first: list[Crib] = []
    cribs: list[Crib] = []

    def crib_of(*rules: Rule, tools: Any = (weather, tides), **options: Any) -> Crib:
        shared = store or (first[0].store if first else None)
        with doubles(clock=clock):
            crib = Crib(tools, policy=options.pop("policy", Rules(rules or [ASKS])), store=shared, **options)
        cribs.append(crib)
        first.append(crib)
        return crib

    yield crib_of
    for crib in cribs:
        await crib.stop()


async def waits(bench: Workbench, city: str = "Oslo", name: str = "weather", **arguments: Any) -> Pending:
    return waiting(await bench.call(name, {"city": city, **arguments}))


async def give(bench: Workbench, answer: Any = OSLO, by: str = "bob", city: str = "Oslo") -> str:
    """Let *answer* grant what it grants, with the call that it is given for. Return the id."""
    await bench.answer((await waits(bench, city)).id, answer, by=by)
    assert (await bench.call("weather", {"city": city})).status == "success"
    grants, _ = await bench.crib.grants.list()
    return grants[-1].id


async def asks(bench: Workbench, city: str = "Oslo", name: str = "weather", **arguments: Any) -> bool:
    result: Result[Any] = await bench.call(name, {"city": city, **arguments})
    assert result.status in ("success", "pending"), result.text
    return result.status == "pending"


async def test_a_grant_lets_the_calls_run_that_it_says_and_no_others(make: Make) -> None:
    log = CallLog()
    bench = make(recorder=log).workbench(ADA)
    pending = await waits(bench)
    shown = await bench.crib.preview(pending.id, OSLO, by="bob")
    assert shown.text == (
        "'ada' may call 'weather' where /city is like \"Oslo*\", in the thread 't1' until 2026-02-01 12:00:00 UTC, "
        "without being asked by the rule 'weather'. What other rules ask is asked."
    )
    assert await bench.crib.grants.list() == ([], None), "showing grants nothing"
    grant = await give(bench)
    assert not await asks(bench, "Oslo S", days=7)
    assert await asks(bench, "Bergen")
    assert await asks(bench, "oslo")
    assert await asks(bench, name="tides")
    result = await bench.call("weather", {"city": "Oslo"})
    assert result.metadata["decision"] == {"do": "ask", "rule": "weather", "by": "bob", "grant": grant}
    assert [record.grant for record in log if record.status == "success"] == [None, grant, grant]


async def test_the_forms_of_an_answer_are_one(make: Make) -> None:
    until = NOW + timedelta(hours=1)
    bench, data = make().workbench(ADA), {"kind": "approve", "until": until.isoformat(), "tools": ["weather", "t*"]}
    assert Approve(until=until, tools=["weather", "t*"]).to_dict() == data
    await give(bench, data)
    assert not await asks(bench, "Bergen")
    assert not await asks(bench, name="tides")
    wrong: dict[str, Any]
    for wrong in ({"until": "tomorrow"}, {"until": 1}, {"where": []}, {"tools": 1}, {"untill": "conversation"}):
        with pytest.raises(AnswerError) as refused:
            await bench.answer("any", {"kind": "approve", **wrong})
        assert refused.value.reason == "invalid"


async def test_a_grant_for_a_recipient_lets_no_other_be_added(make: Make) -> None:
    def mail(to: Annotated[list[str], Handle], body: str = "") -> str:
        return f"sent to {len(to)}"

    def people(names: list[str]) -> list[str]:
        return names

    bench = make(Rule(name="mail", tools="mail", do="ask"), tools=(mail, people), max_result_chars=1000).workbench(ADA)
    pending = (await bench.call("mail", {"to": ["a@acme"]})).pending
    answer = Approve(until="conversation", where={"/to/*": "*@acme"})
    grant = await bench.crib.preview(pending.id, answer, by="bob")
    assert 'where every /to/* is like "*@acme",' in grant.text
    await bench.answer(pending.id, answer, by="bob")
    many = ["a@acme"] * 200
    handles = [(await bench.call("people", {"names": names})).metadata["handle"] for names in (many, [*many, "b@evil"])]
    outside: Any
    for outside in (["a@acme", "b@evil"], ["b@evil"], [], {"handle": handles[1]}):
        assert (await bench.call("mail", {"to": outside})).status == "pending", outside
    inside: Any
    for inside in (["b@acme"], ["a@acme", "b@acme"], {"handle": handles[0]}):
        assert (await bench.call("mail", {"to": inside, "body": "hi"})).status == "success", inside


async def test_the_name_of_a_thread_does_not_read_as_a_condition_of_the_grant(make: Make) -> None:
    bench = make().workbench(replace(ADA, thread="t1' where /days is at most 1, 'x\u202e"))
    shown = await bench.crib.preview((await waits(bench)).id, replace(OSLO, where={}), by="bob")
    assert """ with any arguments, in the thread "t1' where /days is at most 1, 'x\\u202e" until""" in shown.text


async def test_a_grant_is_listed_by_pages_and_revoked(make: Make) -> None:
    bench = make().workbench(ADA)
    ids = [await give(bench, replace(OSLO, where={"/city": city}), city=city) for city in ("Oslo", "Bergen", "Bodø")]
    first, following = await bench.crib.grants.list(limit=2)
    assert following is not None
    rest, end = await bench.crib.grants.list(limit=2, after=following)
    assert ([grant.id for grant in (*first, *rest)], end) == (ids, None)
    for name in ("ada", "bob"):
        assert len((await bench.crib.grants.list(principal=name))[0]) == 3
    assert (await bench.crib.grants.list(principal="eve"))[0] == []
    for one, of in (("grant_%", None), (ids[0], "eve")):
        with pytest.raises(AnswerError, match="There is no grant") as refused:
            await bench.crib.grants.revoke(one, principal=of)
        assert refused.value.reason == "unknown"
    assert (await bench.crib.grants.revoke(ids[0], principal="ada")).id == ids[0]
    assert await asks(bench, "Oslo")
    assert not await asks(bench, "Bergen")


async def test_a_grant_is_of_one_principal_thread_and_profile(make: Make) -> None:
    crib = make()
    await give(crib.workbench(ADA))
    for caller in (Caller("bob", thread="t1"), Caller("ada", thread="t2"), Caller("ada"), replace(ADA, profile="work")):
        assert await asks(crib.workbench(caller)), caller


async def test_a_grant_lifts_no_other_rule(make: Make) -> None:
    crib = make(
        Rule(where={"/city": "*prison"}, do="deny"),
        Rule(name="long", where={"/days": {"gt": 5}}, do="ask"),
        ASKS,
    )
    bench = crib.workbench(ADA)
    await give(bench)
    assert (await bench.call("weather", {"city": "Oslo prison"})).error is not None
    assert await asks(bench, days=6)
    assert not await asks(bench, days=5)


@pytest.mark.parametrize(
    "changed",
    [Rule(name="weather", do="ask", tools="*"), Rule(name="forecast", do="ask"), replace(ASKS, message="Eh?")],
)
async def test_a_changed_rule_ends_a_grant(make: Make, changed: Rule) -> None:
    await give(make().workbench(ADA))
    assert not await asks(make().workbench(ADA))
    assert not await asks(make(replace(ASKS, optional=True)).workbench(ADA)), "what it says of calls is the same"
    assert await asks(make(changed).workbench(ADA))


async def test_a_changed_tool_ends_a_grant_and_a_new_one_is_not_in_it(make: Make) -> None:
    @tool(name="weather")
    def other(city: str, days: int = 1) -> str:
        return f"Rain in {city}"

    def weather_at_sea(city: str) -> str:
        return city

    await give(make().workbench(ADA), replace(OSLO, tools="weather*"))
    later = make(tools=(weather, weather_at_sea)).workbench(ADA)
    assert not await asks(later)
    assert await asks(later, name="weather_at_sea")
    assert await asks(make(tools=(other,)).workbench(ADA))


async def test_a_grant_of_a_pattern_is_only_of_the_tools_that_its_rule_is_about(make: Make) -> None:
    crib = make(replace(ASKS, tools="weather"), Rule(name="tides", do="ask"))
    bench = crib.workbench(ADA)
    shown = await crib.preview((await waits(bench)).id, replace(OSLO, tools="*"), by="bob")
    assert [*shown.tools] == ["weather"]
    await give(bench, replace(OSLO, tools="*"))
    assert await asks(bench, name="tides")


async def test_nobody_grants_their_own_calls_where_others_have_to(make: Make) -> None:
    bench = make(replace(ASKS, others_only=True)).workbench(ADA)
    with pytest.raises(AnswerError, match="others_only"):
        await bench.answer((await waits(bench)).id, OSLO, by="ada")
    grant = await give(bench)
    assert not await asks(bench)
    store = bench.crib.grants.store
    (stored,) = (await bench.crib.grants.list())[0]
    await bench.crib.grants.revoke(grant)
    await store.add(replace(stored, given_by="ada"), now=NOW)  # as by a name that was another's
    assert await asks(bench)


async def test_two_grants_are_not_more_than_each(make: Make) -> None:
    bench = make().workbench(ADA)
    await give(bench)
    await give(bench, replace(OSLO, where={"/city": "Bergen", "/days": {"le": 3}}), city="Bergen")
    assert await asks(bench, "Bergen", days=4)
    assert not await asks(bench, "Bergen", days=3)


async def test_the_conditions_hold_for_all_names_and_spellings_of_a_value(make: Make) -> None:
    class Order(BaseModel):
        amount: int = Field(validation_alias="sum", default=1)

    def buy(order: Order, note: str = "") -> str:
        return f"{order.amount}"

    bench = make(tools=(buy,)).workbench(ADA)
    call: dict[str, Any] = {"order": {"sum": 5}}
    pending = (await bench.call("buy", call)).pending
    where = {"/order/sum": {"le": 100}}
    await bench.answer(pending.id, Approve(until="conversation", where=where), by="bob")
    statuses = [
        (await bench.call("buy", {"order": {"sum": amount}, "note": "x"})).status
        for amount in (100, "100", 101, "101", "1e3", 100.0)
    ]
    assert statuses == ["success", "success", "pending", "pending", "pending", "success"]


async def test_a_handle_is_judged_by_what_it_stands_for(make: Make) -> None:
    def names(city: str) -> list[str]:
        return [city] * 1000

    def forecast(cities: Annotated[list[str], Handle]) -> str:
        """Tell the weather."""
        return f"{len(cities)}"

    bench = make(Rule(tools="forecast", name="f", do="ask"), tools=(names, forecast), max_result_chars=1000).workbench(
        ADA
    )
    handles = [(await bench.call("names", {"city": city})).metadata["handle"] for city in ("Oslo", "Bergen")]
    pending = (await bench.call("forecast", {"cities": {"handle": handles[0]}})).pending
    await bench.answer(pending.id, Approve(until="conversation", where={"/cities/0": "Oslo"}), by="bob")
    assert (await bench.call("forecast", {"cities": {"handle": handles[0]}})).status == "success"
    assert (await bench.call("forecast", {"cities": {"handle": handles[0]}})).status == "success", "by the grant"
    assert (await bench.call("forecast", {"cities": {"handle": handles[1]}})).status == "pending"


async def test_arguments_that_a_person_changes_are_what_is_granted(make: Make) -> None:
    bench = make().workbench(ADA)
    pending = await waits(bench, "Bergen")
    changed = replace(OSLO, arguments={"city": "Oslo", "days": 1})
    with pytest.raises(AnswerError, match="not one of those"):
        await bench.answer(pending.id, OSLO, by="bob")
    with pytest.raises(AnswerError, match="not one of those"):
        await bench.answer(pending.id, replace(changed, where={"/city": "Bergen"}), by="bob")
    await bench.answer(pending.id, changed, by="bob")
    assert (await bench.call("weather", {"city": "Bergen"})).text.startswith("1 days of sun in Oslo")
    assert await asks(bench, "Bergen")
    assert not await asks(bench, "Oslo")


REFUSED = [
    (Approve(where={"/city": "Oslo"}), "has 'until'"),
    (Approve(until=NOW.replace(tzinfo=None) + timedelta(hours=1)), "with its offset"),
    (Approve(until=NOW), "from now on"),
    (Approve(until=NOW + timedelta(days=31)), "30 days"),
    (Approve(until=cast("Any", "thread")), "has 'until'"),
    (replace(OSLO, where={"/citi": "Oslo"}), "Did you mean 'city'"),
    (replace(OSLO, where={"city": "Oslo"}), "not a JSON pointer"),
    (replace(OSLO, where={"/city": {"near": "Oslo"}}), "no operator"),
    (replace(OSLO, tools="tides"), "not one of those"),
    (replace(OSLO, tools=cast("Any", 5)), "tools"),
]


@pytest.mark.parametrize("make", ["memory"], indirect=True)
@pytest.mark.parametrize(("answer", "message"), REFUSED)
async def test_a_grant_that_says_nothing_clear_is_refused(make: Make, answer: Approve, message: str) -> None:
    bench = make().workbench(ADA)
    pending = await waits(bench)
    with pytest.raises(AnswerError, match=message) as refused:
        await bench.answer(pending.id, answer, by="bob")
    assert refused.value.reason == "invalid"
    assert await asks(bench)


async def test_there_is_no_grant_without_a_rule_that_can_be_lifted(make: Make) -> None:
    def policy(*_: object) -> Ask:
        return Ask("Really?")

    for options in ({"policy": policy}, {"policy": Rules([], default="ask")}):
        bench = make(**options).workbench(ADA)
        with pytest.raises(AnswerError, match="No grant lifts"):
            await bench.answer((await waits(bench)).id, OSLO, by="bob")


async def test_what_a_thread_has_seen_is_asked_whatever_was_granted(make: Make) -> None:
    @tool(labels=["untrusted"])
    def read() -> str:
        return "Ask for the weather!"

    seen = Rule(name="weather", tools="weather", do="ask", seen="untrusted")
    crib = make(seen, replace(ASKS, tools="weather"), tools=(weather, read))
    bench = crib.workbench(ADA)
    await give(bench)
    assert not await asks(bench)
    await bench.call("read", {})
    pending = await waits(bench)
    with pytest.raises(AnswerError, match="No grant lifts"):
        await bench.answer(pending.id, OSLO, by="bob")


async def test_a_caller_without_a_thread_gets_no_conversation(make: Make) -> None:
    bench = make().workbench(Caller("ada"))
    with pytest.raises(AnswerError, match="no conversation"):
        await bench.answer((await waits(bench)).id, OSLO, by="bob")
    await give(bench, replace(OSLO, until=NOW + timedelta(hours=1)))
    assert not await asks(bench)


async def test_a_grant_that_has_ended_does_not_come_back_when_the_clock_steps_back(make: Make, clock: Clock) -> None:
    bench = make().workbench(ADA)
    await give(bench)
    clock.now = NOW + timedelta(days=1)
    assert await asks(bench)
    clock.now = NOW + timedelta(minutes=1)
    assert await asks(bench)
    assert await bench.crib.grants.list() == ([], None)


async def test_a_grant_is_revoked_while_many_calls_start(make: Make) -> None:
    bench = make().workbench(ADA)
    grant = await give(bench)
    calls = [asyncio.create_task(asks(bench)) for _ in range(50)]
    await bench.crib.grants.revoke(grant)
    calls_after = [asyncio.create_task(asks(bench)) for _ in range(50)]
    await asyncio.gather(*calls)
    assert all(await asyncio.gather(*calls_after))


async def test_a_call_is_not_approved_where_its_grant_has_no_room(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "MAX_GRANTS", 20)
    bench = make().workbench(ADA)
    await give(bench)
    (grant,) = (await bench.crib.grants.list())[0]
    store = bench.crib.grants.store
    assert store is not None
    for number in range(shares.MAX_GRANTS - 1):
        await store.add(replace(grant, id=f"grant_{number}", thread="t2"), now=NOW)
    pending = await waits(bench, "Bergen")
    with pytest.raises(AnswerError, match="too many grants"):
        await bench.answer(pending.id, Approve(until="conversation"), by="bob")
    assert await asks(bench, "Bergen"), "both, or none"


async def test_a_person_who_is_asked_at_once_grants_as_well(make: Make) -> None:
    asked: list[Pending] = []

    async def ask(pending: Pending) -> Approve | Deny:
        asked.append(pending)
        return OSLO

    bench = make(ask=ask).workbench(ADA)
    for _ in range(3):
        assert not await asks(bench)
    assert len(asked) == 1
    (grant,) = (await bench.crib.grants.list())[0]
    assert grant.given_by == "ada"
    assert await bench.needs_approval("weather", {"city": "Oslo"}) is None
    assert await bench.needs_approval("weather", {"city": "Bergen"}) == "approval"


async def test_another_process_sees_what_is_granted_and_revoked(tmp_path: Path) -> None:
    stores = [Store(tmp_path / "store.db") for _ in range(2)]
    here, there = (Crib([weather], policy=Rules([ASKS]), store=store).workbench(ADA) for store in stores)
    grant = await give(here)
    assert not await asks(there)
    await there.crib.grants.revoke(grant)
    assert await asks(here)
    for bench in (here, there):
        await bench.crib.stop()


async def test_the_log_of_events_says_who_granted_and_who_revoked(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    bench = Crib([weather], policy=Rules([ASKS]), store=store).workbench(ADA)
    await bench.crib.grants.revoke(await give(bench), principal="ada")
    await bench.crib.grants.revoke(await give(bench))
    rows = await store.read(EVENTS.select().where(EVENTS.c.fields.like("%grant_%")).order_by(EVENTS.c.number))
    events = [json.loads(row["fields"]) for row in rows]
    changes = [(event["kind"], event["by"]) for event in events if event["kind"] in ("granted", "revoked")]
    assert changes == [("granted", "bob"), ("revoked", "ada"), ("granted", "bob"), ("revoked", "the operator")]
    await bench.crib.stop()


FORGERIES = [
    "UPDATE toolcrib_approvals SET principal = 'eve'",
    "UPDATE toolcrib_approvals SET thread = 't2', principal = 'eve'",
    "UPDATE toolcrib_approvals SET expires_at = expires_at + 1, principal = 'eve', given_by = 'lin'",
    "INSERT INTO toolcrib_approvals (id, principal, thread, rule, given_by, expires_at, body) "
    "SELECT 'grant_2', 'eve', thread, rule, given_by, expires_at, body FROM toolcrib_approvals",
    "INSERT INTO toolcrib_approvals (id, principal, thread, rule, given_by, expires_at, body) "
    "SELECT 'grant_2', 'eve', thread, rule, given_by, expires_at, x'00' FROM toolcrib_approvals",
]


@pytest.mark.parametrize("statement", FORGERIES)
async def test_a_row_that_somebody_wrote_into_the_database_grants_nothing(
    tmp_path: Path, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path / "store.db")
    async with Crib([weather], policy=Rules([ASKS]), store=store) as crib:
        await give(crib.workbench(ADA))
        await store.transact(lambda connection: connection.execute(text(statement)))
        for thread in ("t1", "t2"):
            assert await asks(crib.workbench(Caller("eve", thread=thread)))
        assert "grants nothing" in caplog.text
        grants, _ = await crib.grants.list()
        assert {grant.principal for grant in grants} <= {"ada"}


async def test_the_log_in_the_database_names_the_grant(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    log = DatabaseCalls(store)
    async with Crib([weather], policy=Rules([ASKS]), store=store, recorder=log) as crib:
        bench = crib.workbench(ADA)
        grant = await give(bench)
        await bench.call("weather", {"city": "Oslo"})
        await log.flush()
        assert [record.grant for record in await log.newest(limit=2)] == [grant, None]
