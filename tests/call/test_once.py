"""Calls with an idempotency key: one takes effect, over processes and restarts, and what is unknown is said so."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any

import pytest
from pydantic import Field
from sqlalchemy import text

from toolcrib import Approve, Call, Caller, Context, Crib, Image, Result, Text, ToolError, Workbench, tool
from toolcrib.core import Data, Deny, SetupError, StoreError
from toolcrib.machinery import LedgerEntry, key_digest
from toolcrib.store import Store
from toolcrib.workbench import Rule, Rules


@dataclass
class Bank:
    """Tools with effects that are counted."""

    paid: list[int] = field(default_factory=list)
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    verdict: Any = None

    @tool
    async def pay(self, amount: int) -> dict[str, int]:
        self.paid.append(amount)
        await self.hold.wait()
        return {"paid": amount}

    @tool(idempotent=True)
    async def put(self, amount: int) -> int:
        self.paid.append(amount)
        if len(self.paid) == 1 and amount == 13:
            raise ToolError("Come back.", retry="later")
        return len(self.paid)


def bank_open() -> Bank:
    bank = Bank()
    bank.hold.set()
    return bank


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def test_of_fifty_calls_at_once_one_takes_effect(path: Path) -> None:
    bank = Bank()
    async with Workbench([bank], store=path) as bench:
        calls = [asyncio.create_task(bench.call("pay", {"amount": 3}, idempotency_key="k")) for _ in range(50)]
        while not bank.paid:
            await asyncio.sleep(0)
        bank.hold.set()
        results = await asyncio.gather(*calls)
    assert bank.paid == [3]
    assert {result.text for result in results} == {'{"paid":3}'}
    assert sum("repeated" not in result.metadata for result in results) == 1


async def test_a_retry_gets_the_first_result_after_a_restart_and_from_another_conversation(path: Path) -> None:
    bank = bank_open()
    async with Crib([bank], store=path) as crib:
        first = await crib.workbench(Caller("ann", thread="one")).call("pay", {"amount": "3"}, idempotency_key="k")
        assert first.repairs
    async with Crib([bank], store=path) as crib:
        again = await crib.workbench(Caller("ann", thread="two")).call("pay", '{"amount": 3}', idempotency_key="k")
        other = await crib.workbench(Caller("bob")).call("pay", {"amount": 3}, idempotency_key="k")
    assert (again.value, again.metadata["repeated"], again.started_at) == ({"paid": 3}, True, first.started_at)
    assert again.call_id != first.call_id
    assert "repeated" not in other.metadata
    assert bank.paid == [3, 3]


@pytest.mark.parametrize("call", [("pay", {"amount": 4}), ("put", {"amount": 3})], ids=["arguments", "tool"])
async def test_a_key_that_was_used_for_another_call_is_refused(path: Path, call: tuple[str, Any]) -> None:
    bank = bank_open()
    async with Workbench([bank], store=path) as bench:
        await bench.call("pay", {"amount": 3}, idempotency_key="k")
        result = await bench.call(Call(*call, idempotency_key="k"))
    assert (result.error.code, result.error.retry, bank.paid) == ("conflict", "never", [3])


async def test_what_failed_is_told_again_and_only_an_idempotent_tool_runs_again(path: Path) -> None:
    calls = 0

    async def break_down() -> None:
        nonlocal calls
        calls += 1
        raise ValueError("broken")

    bank = bank_open()
    async with Workbench([bank, break_down], store=path) as bench:
        first = await bench.call("break_down", None, idempotency_key="k")
        again = await bench.call("break_down", None, idempotency_key="k")
        assert (first.error.retry, again.error and again.error.message, calls) == ("never", first.error.message, 1)
        assert (await bench.call("put", {"amount": 13}, idempotency_key="p")).error is not None
        assert (await bench.call("put", {"amount": 13}, idempotency_key="p")).value == 2


async def test_a_call_that_ran_out_of_time_is_not_made_again(path: Path) -> None:
    bank = Bank()
    async with Workbench([bank], store=path) as bench:
        await bench.call("put", {"amount": 0}, idempotency_key="opens the store")
        bank.paid.clear()
        first = await bench.call(Call("pay", {"amount": 3}, timeout_s=1, idempotency_key="k"))
        bank.hold.set()
        again = await bench.call("pay", {"amount": 3}, idempotency_key="k")
    assert (first.error.code, first.error.retry, again.error.code, bank.paid) == ("timeout", "never", "timeout", [3])


async def test_a_caller_who_gives_up_leaves_a_result(path: Path) -> None:
    bank = Bank()
    async with Workbench([bank], store=path) as bench:
        call = asyncio.create_task(bench.call("pay", {"amount": 3}, idempotency_key="k"))
        while not bank.paid:
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        again = await bench.call("pay", {"amount": 3}, idempotency_key="k")
    assert (again.error.code, again.error.retry, bank.paid) == ("cancelled", "never", [3])


async def test_a_person_is_asked_once_and_who_is_denied_sees_no_result(path: Path) -> None:
    bank = bank_open()
    async with Workbench([bank], store=path, policy=Rules([Rule(tools="pay", do="ask")])) as bench:
        waiting = await bench.call("pay", {"amount": 3}, idempotency_key="k")
        await bench.answer(waiting.pending.id, Approve(), by="ann")
        assert (await bench.call("pay", {"amount": 3}, idempotency_key="k")).value == {"paid": 3}
        again = await bench.call("pay", {"amount": 3}, idempotency_key="k")
        assert (again.value, again.metadata["decision"]["by"]) == ({"paid": 3}, "ann")
    async with Workbench([bank], store=path, policy=lambda *_: Deny("No more.")) as bench:
        denied = await bench.call("pay", {"amount": 3}, idempotency_key="k")
    assert (denied.error.code, bank.paid) == ("denied", [3])


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("text", id="text"),
        pytest.param({"a": [1, None]}, id="data"),
        pytest.param(Image(b"\x89PNG"), id="an image"),
        pytest.param([Text("half"), Data("1"), Image(b"\x89PNG")], id="parts"),
        pytest.param(None, id="nothing"),
    ],
)
async def test_results_of_all_kinds_are_repeated(path: Path, value: Any) -> None:
    async def give() -> Any:
        return value

    async with Workbench([give], store=path) as bench:
        first, again = [await bench.call("give", None, idempotency_key="k") for _ in range(2)]
    assert (again.content, again.status) == (first.content, "success")


async def test_a_result_that_is_too_large_is_not_given_twice(path: Path) -> None:
    async def give() -> Image:
        return Image(bytes(17 * 1024 * 1024))

    async with Workbench([give], store=path, max_result_chars=0) as bench:
        first, again = [await bench.call("give", None, idempotency_key="k") for _ in range(2)]
    assert first.status == "success"
    assert (again.error.code, again.error.retry) == ("too_large", "never")


@pytest.mark.parametrize("key", ["", "k" * 256, "two\nlines", "schlüssel", 7])
async def test_a_key_is_printable_ascii(path: Path, key: Any) -> None:
    bank = bank_open()
    async with Workbench([bank], store=path) as bench:
        result = await bench.call(Call("pay", {"amount": 3}, idempotency_key=key))
        assert (await bench.call("pay", {"amount": 3}, idempotency_key="k" * 255)).status == "success"
    assert (result.error.code, bank.paid) == ("invalid_arguments", [3])


async def test_a_key_needs_a_database() -> None:
    async with Workbench([bank_open()]) as bench:
        with pytest.raises(SetupError, match="store="):
            await bench.call("pay", {"amount": 3}, idempotency_key="k")


async def test_middleware_that_goes_on_twice_makes_one_claim(path: Path) -> None:
    async def twice(_tool: Any, _call: Call, _caller: Caller, go_on: Callable[[], Awaitable[Result[Any]]]) -> Any:
        await go_on()
        return await go_on()

    bank = bank_open()
    async with Workbench([bank], store=path, middleware=[twice]) as bench:
        first, again = [await bench.call("put", {"amount": 3}, idempotency_key="k") for _ in range(2)]
    assert (first.value, again.value) == (2, 2)


async def test_a_caller_who_gives_up_while_the_end_is_stored_leaves_the_result(path: Path) -> None:
    bank, is_free = Bank(), threading.Event()
    async with Workbench([bank], store=path) as bench:
        call = asyncio.create_task(bench.call("pay", {"amount": 3}, idempotency_key="k"))
        while not bank.paid:
            await asyncio.sleep(0)
        busy = asyncio.create_task(bench.crib.store.transact(lambda _: is_free.wait(30)))  # the thread that writes
        await asyncio.sleep(0)
        bank.hold.set()
        for _ in range(20):
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        is_free.set()
        await busy
        assert (await bench.call("pay", {"amount": 3}, idempotency_key="k")).value == {"paid": 3}
    assert bank.paid == [3]


async def test_what_failed_with_the_store_after_its_effect_is_not_made_again(path: Path) -> None:
    effects: list[str] = []

    async def note() -> None:
        effects.append("noted")
        raise StoreError("It is away.")

    async with Workbench([note], store=path) as bench:
        results = [await bench.call("note", None, idempotency_key="k") for _ in range(2)]
    assert [result.error and (result.error.code, result.error.retry) for result in results] == [
        ("unavailable", "never"),
        ("unavailable", "never"),
    ]
    assert effects == ["noted"]


@pytest.mark.parametrize("name", ["pay", "slow"])
async def test_a_clock_that_is_set_forward_loses_no_call_that_runs_here(path: Path, name: str) -> None:
    bank = Bank()

    @tool(idempotent=True)
    async def slow(amount: int) -> dict[str, int]:
        return await Bank.pay(bank, amount)

    async with Workbench([bank, slow], store=path) as bench:
        first = asyncio.create_task(bench.call(name, {"amount": 3}, idempotency_key="k"))
        while not bank.paid:
            await asyncio.sleep(0)
        late = text("UPDATE toolcrib_ledger SET lease_until = 1")
        await bench.crib.store.transact(lambda connection: connection.execute(late).rowcount)
        result = await bench.call(Call(name, {"amount": 3}, timeout_s=1, idempotency_key="k"))
        bank.hold.set()
        assert (await first).value == {"paid": 3}
    assert (result.error.code, result.error.retry, bank.paid) == ("conflict", "later", [3])
    assert result.error.details == {"retry_after_s": 1}  # at its deadline


# Of a process that died


@asynccontextmanager
async def after_a_crash(path: Path, name: str, **changes: Any) -> AsyncGenerator[LedgerEntry]:
    """Leave the call `NAME(amount=3)` with the key `k` as a process that died in its middle has left it."""
    store = Store(path)
    digest = key_digest("default", name, '[{"amount":3},{"amount":3}]')
    entry = LedgerEntry("run_1", "local", "k", digest, name, "default", name == "put", datetime.now(UTC))
    try:
        claimed = await store.ledger.claim(replace(entry, **changes))
        store.ledger.give_up(claimed)
        while (found := await store.ledger.find("local", "k")) is None or not found.is_abandoned:
            await asyncio.sleep(0.01)
        yield claimed
    finally:
        store.close()


async def test_an_idempotent_tool_runs_again(path: Path) -> None:
    async with after_a_crash(path, "put"), Workbench([bank := bank_open()], store=path) as bench:
        assert (await bench.call("put", {"amount": 3}, idempotency_key="k")).value == 1
        again = await bench.call("put", {"amount": 3}, idempotency_key="k")
        assert (again.value, again.metadata["repeated"], bank.paid) == (1, True, [3])


async def test_of_another_tool_it_is_unknown_whether_it_took_effect(path: Path) -> None:
    async with after_a_crash(path, "pay") as entry, Workbench([bank := bank_open()], store=path) as bench:
        result = await bench.call("pay", {"amount": 3}, idempotency_key="k")
        assert (result.error.code, result.error.retry) == ("lost", "never")
        assert entry.id in result.error.message
        ledger = bench.crib.store.ledger
        assert [lost.id for lost in await ledger.lost()] == [entry.id]
        assert await ledger.settle(entry, None)
        assert (await bench.call("pay", {"amount": 3}, idempotency_key="k")).value == {"paid": 3}
        assert not await ledger.settle(entry, None)
        assert await ledger.lost() == []
    assert bank.paid == [3]


@pytest.mark.parametrize(
    ("verdict", "value", "paid"),
    [(True, "took effect", []), (False, "{'paid': 3}", [3]), ({"paid": 3}, "{'paid': 3}", []), (None, "unknown", [])],
)
async def test_the_tool_itself_finds_out(path: Path, verdict: Any, value: str, paid: list[int]) -> None:
    asked: list[Any] = []
    amounts: list[int] = []

    async def verify(key: str, context: Context) -> Any:
        asked.append((key, context.caller.principal, context.call.arguments))
        return verdict

    @tool(verify=verify)
    async def pay(amount: int) -> Any:
        amounts.append(amount)
        return {"paid": amount}

    async with after_a_crash(path, "pay"), Workbench([pay], store=path) as bench:
        results = [await bench.call("pay", {"amount": 3}, idempotency_key="k") for _ in range(2)]
    assert all(value in str(result.value or result.text) for result in results)
    assert (amounts, asked[0]) == (paid, ("k", "local", {"amount": 3}))
    assert len(asked) == (2 if verdict is None else 1)


@pytest.mark.parametrize("verdict", [7, ConnectionError("k")], ids=["not its result", "failed"])
async def test_a_verify_that_fails_or_answers_with_no_result_of_the_tool_leaves_it_unknown(
    path: Path, verdict: Any
) -> None:
    amounts: list[int] = []

    async def verify(key: str) -> Any:
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    @tool(verify=verify)
    async def pay(amount: int) -> dict[str, int]:
        amounts.append(amount)
        return {"paid": amount}

    async with after_a_crash(path, "pay"), Workbench([pay], store=path) as bench:
        result = await bench.call("pay", {"amount": 3}, idempotency_key="k")
    assert (result.error.code, result.error.retry, amounts) == ("lost", "never", [])


async def test_a_crash_runs_no_arguments_that_were_changed_when_they_were_approved(path: Path) -> None:
    bank, rules = bank_open(), Rules([Rule(tools="put", do="ask")])
    async with Workbench([bank], store=path, policy=rules) as bench:
        waiting = (await bench.call("put", {"amount": 3}, idempotency_key="other")).pending
        await bench.answer(waiting.id, Approve({"amount": 1}), by="ann")
        assert (await bench.call("put", {"amount": 3}, idempotency_key="other")).status == "success"
        found = await bench.crib.store.ledger.find("local", "other")
        entry = await bench.crib.store.ledger.find_id(found.id)
    assert (entry.approved_by, bank.paid) == ("ann", [1])
    async with (
        after_a_crash(path, "put", approved_by="ann", approval=entry.approval),
        Workbench([bank], store=path, policy=rules) as bench,
    ):
        assert (await bench.call("put", {"amount": 3}, idempotency_key="k")).pending is not None
    assert bank.paid == [1]


async def test_after_a_crash_no_default_is_made_anew_for_an_approval_of_another(path: Path) -> None:
    ran: list[str] = []

    @tool(idempotent=True)
    def put(amount: int, token: Annotated[str, Field(default_factory=lambda: token_hex(4))]) -> str:
        ran.append(token)
        return token

    async with Workbench([put], store=path) as bench:
        await bench.call("put", {"amount": 3}, idempotency_key="other")
        first = await bench.crib.store.ledger.find("local", "other")
        assert first is not None
    for approved_by in ("ann", None):  # None: a policy allowed it then
        path.unlink()
        async with (
            after_a_crash(path, "put", approved_by=approved_by, digest=first.digest),
            Workbench([put], store=path, policy=Rules([Rule(tools="put", do="ask")])) as bench,
        ):
            result = await bench.call("put", {"amount": 3}, idempotency_key="k")
        assert (result.error, result.pending is not None, len(ran)) == (None, True, 1), approved_by


async def test_what_was_approved_before_a_crash_is_asked_again_where_the_rule_asks_others_by_now(path: Path) -> None:
    bank = bank_open()
    leads: Any = {"groups": ["leads"]}
    for rule, is_asked in (
        (Rule(do="ask", approvers=leads), False),
        (Rule(do="ask", approvers={"groups": ["chiefs"]}), True),
        (Rule(do="ask"), True),
        (Rule(do="ask", approvers=leads, others_only=True), True),
    ):
        async with Workbench([bank], store=path, policy=Rules([rule])) as bench:
            waiting = await bench.call("put", {"amount": 3}, idempotency_key="other")
            assert waiting.pending is not None
        who: Any = {"approved_by": "local", "approval": waiting.pending.digest, "approvers": leads}
        async with (
            after_a_crash(path, "put", **who),
            Workbench([bank], store=path, policy=Rules([rule])) as bench,
        ):
            result = await bench.call("put", {"amount": 3}, idempotency_key="k")
        assert (result.pending is not None) is is_asked, rule
        path.unlink()


async def test_what_a_person_has_approved_is_not_asked_again_unless_the_tool_has_changed(path: Path) -> None:
    bank = bank_open()
    rules = Rules([Rule(tools="put", do="ask")])
    async with Workbench([bank], store=path, policy=rules) as bench:
        waiting = await bench.call("put", {"amount": 3}, idempotency_key="other")
        digest = waiting.pending.digest
    async with (
        after_a_crash(path, "put", approved_by="ann", approval="of before"),
        Workbench([bank], store=path, policy=rules) as bench,
    ):
        assert (await bench.call("put", {"amount": 3}, idempotency_key="k")).pending is not None
    path.with_name("store.db").unlink()
    async with (
        after_a_crash(path, "put", approved_by="ann", approval=digest),
        Workbench([bank], store=path, policy=rules) as bench,
    ):
        result = await bench.call("put", {"amount": 3}, idempotency_key="k")
    assert (result.value, result.metadata["decision"]) == (1, {"do": "ask", "rule": "rule 1", "by": "ann"})
