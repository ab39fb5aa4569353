"""The pages that providers send people back to, and the form for secrets: a real server, a loopback provider."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from toolcrib import Caller, Context, Crib, Pending, Secret, ToolAuth, tool
from toolcrib.auth import Client, CredentialBroker, Provider
from toolcrib.core import Credential
from toolcrib.serve import Authenticator, asgi_app, callback_app
from toolcrib.serve.access.keys import AccessKeys
from toolcrib.store import Store

from .serving import running, served

ADA, BOB = Caller("ada"), Caller("bob")
CODE = "code-of-the-provider"
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
HEADERS = {
    "content-security-policy": "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
}


@tool(auth=ToolAuth("example", scopes=["read"]))
def read(context: Context) -> str:
    return context.caller.principal


@tool(auth=Secret("SHOP_KEY"))
def shop(context: Context) -> int:
    return len(context.credentials["SHOP_KEY"].secret)


@tool(auth=ToolAuth("example", "basic"))
def login(context: Context) -> str:
    return context.credentials["example"].secret.partition(":")[0]


@tool(auth=ToolAuth("example", "keypair"))
def pair(context: Context) -> str:
    return context.credentials["example"].secret.partition(":")[0]


@tool(auth=ToolAuth("example", "token"))
def key(context: Context) -> int:
    return len(context.credentials["example"].secret)


@tool(auth=Secret(EVIL))
def evil() -> None:
    return None


@dataclass
class Site:
    """A crib whose authorization pages are served at *url*."""

    crib: Crib
    url: str
    now: list[datetime]
    exchanged: list[str]
    browser: httpx2.AsyncClient = field(default_factory=lambda: httpx2.AsyncClient(trust_env=False))

    async def ask(self, name: str = "read", caller: Caller = ADA) -> Pending:
        """What a call of *caller* waits for."""
        result = await self.crib.workbench(caller).call(name)
        assert result.pending is not None, result.text
        return result.pending

    async def answer(self, url: str | None, path: str = "/auth/callback/example", **query: str) -> httpx2.Response:
        """What the browser of somebody gets who has granted what *url* asks for."""
        state = parse_qs(urlsplit(url or "").query)["state"][0]
        return await self.browser.get(f"{self.url}{path}?{urlencode({'state': state, 'code': CODE, **query})}")


async def ran(site: Site, name: str = "read", caller: Caller = ADA) -> Any:
    result = await site.crib.workbench(caller).call(name)
    return result.value if result.status == "success" else result.status


Mount = Callable[[Crib], Any]
Identify = Callable[[Mapping[str, str]], Any]


@asynccontextmanager
async def site(mount: Mount = callback_app, path: str = "", secret: str = "a secret") -> AsyncIterator[Site]:
    exchanged: list[str] = []

    async def token(request: Request) -> Response:
        body = parse_qs((await request.body()).decode())
        exchanged.append(body["code"][0])
        if body["code"][0] != CODE:
            return JSONResponse({"error": EVIL, "error_description": EVIL}, 400)
        return JSONResponse({"access_token": "token-of-the-provider", "scope": "read"})

    now = [datetime.now(UTC)]
    async with running(Starlette(routes=[Route("/token", token, methods=["POST"])])) as provider:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        table = Provider.model_validate(
            {
                "title": EVIL,
                "source": "https://example.com",
                "checked": date(2026, 1, 1),
                "oauth2": {"authorize_url": "https://provider.example/authorize", "token_url": f"{provider}/token"},
                "basic": {},
                "keypair": {},
                "token": {},
            }
        )
        broker = CredentialBroker(
            clients={"example": Client("id", secret)},
            catalogue={"example": table},
            redirect_uri=f"http://127.0.0.1:{port}{path}/auth/callback",
            form_uri=f"http://127.0.0.1:{port}{path}/auth/secret",
            allow=["127.0.0.1"],
            clock=lambda: now[0],
        )
        async with Crib([read, shop, login, pair, key, evil], broker=broker) as crib, running(mount(crib), port) as url:
            made = Site(crib, url, now, exchanged)
            async with made.browser:
                yield made


def require_safe(response: httpx2.Response, status: int) -> str:
    """The text of a page that shows nothing but text, and has all headers."""
    assert response.status_code == status, response.text
    assert {name: response.headers.get(name) for name in HEADERS} == HEADERS
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "location" not in response.headers
    assert not re.search(r"<script|<img|onerror=alert\(1\)>", response.text)
    assert CODE not in response.text
    return re.sub(r"<[^>]*>", "", response.text)


async def test_what_is_granted_runs_and_an_answer_is_taken_once() -> None:
    async with site() as made:
        asked = await made.ask()
        waiting = asyncio.create_task(made.crib.wait_for(asked, timeout_s=60))
        assert "Granted" in require_safe(await made.answer(asked.url), 200)
        assert await waiting
        assert await ran(made) == "ada"
        assert await ran(made, caller=BOB) == "pending"
        assert "is not known, or has expired" in require_safe(await made.answer(asked.url), 400)
        assert made.exchanged == [CODE]


async def test_two_answers_at_once_are_one() -> None:
    async with site() as made:
        asked = await made.ask()
        pages = await asyncio.gather(*(made.answer(asked.url) for _ in range(8)))
        assert sorted(page.status_code for page in pages) == [200] + [400] * 7
        assert made.exchanged == [CODE]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"error": "access_denied"}, "granted nothing. Call the tool again"),
        ({"error": EVIL, "error_description": EVIL}, "granted nothing"),
        ({"code": ""}, "granted nothing"),
        ({"code": "another"}, "refused"),
        ({"code": EVIL}, "refused"),
    ],
)
async def test_what_is_not_granted_ends_that_question_and_the_next_call_asks_anew(
    query: dict[str, str], text: str
) -> None:
    async with site() as made:
        asked = await made.ask()
        assert text in require_safe(await made.answer(asked.url, **query), 400)
        assert not await made.crib.wait_for(asked)
        assert await made.crib.pendings() == []
        assert await ran(made) == "pending"
        assert (await made.ask()).url != asked.url
        assert "is not known" in require_safe(await made.answer(asked.url), 400)


async def test_an_answer_that_comes_too_late_is_refused() -> None:
    async with site() as made:
        asked = await made.ask()
        made.now[0] += timedelta(hours=1)
        assert "is not known, or has expired" in require_safe(await made.answer(asked.url), 400)
        assert made.exchanged == []


async def test_a_state_that_nobody_was_given_completes_nothing() -> None:
    states = ("", "%00", ".*", "..%2f", "%ff%fe", "%ED%A0%80", "%3Cscript%3Ealert(1)%3C/script%3E", "a" * 30_000)
    queries = ("", "?code=x", f"?{'a=b&' * 7_000}", "?state=a&state=b", *(f"?state={of}" for of in states))
    async with site() as made:
        await made.ask()
        for path in ("/auth/callback", "/auth/callback/example", "/auth/secret"):
            for query in queries:
                require_safe(await made.browser.get(f"{made.url}{path}{query}"), 400)
        assert made.exchanged == []


async def test_other_methods_and_paths_use_nothing_up() -> None:
    async with site() as made:
        asked = await made.ask()
        answered = f"{made.url}/auth/callback/example?{urlsplit(asked.url or '').query}&code={CODE}"
        for method in ("HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"):
            assert (await made.browser.request(method, answered)).status_code == 405
        for path in ("/auth/callback/", "//evil.example/auth/callback/example", "/auth/callback/example/", "/"):
            response = await made.browser.get(
                answered.replace("/auth/callback/example", path, 1), headers={"Host": "evil.example"}
            )
            assert (response.status_code, "location" in response.headers) == (404, False)
        for extra in ("next", "redirect_uri", "return_to", "url"):
            page = await made.browser.get(f"{made.url}/auth/callback?{extra}=https://evil.example")
            assert "evil" not in require_safe(page, 400)
        assert made.exchanged == []
        # Whatever host the request names.
        page = await made.browser.get(answered, headers={"Host": "[evil"})
        assert (page.status_code, made.exchanged) in ((400, []), (200, [CODE]))


# The form for secrets


async def opened(made: Site, name: str = "shop", browser: httpx2.AsyncClient | None = None) -> tuple[str, str]:
    """The address of the form, and its token."""
    asked = await made.ask(name)
    page = await (browser or made.browser).get(asked.url)
    require_safe(page, 200)
    found = re.search(r'name="token" value="([\w-]{43})"', page.text)
    return asked.url, found[1]


async def test_a_secret_that_is_entered_is_the_callers() -> None:
    async with site() as made:
        url, token = await opened(made)
        page = await made.browser.post(url, data={"token": token, "secret": " hush-hush "})
        assert "Saved" in require_safe(page, 200)
        assert "hush" not in page.text
        assert (await ran(made, "shop"), await ran(made, "shop", BOB)) == (9, "pending")
        page = await made.browser.post(url, data={"token": token, "secret": "another"})
        require_safe(page, 400)
        assert await ran(made, "shop") == 9


async def test_a_form_of_another_site_or_browser_is_refused() -> None:
    async with site() as made, httpx2.AsyncClient(trust_env=False) as other:
        url, token = await opened(made)
        _, others = await opened(made, browser=other)
        for browser, data in [
            (made.browser, {}),
            (made.browser, {"token": ""}),
            (made.browser, {"token": "x" * 43}),
            (made.browser, {"token": "ä\udc80".encode(errors="surrogateescape").decode("latin-1")}),
            (made.browser, {"token": others}),
            (other, {"token": token}),
        ]:
            page = await browser.post(url, data={**data, "secret": "hush-hush"})
            text = "This form was opened in another browser, or has expired. Open the address again."
            assert require_safe(page, 403).endswith(f"Not saved{text}\n")
        async with httpx2.AsyncClient(trust_env=False) as nobody:
            require_safe(await nobody.post(url, data={"token": token, "secret": "hush-hush"}), 403)
            require_safe(await nobody.post(url, data={"token": "", "secret": "hush-hush"}), 403)
        assert await ran(made, "shop") == "pending"


async def test_the_cookie_of_the_form_is_for_it_alone() -> None:
    async with site() as made:
        asked = await made.ask("shop")
        cookie = (await made.browser.get(asked.url)).headers["set-cookie"]
        parts = {part.strip().lower().partition("=")[0]: part.strip() for part in cookie.split(";")}
        assert {"httponly", "samesite", "path"} <= set(parts)
        assert (parts["samesite"].lower(), parts["path"]) == ("samesite=strict", "Path=/auth/secret")
        assert "secure" not in parts
        made.crib.credentials.broker.form_uri = "https://crib.example/auth/secret"  # behind a proxy that ends TLS
        assert "secure" in (await made.browser.get(asked.url)).headers["set-cookie"].lower()


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 403),
        (b"\xff\xfe=\x00", 400),
        (b"a=" + b"b" * (64 * 1024 - 2), 403),
        (b"a=" + b"b" * (64 * 1024 - 1), 413),
        (b"a=b&" * 20_000, 413),
        (b'{"token": "x"}', 403),
    ],
    ids=["empty", "bytes", "longest", "too long", "many", "json"],
)
async def test_a_body_that_is_not_the_forms_saves_nothing(content: bytes, status: int) -> None:
    async with site() as made:
        url, _ = await opened(made)
        require_safe(await made.browser.post(url, content=content), status)
        assert await ran(made, "shop") == "pending"


async def test_a_secret_that_could_not_be_redacted_is_not_saved_and_the_form_can_be_sent_again() -> None:
    async with site() as made:
        url, token = await opened(made)
        for secret, status in (("", 400), ("   ", 400), ("abc", 400), ("\r\n", 400), ("hush-hush", 200)):
            require_safe(await made.browser.post(url, data={"token": token, "secret": secret}), status)
        assert await ran(made, "shop") == 9
        url, token = await opened(made, "login")
        page = await made.browser.post(url, data={"token": token, "secret": "only-a-name"})
        assert "user:password" in require_safe(page, 400)


async def test_each_kind_of_secret_is_asked_for_in_its_words() -> None:
    async with site() as made:
        for name, words, label, secret, value in [
            ("shop", "Tools need the secret SHOP_KEY.", "SHOP_KEY", "hush-hush", 9),
            ("login", "Tools need your user name and password for ", "user:password", "ada:hush", "ada"),
            ("pair", "Tools need your key and its secret for ", "key:secret", "my-key:hush-hush", "my-key"),
            ("key", "Tools need your key for ", "Key", "hush-hush", 9),
        ]:
            url = (await made.ask(name)).url or ""
            page = await made.browser.get(url)
            shown = require_safe(page, 200)
            assert (words in shown, f"{label} \n" in shown) == (True, True)
            token = re.findall(r'name="token" value="([^"]+)"', page.text)[0]
            if label == "key:secret":
                require_safe(await made.browser.post(url, data={"token": token, "secret": "only-a-key"}), 400)
            require_safe(await made.browser.post(url, data={"token": token, "secret": secret}), 200)
            assert await ran(made, name) == value


async def test_what_is_shown_is_text_whatever_it_is() -> None:
    async with site() as made:
        for name in ("evil", "login"):
            await opened(made, name)
        url, _ = await opened(made, "evil")
        require_safe(await made.browser.get(url.replace("state=", f"state={EVIL}")), 400)
        asked = await made.ask("read")
        address = (asked.url or "").replace("https://provider.example/authorize", f"{made.url}/auth/secret")
        require_safe(await made.browser.get(address), 404)


# Who is at the browser


async def by_cookie(headers: Mapping[str, str]) -> Caller:
    return Caller(headers["cookie"].removeprefix("session=of-"))


async def test_nobody_completes_what_somebody_else_has_begun() -> None:
    async with site(lambda crib: callback_app(crib, by_cookie)) as made:
        asked, secret = await made.ask(), await made.ask("shop")
        for headers, status in ((None, 401), ({"Cookie": "session=of-bob"}, 403)):
            made.browser.headers = httpx2.Headers(headers)
            require_safe(await made.answer(asked.url), status)
            require_safe(await made.browser.get(secret.url or ""), status)
            require_safe(await made.browser.post(secret.url or "", data={"secret": "of-eve"}), status)
        assert made.exchanged == []
        made.browser.headers = httpx2.Headers({"Cookie": "session=of-ada"})
        require_safe(await made.answer(asked.url), 200)
        assert (await ran(made), await ran(made, caller=BOB)) == ("ada", "pending")


@pytest.mark.parametrize("returned", [None, "ada", {"principal": "ada"}, KeyError("x"), ValueError(EVIL)], ids=repr)
async def test_an_identify_that_knows_nobody_lets_nobody_in(returned: Any, caplog: pytest.LogCaptureFixture) -> None:
    def identify(headers: Mapping[str, str]) -> Any:
        if isinstance(returned, Exception):
            raise returned
        return returned

    async with site(lambda crib: callback_app(crib, identify)) as made:
        asked = await made.ask()
        require_safe(await made.answer(asked.url), 401)
        assert made.exchanged == []
        assert "No caller could be identified" in caplog.text


def with_codes(crib: Crib) -> Any:
    crib.credentials.broker.browser_codes = True
    return callback_app(crib)


async def test_a_secret_is_taken_with_the_code_that_was_shown_where_it_was_asked_for() -> None:
    """The attacker has the link of somebody else, and would have their tools use a key of his."""
    async with site(with_codes) as made:
        asked = await made.ask("shop")
        page = await made.browser.get(asked.url or "")
        shown = require_safe(page, 200)
        assert ("It is for ada, whose tools" in shown, asked.message[-9:] in page.text) == (True, False)
        (token,) = re.findall(r'name="token" value="([^"]+)"', page.text)
        other = (await made.ask("shop", BOB)).message[-9:]
        for code in (None, "", other, f"{asked.message[-9:]}X", EVIL, "\udc80".encode(errors="surrogatepass")):
            entered = {"token": token, "secret": "of-eve-123"} | ({} if code is None else {"code": code})
            page = await made.browser.post(asked.url or "", data=entered)
            assert page.status_code in (400, 403)
            assert await ran(made, "shop") == "pending"
        entered = {"token": token, "secret": "hush-hush", "code": f" {asked.message[-9:].lower()} "}
        require_safe(await made.browser.post(asked.url or "", data=entered), 200)
        assert (await ran(made, "shop"), await ran(made, "shop", BOB)) == (9, "pending")


async def test_the_cookie_of_a_code_is_of_one_authorization_and_over_https_of_this_host() -> None:
    """The attacker has a page of his own on a host beside, which sets cookies for both; or an older cookie."""
    async with site(with_codes) as made:
        cookies = []
        for caller, base in ((ADA, made.url), (BOB, "https://crib.example")):
            made.crib.credentials.broker.form_uri = f"{base}/auth/secret"
            asked = await made.ask(caller=caller)
            address = (asked.url or "").replace(base, made.url)
            page = await made.browser.get(address)
            (token,) = re.findall(r'name="token" value="([^"]+)"', page.text)
            headers = {"Cookie": f"toolcrib_form={token}"}
            page = await made.browser.post(address, data={"token": token, "code": asked.message[-9:]}, headers=headers)
            assert "Continue to" in require_safe(page, 200)
            cookies.append(page.headers["set-cookie"])
            made.browser.cookies.clear()
            mark = {"Cookie": cookies[0].partition(";")[0]}
            answered = f"{made.url}/auth/callback/example?{urlsplit(address).query}&code={CODE}"
            assert (await made.browser.get(answered, headers=mark)).status_code == (200 if caller == ADA else 403)
        names = [cookie.partition("pending_")[0] for cookie in cookies]
        assert names == ["toolcrib_", "__Host-toolcrib_"]
        assert [cookie.lower().endswith("; secure") for cookie in cookies] == [False, True]
        assert all("; HttpOnly; Max-Age=600; Path=/; SameSite=lax" in cookie for cookie in cookies)


# Where it is mounted


def in_fastapi(crib: Crib) -> Any:
    from fastapi import FastAPI

    app = FastAPI()

    @app.get("/hello")
    def hello() -> str:
        return "hello"

    app.mount("/", callback_app(crib))
    return app


def under_a_path(crib: Crib) -> Any:
    app = Starlette(routes=[Route("/hello", lambda request: PlainTextResponse("hello"))])
    app.mount("/tools", callback_app(crib))
    return app


@pytest.mark.parametrize(("mount", "path"), [(in_fastapi, ""), (under_a_path, "/tools")])
async def test_it_is_a_part_of_an_application(mount: Mount, path: str) -> None:
    async with site(mount, path) as made:
        assert "hello" in (await made.browser.get(f"{made.url}/hello")).text
        require_safe(await made.answer((await made.ask()).url, f"{path}/auth/callback/example"), 200)
        url, token = await opened(made)
        require_safe(await made.browser.post(url, data={"token": token, "secret": "hush-hush"}), 200)
        assert (await ran(made), await ran(made, "shop")) == ("ada", 9)


async def test_the_server_has_the_pages() -> None:
    broker = CredentialBroker(catalogue={}, secrets={})
    crib = Crib([shop], broker=broker)
    async with served(crib) as url, httpx2.AsyncClient(trust_env=False) as browser:
        base_url = url.removesuffix("/mcp")
        assert broker.redirect_uri == f"{base_url}/auth/callback"
        asked = (await crib.workbench().call("shop")).pending
        assert asked.url.startswith(f"{base_url}/auth/secret?state=")
        page = await browser.get(asked.url)
        token = re.search(r'name="token" value="([^"]+)"', require_page(page))
        require_safe(await browser.post(asked.url, data={"token": token[1], "secret": "hush-hush"}), 200)
        assert (await crib.workbench().call("shop")).value == 9
        require_safe(await browser.get(f"{base_url}/auth/callback"), 400)
        assert (await browser.get(f"{base_url}/auth/callback/")).status_code == 404


async def test_the_server_lets_nobody_complete_what_another_of_its_callers_has_begun() -> None:
    crib = Crib([shop], broker=CredentialBroker(catalogue={}))
    async with served(crib, by_cookie):
        asked = (await crib.workbench(ADA).call("shop")).pending
        for session, status in ((None, 401), ("of-bob", 403), ("of-ada", 200)):
            cookies = {} if session is None else {"session": session}
            async with httpx2.AsyncClient(trust_env=False, cookies=cookies) as browser:
                require_safe(await browser.get(asked.url or ""), status)
                if session == "of-bob":
                    require_safe(await browser.post(asked.url or "", data={"secret": "of-bob"}), 403)


async def test_a_browser_sends_no_key_to_a_server_that_needs_one(tmp_path: Path) -> None:
    """The second case is a program that gives the broker one address of the two."""
    store = Store(tmp_path / "store.db")
    own = "http://127.0.0.1/tools/auth/callback"
    for broker, base_url in (
        (CredentialBroker(catalogue={}), "http://127.0.0.1"),
        (CredentialBroker(catalogue={}, redirect_uri=own), None),
    ):
        crib = Crib([shop], broker=broker)
        app = asgi_app(crib, Authenticator(AccessKeys(store)), base_url=base_url)
        async with app.lifespan():
            asked = (await crib.workbench(ADA).call("shop")).pending
            assert "The page asks for the code" in asked.message
            assert (asked.url or "").partition("/auth/secret?")[0] == broker.redirect_uri.removesuffix("/auth/callback")
            address = (asked.url or "").replace("/tools", "")
            async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as browser:
                assert "for <strong>ada</strong>" in require_page(await browser.get(address))
    store.close()


async def test_the_server_has_no_pages_for_a_broker_that_has_its_own() -> None:
    class Keys:
        async def authorize(self, *_: Any) -> list[Credential]:
            return [Credential("SHOP_KEY", "key-of-the-shop")]

    crib = Crib([shop], broker=Keys())
    async with served(crib) as url, httpx2.AsyncClient(trust_env=False) as browser:
        base_url = url.removesuffix("/mcp")
        assert (await browser.get(f"{base_url}/auth/secret")).status_code == 404
        assert (await crib.workbench().call("shop")).value == len("key-of-the-shop")


def require_page(page: httpx2.Response) -> str:
    require_safe(page, 200)
    return page.text


async def test_an_error_of_the_store_is_not_shown_to_whoever_comes(caplog: pytest.LogCaptureFixture) -> None:
    from toolcrib.core import StoreError

    async with site() as made:
        asked = await made.ask()

        async def fails(*_: Any, **__: Any) -> Any:
            raise StoreError("The database /srv/private/store.db is locked")

        vault = made.crib.credentials.broker.vault
        broken = type("Broken", (type(vault),), {"find": fails})()
        made.crib.credentials.broker.vault = broken
        text = require_safe(await made.answer(asked.url), 503)
        assert "private" not in text
        assert "private" in caplog.text
