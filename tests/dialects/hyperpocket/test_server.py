"""The callback server: when it runs, where it listens, and what its pages do."""

import socket
import ssl
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx2
import pytest

from toolcrib import SetupError
from toolcrib.dialects.hyperpocket import Pocket
from toolcrib.dialects.hyperpocket.auth import AuthProvider
from toolcrib.dialects.hyperpocket.server import start_callback_server, stop_callback_server
from toolcrib.dialects.hyperpocket.tool import ToolAuth, from_func, function_tool

from ...ports import free_port
from .conftest import Settings

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}


@pytest.fixture
def port(settings: Settings) -> Iterator[int]:
    """The port of a server that is reached by plain HTTP; it is stopped afterwards."""
    port = free_port()
    settings(
        f'internal_server_port = {port}\npublic_server_port = {port}\npublic_server_protocol = "http"\n'
        'public_hostname = "127.0.0.1"\nenable_local_callback_proxy = false\n'
        '[auth.github]\nclient_id = "of-github"\nclient_secret = "secret-of-github"\n'
    )
    yield port
    stop_callback_server()
    assert not is_listening(port)


@pytest.fixture
def open_pocket(port: int) -> Iterator[Callable[..., Pocket]]:
    """Makes Pockets, and stops them afterwards."""
    with ExitStack() as stack:
        yield lambda *tools, **options: stack.enter_context(Pocket(tools, **options))


def is_listening(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def tool_of(provider: AuthProvider, handler: str | None = None) -> Any:
    @function_tool(auth_provider=provider, auth_handler=handler)
    def show(**kwargs: Any) -> list[str]:
        return sorted(f"{key} {len(value)}" for key, value in kwargs.items() if key.isupper())

    return show


def url_in(text: str) -> str:
    return text.partition("following URL: ")[2]


async def test_nothing_but_a_missing_grant_starts_the_server(port: int):
    made = Pocket([tool_of(AuthProvider.BREVO)])
    request = made.auth.make_request(auth_provider=AuthProvider.BREVO)
    assert await made.auth.prepare(request, auth_provider=AuthProvider.BREVO, thread_id="other") is not None
    assert await made.auth.invoke(ToolAuth(auth_provider=AuthProvider.BREVO), "another", wait=False) is not None
    assert not is_listening(port)
    await made.ainvoke("show", {})
    assert is_listening(port)
    made.teardown()
    assert not is_listening(port)


@pytest.mark.parametrize(
    ("provider", "handler", "fields", "given"),
    [
        (AuthProvider.BREVO, None, {"token": "a-brevo-key"}, '["BREVO_TOKEN 11"]'),
        (AuthProvider.SLACK, "slack-token", {"token": "a-slack-key"}, '["SLACK_BOT_TOKEN 11"]'),
    ],
)
def test_a_key_is_entered_in_a_form_and_the_call_runs(
    open_pocket: Callable[..., Pocket], provider: AuthProvider, handler: str | None, fields: dict[str, str], given: str
):
    """Defect 1: two routes had the address of the form, so a token was answered with 422."""
    made = open_pocket(tool_of(provider, handler))
    url = url_in(made.invoke("show", {}))
    page = httpx2.get(url)
    assert page.status_code == 200
    assert all(f'name="{name}"' in page.text for name in fields)
    state = parse_qs(urlsplit(url).query)["state"][0]
    sent = httpx2.post(url.partition("/token?")[0] + "/submit", data={"state": state, **fields})
    assert (sent.status_code, "success" in sent.text) == (200, True)
    assert made.invoke("show", {}) == given
    assert httpx2.get(url).status_code == 404  # a state is used once


def test_a_user_name_and_a_password_are_entered_in_a_form(port: int, open_pocket: Callable[..., Pocket]):
    """Defect 14: the page that they were to be sent to did not exist."""
    made = open_pocket(tool_of(AuthProvider.BASICAUTH), from_func(lambda text: text, name="say", json_schema=TEXT))
    url = url_in(made.invoke("show", {}))
    page = httpx2.get(url).text
    assert 'name="username"' in page and 'type="password" name="password"' in page
    state, submit = parse_qs(urlsplit(url).query)["state"][0], url.partition("/token?")[0] + "/submit"
    short = httpx2.post(submit, data={"state": state, "username": "alice"})
    assert (short.status_code, "username and password must be entered" in short.text) == (400, True)
    assert made.invoke_with_state("show", {})[1]
    httpx2.post(submit, data={"state": state, "username": "alice", "password": "a-password"})
    assert not made.invoke_with_state("show", {})[1]
    assert made.invoke("say", {"text": "it is a-password"}) == "it is [secret]"


def test_what_a_provider_refuses_ends_the_wait_and_the_next_call_asks_again(
    port: int, open_pocket: Callable[..., Pocket]
):
    """Defects 2 and 3: the callback was answered with 422, and the call waited until the session was forgotten."""
    made = open_pocket(tool_of(AuthProvider.GITHUB))
    first = url_in(made.invoke("show", {}))
    [back] = parse_qs(urlsplit(first).query)["redirect_uri"]
    assert back == f"http://127.0.0.1:{port}/proxy/auth/github/oauth2/callback"
    state = parse_qs(urlsplit(first).query)["state"][0]
    page = httpx2.get(f"{back}?error=access_denied&error_description=Not%20%3Cyou%3E&state={state}")
    assert (page.status_code, "failed: Not &lt;you&gt;" in page.text) == (400, True)
    text, is_paused = made.invoke_with_state("show", {})
    assert (text, is_paused) == ("Not <you>. Call the tool again to be asked.", False)
    second = url_in(made.invoke("show", {}))
    assert second and second != first


def test_the_pages_send_nobody_anywhere_and_reflect_nothing(port: int, open_pocket: Callable[..., Pocket]):
    """Defect 12: `redirect_uri` stood unescaped in the form, and the secret was sent to it."""
    made = open_pocket(tool_of(AuthProvider.BREVO))
    url = url_in(made.invoke("show", {}))
    evil = 'https://evil.example/"><script>alert(1)</script>'
    page = httpx2.get(f"{url}&redirect_uri={quote(evil, safe='')}")
    assert "evil.example" not in page.text and "<script" not in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert (page.headers["referrer-policy"], page.headers["cache-control"]) == ("no-referrer", "no-store")
    state, base = parse_qs(urlsplit(url).query)["state"][0], f"http://127.0.0.1:{port}"
    for path in ("auth/token", "auth/brevo/token/callback"):
        unknown = httpx2.get(f"{base}/{path}?state={quote('<b>')}&token=abcdef")
        assert (unknown.status_code, "<b>" in unknown.text) == (404, False)
    done = httpx2.post(f"{base}/auth/submit", data={"state": state, "token": "a-key-of-mine", "redirect_uri": evil})
    assert (done.status_code, "location" in done.headers, "a-key-of-mine" in done.text) == (200, False, False)


def test_other_addresses_and_too_much_are_refused(port: int):
    start_callback_server()
    start_callback_server()
    base = f"http://127.0.0.1:{port}"
    assert httpx2.get(f"{base}/health").json() == {"status": "ok"}
    assert [httpx2.get(f"{base}{path}").status_code for path in ("/", "/auth", "/auth/submit", "/docs")] == [404] * 4
    assert httpx2.post(f"{base}/auth/token", data={}).status_code == 404
    assert httpx2.post(f"{base}/auth/submit", data={"state": "x" * 70_000}).status_code == 413


def test_it_listens_on_loopback_alone(port: int):
    start_callback_server()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.2", port))  # what listens on every address would have this one


def test_a_port_that_is_taken_is_an_error_with_the_way_out(port: int, open_pocket: Callable[..., Pocket]):
    """Defect 16: it was ignored, and the grant went to whoever had the port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(SetupError, match=f"Port {port} of 127.0.0.1 cannot be listened on.*POCKET_INTERNAL"):
            start_callback_server()
        text, is_paused = open_pocket(tool_of(AuthProvider.BREVO)).invoke_with_state("show", {})
        assert (text.startswith(f"Port {port} "), is_paused) == (True, False)


def test_providers_that_send_back_to_https_only_find_it_under_the_prefix(settings: Settings):
    inner, outer = free_port(), free_port()
    settings(f"internal_server_port = {inner}\npublic_server_port = {outer}")
    made = Pocket([tool_of(AuthProvider.BREVO)])
    try:
        url = url_in(made.invoke("show", {}))
        assert url.startswith(f"https://localhost:{outer}/proxy/auth/token?state=")
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            page = httpx2.get(url.replace("localhost", "127.0.0.1"), verify=trust)
        assert (page.status_code, is_listening(inner)) == (200, True)
    finally:
        made.teardown()
    assert not is_listening(outer) and not is_listening(inner)


def test_a_code_that_comes_to_the_address_of_another_provider_is_given_to_none(
    port: int, open_pocket: Callable[..., Pocket]
):
    """A hostile provider sends the person on to an honest one, with its own state (RFC 9700, 4.4)."""
    made = open_pocket(tool_of(AuthProvider.GITHUB))
    asked = {name: of[0] for name, of in parse_qs(urlsplit(url_in(made.invoke("show", {}))).query).items()}
    for path in ("auth/slack/oauth2/callback", "auth/github/token/callback"):
        page = httpx2.get(f"http://127.0.0.1:{port}/proxy/{path}?code=of-slack&state={asked['state']}")
        assert (page.status_code, "success" in page.text, "of-slack" in page.text) in {
            (400, False, False),
            (404, False, False),
        }
        assert "Register" in page.text or page.status_code == 404
    text, is_paused = made.invoke_with_state("show", {})
    assert (text, is_paused) == (
        "the answer came to the address of another provider. Call the tool again to be asked.",
        False,
    )
