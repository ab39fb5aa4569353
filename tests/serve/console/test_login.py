"""Who may enter the console, and whose requests it takes. The issuers are npm's `oidc-provider`, and one that lies."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from joserfc.jwk import OctKey
from playwright.sync_api import sync_playwright
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from toolcrib import Caller, Crib, SetupError
from toolcrib.auth import Client, Flow
from toolcrib.auth.catalogue import OAuth2
from toolcrib.serve import Authenticator, asgi_app
from toolcrib.serve.access.keys import AccessKeys
from toolcrib.serve.access.tokens import AccessTokens
from toolcrib.serve.console import Sessions
from toolcrib.serve.console import sessions as sessions_module
from toolcrib.store import Store
from toolcrib.workbench import Role

from ...auth.oidc.conftest import SECRET, Provider
from ...ports import free_port
from ..issuer import NEW, Issuer
from .conftest import BASE_URL, Browser, Open, add, by_user, fields_of

AUDIENCE = f"{BASE_URL}/mcp"
CALLBACK = f"{BASE_URL}/console/callback"
WEB = Client("web", SECRET)


async def test_a_link_lets_in_once_and_leaves_the_address(open_console: Open) -> None:
    async with open_console(add, logs_in=False) as browser:
        link = await Sessions(browser.crib.database).link(BASE_URL)  # type: ignore[attr-defined]
        before = await browser.get("/tools")
        assert before.status_code == 401
        assert "toolcrib console" in before.text
        entered = await browser.get(link)
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        cookie = entered.headers["set-cookie"]
        assert cookie.startswith("toolcrib-8642=")
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert "Max-Age=43200" in cookie
        assert "add" in (await browser.get("/tools")).text
        again = await browser.get(link)
        assert again.status_code == 410
        assert "toolcrib console" in again.text


async def test_a_link_or_session_of_another_server_or_time_is_none(
    open_console: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_console(add) as browser:
        sessions = Sessions(browser.crib.database)  # type: ignore[attr-defined]
        other = (await sessions.link("http://127.0.0.1:9000")).partition("link=")[2]
        assert (await browser.get(f"/login?link={other}")).status_code == 410
        monkeypatch.setattr(sessions_module, "LINK_AGE", timedelta(seconds=-1))
        assert (await browser.get(await sessions.link(BASE_URL))).status_code == 410
        elsewhere = await sessions.begin(Caller(), "http://127.0.0.1:9000")
        monkeypatch.setattr(sessions_module, "SESSION_AGE", timedelta(seconds=-1))
        for token in (elsewhere, await sessions.begin(Caller(), BASE_URL), "made-up"):
            answer = await browser.get("/tools", headers={"Cookie": f"toolcrib-8642={token}"})
            assert answer.status_code == 401


async def test_a_row_that_is_changed_in_the_database_is_no_session(open_console: Open) -> None:
    async with open_console(add) as browser:
        table = sessions_module.TABLE
        await browser.crib.database.transact(  # type: ignore[attr-defined]
            lambda connection: connection.execute(table.update().values(principal="key:boss"))
        )
        assert (await browser.get("/tools")).status_code == 401


async def test_logging_out_ends_the_session_in_the_store(open_console: Open) -> None:
    async with open_console(add) as browser:
        cookie = dict(browser.cookies)
        left = await browser.submit("/logout")
        assert left.status_code == 303
        assert not browser.cookies
        browser.cookies.update(cookie)
        assert (await browser.get("/tools")).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "", "Origin": "http://127.0.0.1:9000"},
        {"Sec-Fetch-Site": ""},
    ],
)
async def test_a_form_of_another_page_changes_nothing(open_console: Open, headers: Mapping[str, str]) -> None:
    async with open_console(add) as browser:
        answer = await browser.post("/logout", data={"token": await browser.token()}, headers=headers)
        assert answer.status_code == 403
        assert (await browser.get("/tools")).status_code == 200


async def test_a_form_without_the_token_of_the_session_changes_nothing(open_console: Open) -> None:
    async with open_console(add) as browser:
        for data in ({}, {"token": ""}, {"token": "0" * 64}, {"token": "\N{SNOWMAN}"}):
            assert (await browser.post("/logout", data=data)).status_code == 403
        assert (await browser.get("/tools")).status_code == 200
        own = await browser.post(
            "/logout", data={"token": await browser.token()}, headers={"Sec-Fetch-Site": "", "Origin": BASE_URL}
        )
        assert own.status_code == 303


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data", "x"),
        (f"multipart/form-data; boundary={'b' * 5000}", "x"),
        ("multipart/form-data; boundary=x", "--x\r\n" + "A: b\r\n" * 1000),
        ("application/x-www-form-urlencoded", "&".join(f"a{number}=1" for number in range(20_000))),
    ],
)
async def test_a_body_that_is_no_form_is_said_to_be_none(open_console: Open, content_type: str, body: str) -> None:
    async with open_console(add) as browser:
        answer = await browser.post("/tools/add/run", content=body, headers={"Content-Type": content_type})
        assert (answer.status_code, "Not a form" in answer.text) == (400, True)


async def test_a_host_with_a_port_that_is_none_is_refused(open_console: Open) -> None:
    async with open_console(add) as browser:
        for port in ("65536", "9" * 5000, "-1"):
            assert (await browser.get("/tools", headers={"Host": f"127.0.0.1:{port}"})).status_code == 421


async def test_each_answer_forbids_what_a_page_of_others_could_do(open_console: Open) -> None:
    async with open_console(add) as browser:
        nonces = set[str]()
        for path in ("/", "/tools", "/tools/add", "/tools.json", "/static/console.css", "/tools/none", "/login"):
            answer = await browser.get(path)
            policy = answer.headers["content-security-policy"]
            nonces.add(policy.partition("'nonce-")[2].partition("'")[0])
            assert policy.startswith("default-src 'none'; script-src 'nonce-")
            for part in ("frame-ancestors 'none'", "base-uri 'none'", "require-trusted-types-for 'script'"):
                assert part in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "same-origin"
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert len(nonces) == 7


async def test_a_key_lets_in_as_its_principal_until_it_is_revoked(open_console: Open, tmp_path: Path) -> None:
    store = Store(tmp_path / "console.db")
    keys = AccessKeys(store)
    text, key = await keys.add("alice", groups=["leads"])
    crib = Crib([add], store=store)
    async with open_console(crib=crib, identify=Authenticator(keys)) as browser:
        page = await browser.get("/tools")
        assert page.status_code == 401
        assert 'name="key"' in page.text
        for wrong in ("", "x", "toolcrib_" + "a" * 12 + "_" + "b" * 43, "k" * 5000):
            refused = await browser.post("/login", data={"key": wrong})
            assert refused.status_code == 401
            assert 'role="alert"' in refused.text
        entered = await browser.post("/login", data={"key": f" {text}\n"})
        assert entered.status_code == 303
        assert "key:alice" in (await browser.get("/")).text
        assert text not in (await browser.get("/")).text
        await keys.revoke(key.id)
        assert (await browser.get("/tools")).status_code == 401


async def test_wrong_keys_are_counted_and_one_that_was_right_goes_on(open_console: Open, tmp_path: Path) -> None:
    store = Store(tmp_path / "console.db")
    keys = AccessKeys(store)
    text, _ = await keys.add("alice")
    known, _ = await keys.add("bob")
    async with open_console(crib=Crib([add], store=store), identify=Authenticator(keys)) as browser:
        assert (await browser.post("/login", data={"key": known})).status_code == 303
        for number in range(20):
            wrong = f"toolcrib_{number:012}_{'b' * 43}"
            assert (await browser.post("/login", data={"key": wrong})).status_code == 401
        answer = await browser.post("/login", data={"key": text})
        assert answer.status_code == 429
        assert "Try again in" in answer.text
        assert (await browser.post("/login", data={"key": known})).status_code == 303  # others share the address


async def test_a_host_that_knows_its_browsers_needs_no_login(open_console: Open) -> None:
    async with open_console(add, identify=by_user) as browser:
        assert (await browser.get("/tools")).status_code == 401
        browser.headers["user"] = "ann"
        first = await browser.get("/tools?q=add")
        assert (first.status_code, first.headers["location"]) == (303, "/tools")
        page = await browser.get("/tools")
        assert "ann" in page.text
        # The host has another person now: the session of before is not theirs, and neither are its forms.
        browser.headers["user"] = "bob"
        stolen = await browser.post("/logout", data={"token": fields_of(page.text)["token"]})
        assert stolen.status_code == 403
        assert (await browser.get("/")).status_code == 303
        assert "bob" in (await browser.get("/")).text


async def test_another_computer_is_not_let_in_without_keys(open_console: Open) -> None:
    async with open_console(add) as browser:
        answer = await browser.get("/tools", headers={"X-Forwarded-For": "10.0.0.7"})
        assert answer.status_code == 403


async def test_a_route_of_the_host_and_the_paths_of_machines_win(open_console: Open) -> None:
    async def own(_: object) -> PlainTextResponse:
        return PlainTextResponse("the host's")

    async with open_console(add, routes=[Route("/tools", own)]) as browser:
        assert (await browser.get("/tools")).text == "the host's"
        assert (await browser.get("/livez")).json() == {"status": "alive"}
        assert (await browser.get("/nothing-here")).headers["content-type"] == "application/problem+json"


async def test_it_is_found_under_the_path_where_it_is_mounted(open_console: Open) -> None:
    async with open_console(add, logs_in=False) as browser:
        host = Starlette(routes=[Mount("/crib", browser.app)])  # type: ignore[attr-defined]
        base_url = f"{BASE_URL}/crib"
        async with Browser(host, base_url) as mounted:
            link = await Sessions(browser.crib.database).link(base_url)  # type: ignore[attr-defined]
            entered = await mounted.get(link)
            assert entered.headers["location"] == "/crib/"
            page = await mounted.get("/tools")
            assert 'href="/crib/tools/add"' in page.text
            assert 'href="/tools' not in page.text


async def test_json_is_what_the_api_answers(open_console: Open) -> None:
    async with open_console(add) as browser:
        assert (await browser.get("/tools.json")).json() == (await browser.get("/api/tools")).json()
        assert (await browser.get("/tools/add.json")).json() == (await browser.get("/api/tools/add")).json()
        assert (await browser.get("/tools/none.json")).status_code == 404


def test_a_crib_without_a_store_has_no_console() -> None:
    with pytest.raises(SetupError, match="needs a store"):
        asgi_app(Crib([add]), console=True)


# At an issuer


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    provider = Provider(redirect=CALLBACK)
    yield provider
    provider.close()


def tokens_of(url: str, *, by: Client | None = WEB, **options: Any) -> AccessTokens:
    return AccessTokens(url, AUDIENCE, allow=["127.0.0.1"], client=by, **options)


async def begun(browser: Browser, page: str = "/") -> str:
    """Return where the link to the issuer on *page* sends the browser."""
    shown = await browser.get(page)
    assert shown.status_code == 401
    link = re.search(r'href="(?:/crib)?(/login\?[^"]*)"', shown.text)
    assert link is not None, shown.text
    sent = await browser.get(link[1].replace("&amp;", "&"))
    assert sent.status_code == 303, sent.text
    return str(sent.headers["location"])


def query_of(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


async def granted(provider: Provider, url: str, **options: Any) -> str:
    """Return where somebody is sent back to who logs in at *url*."""
    return await asyncio.to_thread(partial(provider.grant, url, **options))


async def session_of(browser: Browser) -> Caller:
    sessions = Sessions(browser.crib.database)  # type: ignore[attr-defined]
    session = await sessions.find(browser.cookies["toolcrib-8642"], BASE_URL)
    return session.caller


async def bearer_of(tokens: AccessTokens, provider: Provider, login: str) -> str:
    """Return an access token for this server, as a client of MCP gets it."""
    table = OAuth2(issuer=tokens.issuer, resource=AUDIENCE, client_auth="basic")
    flow = Flow("provider", table, WEB, tokens.http)
    url = await flow.authorization_url(redirect_uri=CALLBACK, scopes=["openid", "read"], state="s", verifier="v" * 43)
    code = query_of(await granted(provider, url, login=login))["code"]
    return (await flow.exchange_code(code, redirect_uri=CALLBACK, verifier="v" * 43, scopes=["read"])).access_token


# At `oidc-provider`


async def test_a_person_is_the_same_in_the_console_and_by_a_bearer_token(
    open_console: Open, provider: Provider, tmp_path: Path
) -> None:
    store = Store(tmp_path / "console.db")
    tokens = tokens_of(provider.issuer)
    roles = [Role(groups=["of-alice"], may=["keys"])]
    identify = Authenticator(AccessKeys(store), [tokens])
    async with open_console(crib=Crib([add], store=store), identify=identify, roles=roles) as browser:
        for login, status in (("alice", 200), ("bob", 403)):
            url = await begun(browser, "/keys?some=query")
            entered = await browser.get(await granted(provider, url, login=login))
            assert (entered.status_code, entered.headers["location"]) == (303, "/keys?some=query")
            assert [cookie.name for cookie in browser.cookies.jar] == ["toolcrib-8642"]
            assert (await browser.get("/keys")).status_code == status
            bearer = await bearer_of(tokens, provider, login)
            by_token = await browser.get("/api/keys", headers={"Authorization": f"Bearer {bearer}", "Cookie": ""})
            assert by_token.status_code == status
            person, client = await session_of(browser), await tokens.caller(bearer)
            assert person.principal == client.principal == f"{provider.issuer}|{login}"
            assert person.groups == client.groups == {f"of-{login}"}
            assert (await browser.submit("/logout")).headers["location"] == "/login"
            left = await browser.get("/login")  # which asks, and sends nobody back to the issuer
            assert left.status_code == 401
            assert 'name="key"' in left.text
            assert f"Log in with {urlsplit(provider.issuer).netloc}" in left.text


async def test_what_is_asked_of_the_issuer(open_console: Open, provider: Provider) -> None:
    tokens = tokens_of(provider.issuer, by=Client("public"))
    async with open_console(add, identify=Authenticator(tokens=[tokens])) as browser:
        url = await begun(browser)
        query = query_of(url)
        secrets = {query.pop(name) for name in ("state", "nonce", "code_challenge")}
        assert len(secrets) == 3
        assert query == {
            "response_type": "code",
            "client_id": "public",
            "redirect_uri": CALLBACK,
            "scope": "openid groups",
            "code_challenge_method": "S256",
        }
        cookie = next(cookie for cookie in browser.cookies.jar if cookie.name == "toolcrib-8642-login")
        assert cookie.has_nonstandard_attr("HttpOnly")
        assert cookie.get_nonstandard_attr("SameSite") == "lax"
        assert 0 < cookie.expires - time.time() <= 600
        assert not any(secret in (cookie.value or "") for secret in secrets)
        page = await browser.get("/login")
        assert 'name="key"' not in page.text
        assert (await browser.get(await granted(provider, url))).status_code == 303


async def test_under_a_path_and_a_public_address(open_console: Open, tmp_path: Path) -> None:
    base_url = f"{BASE_URL}/crib"
    provider = Provider(redirect=f"{base_url}/console/callback")
    try:
        identify = Authenticator(tokens=[tokens_of(provider.issuer)])
        async with open_console(add, identify=identify) as browser:
            host = Starlette(routes=[Mount("/crib", browser.app)])  # type: ignore[attr-defined]
            async with Browser(host, base_url) as mounted:
                back = await granted(provider, await begun(mounted, "/tools"))
                entered = await mounted.get(back)
                assert (entered.status_code, entered.headers["location"]) == (303, "/crib/tools")
    finally:
        provider.close()


async def test_scopes_that_tokens_must_have_are_asked_for_and_missed(open_console: Open, provider: Provider) -> None:
    for scopes, status in ((["read"], 303), (["read", "admin"], 403)):
        identify = Authenticator(tokens=[tokens_of(provider.issuer, scopes=scopes)])
        async with open_console(add, identify=identify) as browser:
            url = await begun(browser)
            assert query_of(url)["resource"] == AUDIENCE
            entered = await browser.get(await granted(provider, url))
            assert entered.status_code == status, entered.text


async def test_a_login_counts_in_its_browser_once_and_for_ten_minutes(
    open_console: Open, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_console(add, identify=Authenticator(tokens=[tokens_of(provider.issuer)])) as browser:
        back = await granted(provider, await begun(browser))
        login = {"Cookie": f"toolcrib-8642-login={browser.cookies['toolcrib-8642-login']}"}
        async with Browser(browser.app) as other:  # type: ignore[attr-defined]
            await begun(other)  # a login of their own, which an attacker's address is not of
            assert_refused(await other.get(back), 400)
            assert "toolcrib-8642" not in other.cookies
        async with Browser(browser.app, "http://127.0.0.1:9000") as elsewhere:  # type: ignore[attr-defined]
            moved = {"Cookie": login["Cookie"].replace("8642", "9000")}
            assert_refused(await elsewhere.get(back.replace("8642", "9000"), headers=moved), 400)
        answers = await asyncio.gather(*(browser.get(back, headers=login) for _ in range(3)))
        assert sorted(answer.status_code for answer in answers) == [303, 400, 400]
        monkeypatch.setattr(sessions_module, "FLOW_AGE", timedelta(seconds=-1))
        async with Browser(browser.app) as late:  # type: ignore[attr-defined]
            assert_refused(await late.get(await granted(provider, await begun(late))), 400)


async def test_who_denies_at_the_issuer_is_not_let_in(open_console: Open, provider: Provider) -> None:
    async with open_console(add, identify=Authenticator(tokens=[tokens_of(provider.issuer)])) as browser:
        back = await granted(provider, await begun(browser), deny=True)
        assert query_of(back)["error"] == "access_denied"
        answer = await browser.get(back)
        assert_refused(answer, 403)
        assert "access_denied" in answer.text


async def test_a_code_of_another_login_lets_nobody_in(open_console: Open, provider: Provider) -> None:
    """Code injection: the code that an attacker was given is of another verifier and nonce."""
    async with open_console(add, identify=Authenticator(tokens=[tokens_of(provider.issuer)])) as browser:
        async with Browser(browser.app) as attacker:  # type: ignore[attr-defined]
            theirs = query_of(await granted(provider, await begun(attacker), login="mallory"))
        own = query_of(await granted(provider, await begun(browser)))
        answer = await browser.get(f"{CALLBACK}?{urlencode({**own, 'code': theirs['code']})}")
        assert_refused(answer, 401)


@pytest.mark.parametrize("iss", ["https://evil.example", ""])
async def test_an_answer_of_another_issuer_is_refused_before_its_code_is_sent_anywhere(
    open_console: Open, provider: Provider, iss: str
) -> None:
    async with open_console(add, identify=Authenticator(tokens=[tokens_of(provider.issuer)])) as browser:
        own = query_of(await granted(provider, await begun(browser)))
        arrived = provider.counts()["arrived"]
        answer = await browser.get(f"{CALLBACK}?{urlencode({**own, 'iss': iss})}")
        assert_refused(answer, 401)
        assert provider.counts()["arrived"] == arrived


def assert_refused(answer: Any, status: int) -> None:
    """The page says no, names the way out, and quotes neither what came nor a secret."""
    assert answer.status_code == status, answer.text
    assert "<h1>Not let in</h1>" in answer.text
    assert "Log in again" in answer.text or "Ask the operator" in answer.text or "Try again" in answer.text
    for name, value in query_of(str(answer.request.url)).items():
        assert name == "error" or len(value) < 8 or value not in answer.text
    assert SECRET not in answer.text
    assert "toolcrib-8642=" not in answer.headers.get("set-cookie", "")


# At one whose answers can be anything


@pytest.mark.parametrize(
    "wrong",
    [
        {"aud": "another-client"},
        {"aud": AUDIENCE},
        {"aud": ["web", "other"], "azp": "other"},
        {"nonce": "of-another-login"},
        {"nonce": None},
        {"exp": 1},
        {"exp": None},
        {"iss": "https://evil.example"},
        {"sub": ""},
        {"key": NEW},
        {"key": OctKey.import_key(SECRET), "header": {"kid": "ec"}},
    ],
)
async def test_an_id_token_that_is_not_of_this_login_lets_nobody_in(
    open_console: Open, issuer: Issuer, wrong: Mapping[str, Any]
) -> None:
    async with open_console(add, identify=Authenticator(tokens=[tokens_of(issuer.url)])) as browser:
        for claims, status in ((wrong, 401), ({}, 303)):
            asked = query_of(await begun(browser))
            expected: dict[str, Any] = {"aud": "web", "header": {"typ": "JWT"}, "nonce": asked["nonce"]}
            token = issuer.token(**{**expected, **claims})
            issuer.answer = {"access_token": "a" * 20, "token_type": "Bearer", "id_token": token}
            answer = await browser.get(f"{CALLBACK}?code=some-code&state={asked['state']}")
            if status == 303:
                assert answer.status_code == 303, answer.text
            else:
                assert_refused(answer, status)
                assert token.split(".")[1] not in answer.text


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"access_token": "a" * 20, "token_type": "Bearer"}, 401),
        ({"access_token": "a" * 20, "token_type": "Bearer", "id_token": 5}, 401),
        ({"error": "invalid_grant", "error_description": "<script>secret"}, 401),
        ({"error": "invalid_client", "error_description": "<script>secret"}, 502),
        (["<script>secret"], 502),
    ],
)
async def test_what_an_issuer_answers_is_not_shown(
    open_console: Open, issuer: Issuer, answer: Any, status: int
) -> None:
    async with open_console(add, identify=Authenticator(tokens=[tokens_of(issuer.url)])) as browser:
        issuer.answer = answer
        shown = await browser.get(f"{CALLBACK}?code=some-code&state={query_of(await begun(browser))['state']}")
        assert_refused(shown, status)
        assert "secret" not in shown.text
        state = query_of(await begun(browser))["state"]
        shown = await browser.get(f"{CALLBACK}?error=%3Cscript%3Esecret&state={state}")
        assert_refused(shown, 403)
        assert "secret" not in shown.text


async def test_an_issuer_that_cannot_be_reached_is_named(open_console: Open, issuer: Issuer) -> None:
    issuer.is_down = True
    async with open_console(add, identify=Authenticator(tokens=[tokens_of(issuer.url)])) as browser:
        assert "Log in with" in (await browser.get("/")).text
        answer = await browser.get(f"/login?{urlencode({'issuer': issuer.url})}")
        assert_refused(answer, 503)
        other = await browser.get("/login?issuer=https%3A%2F%2Fevil.example")
        assert other.status_code == 404
        assert "location" not in other.headers
    issuer.is_down, issuer.fails = False, "/token"
    async with open_console(add, identify=Authenticator(tokens=[tokens_of(issuer.url)])) as browser:
        state = query_of(await begun(browser))["state"]
        assert_refused(await browser.get(f"{CALLBACK}?code=some-code&state={state}"), 502)


@pytest.mark.parametrize(
    "to",
    ["//evil.example", "/\\evil.example", "https://evil.example", "/\t/evil.example", "tools", "", "/" + "a" * 600],
)
async def test_a_login_leads_to_no_address_of_others(
    open_console: Open, issuer: Issuer, tmp_path: Path, to: str
) -> None:
    store = Store(tmp_path / "console.db")
    keys = AccessKeys(store)
    text, _ = await keys.add("alice")
    identify = Authenticator(keys, [tokens_of(issuer.url)])
    async with open_console(crib=Crib([add], store=store), identify=identify) as browser:
        sent = await browser.get("/login", params={"issuer": issuer.url, "to": to})
        asked = query_of(sent.headers["location"])
        token = issuer.token(aud="web", header={"typ": "JWT"}, nonce=asked["nonce"])
        issuer.answer = {"access_token": "a" * 20, "token_type": "Bearer", "id_token": token}
        entered = await browser.get(f"{CALLBACK}?code=some-code&state={asked['state']}")
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        await browser.submit("/logout")
        entered = await browser.post("/login", data={"key": text, "to": to})
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        assert (await browser.get("/login", params={"issuer": issuer.url, "to": to})).headers["location"] == "/"


async def test_wrong_codes_are_counted_by_address(
    open_console: Open, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.serve.access.throttle.AGAIN_S", 3600.0)  # no further try, however slow this is
    issuer.answer = {"error": "invalid_grant"}
    async with open_console(add, identify=Authenticator(tokens=[tokens_of(issuer.url)])) as browser:
        statuses = []
        for _ in range(21):
            state = query_of(await begun(browser))["state"]
            statuses.append((await browser.get(f"{CALLBACK}?code=guessed&state={state}")).status_code)
        assert statuses == [*[401] * 20, 429]


async def test_a_session_ends_where_the_server_has_its_issuer_no_more(
    open_console: Open, issuer: Issuer, tmp_path: Path
) -> None:
    store = Store(tmp_path / "console.db")
    session = await Sessions(store).begin(Caller(f"{issuer.url}|alice"), BASE_URL, by=issuer.url)
    headers = {"Cookie": f"toolcrib-8642={session}"}
    for identify, status in (
        (Authenticator(tokens=[tokens_of(issuer.url)]), 200),
        (Authenticator(tokens=[tokens_of(issuer.url, by=None)]), 401),
        (Authenticator(AccessKeys(store)), 401),
    ):
        async with open_console(crib=Crib([add], store=store), identify=identify) as browser:
            assert (await browser.get("/tools", headers=headers)).status_code == status


async def test_over_https_the_cookie_is_of_this_host_alone(open_console: Open, issuer: Issuer) -> None:
    async with open_console(add, identify=Authenticator(tokens=[tokens_of(issuer.url)])) as browser:
        sent = await browser.get("https://127.0.0.1/login", params={"issuer": issuer.url})
        cookie = sent.headers["set-cookie"]
        assert cookie.startswith("__Host-toolcrib-443-login=")
        assert {"Secure", "Path=/", "HttpOnly", "SameSite=lax", "Max-Age=600"} <= set(cookie.split("; "))


def test_an_issuer_that_a_secret_cannot_be_sent_to_is_refused() -> None:
    with pytest.raises(SetupError, match="begins with https://"):
        tokens_of("http://id.example.com")


# In a browser


@pytest.mark.full
def test_a_person_logs_in_and_out_in_a_browser(tmp_path: Path) -> None:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed")
    port = free_port()
    base_url = f"http://127.0.0.1:{port}"
    provider = Provider(redirect=f"{base_url}/console/callback")
    (tmp_path / "toolcrib.toml").write_text(
        f"""
        [store]
        url = "store.db"
        [net]
        allow = ["127.0.0.1"]
        [server]
        port = {port}
        issuer = "{provider.issuer}"
        audience = "{base_url}/mcp"
        client_id = "web"
        client_secret = "${{env:CLIENT_SECRET}}"
        """
    )
    command = [sys.executable, "-m", "toolcrib", "serve", "toolcrib.demo"]
    environ = {**os.environ, "CLIENT_SECRET": SECRET}
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environ) as server,
        sync_playwright() as playwright,
    ):
        try:
            while "The console: " not in (line := server.stderr.readline()):
                assert line
            page = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"]).new_page()
            page.set_default_timeout(60_000)
            page.goto(f"{base_url}/tools?q=now")
            for is_first in (True, False):
                page.get_by_role("link", name=f"Log in with 127.0.0.1:{urlsplit(provider.issuer).port}").click()
                if is_first:
                    page.locator("input[name=login]").fill("alice")
                    page.locator("input[name=password]").fill("any")
                    page.locator("button[type=submit]").click()
                    page.locator("button[type=submit]").click()
                page.get_by_text(f"{provider.issuer}|alice").wait_for()
                assert page.url == f"{base_url}/{'tools?q=now' if is_first else ''}"
                page.get_by_role("button", name="Log out").click()
                page.wait_for_url(f"{base_url}/login")
        finally:
            server.terminate()
            provider.close()
