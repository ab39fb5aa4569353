"""Over HTTP: who sees what waits, page by page, and answers it, with other arguments too."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from toolcrib import Caller, Crib, tool
from toolcrib.record import DatabaseCalls
from toolcrib.serve import asgi_app
from toolcrib.store import Store
from toolcrib.workbench import Ask, Rule, Rules

from .serving import client_of

LEADS = Rules([Rule(do="ask", approvers={"groups": ["leads"], "principals": ["alice"]})])


@tool(destructive=True)
def drop(name: str, number: int = 1) -> str:
    """Drop something."""
    return f"dropped {number} {name}"


def caller(headers: Any) -> Caller:
    name, _, group = headers["user"].partition("/")
    return Caller(name, groups=frozenset({group} if group else ()))


@asynccontextmanager
async def client(**options: Any) -> AsyncGenerator[httpx2.AsyncClient]:
    async with client_of(asgi_app(Crib([drop], **options), caller), user="ada") as opened:
        yield opened


async def dropped(api: httpx2.AsyncClient, name: str, user: str = "ada") -> dict[str, Any]:
    answer = await api.post("/api/tools/drop/call", json={"name": name}, headers={"user": user})
    result: dict[str, Any] = answer.json()
    return result


async def seen(api: httpx2.AsyncClient, user: str) -> list[str]:
    """Return who waits, of all pages of two."""
    names: list[str] = []
    after: str | None = ""
    while after is not None:
        params = {"limit": "2", **({"after": after} if after else {})}
        page = (await api.get("/api/pending", params=params, headers={"user": user})).json()
        assert len(page["pending"]) <= 2
        names += [one["principal"] for one in page["pending"]]
        after = page["next"]
    return names


@pytest.mark.parametrize("policy", [LEADS, lambda *_: Ask(approvers={"groups": "leads", "principals": "alice"})])
@pytest.mark.parametrize("is_stored", [True, False])
async def test_approvers_see_and_answer_what_waits_and_others_do_not(
    policy: Any, is_stored: bool, tmp_path: Path
) -> None:
    store = {"store": tmp_path / "store.db"} if is_stored else {}
    async with client(policy=policy, **store) as api:
        waits = [(await dropped(api, name, user))["pending"] for user in ("ada", "bob") for name in ("x", "y", "z")]
        everything = ["ada"] * 3 + ["bob"] * 3
        assert await seen(api, "lin/leads") == everything
        assert await seen(api, "alice") == everything
        assert await seen(api, "ada") == ["ada"] * 3
        assert await seen(api, "eve") == []
        assert await seen(api, "lin/lead") == []

        async def answer(user: str, **answer: Any) -> httpx2.Response:
            url = f"/api/pending/{waits[0]['id']}/answer"
            return await api.post(url, json={"kind": "approve", **answer}, headers={"user": user})

        refused = await answer("eve")
        assert (refused.status_code, "`approvers` of a [[rule]]" in refused.json()["detail"]) == (403, True)
        refused = await answer("ada")
        assert (refused.status_code, "'alice' or a member of 'leads'" in refused.json()["detail"]) == (403, True)
        invalid = await answer("lin/leads", arguments={"name": "x", "number": "many"})
        assert (invalid.status_code, "number" in invalid.json()["detail"]) == (422, True)
        assert (await answer("lin/leads", arguments={"name": "x"}, tool="other")).status_code == 422
        assert (await answer("lin/leads", arguments={"name": "x", "number": 7})).status_code == 200
        assert (await answer("alice")).status_code == 409
        assert await seen(api, "alice") == everything[1:]
        result = await dropped(api, "x")
        assert [part["text"] for part in result["content"]] == [
            "dropped 7 x",
            '\'lin\' has changed the arguments of this call to: {"name": "x", "number": 7}',
        ]


async def test_arguments_that_an_approver_gave_and_a_rule_denies_are_named_in_the_denial() -> None:
    rules = Rules([Rule(where={"/number": {"gt": 9}}, do="deny", message="At most 9."), *LEADS])
    async with client(policy=rules) as api:
        pending = (await dropped(api, "x"))["pending"]
        answer = {"kind": "approve", "arguments": {"name": "x", "number": 10}}
        url = f"/api/pending/{pending['id']}/answer"
        assert (await api.post(url, json=answer, headers={"user": "lin/leads"})).status_code == 200
        assert (await dropped(api, "x"))["detail"].splitlines() == [
            "Tool 'drop' is not allowed to run with these arguments: At most 9.",
            '\'lin\' has changed the arguments of this call to: {"name": "x", "number": 10}',
        ]


async def test_a_page_of_what_waits_is_as_it_is_asked_for() -> None:
    async with client(policy=LEADS) as api:
        for query in ({"limit": "0"}, {"limit": "201"}, {"before": "1"}):
            assert (await api.get("/api/pending", params=query)).status_code == 422


@pytest.mark.parametrize("after", ["x", "-1", "9" * 40, "\u0661"])
async def test_a_place_that_no_page_ended_at_is_refused(after: str, tmp_path: Path) -> None:
    async with client(policy=LEADS, store=tmp_path / "store.db") as api:
        assert (await api.get("/api/pending", params={"after": after})).status_code in (200, 422)
        assert (await api.get("/api/pending")).json() == {"pending": [], "next": None}


def test_what_others_wait_for_is_read_for_those_alone_who_may_be_approvers() -> None:
    lead = Caller("lin", groups=frozenset({"leads"}))
    assert [LEADS.has_approver(one) for one in (lead, Caller("alice"), Caller("eve"))] == [True, True, False]
    assert not Rules([Rule(do="ask")]).has_approver(lead)


async def test_a_question_says_who_answered_it_and_what_was_approved_before(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    log = DatabaseCalls(store, with_content=True)
    async with client(policy=LEADS, store=store, recorder=log) as api:

        async def question(id_: str, user: str) -> dict[str, Any]:
            answer = await api.get(f"/api/pending/{id_}", headers={"user": user})
            return {"status": answer.status_code, **answer.json()}

        first = (await dropped(api, "old"))["pending"]
        assert [(await question(first["id"], user))["status"] for user in ("ada", "eve", "alice")] == [200, 404, 200]
        seen = await question(first["id"], "alice")
        assert (seen["pending"], seen["state"], seen["last_approved"]) == (first, "open", None)
        assert seen["may_answer"] is True
        assert (await question(first["id"], "ada"))["may_answer"] is False
        url = f"/api/pending/{first['id']}/answer"
        for digest, status in (("of another", 409), (1, 409), (first["digest"], 200)):
            sent = await api.post(url, json={"kind": "approve", "digest": digest}, headers={"user": "alice"})
            assert sent.status_code == status
            assert sent.json().get("reason") == ("changed" if status == 409 else None)
        seen = await question(first["id"], "ada")
        assert (seen["state"], seen["answered_by"], seen["answer"]) == ("answered", "alice", "approve")
        await dropped(api, "old")
        await log.flush()
        assert (await question(first["id"], "ada"))["state"] == "taken"
        second = (await dropped(api, "new"))["pending"]["id"]
        for user, text in (("ada", '{"name":"old"'), ("alice", '{"name":"old"'), ("lin/leads", None)):
            last = (await question(second, user))["last_approved"]
            assert (last and last["arguments"].replace(" ", "")[:13]) == text
        assert (await question("pending_none", "ada"))["status"] == 404
