"""`/approvals`: what waits, what differs from before, each answer, two people at one, grants; and the first page."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html import unescape
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, SecretStr

from toolcrib import Context, Crib, Pending, tool
from toolcrib.record import DatabaseCalls
from toolcrib.store import Store
from toolcrib.workbench import Rule, Rules

from .conftest import Browser, Open, by_user, fields_of

RULES = Rules([Rule(name="payments", tools="pay", do="ask", message="Pay this?")], default="allow")
LEADS = Rules([Rule(name="payments", tools="pay", do="ask", approvers={"principals": ["ann", "bob"]})], default="allow")


@tool(destructive=True)
def pay(to: str, amount: float, note: str = "") -> str:
    """Pay somebody."""
    return f"paid {amount:g} to {to}"


@tool
async def ship(context: Context, item: str) -> str:
    """Ship an item."""
    return f"{item} goes in {await context.ask('boxes', int, 'How many boxes?')} boxes"


@tool(destructive=True)
def send(to: list[str]) -> str:
    """Send to many."""
    return f"sent to {len(to)}"


async def call(browser: Browser, name: str, **arguments: Any) -> dict[str, Any]:
    """Call as who the browser is, at the door of programs."""
    answer = await browser.post(f"/api/tools/{name}/call", json=arguments)
    result: dict[str, Any] = answer.json()
    return result


async def waits_for(browser: Browser, name: str = "pay", **arguments: Any) -> str:
    id_: str = (await call(browser, name, **arguments))["pending"]["id"]
    return f"/approvals/{id_}"


async def answer(browser: Browser, page: str, kind: str, **fields: Any) -> Any:
    """Submit a form of *page*, as it was shown."""
    shown = fields_of((await browser.get(page)).text)
    return await browser.post(
        f"{page}/answer", data={"token": shown["token"], "digest": shown["digest"], "kind": kind, **fields}
    )


async def put(browser: Any, number: int, kind: Any, message: str, **more: Any) -> None:
    """Have something wait for the person at the browser."""
    now = datetime.now(UTC)
    whose = ("pay", "local", "default", now + timedelta(hours=1))
    await browser.crib.pending.store.open(
        Pending(f"pending_{number}", kind, message, f"d{number}", *whose, **more), now=now
    )


async def test_an_approval_shows_what_will_run_and_runs_it_once(open_console: Open) -> None:
    async with open_console(pay, policy=RULES) as browser:
        page = await waits_for(browser, to="bob\u200b", amount=5000)
        listed = (await browser.get("/approvals")).text
        assert page in listed
        for place in ("/approvals", "/"):  # a page that shows all of it gets nothing new
            (again,) = re.findall(r'hx-get="([^"]+)"', (await browser.get(place)).text)
            assert (await browser.get(unescape(again))).status_code == 204
        assert "Pay this?" in listed
        shown = (await browser.get(page)).text
        assert '<dd class="text">bob\\u200b</dd>' in shown
        assert '<dd class="text">5000</dd>' in shown
        assert "payments" in shown
        done = await answer(browser, page, "approve")
        assert (done.status_code, done.headers["location"]) == (303, page)
        assert "Approved by you" in (await browser.get(page)).text
        assert (await call(browser, "pay", to="bob\u200b", amount=5000))["status"] == "success"
        assert "The call has gone on with it" in (await browser.get(page)).text


async def test_what_differs_from_the_last_approved_call_is_marked(open_console: Open, tmp_path: Path) -> None:
    store = Store(tmp_path / "console.db")
    log = DatabaseCalls(store, with_content=True)
    async with open_console(crib=Crib([pay], policy=RULES, store=store, recorder=log)) as browser:
        assert "was" not in (await browser.get(await waits_for(browser, to="eve", amount=1))).text
        await answer(browser, await waits_for(browser, to="bob", amount=5), "approve")
        await call(browser, "pay", to="bob", amount=5)
        await log.flush()
        shown = (await browser.get(await waits_for(browser, to="bob", amount=5000, note="now"))).text
        texts = unescape(re.sub("<[^>]*>", "", shown))
        assert "5000 changed was 5" in texts
        assert 'now changed was ""' in texts
        assert "bob changed" not in texts


async def test_arguments_are_changed_and_what_the_tool_does_not_take_stays_typed(open_console: Open) -> None:
    async with open_console(pay, policy=RULES) as browser:
        page = await waits_for(browser, to="bob", amount=5000)
        for text, status in (("{", 422), ("[]", 422), ('{"to": "bob", "amount": "half"}', 422)):
            refused = await answer(browser, page, "edit", raw=text)
            assert refused.status_code == status
            assert 'role="alert"' in refused.text
            assert text.replace('"', "&#34;") in refused.text
        assert (await answer(browser, page, "edit", raw='{"to": "bob", "amount": 5}')).status_code == 303
        assert "paid 5 to bob" in str(await call(browser, "pay", to="bob", amount=5000))


async def test_arguments_are_changed_in_fields_and_secrets_and_digits_stay(open_console: Open) -> None:
    @tool(destructive=True)
    def charge(card: SecretStr, cents: list[int], rate: Decimal) -> str:
        """Charge a card."""
        return f"{card.get_secret_value()[-2:]} pays {sum(cents)} at {rate}"

    sent = {"card": "4000-42", "cents": [9007199254740993], "rate": "0.1000000000000000055"}
    async with open_console(charge, policy=Rules([Rule(tools="charge", do="ask")])) as browser:
        page = await waits_for(browser, "charge", **sent)
        fields = fields_of(shown := (await browser.get(page)).text)
        assert "4000-42" not in shown
        typed = {name: unescape(text) for name, text in re.findall(r'name="(v/[^"]+)"[^>]*>\n([^<]*)</textarea', shown)}
        filled = {name: text for name, text in {**fields, **typed}.items() if name[0] in "vn"}
        assert filled["v/card"] == "**********"
        assert filled["v/cents/0"] == "9007199254740993"
        # Without a script, an item is added by the server, and nothing is answered by that.
        longer = await browser.post(f"{page}/answer", data={**fields, **filled, "act": "add/cents"})
        assert longer.status_code == 200
        assert 'name="n/cents" value="2"' in longer.text
        assert "9007199254740993" in longer.text
        shown_again = await browser.post(f"{page}/answer", data={**fields, **filled})
        assert '<details open><summary id="others">' in shown_again.text
        wrong = await answer(browser, page, "edit", **{**filled, "v/cents/1": "one"})
        assert wrong.status_code == 422
        assert re.search('id="p/cents/1"><p>[^<]*integer', wrong.text)
        assert (await answer(browser, page, "edit", **{**filled, "v/cents/1": "1"})).status_code == 303
        assert "42 pays 9007199254740994 at 0.1000000000000000055" in str(await call(browser, "charge", **sent))


async def test_arguments_that_a_rule_denies_are_refused_as_the_call_would_be(open_console: Open) -> None:
    most = Rule(tools="pay", where={"/amount": {"gt": 100}}, do="deny", message="At most 100.")
    async with open_console(pay, policy=Rules([most, *RULES])) as browser:
        page = await waits_for(browser, to="bob", amount=5)
        refused = await answer(browser, page, "edit", raw='{"to": "bob", "amount": 101}')
        assert refused.status_code == 422
        denied = (await call(browser, "pay", to="bob", amount=101))["detail"]
        assert denied in unescape(refused.text)
        assert (await answer(browser, page, "edit", raw='{"to": "bob", "amount": 100}')).status_code == 303


async def test_who_may_not_call_a_tool_still_has_its_form_to_approve_it(open_console: Open) -> None:
    rules = Rules([Rule(tools="pay", principals="ann", do="deny"), *LEADS])
    async with open_console(pay, policy=rules, identify=by_user) as browser:
        browser.headers["user"] = "eve"
        page = await waits_for(browser, to="bob", amount=5)
        await browser.become("ann")
        assert (await browser.get("/api/tools/pay")).status_code == 404
        assert 'name="v/amount" value="5"' in (await browser.get(page)).text
        done = await answer(browser, page, "edit", **{"v/to": "bob", "v/amount": "4"})
        assert done.status_code == 303
        browser.headers["user"] = "eve"
        assert "paid 4 to bob" in str(await call(browser, "pay", to="bob", amount=5))


async def test_a_denial_has_its_reason(open_console: Open) -> None:
    async with open_console(pay, policy=RULES) as browser:
        page = await waits_for(browser, to="bob", amount=5000)
        assert (await answer(browser, page, "deny", reason="too much")).status_code == 303
        assert "Denied by you" in (await browser.get(page)).text
        assert "too much" in str(await call(browser, "pay", to="bob", amount=5000))


async def test_a_grant_is_shown_before_it_is_given_and_can_be_revoked(open_console: Open) -> None:
    async with open_console(pay, policy=RULES) as browser:
        page = await waits_for(browser, to="bob", amount=5)
        shown = fields_of((await browser.get(page)).text)
        form = {"token": shown["token"], "digest": shown["digest"], "until": "8", "where": ["/to"]}
        refused = await browser.post(f"{page}/preview", data={**form, "conditions": '{"/amuont": 1}'})
        assert refused.status_code == 422
        asked = await browser.post(f"{page}/preview", data={**form, "conditions": '{"/amount": {"le": 100}}'})
        assert "where /to is &#34;bob&#34; and /amount is at most 100" in asked.text
        assert (await browser.get("/api/grants")).json()["grants"] == []
        assert (
            await browser.post(f"{page}/answer", data={**fields_of(asked.text), "kind": "grant"})
        ).status_code == 303
        assert (await call(browser, "pay", to="bob", amount=7))["status"] == "success"
        (grant,) = (await browser.get("/approvals.json")) and (await browser.get("/api/grants")).json()["grants"]
        until = datetime.fromisoformat(grant["expires_at"])
        assert timedelta(hours=7) < until - datetime.now(UTC) <= timedelta(hours=8)
        assert "Revoke" in (await browser.get("/approvals")).text
        gone = await browser.submit(f"/approvals/grants/{grant['id']}/revoke")
        assert gone.headers["location"] == "/approvals/grants"
        assert "Revoke" not in (await browser.get("/approvals/grants")).text
        assert (await call(browser, "pay", to="bob", amount=8))["status"] == "pending"


async def test_the_second_of_two_people_is_told_who_was_first(open_console: Open) -> None:
    async with open_console(pay, policy=LEADS, identify=by_user) as browser:
        browser.headers["user"] = "eve"
        page = await waits_for(browser, to="bob", amount=5)
        await browser.get("/approvals")
        assert "It is for others to answer: ann, bob" in (await browser.get(page)).text
        sessions: dict[str, tuple[dict[str, str], dict[str, str]]] = {}
        for user in ("ann", "bob"):
            await browser.become(user)
            sessions[user] = fields_of((await browser.get(page)).text), dict(browser.cookies)
        for user, status in (("ann", 303), ("bob", 409)):
            fields, cookies = sessions[user]
            browser.headers["user"] = user
            browser.cookies.clear()
            browser.cookies.update(cookies)
            reply = await browser.post(f"{page}/answer", data={**fields, "kind": "approve"})
            assert reply.status_code == status
        assert "Approved by ann" in reply.text
        assert "Approve once" not in reply.text


async def test_what_is_not_what_was_shown_is_not_approved(open_console: Open) -> None:
    async with open_console(pay, policy=RULES) as browser:
        page = await waits_for(browser, to="bob", amount=5)
        other = fields_of((await browser.get(await waits_for(browser, to="bob", amount=5000))).text)
        reply = await browser.post(f"{page}/answer", data={**other, "kind": "approve"})
        assert reply.status_code == 409
        assert "Changed meanwhile" in reply.text
        assert (await call(browser, "pay", to="bob", amount=5))["status"] == "pending"


async def test_a_question_of_a_tool_is_answered(open_console: Open) -> None:
    async with open_console(ship) as browser:
        page = await waits_for(browser, "ship", item="a lathe")
        assert "How many boxes?" in (await browser.get(page)).text
        wrong = await answer(browser, page, "input", v="many")
        assert wrong.status_code == 422
        assert re.search('<div class="error" id="p"><p>[^<]*integer', wrong.text)
        assert 'value="many"' in wrong.text
        assert (await answer(browser, page, "input", v="2")).status_code == 303
        assert "a lathe goes in 2 boxes" in str(await call(browser, "ship", item="a lathe"))


async def test_each_kind_of_question_has_its_fields(open_console: Open) -> None:
    class Size(BaseModel):
        width: int
        note: str = ""

    @tool
    async def ask_all(context: Context) -> str:
        """Ask for all kinds."""
        kinds: list[Any] = [bool, Literal["red", "blue"], Size, list[int]]
        return str([await context.ask(f"q{number}", kind, "What?") for number, kind in enumerate(kinds)])

    async with open_console(ask_all) as browser:
        for fields, shows in (
            ({"v": "true"}, '<select id="v"'),
            ({"v": '"blue"'}, "blue</option>"),
            ({"v/width": "3"}, 'id="v/width"'),
            ({"n": "0", "v/0": "5"}, "Add an item"),
        ):
            page = await waits_for(browser, "ask_all")
            assert shows in (await browser.get(page)).text
            assert "n" in fields or (await answer(browser, page, "input")).status_code == 422  # an empty list is one
            assert (await answer(browser, page, "input", **fields)).status_code == 303
        assert "[True, 'blue', Size(width=3, note=''), [5]]" in str(await call(browser, "ask_all"))


async def test_what_waits_for_others_is_not_there(open_console: Open) -> None:
    async with open_console(pay, policy=RULES, identify=by_user) as browser:
        browser.headers["user"] = "ann"
        page = await waits_for(browser, to="bob", amount=5)
        await browser.become("eve")
        for path in (page, page + ".json"):
            assert (await browser.get(path)).status_code == 404
        assert page not in (await browser.get("/approvals")).text


async def test_of_thousands_that_wait_a_page_shows_some(open_console: Open) -> None:
    async with open_console(pay, policy=RULES) as browser:
        for number in range(120):
            await put(browser, number, "approval", "Pay this? " * 500)
        page = await browser.get("/approvals")
        assert len(page.content) < 150_000
        assert page.text.count("/approvals/pending_") == 50
        (link,) = re.findall(r'href="(/approvals\?after=[^"]+)"', page.text)
        assert "pending_50" in (await browser.get(link)).text


async def test_a_login_is_a_link_of_the_web_alone(open_console: Open) -> None:
    async with open_console(pay) as browser:
        for number, url in enumerate(("https://login.example/?a=1&b=2", "javascript:alert(1)")):
            await put(browser, number, "authorization", "Log in.", url=url)
        assert 'href="https://login.example/?a=1&amp;b=2"' in (await browser.get("/approvals/pending_0")).text
        assert "javascript:" not in (await browser.get("/approvals/pending_1")).text


async def test_of_thousands_of_arguments_the_rest_is_in_the_json(open_console: Open) -> None:
    async with open_console(send, policy=Rules([Rule(tools="send", do="ask")])) as browser:
        shown = (
            await browser.get(await waits_for(browser, "send", to=[f"user-{number}" for number in range(600)]))
        ).text
        assert shown.count('<dd class="text">') == 500
        assert "100 more values are in the JSON." in shown
        assert "<details open><summary>As JSON" in shown
        assert "user-599" in shown


async def test_the_first_page_names_sources_that_are_down(open_console: Open) -> None:
    async with open_console(pay, "http://127.0.0.1:9/mcp") as browser:
        assert re.search("Not available now: [^<]*127.0.0.1", (await browser.get("/")).text)


async def test_settings_to_copy_have_a_placeholder_for_the_key(open_console: Open) -> None:
    async with open_console(pay, identify=by_user) as browser:
        await browser.become("ann")
        shown = unescape((await browser.get("/")).text)
        assert shown.count("Bearer YOUR-KEY") == 5
        assert "Bearer ${input:tools-key}" in shown


async def test_the_first_page_has_what_waits_what_is_down_and_settings(open_console: Open) -> None:
    async with open_console(pay, policy=RULES) as browser:
        page = await waits_for(browser, to="bob", amount=5)
        shown = (await browser.get("/")).text
        assert page in shown
        assert "claude mcp add --transport http toolcrib http://127.0.0.1:8642/mcp</pre>" in shown
        assert "Not available" not in shown
        assert "YOUR-KEY" not in shown


async def test_each_text_that_is_asked_about_can_be_looked_at(open_console: Open) -> None:
    async with open_console(pay, policy=RULES) as browser:
        for text in ("[" * 20_000, '{"a":' * 10_000):
            page = await browser.get(await waits_for(browser, to="bob", amount=1, note=text))
            assert page.status_code == 200
            assert f">{text}<" in unescape(page.text)
