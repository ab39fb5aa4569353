"""Defaults that a factory makes: made once, shown to whoever decides, and what runs when it was approved."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel, Field, SecretStr

from toolcrib import Approve, Context, Input, Workbench, tool
from toolcrib.record import CallLog
from toolcrib.store import DatabasePendings, Store
from toolcrib.workbench import MemoryPendings, PendingStore, Stores

ran: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@pytest.fixture(params=["memory", "database"])
def pendings(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        yield MemoryPendings()
        return
    store = Store(tmp_path / "store.db")
    yield DatabasePendings(store)
    store.close()


class Line(BaseModel):
    sku: str
    id: UUID = Field(default_factory=uuid4)


@dataclass
class Note:
    text: str
    marks: list[str] = field(default_factory=lambda: [uuid4().hex])


def order(lines: list[Line], note: Note | str, key: UUID = Field(default_factory=uuid4)) -> str:
    ran.append({"lines": lines, "note": note, "key": key})
    return str(key)


def bench(source: Any, pendings: PendingStore, **options: Any) -> Workbench:
    return Workbench([source], policy=lambda *_: "ask", store=Stores(pendings=pendings), **options)


CALL = {"lines": [{"sku": "a"}, {"sku": "b"}], "note": {"text": "hi"}}


async def test_what_was_made_for_the_question_is_what_runs_in_a_later_call(pendings: PendingStore) -> None:
    log = CallLog(with_content=True)
    async with bench(order, pendings) as first:
        pending = (await first.call("order", CALL)).pending
        assert pending is not None
        again = (await first.call("order", CALL)).pending  # the same question, with what was shown
        assert again == pending
    async with bench(order, pendings, recorder=log) as other:  # as in another process
        await other.answer(pending.id, Approve(), by="bob")
        result = await other.call("order", CALL)
        assert result.error is None
        assert (await other.call("order", CALL)).pending is not None  # an answer counts once
    shown = json.loads(pending.arguments)
    assert [line["sku"] for line in shown["lines"]] == ["a", "b"]
    (got,) = ran
    assert [str(line.id) for line in got["lines"]] == [line["id"] for line in shown["lines"]]
    assert got["note"] == Note(**shown["note"])
    assert str(got["key"]) == shown["key"] == result.value
    assert json.loads(next(iter(log)).arguments or "") == shown


async def test_what_was_made_is_neither_in_the_pending_nor_in_a_repr(pendings: PendingStore) -> None:
    @tool
    def enter(name: str, key: SecretStr = Field(default_factory=lambda: SecretStr("hush-hush"))) -> str:
        return key.get_secret_value()

    async with bench(enter, pendings) as it:
        pending = (await it.call("enter", {"name": "ada"})).pending
        assert pending is not None
        assert json.loads(pending.arguments) == {"name": "ada", "key": "**********"}
        await it.answer(pending.id, Approve(), by="bob")
        stored = await pendings.get(pending.id)
        assert "hush" not in f"{pending!r} {pending.to_dict()} {stored!r}"
        assert (await it.call("enter", {"name": "ada"})).value == "hush-hush"


async def test_other_arguments_and_sent_defaults_are_other_calls(pendings: PendingStore) -> None:
    async with bench(order, pendings) as it:
        pending = (await it.call("order", CALL)).pending
        assert pending is not None
        await it.answer(pending.id, Approve(), by="bob")
        for other in (CALL | {"note": "hi"}, CALL | {"key": str(uuid4())}, json.loads(pending.arguments)):
            assert (await it.call("order", other)).pending is not None
        assert ran == []
        assert (await it.call("order", CALL)).error is None


async def test_a_tool_that_asks_after_its_approval_has_the_same_default_again(pendings: PendingStore) -> None:
    async def pay(context: Context, key: UUID = Field(default_factory=uuid4)) -> str:
        ran.append(key)
        pin: int = await context.ask("pin", int, f"The PIN for {key}?")
        return f"{key} {pin}"

    async with bench(pay, pendings) as it:
        first = (await it.call("pay")).pending
        assert first is not None
        await it.answer(first.id, Approve(), by="bob")
        second = (await it.call("pay")).pending
        assert second is not None
        await it.answer(second.id, Input(1234), by="bob")
        result = await it.call("pay")
    key = json.loads(first.arguments)["key"]
    assert (result.value, second.message, list(map(str, ran))) == (f"{key} 1234", f"The PIN for {key}?", [key, key])


async def test_a_default_that_no_json_gives_back_is_asked_for_again(pendings: PendingStore) -> None:
    @dataclass
    class Hidden:
        name: str
        key: str = field(default_factory=lambda: uuid4().hex, init=False)

    def use(it: Hidden) -> str:
        return it.key

    async with bench(use, pendings) as it:
        pending = (await it.call("use", {"it": {"name": "x"}})).pending
        assert pending is not None
        await it.answer(pending.id, Approve(), by="bob")
        assert (await it.call("use", {"it": {"name": "x"}})).pending is not None


async def test_whoever_is_asked_at_once_sees_what_runs(pendings: PendingStore) -> None:
    shown: list[str] = []

    async def ask(pending: Any) -> Approve:
        shown.append(json.loads(pending.arguments)["key"])
        return Approve()

    async with bench(order, pendings, ask=ask) as it:
        result = await it.call("order", CALL)
    assert shown == [result.value]
