"""Who may approve a call, and what becomes of one that a person approves with other arguments."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel, Field, SecretStr

from toolcrib import Approve, Caller, Context, Crib, Input, SetupError, tool
from toolcrib.core import AnswerError
from toolcrib.record import CallLog
from toolcrib.workbench import Ask, Rule, Rules, rules_from_data

from .outcomes import waiting

LEADS: dict[Any, Any] = {"groups": ["leads"], "principals": ["alice"]}
ADA, LEAD, ALICE = Caller("ada"), Caller("lin", groups=frozenset({"leads"})), Caller("alice")
DO: dict[str, Any] = {"do": "ask"}


class Payments:
    def __init__(self) -> None:
        self.paid: list[Any] = []

    def tool(self, **options: Any) -> Callable[..., Any]:
        async def pay(to: str, amount: int) -> str:
            """Pay somebody."""
            self.paid.append((to, amount))
            return f"paid {amount} to {to}"

        return tool(destructive=True, **options)(pay)


@pytest.fixture
def payments() -> Payments:
    return Payments()


def crib_of(payments: Payments, *rules: Rule, **options: Any) -> Crib:
    return Crib([payments.tool()], policy=Rules(rules or [Rule(do="ask", approvers=LEADS)]), **options)


CALL = ("pay", {"to": "bob", "amount": 5000})


async def test_those_whom_a_rule_names_may_answer_and_no_others(payments: Payments) -> None:
    async with crib_of(payments) as crib:
        ada = crib.workbench(ADA)
        for approver in (ALICE, "alice", LEAD):
            pending = (await ada.call(*CALL)).pending
            assert pending.to_dict()["approvers"] == LEADS
            for other in (ADA, "lin", "leads", Caller("eve", groups=frozenset({"lead"})), Caller("Alice")):
                with pytest.raises(AnswerError, match="'alice' or a member of 'leads'") as refused:
                    await crib.answer(pending.id, Approve(), by=other)
                assert refused.value.reason == "foreign"
            with pytest.raises(AnswerError, match="`approvers`"):
                await ada.answer(pending.id, Approve())
            await crib.answer(pending.id, Approve(), by=approver)
            assert (await ada.call(*CALL)).text == "paid 5000 to bob"


async def test_the_caller_may_answer_where_they_are_one_of_the_approvers_unless_others_only(payments: Payments) -> None:
    rules = [Rule(do="ask", approvers=LEADS), Rule(do="ask", approvers=LEADS, others_only=True)]
    for rule, may_answer in zip(rules, (True, False), strict=True):
        async with crib_of(payments, rule) as crib:
            lead = crib.workbench(LEAD)
            id_ = waiting(await lead.call(*CALL)).id
            if may_answer:
                await lead.answer(id_, Approve())
            else:
                with pytest.raises(AnswerError, match="`others_only`"):
                    await lead.answer(id_, Approve())


async def test_a_policy_as_a_function_names_approvers_too(payments: Payments) -> None:
    crib = Crib([payments.tool()], policy=lambda *_: Ask("Pay?", approvers={"principals": "al*"}))
    async with crib:
        ada = crib.workbench(ADA)
        id_ = waiting(await ada.call(*CALL)).id
        with pytest.raises(AnswerError):
            await ada.answer(id_, Approve())
        await crib.answer(id_, Approve(), by="alice")
        assert (await ada.call(*CALL)).error is None
    wrong: Any = {"group": ["leads"]}
    async with Crib([payments.tool()], policy=lambda *_: Ask(approvers=wrong)) as crib:
        result = await crib.workbench(ADA).call(*CALL)
        assert result.error is not None and result.error.code == "denied"


async def test_who_is_at_the_callers_door_is_asked_at_once_only_where_they_may_answer(payments: Payments) -> None:
    asked: list[str] = []

    async def ask(pending: Any) -> Approve:
        asked.append(pending.principal)
        return Approve()

    async with crib_of(payments, ask=ask) as crib:
        assert (await crib.workbench(ADA).call(*CALL)).pending is not None
        assert (await crib.workbench(LEAD).call(*CALL)).error is None
    assert asked == ["lin"]


async def test_an_approval_does_not_count_once_the_rule_names_others(payments: Payments, tmp_path: Path) -> None:
    for rule, is_answered in ((Rule(do="ask"), True), (Rule(do="ask", approvers=LEADS), False)):
        async with crib_of(payments, rule, store=tmp_path / "store.db") as crib:
            bench = crib.workbench(ADA)
            id_ = waiting(await bench.call(*CALL)).id
            if is_answered:
                await bench.answer(id_, Approve())
    assert payments.paid == []


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"do": "deny", "approvers": LEADS}, "'approvers' are who may answer, so they need do = \"ask\""),
        ({**DO, "approvers": {}}, "at least one"),
        ({**DO, "approvers": {"groups": []}}, "'approvers.groups'"),
        ({**DO, "approvers": {"people": ["ada"]}}, "'approvers"),
        (
            {**DO, "approvers": {"principals": ["ada"]}, "principals": "ada", "others_only": True},
            "'ada' may not answer their own calls",
        ),
    ],
)
def test_approvers_that_leave_no_one_are_refused(row: dict[str, Any], problem: str) -> None:
    with pytest.raises(SetupError) as refused:
        rules_from_data([row])
    assert problem in str(refused.value)


# Other arguments

EDIT = Approve({"to": "bob", "amount": 50})


async def test_other_arguments_run_once_in_place_of_those_that_were_sent(payments: Payments) -> None:
    log = CallLog(with_content=True)
    async with crib_of(payments, recorder=log) as crib:
        ada = crib.workbench(ADA)
        await crib.answer(waiting(await ada.call(*CALL)).id, EDIT, by=ALICE)
        result = await ada.call(*CALL)
        assert payments.paid == [("bob", 50)]
        assert result.text == (
            'paid 50 to bob\n\'alice\' has changed the arguments of this call to: {"to": "bob", "amount": 50}'
        )
        assert result.value == "paid 50 to bob"
        assert json.loads(result.metadata["decision"]["edited"]) == {"to": "bob", "amount": 50}
        assert result.metadata["decision"]["by"] == "alice"
        record = [*log][-1]
        assert json.loads(record.arguments or "") == {"to": "bob", "amount": 50}
        assert (json.loads(record.sent or ""), record.answered_by) == ({"to": "bob", "amount": 5000}, "alice")
        again = await ada.call(*CALL)
        assert again.pending is not None
        assert (await ada.call("pay", {"to": "bob", "amount": 50})).pending is not None
        assert payments.paid == [("bob", 50)]


async def test_the_same_arguments_are_a_plain_approval(payments: Payments) -> None:
    async with crib_of(payments) as crib:
        ada = crib.workbench(ADA)
        await crib.answer(waiting(await ada.call(*CALL)).id, Approve({"amount": 5000, "to": "bob"}), by=ALICE)
        result = await ada.call(*CALL)
        assert (result.text, "edited" in result.metadata["decision"]) == ("paid 5000 to bob", False)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"to": "bob"}, "amount"),
        ({"to": "bob", "amount": "many"}, "amount"),
        ({"to": "bob", "amount": 1, "tool": "delete"}, "tool"),
        ({"to": {"handle": "result_1"}, "amount": 1}, "to"),
        ({"to": "bob", "amount": object()}, "JSON data"),
    ],
)
async def test_arguments_that_the_tool_does_not_take_are_refused_at_the_door_and_the_question_stays_open(
    payments: Payments, arguments: dict[str, Any], problem: str
) -> None:
    async with crib_of(payments) as crib:
        ada = crib.workbench(ADA)
        id_ = waiting(await ada.call(*CALL)).id
        with pytest.raises(AnswerError) as refused:
            await crib.answer(id_, Approve(arguments), by=ALICE)
        assert (refused.value.reason, problem in str(refused.value)) == ("invalid", True)
        await crib.answer(id_, EDIT, by=ALICE)
        assert (await ada.call(*CALL)).error is None


async def test_other_arguments_that_a_rule_denies_are_denied(payments: Payments) -> None:
    rules = (Rule(where={"/to": "eve"}, do="deny", message="Not to Eve."), Rule(do="ask", approvers=LEADS))
    async with crib_of(payments, *rules) as crib:
        ada = crib.workbench(ADA)
        await crib.answer(waiting(await ada.call(*CALL)).id, Approve({"to": "eve", "amount": 1}), by=ALICE)
        result = await ada.call(*CALL)
        assert result.error is not None and result.error.code == "denied"
        assert "Not to Eve." in result.text and "'alice' has changed" in result.text
    assert payments.paid == []


async def test_other_arguments_that_others_decide_are_asked_of_these(payments: Payments) -> None:
    boss: Any = {"principals": ["boss"]}
    rules = (Rule(where={"/amount": {"gt": 9000}}, do="ask", approvers=boss), Rule(do="ask", approvers=LEADS))
    async with crib_of(payments, *rules) as crib:
        ada = crib.workbench(ADA)
        await crib.answer(waiting(await ada.call(*CALL)).id, Approve({"to": "bob", "amount": 9999}), by=LEAD)
        result = await ada.call(*CALL)
        assert result.pending is not None and "'lin' has changed the arguments" in result.pending.message
        assert json.loads(result.pending.arguments) == {"to": "bob", "amount": 9999}
        assert (await ada.call(*CALL)).pending == result.pending
        with pytest.raises(AnswerError):
            await crib.answer(result.pending.id, Approve(), by=LEAD)
        await crib.answer(result.pending.id, Approve(), by="boss")
        result = await ada.call(*CALL)
        assert (payments.paid, result.metadata["decision"]["by"]) == ([("bob", 9999)], "boss")
        assert (await ada.call(*CALL)).pending is not None


async def test_what_the_program_lets_a_person_answer_holds_for_what_they_change_it_to(payments: Payments) -> None:
    def may_answer(pending: Any, by: str) -> bool:
        return by == "boss" or json.loads(pending.arguments)["amount"] <= 5000

    async with crib_of(payments, may_answer=may_answer) as crib:
        ada = crib.workbench(ADA)
        await crib.answer(waiting(await ada.call(*CALL)).id, Approve({"to": "bob", "amount": 5001}), by=LEAD)
        assert (await ada.call(*CALL)).pending is not None
    assert payments.paid == []


async def test_people_who_change_arguments_back_and_forth_come_to_an_end(payments: Payments) -> None:
    sides = {"a": Rule(where={"/to": "a"}, do="ask", approvers={"principals": "a"})}
    rules = (sides["a"], Rule(do="ask", approvers={"principals": "b"}))
    async with crib_of(payments, *rules) as crib:
        ada, call = crib.workbench(ADA), ("pay", {"to": "a", "amount": 1})
        result = await ada.call(*call)
        for turn in range(10):
            if result.pending is None:
                break
            by, other = ("a", "b") if turn % 2 == 0 else ("b", "a")
            await crib.answer(result.pending.id, Approve({"to": other, "amount": 1}), by=by)
            result = await ada.call(*call)
        assert result.error is not None and result.error.code == "denied"
    assert payments.paid == []


async def test_a_masked_value_that_is_left_as_it_is_stays_what_it_was() -> None:
    seen: list[Any] = []

    def login(user: str, password: SecretStr, token: str, exact: float, more: dict[str, str]) -> str:
        seen.append((user, password.get_secret_value(), token, exact, more))
        return "in"

    crib = Crib([login], policy=lambda *_: Ask(), secrets=["hunter2hunter2"])
    async with crib:
        bench = crib.workbench(ADA)
        arguments = {"user": "a", "password": "swordfish", "token": "hunter2hunter2", "exact": 0.5}
        call = ("login", {**arguments, "more": {"key": "hunter2hunter2"}})
        pending = (await bench.call(*call)).pending
        assert pending is not None and "swordfish" not in pending.arguments and "hunter2" not in pending.arguments
        shown = json.loads(pending.arguments)
        edit = Approve({**shown, "user": "b", "more": {**shown["more"], "new": "hunter2hunter2"}})
        assert "hunter2" not in repr(edit)
        await bench.answer(pending.id, edit)
        result = await bench.call(*call)
        more = {"key": "hunter2hunter2", "new": "hunter2hunter2"}
        assert seen == [("b", "swordfish", "hunter2hunter2", 0.5, more)]
        told = f"{result.text} {result.metadata}"
        assert "hunter2" not in told and "swordfish" not in told and "'ada' has changed" in told


class Account(BaseModel):
    user: str
    password: SecretStr


LOGINS = [("ada", "ada's"), ("bob", "bob's"), ("eve", "eve's"), ("bob", "bob's other")]


@pytest.mark.parametrize(
    ("order", "users", "arrived"),
    [
        ([2, 1, 0, 3], {}, [LOGINS[2], LOGINS[1], LOGINS[0], LOGINS[3]]),
        ([2], {}, [LOGINS[2]]),
        ([0, 1, 2, 3], {2: "mal"}, [*LOGINS[:2], ("mal", "eve's"), LOGINS[3]]),
        ([1], {}, None),  # of whose two passwords?
        ([0, 1, 2, 3], {0: "eve", 2: "ada"}, [LOGINS[2], LOGINS[1], LOGINS[0], LOGINS[3]]),
        ([0, 1, 2, 3], {0: "mal", 2: "joe"}, None),
        ([2, 1, 0, 3], {2: "mal"}, None),
        ([0, 1, 2, 3, 0], {}, [*LOGINS, LOGINS[0]]),
        ([0, 1, 2, 3, 0], {4: "mal"}, None),
    ],
)
async def test_a_masked_value_stays_with_what_is_beside_it(
    order: list[int], users: dict[int, str], arrived: list[tuple[str, str]] | None
) -> None:
    """Where an approver moves or removes one of several accounts, none gets the password of another."""
    seen: list[tuple[str, str]] = []

    def log_in(accounts: list[Account]) -> str:
        seen.extend((one.user, one.password.get_secret_value()) for one in accounts)
        return "in"

    async with Crib([log_in], policy=lambda *_: Ask()) as crib:
        bench = crib.workbench(ADA)
        call = ("log_in", {"accounts": [{"user": user, "password": password} for user, password in LOGINS]})
        pending = (await bench.call(*call)).pending
        shown = json.loads(pending.arguments)["accounts"]
        accounts = [dict(shown[number]) for number in order]
        for number, user in users.items():
            accounts[number]["user"] = user
        edit = Approve({"accounts": accounts})
        if arrived is None:
            with pytest.raises(AnswerError, match="stands for a value that is not shown") as refused:
                await bench.answer(pending.id, edit)
            assert refused.value.reason == "invalid"
        else:
            await bench.answer(pending.id, edit)
            assert (await bench.call(*call)).status == "success"
        assert seen == (arrived or [])


@pytest.mark.parametrize("edit", [{"key": "[secret] more"}, {"key": "", "note": "[secret]"}])
async def test_no_tool_gets_the_mask_of_a_secret_as_its_value(edit: dict[str, str]) -> None:
    def send(key: str, note: str = "") -> str:
        return key

    async with Crib([send], policy=lambda *_: Ask(), secrets=["hunter2hunter2"]) as crib:
        bench = crib.workbench(ADA)
        id_ = waiting(await bench.call("send", {"key": "hunter2hunter2"})).id
        with pytest.raises(AnswerError, match="stands for a value that is not shown"):
            await bench.answer(id_, Approve(edit))


async def test_an_error_at_the_door_has_no_secret() -> None:
    def login(pin: int) -> str:
        return str(pin)

    async with Crib([login], policy=lambda *_: Ask(), secrets=["hunter2hunter2"]) as crib:
        bench = crib.workbench(ADA)
        id_ = waiting(await bench.call("login", {"pin": 1})).id
        with pytest.raises(AnswerError) as refused:
            await bench.answer(id_, Approve({"pin": "hunter2hunter2"}))
        assert "hunter2" not in str(refused.value)


async def test_what_the_tool_then_asks_is_about_the_other_arguments() -> None:
    async def ship(context: Context, item: str) -> str:
        return f"{item} to {await context.ask('where', str, 'Where to?')}"

    async with Crib([ship], policy=lambda *_: Ask()) as crib:
        bench, call = crib.workbench(ADA), ("ship", {"item": "tea"})
        await bench.answer(waiting(await bench.call(*call)).id, Approve({"item": "jam"}))
        pending = (await bench.call(*call)).pending
        assert (pending.kind, json.loads(pending.arguments)) == ("input", {"item": "jam"})
        assert (await bench.call(*call)).pending == pending
        await bench.answer(pending.id, Input("Oslo"))
        assert (await bench.call(*call)).text.startswith("jam to Oslo\n'ada' has changed")


async def test_with_an_idempotency_key_the_call_is_still_the_one_that_was_sent(
    payments: Payments, tmp_path: Path
) -> None:
    async with crib_of(payments, store=tmp_path / "store.db") as crib:
        ada, key = crib.workbench(ADA), str(uuid4())
        await crib.answer(waiting(await ada.call(*CALL, idempotency_key=key)).id, EDIT, by=ALICE)
        first = await ada.call(*CALL, idempotency_key=key)
        again = await ada.call(*CALL, idempotency_key=key)
        assert (first.text, again.metadata["repeated"]) == (again.text, True)
        assert again.value == "paid 50 to bob"
        assert first.text.startswith("paid 50 to bob\n'alice' has changed")
        other = await ada.call("pay", EDIT.arguments, idempotency_key=key)
        assert other.error is not None and other.error.code == "conflict"
    assert payments.paid == [("bob", 50)]


async def test_a_task_runs_with_the_other_arguments(payments: Payments, tmp_path: Path) -> None:
    crib = Crib([payments.tool(task=True)], policy=Rules([Rule(do="ask")]), store=tmp_path / "store.db")
    async with crib:
        ada = crib.workbench(ADA)
        await ada.answer(waiting(await ada.call(*CALL)).id, EDIT)
        result = await ada.call(*CALL)
        assert result.pending is not None and result.pending.kind == "task"
        assert json.loads(result.pending.arguments) == {"to": "bob", "amount": 50}
        assert "'ada' has changed the arguments" in result.text
        ended = await crib.tasks.wait(result.pending.id, principal="ada")
        note = """'ada' has changed the arguments of this call to: {"to": "bob", "amount": 50}"""
        assert ended.text == f"paid 50 to bob\n{note}"
        assert (await ada.call(*CALL)).pending is not None
    assert payments.paid == [("bob", 50)]


async def test_defaults_that_are_made_belong_to_what_was_shown(tmp_path: Path) -> None:
    ids: list[tuple[str, str]] = []

    class Order(BaseModel):
        item: str
        id: str = Field(default_factory=lambda: str(uuid4()))

    def buy(order: Order) -> str:
        ids.append((order.item, order.id))
        return "bought"

    async with Crib([buy], policy=lambda *_: Ask(), store=tmp_path / "store.db") as crib:
        bench, call = crib.workbench(ADA), ("buy", {"order": {"item": "tea"}})
        pending = (await bench.call(*call)).pending
        shown = json.loads(pending.arguments)["order"]
        await bench.answer(pending.id, Approve({"order": {**shown, "item": "jam"}}))
        assert (await bench.call(*call)).error is None
        assert ids == [("jam", shown["id"])]
