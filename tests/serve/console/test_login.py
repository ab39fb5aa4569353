"""Who may enter the console, and whose requests it takes."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from toolcrib import Caller, Crib, SetupError, tool
from toolcrib.serve import AuthenticationError, Authenticator, asgi_app
from toolcrib.serve.access.keys import AccessKeys
from toolcrib.serve.console import Sessions
from toolcrib.serve.console import sessions as sessions_module
from toolcrib.store import Store

from .conftest import BASE_URL, Browser, Open, fields_of


@tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


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
    def identify(headers: Mapping[str, str]) -> Caller:
        if "user" not in headers:
            raise AuthenticationError("Log in at the host.", None)
        return Caller(headers["user"])

    async with open_console(add, identify=identify) as browser:
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
    from starlette.applications import Starlette
    from starlette.routing import Mount

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
