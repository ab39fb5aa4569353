"""People who log in to the console at an issuer: npm's `oidc-provider`, and one that sends what it should not."""

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
from starlette.routing import Mount

from toolcrib import Caller, Crib, SetupError, tool
from toolcrib.auth import Client, Flow
from toolcrib.auth.catalogue import OAuth2
from toolcrib.serve import Authenticator
from toolcrib.serve.access.keys import AccessKeys
from toolcrib.serve.access.tokens import AccessTokens
from toolcrib.serve.console import Sessions
from toolcrib.serve.console import sessions as sessions_module
from toolcrib.store import Store
from toolcrib.workbench import Role

from ...auth.oidc.conftest import SECRET, Provider
from ...ports import free_port
from ..issuer import NEW, Issuer
from .conftest import BASE_URL, Browser, Open

AUDIENCE = f"{BASE_URL}/mcp"
CALLBACK = f"{BASE_URL}/console/callback"
WEB = Client("web", SECRET)


@tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


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
    assert session is not None
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
        assert cookie.expires is not None
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


async def test_wrong_codes_are_counted_by_address(open_console: Open, issuer: Issuer) -> None:
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
            assert server.stderr is not None
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
