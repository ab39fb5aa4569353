"""Calls that wait for a person: what an answer is bound to, how often it counts, and who may give it."""

import asyncio
import gc
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, SecretStr

from toolcrib import (
    Approve,
    Call,
    Caller,
    Context,
    Crib,
    Deny,
    Handle,
    Input,
    Pending,
    Text,
    Tool,
    ToolAuth,
    ToolError,
    Workbench,
    tool,
)
from toolcrib.core import AnswerError, CancellationToken
from toolcrib.record import CallLog
from toolcrib.workbench import Ask, Rule, Rules, Stores

from ..doubled import doubled
from .outcomes import Clock, code, waiting


def always_ask(*_: Any) -> str:
    return "ask"


@dataclass
class Bank:
    """A tool with an effect that can be counted."""

    paid: list[tuple[str, int]]

    def tool(self) -> Callable[..., Any]:
        async def pay(to: str, amount: int) -> str:
            """Pay somebody."""
            self.paid.append((to, amount))
            await asyncio.sleep(0)
            return f"paid {amount} to {to}"

        return tool(destructive=True)(pay)

    def bench(self, **options: Any) -> Workbench:
        return doubled([self.tool()], **{"policy": always_ask, **options})


@pytest.fixture
def bank() -> Bank:
    return Bank([])


async def refusal(bench: Workbench, pending_id: str, answer: Any, by: str = "alice") -> tuple[str, str]:
    with pytest.raises(AnswerError) as refused:
        await bench.answer(pending_id, answer, by=by)
    return refused.value.reason, str(refused.value)


# Approval


async def test_a_call_waiting_for_approval_runs_once_after_the_answer(bank: Bank) -> None:
    clock = Clock()
    bench = bank.bench(caller=Caller("bob", thread="t1"), clock=clock)
    result = await bench.call("pay", {"to": "eve", "amount": 5})
    pending = waiting(result)
    assert bank.paid == []
    assert pending == Pending(
        id=pending.id,
        kind="approval",
        message="May 'pay' run with these arguments?",
        digest=pending.digest,
        tool="pay",
        principal="bob",
        thread="t1",
        expires_at=clock.now + timedelta(seconds=900),
        arguments='{"to": "eve", "amount": 5}',
    )
    assert result.content == (
        Text(
            "Tool 'pay' has not run: it waits for approval: May 'pay' run with these arguments? "
            "Call it again with the same arguments when that is done."
        ),
    )
    assert await bench.pendings() == [pending]
    assert await bench.answer(pending.id, Approve(), by="alice") == pending
    assert await bench.pendings() == []
    assert bank.paid == []
    assert (await bench.call("pay", {"to": "eve", "amount": 5})).value == "paid 5 to eve"
    again = waiting(await bench.call("pay", {"to": "eve", "amount": 5}))
    assert again.id != pending.id
    assert bank.paid == [("eve", 5)]


async def test_of_a_hundred_equal_calls_after_one_approval_exactly_one_runs(bank: Bank) -> None:
    bench = bank.bench()
    pending = waiting(await bench.call("pay", {"to": "eve", "amount": 5}))
    await bench.answer(pending.id, Approve(), by="alice")
    results = await bench.call_many([("pay", {"to": "eve", "amount": 5})] * 100)
    assert [result.value for result in results if result.status == "success"] == ["paid 5 to eve"]
    anew = {waiting(result).id for result in results if result.status != "success"}
    assert len(anew) == 1
    assert anew != {pending.id}
    assert bank.paid == [("eve", 5)]


async def test_of_a_hundred_answers_at_once_exactly_one_counts(bank: Bank) -> None:
    bench = bank.bench()
    pending = waiting(await bench.call("pay", {"to": "eve", "amount": 5}))
    answers = (bench.answer(pending.id, Approve(), by=f"person {n}") for n in range(100))
    outcomes = await asyncio.gather(*answers, return_exceptions=True)
    assert outcomes.count(pending) == 1
    assert {error.reason for error in outcomes if isinstance(error, AnswerError)} == {"replayed"}


async def test_after_a_denial_the_call_says_why_and_who_once_and_asks_anew(bank: Bank) -> None:
    bench = bank.bench()
    pending = waiting(await bench.call("pay", {"to": "eve", "amount": 5}))
    await bench.answer(pending.id, Deny("Eve is no supplier."), by="alice")
    result = await bench.call("pay", {"to": "eve", "amount": 5})
    message = "Tool 'pay' was not executed: 'alice' denied it: Eve is no supplier."
    assert (code(result), result.text) == ("denied", message)
    assert waiting(await bench.call("pay", {"to": "eve", "amount": 5})).id != pending.id
    assert bank.paid == []


async def test_an_answer_that_nothing_waits_for_is_refused_with_the_reason_and_the_way_out(bank: Bank) -> None:
    clock = Clock()
    bench = bank.bench(clock=clock)
    pending = waiting(await bench.call("pay", {"to": "eve", "amount": 5}))
    reason, message = await refusal(bench, "pending_nonsense", Approve())
    assert (reason, "pending_nonsense" in message, "pendings()" in message) == ("unknown", True, True)
    reason, message = await refusal(bench, pending.id, Input(True))
    assert (reason, 'Approve() or Deny("why")' in message) == ("invalid", True)
    assert (await refusal(bench, pending.id, "yes"))[0] == "invalid"
    assert (await refusal(bench, pending.id, Approve(), by=""))[0] == "foreign"
    await bench.answer(pending.id, Approve(), by="alice")
    reason, message = await refusal(bench, pending.id, Approve(), by="carl")
    assert (reason, "'alice'" in message, "call again" in message) == ("replayed", True, True)
    assert (await bench.call("pay", {"to": "eve", "amount": 5})).status == "success"
    assert (await refusal(bench, pending.id, Approve()))[0] == "replayed"


async def test_what_has_expired_can_be_neither_answered_nor_used(bank: Bank) -> None:
    clock = Clock()
    bench = bank.bench(clock=clock, pending_timeout_s=60)
    late = waiting(await bench.call("pay", {"to": "eve", "amount": 5}))
    assert late.expires_at == clock.now + timedelta(seconds=60)
    clock.now += timedelta(seconds=60)
    assert await bench.pendings() == []
    reason, message = await refusal(bench, late.id, Approve())
    assert (reason, "Call again" in message) == ("expired", True)
    unused = waiting(await bench.call("pay", {"to": "eve", "amount": 5}))
    assert unused.id != late.id
    await bench.answer(unused.id, Approve(), by="alice")
    clock.now += timedelta(seconds=60)
    assert waiting(await bench.call("pay", {"to": "eve", "amount": 5})).id not in (late.id, unused.id)
    assert bank.paid == []


@pytest.mark.parametrize("seen_by", ["an answer", "a list", "a call", "another workbench"])
async def test_what_has_expired_stays_expired_when_the_clock_steps_back(bank: Bank, seen_by: str) -> None:
    clock, store = Clock(), Stores()
    bench, other = (bank.bench(clock=clock, pending_timeout_s=60, store=store) for _ in range(2))
    unanswered = waiting(await bench.call("pay", {"to": "eve", "amount": 5}))
    unused = waiting(await bench.call("pay", {"to": "eve", "amount": 6}))
    await bench.answer(unused.id, Approve(), by="alice")

    clock.now += timedelta(seconds=61)
    match seen_by:
        case "an answer":
            assert (await refusal(bench, unanswered.id, Approve()))[0] == "expired"
        case "a list":
            assert await bench.pendings() == []
        case "a call":
            waiting(await bench.call("pay", {"to": "eve", "amount": 7}))
        case _:
            assert await other.pendings() == []
    clock.now -= timedelta(seconds=30)

    assert (await refusal(bench, unanswered.id, Approve()))[0] == "expired"
    assert unanswered not in await bench.pendings()
    asked = [waiting(await bench.call("pay", {"to": "eve", "amount": amount})) for amount in (5, 6)]
    assert {pending.id for pending in asked}.isdisjoint({unanswered.id, unused.id})
    # What is asked from then on is valid for as long as ever.
    clock.now += timedelta(seconds=59)
    await bench.answer(asked[0].id, Approve(), by="alice")
    assert (await bench.call("pay", {"to": "eve", "amount": 5})).status == "success"
    clock.now += timedelta(seconds=1)
    assert (await refusal(bench, asked[1].id, Approve()))[0] == "expired"
    assert bank.paid == [("eve", 5)]


async def test_nobody_approves_their_own_call_where_the_policy_says_so(bank: Bank) -> None:
    def others(*_: Any) -> Ask:
        return Ask("Pay?", others_only=True)

    asked: list[Pending] = []

    async def ask(pending: Pending) -> Approve:
        asked.append(pending)
        return Approve()

    # Also not where the host lets everybody answer, and not by whoever sits at the caller's door.
    bench = bank.bench(caller=Caller("bob"), policy=others, may_answer=lambda *_: True, ask=ask)
    pending = waiting(await bench.call("pay", {"to": "eve", "amount": 5}))
    assert (pending.message, pending.others_only, asked) == ("Pay?", True, [])
    reason, message = await refusal(bench, pending.id, Approve(), by="bob")
    assert (reason, "The caller may not" in message) == ("foreign", True)
    await bench.answer(pending.id, Approve(), by="alice")
    assert (await bench.call("pay", {"to": "eve", "amount": 5})).status == "success"


async def test_an_own_approval_does_not_survive_a_policy_that_now_wants_others(bank: Bank) -> None:
    policy: list[Any] = ["ask"]
    bench = bank.bench(caller=Caller("bob"), policy=lambda *_: policy[0])
    pending = waiting(await bench.call("pay", {"to": "eve", "amount": 5}))
    await bench.answer(pending.id, Approve(), by="bob")
    policy[0] = Ask(others_only=True)
    assert waiting(await bench.call("pay", {"to": "eve", "amount": 5})).others_only
    assert bank.paid == []


@pytest.mark.parametrize("breaks", [False, True])
async def test_the_host_says_who_may_answer(bank: Bank, breaks: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def may_answer(pending: Pending, by: str) -> bool:
        if breaks:
            raise LookupError("directory")
        return by == "alice" and pending.tool == "pay"

    bench = bank.bench(may_answer=may_answer)
    pending = waiting(await bench.call("pay", {"to": "eve", "amount": 5}))
    assert (await refusal(bench, pending.id, Approve(), by="mallory"))[0] == "foreign"
    if breaks:
        assert (await refusal(bench, pending.id, Approve(), by="alice"))[0] == "foreign"
        assert "Whether 'alice' may answer could not be decided, so they may not" in caplog.text
        assert "LookupError: directory" in caplog.text
    else:
        await bench.answer(pending.id, Approve(), by="alice")


async def test_nothing_that_a_model_sends_is_an_answer(bank: Bank) -> None:
    bench = bank.bench()
    pending = waiting(await bench.call("pay", {"to": "eve", "amount": 5}))
    for sent in (
        {"to": "eve", "amount": 5, "approve": True},
        {"to": "eve", "amount": 5, "pending": pending.id, "answer": "Approve()"},
        {"to": "eve", "amount": 5, "by": "alice", "principal": "alice"},
    ):
        assert code(await bench.call("pay", sent)) == "invalid_arguments"
    for name in ("answer", "bench.answer", pending.id):
        assert code(await bench.call(name, {"pending_id": pending.id})) == "unknown_tool"
    assert waiting(await bench.call(Call("pay", {"to": "eve", "amount": 5}, id=pending.id))) == pending
    assert bank.paid == []


async def test_secrets_are_redacted_in_what_is_pending() -> None:
    secret = "hunter2-secret"

    async def login(user: str, password: SecretStr, note: str) -> str:
        return password.get_secret_value()

    bench = Workbench([login], policy=lambda *_: Ask(f"Log in with {secret}?"), secrets=[secret])
    result = await bench.call("login", {"user": "bob", "password": "another one", "note": f"it is {secret}"})
    pending = waiting(result)
    assert pending.message == "Log in with [secret]?"
    assert json.loads(pending.arguments) == {"user": "bob", "password": "**********", "note": "it is [secret]"}
    for text in (repr(result), json.dumps(pending.to_dict()), repr(Input(secret))):
        assert secret not in text
        assert "another one" not in text


@pytest.mark.parametrize("unseen", ["\u200b", "\u3164", "\u115f", "\u2800", "\ufe0f", "\U000e0041", "\u202e", "\x1b"])
async def test_what_is_not_seen_is_shown_to_whoever_approves_and_given_to_the_tool_as_it_is(
    bank: Bank, unseen: str
) -> None:
    """The model writes a name that looks like another one. Also the profile, which the report does not name."""
    async with bank.bench(caller=Caller("bob", f"work{unseen}"), policy=lambda *_: Ask(f"To ann{unseen}?")) as bench:
        pending = waiting(await bench.call("pay", {"to": f"ann{unseen}", "amount": 5}))
        shown = json.dumps(pending.to_dict(), ensure_ascii=False)
        assert unseen not in shown + pending.message + pending.arguments
        assert json.loads(pending.arguments) == {"to": f"ann{unseen}", "amount": 5}
        await bench.answer(pending.id, Approve(), by="alice")
        result = await bench.call("pay", {"to": f"ann{unseen}", "amount": 5})
        assert result.status == "success"
        assert waiting(await bench.call("pay", {"to": "ann", "amount": 5})).id != pending.id
    assert bank.paid == [(f"ann{unseen}", 5)]


class Colour(Enum):
    RED = "red"


async def test_typed_arguments_of_every_kind_are_bound() -> None:
    ran: list[Any] = []

    async def work(tags: set[str], when: datetime, colour: Colour, raw: bytes) -> None:
        ran.append((tags, when, colour, raw))

    bench = Workbench([work], policy=always_ask)
    when = "2030-01-02T03:04:05Z"
    sent = {"tags": ["a", "b", "c"], "when": when, "colour": "red", "raw": "é"}
    pending = waiting(await bench.call("work", sent))
    assert waiting(await bench.call("work", json.dumps(sent, indent=1))) == pending
    typed = await bench.call(work, {"a", "b", "c"}, datetime.fromisoformat(when), Colour.RED, "é")
    assert waiting(typed) == pending
    await bench.answer(pending.id, Approve(), by="alice")
    for other in ({"tags": ["a"]}, {"raw": "e"}, {"when": "2031-01-02T03:04:05+00:00"}):
        assert waiting(await bench.call("work", {**sent, **other})).id != pending.id
    assert ran == []
    assert (await bench.call("work", sent)).status == "success"
    assert len(ran) == 1


# An answer for one digest never runs another

PRINCIPALS = st.sampled_from(["bob", "eve", "", "bob\x00", 'bob","t'])
THREADS = st.sampled_from(["t", "u", 't","pay'])
NAMES = st.sampled_from(["pay", "pay_", "refund"])
DEFINITIONS = st.fixed_dictionaries(
    {"description": st.sampled_from(["Pay.", "Pay!"]), "destructive": st.sampled_from([None, True, False])}
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, -0.0, "", "1", "true", "null", "[]"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=4,
)
CALLS = st.tuples(
    PRINCIPALS, THREADS, NAMES, DEFINITIONS, st.dictionaries(st.sampled_from(["x", "y"]), VALUES, max_size=2)
)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types all through: 1 is neither True nor 1.0, and -0.0 is not 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)


@pytest.mark.full
@settings(max_examples=300, deadline=None)
@given(asked=CALLS, made=st.lists(CALLS, max_size=4), kept=st.sets(st.integers(0, 4), max_size=5))
def test_an_answer_for_one_digest_never_runs_another(
    asked: tuple[Any, ...], made: list[tuple[Any, ...]], kept: set[int]
) -> None:
    # Also calls that differ from the approved one in a single part.
    for other in tuple(made):
        for part in kept:
            made.append((*asked[:part], other[part], *asked[part + 1 :]))

    async def scenario() -> None:
        store, ran = Stores(), []

        def bench(call: tuple[Any, ...]) -> tuple[Workbench, str, dict[str, Any]]:
            principal, thread, name, definition, arguments = call

            async def work(x: Any = None, y: Any = None) -> None:
                ran.append(call)

            caller = Caller(principal, thread=thread)
            made = Tool(work, name=name, **definition)
            return Workbench([made], caller=caller, policy=always_ask, store=store), name, arguments

        first, name, arguments = bench(asked)
        pending = waiting(await first.call(name, arguments))
        await first.answer(pending.id, Approve(), by="somebody")
        for other in made:
            if not same(other, asked):
                another, other_name, other_arguments = bench(other)
                assert (await another.call(other_name, other_arguments)).status == "pending"
        assert ran == []
        assert (await first.call(name, json.dumps(arguments, sort_keys=True))).status == "success"
        assert (await first.call(name, arguments)).status == "pending"
        assert len(ran) == 1

    asyncio.run(scenario())


async def test_another_profile_or_need_of_credentials_asks_anew(bank: Bank) -> None:
    store = Stores()
    bench = bank.bench(caller=Caller("bob", "work"), store=store)
    pending = waiting(await bench.call("pay", {"to": "eve", "amount": 5}))
    await bench.answer(pending.id, Approve(), by="alice")
    other = bank.bench(caller=Caller("bob", "home"), store=store)
    assert waiting(await other.call("pay", {"to": "eve", "amount": 5})).id != pending.id

    @tool(destructive=True, auth=ToolAuth("bank"))
    async def pay(to: str, amount: int) -> str:
        return "paid"

    changed = Workbench([pay], caller=Caller("bob", "work"), store=store, policy=always_ask)
    assert waiting(await changed.call("pay", {"to": "eve", "amount": 5})).id != pending.id


# Policies


@pytest.mark.parametrize("answer", [None, True, "yes", "Allow", Approve()])
async def test_a_policy_that_answers_nonsense_lets_nothing_run(bank: Bank, answer: Any) -> None:
    async def later(*_: Any) -> Any:
        return answer

    for policy in (lambda *_: answer, later):
        assert code(await bank.bench(policy=policy).call("pay", {"to": "eve", "amount": 5})) == "denied"
    assert bank.paid == []


async def test_a_policy_that_fails_lets_nothing_run_and_tells_no_secret(
    bank: Bank, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> str:
        raise LookupError("no rules at hunter2-secret")

    log = CallLog()
    bench = bank.bench(policy=broken, secrets=["hunter2-secret"], recorder=log)
    result = await bench.call("pay", {"to": "eve", "amount": 5})
    assert (code(result), "hunter2" in result.text, "hunter2" in caplog.text) == ("denied", False, False)
    assert "no rules at [secret]" in caplog.text
    assert [record.decision for record in log] == ["deny"]
    assert bank.paid == []


async def test_a_denial_and_a_question_come_before_credentials_are_asked_for() -> None:
    @tool(auth=ToolAuth("github"))
    async def star() -> None: ...

    assert code(await Workbench([star], policy=lambda *_: Deny()).call("star")) == "denied"
    bench = Workbench([star], policy=always_ask)
    await bench.answer(waiting(await bench.call("star")).id, Approve(), by="alice")
    assert code(await bench.call("star")) == "unauthorized"


async def test_the_decision_and_who_answered_are_recorded(bank: Bank) -> None:
    log = CallLog()
    rules = Rules(
        [
            Rule(do="allow", where={"/amount": {"lt": 10}}, name="small change"),
            Rule(do="deny", where={"/amount": {"gt": 1000}}, message="too much."),
            Rule(do="ask", tools="pay"),
        ]
    )
    bench = bank.bench(policy=rules, recorder=log)
    assert (await bench.call("pay", {"to": "eve", "amount": 5})).metadata == {
        "decision": {"do": "allow", "rule": "small change"}
    }
    denied = await bench.call("pay", {"to": "eve", "amount": 2000})
    assert denied.text == "Tool 'pay' is not allowed to run with these arguments: too much."
    for answer in (Approve(), Deny("no")):
        pending = waiting(await bench.call("pay", {"to": "eve", "amount": 50}))
        await bench.answer(pending.id, answer, by="alice")
        await bench.call("pay", {"to": "eve", "amount": 50})
    assert [(r.code, r.pending, r.decision, r.rule, r.answered_by) for r in log] == [
        (None, None, "allow", "small change", None),
        ("denied", None, "deny", "rule 2", None),
        (None, "approval", "ask", "rule 3", None),
        (None, None, "ask", "rule 3", "alice"),
        (None, "approval", "ask", "rule 3", None),
        ("denied", None, "ask", "rule 3", "alice"),
    ]


# Asking in a tool


class Address(BaseModel):
    street: str
    number: int


@pytest.fixture
def steps() -> list[str]:
    return []


@pytest.fixture
def ship(steps: list[str]) -> Callable[..., Any]:
    async def ship(item: str, ctx: Context) -> str:
        steps.append("begin")
        try:
            where = await ctx.ask("where", Address, "Where to?")
            times = await ctx.ask("times", int, "How often?")
        except Exception:
            steps.append("swallowed")
            raise
        steps.append("ship")
        return f"{item} to {where.street} {where.number}, {times} times"

    return ship


async def test_a_tool_that_asks_runs_again_from_its_first_line_with_the_answers_so_far(
    ship: Callable[..., Any], steps: list[str]
) -> None:
    bench = Workbench([ship])
    result = await bench.call("ship", {"item": "tea"})
    where = waiting(result)
    assert (where.kind, where.key, where.message, where.tool) == ("input", "where", "Where to?", "ship")
    assert where.schema == {
        "type": "object",
        "properties": {"street": {"type": "string"}, "number": {"type": "integer"}},
        "required": ["street", "number"],
    }
    assert result.text == (
        "Tool 'ship' has not run: it waits for an answer: Where to? "
        "Call it again with the same arguments when that is done."
    )
    await bench.answer(where.id, Input({"street": "Elm", "number": 3}), by="alice")
    times = waiting(await bench.call("ship", '{"item": "tea"}'))
    assert (times.key, times.schema) == ("times", {"type": "integer"})
    # The first answer is still there, however often the call is made meanwhile.
    assert waiting(await bench.call("ship", {"item": "tea"})) == times
    await bench.answer(times.id, Input(2), by="alice")
    assert (await bench.call("ship", {"item": "tea"})).value == "tea to Elm 3, 2 times"
    assert steps == ["begin", "begin", "begin", "begin", "ship"]
    # All answers were used with that.
    assert waiting(await bench.call("ship", {"item": "tea"})).key == "where"


async def test_a_bad_input_is_refused_with_its_problems_and_a_good_one_still_counts(ship: Callable[..., Any]) -> None:
    bench = Workbench([ship])
    pending = waiting(await bench.call("ship", {"item": "tea"}))
    for bad, problem in (
        ({"street": "Elm", "number": "three"}, "'street/number'"),
        ({"street": "Elm"}, "'number' is missing"),
        ("Elm 3", "expected object, got string"),
        (object(), "no JSON form"),
    ):
        reason, message = await refusal(bench, pending.id, Input(bad))
        assert reason == "invalid"
        assert problem.removeprefix("'street/") in message
    assert 'Input(...) or Deny("why")' in (await refusal(bench, pending.id, Approve()))[1]
    await bench.answer(pending.id, Input(Address(street="Elm", number=3)), by="alice")
    assert waiting(await bench.call("ship", {"item": "tea"})).key == "times"


def _even(number: int) -> int:
    if number % 2:
        raise ValueError("it is odd")
    return number


async def test_what_only_the_type_knows_is_checked_too_here_and_in_another_process() -> None:
    async def pick(ctx: Context) -> int:
        return await ctx.ask("n", Annotated[int, AfterValidator(_even)], "An even number?")  # type: ignore[arg-type]

    store = Stores()
    bench = Workbench([pick], store=store)
    pending = waiting(await bench.call("pick"))
    assert (await refusal(bench, pending.id, Input(3))) == (
        "invalid",
        f"'{pending.id}' does not take this answer. The answer: it is odd.",
    )
    # Another workbench knows the JSON Schema only; what it let through is asked anew.
    await Workbench([pick], store=store).answer(pending.id, Input(3), by="alice")
    again = waiting(await bench.call("pick"))
    assert (again.id != pending.id, again.message) == (True, "The answer: it is odd.\nAn even number?")
    await bench.answer(again.id, Input(4), by="alice")
    assert (await bench.call("pick")).value == 4


async def test_a_denied_question_is_an_error_that_the_tool_may_see(ship: Callable[..., Any], steps: list[str]) -> None:
    bench = Workbench([ship])
    pending = waiting(await bench.call("ship", {"item": "tea"}))
    await bench.answer(pending.id, Deny("none of your business"), by="alice")
    result = await bench.call("ship", {"item": "tea"})
    assert (code(result), "'alice' denied it: none of your business" in result.text) == ("denied", True)
    assert steps == ["begin", "begin", "swallowed"]


async def work(ctx: Context) -> int:
    return await ctx.ask("n", int, "n?")


async def test_an_approval_holds_over_the_questions_of_its_call_and_is_used_when_it_ends() -> None:
    bench = Workbench([work], policy=always_ask)
    approval = waiting(await bench.call("work"))
    assert approval.kind == "approval"
    await bench.answer(approval.id, Approve(), by="alice")
    question = waiting(await bench.call("work"))
    assert question.kind == "input"
    await bench.answer(question.id, Input(1), by="alice")
    assert (await bench.call("work")).value == 1
    assert waiting(await bench.call("work")).kind == "approval"


async def test_answers_are_used_up_by_a_call_that_fails() -> None:
    async def work(ctx: Context) -> None:
        await ctx.ask("n", int, "n?")
        raise ToolError("broken")

    bench = Workbench([work])
    pending = waiting(await bench.call("work"))
    await bench.answer(pending.id, Input(1), by="alice")
    assert code(await bench.call("work")) == "failed"
    assert waiting(await bench.call("work")).id != pending.id


async def test_a_tool_that_changes_its_arguments_before_it_asks_asks_about_what_was_sent() -> None:
    async def work(items: list[int], ctx: Context) -> str:
        items.clear()
        return await ctx.ask("n", str, "n?")

    bench = Workbench([work])
    first = waiting(await bench.call("work", {"items": [1]}))
    assert first.arguments == '{"items": [1]}'
    await bench.answer(first.id, Input("for one"), by="alice")
    waiting(await bench.call("work", {"items": [2]}))
    assert (await bench.call("work", {"items": [1]})).value == "for one"


async def test_an_answer_holds_over_the_attempts_of_one_call() -> None:
    attempts: list[int] = []

    @tool(idempotent=True, retries=1)
    async def work(ctx: Context) -> int:
        attempts.append(await ctx.ask("n", int, "n?"))
        if len(attempts) == 1:
            raise ToolError("busy", "unavailable")
        return attempts[-1] + await ctx.ask("m", int, "m?")

    bench = Workbench([work])
    for number in (1, 2):
        await bench.answer(waiting(await bench.call("work")).id, Input(number), by="alice")
    assert (await bench.call("work")).value == 3
    assert attempts == [1, 1, 1]


async def test_questions_end_calls_from_threads_groups_and_generators_alike(caplog: pytest.LogCaptureFixture) -> None:
    def threaded(ctx: Context) -> int:
        try:
            return ctx.wait(ctx.ask("n", int, "n?"))
        except Exception:
            return -1

    async def grouped(ctx: Context) -> int:
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(ctx.ask("n", int, "n?"))
        return asking.result()

    async def streamed(ctx: Context) -> Any:
        yield "first"
        yield await ctx.ask("n", int, "n?")

    def streamed_in_thread(ctx: Context) -> Any:
        yield "first"
        yield ctx.wait(ctx.ask("n", int, "n?"))

    @tool(timeout_s=30)
    async def bounded(ctx: Context) -> int:
        await asyncio.sleep(0)
        return await ctx.ask("n", int, "n?")

    async with Workbench([threaded, grouped, streamed, streamed_in_thread, bounded]) as bench:
        for name in ("threaded", "grouped", "streamed", "streamed_in_thread", "bounded"):
            pending = waiting(await bench.call(name))
            await bench.answer(pending.id, Input(5), by="alice")
            *_, result = [event async for event in bench.stream(name)]
            assert (name, result.value) == (name, 5)
    gc.collect()
    assert caplog.records == []  # nor does asyncio log the question as an error that nobody retrieved


async def test_a_tool_waits_for_what_the_calls_it_makes_wait_for(bank: Bank) -> None:
    inner = bank.bench()

    async def unwraps(to: str, ctx: Context) -> str:
        amount = await ctx.ask("amount", int, "How much?")
        paid: str = (await inner.call("pay", {"to": to, "amount": amount})).unwrap()
        return paid

    async def returns(to: str) -> Any:
        return await inner.call("pay", {"to": to, "amount": 6})

    bench = Workbench([unwraps, returns])
    asked = waiting(await bench.call("unwraps", {"to": "eve"}))
    await bench.answer(asked.id, Input(5), by="alice")
    for name, amount in (("unwraps", 5), ("returns", 6)):
        result = await bench.call(name, {"to": "eve"})
        assert waiting(result).tool == "pay"
        assert result.text.startswith(f"Tool '{name}' has not run")
        assert (await bench.call(name, {"to": "eve"})).pending == result.pending
        await inner.answer(waiting(result).id, Approve(), by="alice")
        assert (await bench.call(name, {"to": "eve"})).text == f"paid {amount} to eve"
    assert bank.paid == [("eve", 5), ("eve", 6)]


async def test_a_door_that_can_ask_answers_at_once(bank: Bank, ship: Callable[..., Any], steps: list[str]) -> None:
    asked: list[tuple[str, str]] = []

    async def ask(pending: Pending) -> Any:
        asked.append((pending.kind, pending.key))
        return {"": Approve(), "where": Input({"street": "Elm", "number": 3}), "times": Input(1)}[pending.key]

    bench = Workbench([bank.tool(), ship], policy=always_ask, ask=ask)
    assert (await bench.call("pay", {"to": "eve", "amount": 5})).value == "paid 5 to eve"
    assert (await bench.call("ship", {"item": "tea"})).value == "tea to Elm 3, 1 times"
    assert asked == [("approval", ""), ("approval", ""), ("input", "where"), ("input", "times")]
    assert steps == ["begin", "ship"]
    assert await bench.pendings() == []


@pytest.mark.parametrize("says", ["none", "nonsense", "raises", "late"])
async def test_where_nobody_can_be_asked_at_once_the_call_waits(bank: Bank, says: str) -> None:
    clock = Clock()

    async def ask(pending: Pending) -> Any:
        if says == "raises":
            raise EOFError
        if says == "late":
            clock.now += timedelta(seconds=900)  # the very moment at which it expires
            return Approve()
        return None if says == "none" else True

    bench = bank.bench(ask=ask, clock=clock)
    pending = waiting(await bench.call("pay", {"to": "eve", "amount": 5}))
    assert bank.paid == []
    await bench.answer(pending.id, Approve(), by="alice")
    assert (await bench.call("pay", {"to": "eve", "amount": 5})).status == "success"


async def test_a_door_is_asked_again_with_the_problem_of_a_bad_input() -> None:
    messages: list[str] = []
    answers = iter([Input("many"), Input(3)])

    async def ask(pending: Pending) -> Any:
        messages.append(pending.message)
        return next(answers)

    assert (await Workbench([work], ask=ask).call("work")).value == 3
    assert messages == ["n?", "The answer: expected integer, got string.\nn?"]


async def test_an_approval_given_at_the_door_is_kept_while_the_call_waits_for_more() -> None:
    asked: list[str] = []

    async def ask(pending: Pending) -> Any:
        asked.append(pending.kind)
        return Approve() if pending.kind == "approval" else None

    bench = Workbench([work], policy=always_ask, ask=ask)
    pending = waiting(await bench.call("work"))
    await bench.answer(pending.id, Input(1), by="alice")
    assert (await bench.call("work")).value == 1
    assert asked == ["approval", "input"]


async def test_a_call_given_up_while_somebody_is_asked_is_cancelled(bank: Bank) -> None:
    token, cancelled = CancellationToken(), asyncio.Event()

    async def ask(pending: Pending) -> Any:
        token.cancel()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    bench = bank.bench(ask=ask)
    result = await bench.call(Call("pay", {"to": "eve", "amount": 5}, cancellation=token))
    assert (code(result), cancelled.is_set()) == ("cancelled", True)
    assert bank.paid == []


async def test_a_door_that_never_gives_what_was_asked_for_is_asked_three_times() -> None:
    asked: list[str] = []

    async def answer(pending: Pending) -> Input:
        asked.append(pending.message)
        return Input("many")

    result = await Workbench([work], ask=answer).call("work")
    assert (result.status, len(asked)) == ("pending", 3)


# What a tool takes is not explained to whom it is hidden from


async def test_the_arguments_of_a_hidden_tool_are_explained_to_no_caller_of_it() -> None:
    """A model sends a wrong argument to a tool that its caller is denied. The second cases: a handle that there is not,
    a profile that was not chosen, and the host's own `check`.
    """

    @tool(auth=ToolAuth("bank"))
    async def wipe(confirm_code: int, rows: Annotated[list[int], Handle]) -> str:
        return "wiped"

    async def greet(name: str) -> str:
        return name

    rules = Rules(
        [
            Rule(tools="wipe", do="deny", principals="mallory", message="not for you."),
            Rule(tools="wipe", do="ask"),
        ]
    )
    denied = "Tool 'wipe' is not allowed to run with these arguments: not for you."
    async with Crib([wipe, greet], policy=rules) as crib:
        bench = crib.workbench(Caller("mallory"))
        sent = ({"confirm_cod": "x"}, {"confirm_code": 1, "rows": {"handle": "result_none"}}, "[1", None)
        for profiles in ((), ("work", "home")):
            bench.specs(profiles=profiles)
            for arguments in (*sent, {"confirm_code": 1, "rows": [1]}):
                result = await bench.call("wipe", arguments)
                assert (result.text, result.error and result.error.code) == (denied, "denied")
                if not profiles:
                    checked = await bench.check("wipe", arguments)
                    assert (checked.text, checked.error and checked.error.code) == (denied, "denied")
        assert "confirm_code" in (await crib.workbench(Caller("alice")).call("wipe", sent[0])).text
        assert "name" in (await bench.call("greet", {"nam": "x"})).text
