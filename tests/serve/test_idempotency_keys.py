"""Idempotency keys at the doors of the server: the header of the HTTP API, and `_meta` in both eras of MCP."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from toolcrib import Approve, Caller, Crib, ToolError, tool
from toolcrib.machinery import LedgerEntry, key_digest
from toolcrib.serve import asgi_app, server
from toolcrib.serve.protocol import reply
from toolcrib.store import Store
from toolcrib.workbench import Rule, Rules

from ..waiting import until
from .serving import client_of
from .test_api_raw import GONE, ask, piece, status

ERAS = ["legacy", "2026-07-28"]
KEY: dict[str, Any] = {"idempotency-key": "k"}


@dataclass
class Bank:
    """A tool whose effects are counted."""

    paid: list[int] = field(default_factory=list)
    hold: asyncio.Event = field(default_factory=asyncio.Event)

    @tool
    async def pay(self, amount: int) -> dict[str, int]:
        """Pay."""
        self.paid.append(amount)
        await self.hold.wait()
        if amount == 13:
            raise ToolError("Not thirteen.", "denied")
        return {"paid": amount}


@pytest.fixture
def bank() -> Bank:
    bank = Bank()
    bank.hold.set()
    return bank


def keyed(key: object) -> Any:
    """Return the `_meta` of a call with *key*."""
    return {"toolcrib/idempotencyKey": key}


def caller(headers: Any) -> Caller:
    name, _, group = headers["user"].partition("/")
    return Caller(name, groups=frozenset({group} if group else ()))


@asynccontextmanager
async def client(bank: Bank, **options: Any) -> AsyncGenerator[httpx2.AsyncClient]:
    async with client_of(asgi_app(Crib([bank], **options), caller), user="ada") as opened:
        yield opened


async def pay(api: httpx2.AsyncClient, amount: int, *keys: str, **headers: str) -> httpx2.Response:
    sent = [*headers.items(), *(("Idempotency-Key", key) for key in keys)]
    return await api.post("/api/tools/pay/call", json={"amount": amount}, headers=sent)


async def leave_lost(path: Path, principal: str, **fields: Any) -> LedgerEntry:
    """Leave the call `pay(amount=3)` with the key `k` as a process that died in its middle has left it."""
    store = Store(path)
    digest = key_digest("default", "pay", '[{"amount":3},{"amount":3}]')
    entry = LedgerEntry("run_1", principal, "k", digest, "pay", "default", False, datetime.now(UTC), **fields)
    try:
        claimed = await store.ledger.claim(entry)
        store.ledger.give_up(claimed)
        await until(store.ledger.lost)
        return claimed
    finally:
        store.close()


async def test_a_retry_over_http_gets_the_first_result_and_others_their_own(bank: Bank, tmp_path: Path) -> None:
    async with client(bank, store=tmp_path / "s.db") as api:
        first, again = [await pay(api, 3, "k") for _ in range(2)]
        other = await pay(api, 3, "k", user="bob")
        conflict = await pay(api, 4, "k")
        problems = [await pay(api, 13, "p") for _ in range(2)]
        events = await pay(api, 3, "k", accept="text/event-stream")
    assert (first.json()["content"], "repeated" in first.json().get("metadata", {})) == (again.json()["content"], False)
    assert (again.status_code, again.json()["metadata"]["repeated"], other.json().get("metadata")) == (200, True, None)
    assert '"repeated":true' in events.text
    assert (conflict.status_code, conflict.json()["code"], conflict.json()["retry"]) == (409, "conflict", "never")
    assert "retry-after" not in conflict.headers
    assert [problem.status_code for problem in problems] == [403, 403]
    assert [problem.json().get("repeated") for problem in problems] == [None, True]
    assert bank.paid == [3, 3, 13]


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ([""], 400),
        (["k" * 256], 400),
        (["schl\xfcssel"], 400),
        (["a\tb"], 400),
        (["one", "two"], 400),
        (["k" * 255], 200),
        (["same", "same"], 200),
    ],
)
async def test_a_key_over_http_is_one_and_printable_ascii(
    bank: Bank, tmp_path: Path, keys: list[str], code: int
) -> None:
    async with client(bank, store=tmp_path / "s.db") as api:
        sent = [(b"idempotency-key", key.encode("latin-1")) for key in keys]
        answer = await api.post("/api/tools/pay/call", json={"amount": 3}, headers=sent)
    assert answer.status_code == code, answer.text
    assert code == 200 or answer.json()["code"] == "invalid_arguments"
    assert len(bank.paid) == (code == 200)


async def test_without_a_store_the_answer_names_the_setting(bank: Bank) -> None:
    async with client(bank) as api:
        answer = await pay(api, 3, "k")
        assert (await pay(api, 3)).status_code == 200
    assert (answer.status_code, answer.json()["code"], bank.paid) == (400, "unavailable", [3])
    assert "url in [store]" in answer.json()["detail"]


async def test_over_http_a_call_that_still_runs_is_tried_again_later_and_a_lost_one_never(tmp_path: Path) -> None:
    bank, path = Bank(), tmp_path / "s.db"
    entry = await leave_lost(path, "eve")
    async with Crib([bank], store=path) as crib, client(bank, store=path, timeout_s=2) as api:
        first = asyncio.create_task(crib.workbench(Caller("ada")).call("pay", {"amount": 3}, idempotency_key="k"))
        await until(lambda: bank.paid)
        later = await pay(api, 3, "k")
        bank.hold.set()
        await first
        lost = await pay(api, 3, "k", user="eve")
    assert (later.status_code, later.json()["retry"], later.headers["retry-after"]) == (409, "later", "1")
    assert (lost.status_code, lost.json()["code"], lost.json()["retry"]) == (409, "lost", "never")
    assert entry.id in lost.json()["detail"]
    assert bank.paid == [3]


async def test_a_client_that_leaves_comes_back_for_the_result_of_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply, "_QUICK_S", 0)
    bank, path = Bank(), "/api/tools/pay/call"
    app = asgi_app(Crib([bank], store=tmp_path / "s.db"))
    async with app.lifespan():
        leaving = asyncio.create_task(ask(app, piece(b'{"amount": 3}'), GONE, path=path, **KEY))
        await until(lambda: bank.paid)
        for _ in range(20):
            await asyncio.sleep(0)
        bank.hold.set()
        await leaving
        sent = await ask(app, piece(b'{"amount": 3}'), path=path, **KEY)
    assert status(sent) == 200
    assert b'"repeated":true' in sent[1]["body"]
    assert bank.paid == [3]


@pytest.mark.parametrize("mode", ERAS)
async def test_over_mcp_a_retry_gets_the_first_result(bank: Bank, tmp_path: Path, mode: str) -> None:
    crib = Crib([bank], store=tmp_path / "s.db")
    async with crib, Client(server(crib), mode=mode) as mcp:
        first, again = [await mcp.call_tool("pay", {"amount": 3}, meta=keyed("k")) for _ in range(2)]
        conflict = await mcp.call_tool("pay", {"amount": 4}, meta=keyed("k"))
        for key in (7, "", "k" * 256, "zwei\nzeilen"):
            with pytest.raises(MCPError, match="printable characters of ASCII"):
                await mcp.call_tool("pay", {"amount": 3}, meta=keyed(key))
    assert (first.structured_content, "toolcrib/repeated" in (first.meta or {})) == (again.structured_content, False)
    assert (again.meta or {})["toolcrib/repeated"] is True
    assert (conflict.meta or {})["toolcrib/error"] == {"code": "conflict", "retry": "never"}
    assert bank.paid == [3]


@pytest.mark.parametrize("mode", ERAS)
async def test_over_mcp_a_key_needs_a_store_and_survives_an_approval(bank: Bank, tmp_path: Path, mode: str) -> None:
    crib = Crib([bank])
    async with crib, Client(server(crib), mode=mode) as mcp:
        with pytest.raises(MCPError, match=r"url in \[store\]"):
            await mcp.call_tool("pay", {"amount": 3}, meta=keyed("k"))
    crib = Crib([bank], store=tmp_path / "s.db", policy=Rules([Rule(tools="pay", do="ask")]))
    async with crib, Client(server(crib), mode=mode) as mcp:
        waiting = await mcp.call_tool("pay", {"amount": 3}, meta=keyed("k"))
        await crib.answer((waiting.meta or {})["toolcrib/pending"]["id"], Approve(), by="bob")
        results = [await mcp.call_tool("pay", {"amount": 3}, meta=keyed("k")) for _ in range(2)]
    assert [result.structured_content for result in results] == [{"paid": 3}] * 2
    assert bank.paid == [3]


# Settled by a person


async def settle(api: httpx2.AsyncClient, id: str, data: Any, user: str) -> httpx2.Response:
    return await api.post(f"/api/calls/{id}/settle", json=data, headers={"user": user})


async def test_approvers_of_the_rule_list_and_settle_a_lost_call_and_others_do_not(bank: Bank, tmp_path: Path) -> None:
    path, rules = tmp_path / "s.db", Rules([Rule(do="ask", approvers={"groups": ["leads"]})])
    async with Crib([bank], store=path, policy=rules) as crib:
        ada = crib.workbench(Caller("ada"))
        waiting = (await ada.call("pay", {"amount": 3}, idempotency_key="k")).pending
        await crib.answer(waiting.id, Approve(), by=Caller("lin", groups=frozenset({"leads"})))
        bank.hold.clear()
        running = asyncio.create_task(ada.call("pay", {"amount": 3}, idempotency_key="k"))
        await until(lambda: bank.paid)
        entry = await crib.store.ledger.find("ada", "k")
        bank.hold.set()
        await running
    assert (entry.approved_by, entry.approvers) == ("lin", {"groups": ["leads"]})
    await leave_lost(tmp_path / "lost.db", "ada", approved_by="lin", approvers=entry.approvers)

    async with client(bank, store=tmp_path / "lost.db", policy=rules) as api:
        for user, count, status in (("eve", 0, 403), ("ada", 1, 403), ("lin", 0, 403), ("joe/leads", 1, 200)):
            lost = (await api.get("/api/calls/lost", headers={"user": user})).json()["lost"]
            assert len(lost) == count, user
            assert (await settle(api, "run_1", {"done": True}, user)).status_code == status, user


@pytest.mark.parametrize("is_done", [True, False])
async def test_who_may_approve_a_lost_call_lists_and_settles_it_once(bank: Bank, tmp_path: Path, is_done: bool) -> None:
    path = tmp_path / "s.db"
    entry = await leave_lost(path, "ada", arguments='{"amount": 3}', approved_by="bob")
    async with client(bank, store=path, may_answer=lambda pending, by: by in ("ada", "bob")) as api:
        lists = {
            user: (await api.get("/api/calls/lost", headers={"user": user})).json()["lost"]
            for user in ("ada", "bob", "eve")
        }
        own = await settle(api, entry.id, {"done": is_done}, "ada")  # another person has approved it
        foreign = await settle(api, entry.id, {"done": is_done}, "eve")
        unknown = await settle(api, "run_2", {"done": is_done}, "bob")
        settled = await settle(api, entry.id, {"done": is_done}, "bob")
        again = await settle(api, entry.id, {"done": not is_done}, "bob")
        retry = (await pay(api, 3, "k")).json()
        rest = (await api.get("/api/calls/lost", headers={"user": "bob"})).json()
        while not (log := (await api.get("/api/calls", params={"tool": "calls/settle"})).json()["calls"]):
            await asyncio.sleep(0.01)
    assert lists == {"ada": [entry.to_dict()], "bob": [entry.to_dict()], "eve": []}
    answers = (own, foreign, unknown, settled, again)
    assert [answer.status_code for answer in answers] == [403, 403, 404, 200, 409]
    assert [answer.json().get("reason") for answer in answers] == ["foreign", "foreign", "unknown", None, "replayed"]
    assert rest == {"lost": []}
    assert bank.paid == ([] if is_done else [3])
    if is_done:
        assert retry["metadata"] == {"settled_by": "bob", "repeated": True}
        assert retry["content"][0]["text"] == (
            "This call of 'pay' took effect, as 'bob' has settled. Its result is not known."
        )
    (row,) = log
    assert [row[name] for name in ("call_id", "principal", "answered_by", "status")] == [
        entry.id,
        "ada",
        "bob",
        "success",
    ]
    assert row["decision"] == ("done" if is_done else "not done")


async def test_without_may_answer_a_caller_settles_only_their_own(bank: Bank, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    entry = await leave_lost(path, "ada")
    async with client(bank, store=path) as api:
        assert (await api.get("/api/calls/lost", headers={"user": "bob"})).json() == {"lost": []}
        assert (await settle(api, entry.id, {"done": False}, "bob")).status_code == 403
        for data in ({}, {"done": "yes"}, {"done": 1}, {"done": True, "by": "bob"}, []):
            assert (await settle(api, entry.id, data, "ada")).status_code == 422
        assert (await settle(api, entry.id, {"done": False}, "ada")).status_code == 200
        assert (await pay(api, 3, "k")).json()["content"] == [{"type": "data", "data": {"paid": 3}}]
    async with client(bank) as api:
        assert (await api.get("/api/calls/lost")).json() == {"lost": []}
        assert (await settle(api, entry.id, {"done": True}, "ada")).status_code == 404
