"""What providers answer, wrongly or not, discovery, and flows without a person: by a Crib, against loopback."""

import logging
from datetime import timedelta
from typing import Any

import pytest

from toolcrib import Crib, ToolAuth
from toolcrib.auth import CallbackError
from toolcrib.workbench import Workbench

from .conftest import ALICE, ALICES, BOB, CODE, IDP, NOON, SECRET, TOKEN, Answer, Server, Setup, as_json


async def url_of(bench: Workbench) -> str:
    result = await bench.call("use")
    assert result.pending is not None, result.text
    return result.pending.url


async def complete(crib: Crib, url: str, **extra: str) -> None:
    state = url.partition("&state=")[2].partition("&")[0]
    more = "".join(f"&{name}={value}" for name, value in extra.items())
    await crib.complete(f"http://127.0.0.1:1/auth/callback/idp?state={state}{more or f'&code={CODE}'}", caller=ALICE)


MALFORMED = "'idp' sent an answer that is not valid OAuth 2.0."

WRONG: dict[str, tuple[Answer, str]] = {
    "html": ((200, {"Content-Type": "text/html"}, b"<html>access_token=x</html>"), MALFORMED),
    "html as text": ((200, {"Content-Type": "text/plain"}, b"<html>Log in to the network</html>"), MALFORMED),
    "a list": (as_json([TOKEN]), MALFORMED),
    "too deep": ((200, {"Content-Type": "application/json"}, b"[" * 100_000), MALFORMED),
    "500": ((500, {"Content-Type": "text/html"}, b"<html>"), "'idp' failed with status 500."),
    "an expired code": (as_json({"error": "invalid_grant"}, 400), "'idp' refused: invalid_grant."),
    "an error with 200": (as_json({"error": "bad_code", **TOKEN}), "'idp' refused: bad_code."),
    "an error that is a sentence": (as_json({"error": f"Not {SECRET}"}, 400), "'idp' refused: status 400."),
    "an error that is a table": (as_json({"error": {"code": 1}}, 400), "'idp' refused: status 400."),
    "huge": ((200, {"Content-Type": "application/json"}, b'{"a":"' + b"x" * 3_000_000 + b'"}'), "cannot be reached"),
    "a wrong length": ((200, {"Content-Length": "9999", "Connection": "close"}, b"{}"), "cannot be reached"),
    "no token": (as_json({"token_type": "bearer"}), MALFORMED),
    "another type of token": (as_json({**TOKEN, "token_type": "mac"}), MALFORMED),
}
for status in (302, 308):
    WRONG[f"{status}"] = (
        as_json(TOKEN, status, Location="/elsewhere"),
        "'idp' answered with a redirect, which is not followed.",
    )
for member, values in {
    # Also what cannot be sent, shown or redacted: a short token would be found in every text.
    "access_token": (5, "", "line\r\nbreak", "ünicode", "x" * 20_000, "a-b ", "e"),
    "refresh_token": (5, "nul\0", "the"),
    "expires_in": ("soon", -1, float("nan"), True, [3600]),
    "scope": (5, [1], "a \x1b[31m", "réad", ["a b"], [""], "read " * 10_000),
    "token_type": (5, "N_A"),
}.items():
    for value in values:
        WRONG[f"{member} {value!r:.20}"] = (as_json({**TOKEN, member: value}), MALFORMED)


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_answer_is_a_clear_result_and_the_next_call_offers_a_fresh_url(
    setup: Setup, server: Server, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.DEBUG)
    answer, message = WRONG[name]
    async with setup.crib(IDP) as crib:
        bench = crib.workbench(ALICE)
        server.answers["/token"] = answer
        first = await url_of(bench)
        with pytest.raises(CallbackError) as raised:
            await complete(crib, first)
        assert message in str(raised.value)
        assert raised.value.reason == "failed"
        assert [await crib.pendings(), server.sent("/elsewhere")] == [[], []]
        assert len(server.sent("/token")) == 1

        second = await url_of(bench)
        assert second != first
        server.answers["/token"] = as_json(TOKEN)
        await complete(crib, second)
        assert (await bench.call("use")).text == "idp read"
        for secret in (SECRET, CODE, TOKEN["access_token"], server.sent("/token")[0]["code_verifier"]):
            assert secret not in f"{raised.value} {caplog.text}"


@pytest.mark.parametrize("error", ["access_denied", "server_error", "<script>"])
async def test_a_denied_authorization_ends_and_the_next_call_asks_anew(setup: Setup, error: str) -> None:
    async with setup.crib(IDP) as crib:
        bench = crib.workbench(ALICE)
        asked = (await bench.call("use")).pending
        with pytest.raises(CallbackError) as raised:
            await complete(crib, asked.url, error=error, error_description=SECRET)
        assert (str(raised.value), raised.value.reason) == (
            "'idp' granted nothing. Call the tool again to be asked.",
            "denied",
        )
        assert not await crib.wait_for(asked)
        assert await url_of(bench) != asked.url


@pytest.mark.parametrize(
    ("answer", "scopes", "lives_s"),
    [
        ({"expires_in": "3600"}, ["read"], 3600),
        ({"expires_in": 3600.5}, ["read"], 3600.5),
        ({"expires_in": 0, "token_type": "BEARER"}, ["read"], None),
        ({"expires_in": 1e300, "scope": "write,read"}, ["write", "read"], None),
        ({"expires_in": None, "scope": None}, ["read"], None),
        ({"scope": ["read", "write"]}, ["read", "write"], None),
    ],
)
async def test_odd_answers_that_are_understood(
    setup: Setup, server: Server, answer: dict[str, Any], scopes: list[str], lives_s: float | None
) -> None:
    async with setup.crib(IDP) as crib:
        server.answers["/token"] = as_json({**TOKEN, **answer})
        await complete(crib, await url_of(crib.workbench(ALICE)))
        stored = await setup.broker.vault.get(ALICES)
        ends = None if lives_s is None else NOON + timedelta(seconds=lives_s)
        assert (list(stored.grant.scopes), stored.grant.expires_at) == (scopes, ends)


@pytest.mark.parametrize("name", ["html", "302", "refresh_token 5"])
async def test_a_refresh_that_is_answered_wrongly_keeps_the_grant(setup: Setup, server: Server, name: str) -> None:
    async with setup.crib(IDP) as crib:
        bench = crib.workbench(ALICE)
        server.answers["/token"] = as_json({**TOKEN, "refresh_token": "a-refresh-token-0123", "expires_in": 3600})
        await complete(crib, await url_of(bench))
        good, server.answers["/token"] = server.answers["/token"], WRONG[name][0]
        setup.now = NOON + timedelta(seconds=3580)
        assert (await bench.call("use")).text == "idp read"  # the token still works
        setup.now = NOON + timedelta(seconds=3600)
        result = await bench.call("use")
        assert (result.error.code, result.text.count("cannot be refreshed now")) == ("unavailable", 1)
        server.answers["/token"] = good
        setup.now = NOON + timedelta(seconds=3580)
        assert (await bench.call("use")).text == "idp read"


DISCOVERED = """
[idp]
recommended_scopes = ["openid"]

[idp.oauth2]
issuer = "SERVER/tenant"
"""


def document(server: Server, **also: Any) -> dict[str, Any]:
    return {
        "issuer": f"{server.url}/tenant",
        "authorization_endpoint": f"{server.url}/authorize",
        "token_endpoint": f"{server.url}/token",
        "token_endpoint_auth_methods_supported": ["client_secret_post"],
        **also,
    }


@pytest.mark.parametrize(
    "path", ["/tenant/.well-known/openid-configuration", "/.well-known/oauth-authorization-server/tenant"]
)
async def test_endpoints_are_discovered_once_at_first_use(setup: Setup, server: Server, path: str) -> None:
    async with setup.crib(DISCOVERED) as crib:
        bench = crib.workbench(ALICE)
        assert server.requests == []
        server.answers |= {path: as_json(document(server)), "/token": as_json(TOKEN)}
        url = await url_of(bench)
        assert url.startswith(f"{server.url}/authorize?")
        await complete(crib, url)
        assert (await bench.call("use")).text == "idp read"
        assert [each for each, _ in server.requests].count(path) == 1
        assert server.sent("/token")[0]["client_secret"] == SECRET


@pytest.mark.parametrize(
    "also",
    [
        {"issuer": "https://evil.example"},
        {"issuer": None},
        {"token_endpoint": None},
        {"token_endpoint": 5},
        {"token_endpoint": "http://idp.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"revocation_endpoint": ["https://idp.example"]},
    ],
)
async def test_a_document_that_is_not_the_issuers_is_refused(setup: Setup, server: Server, also: Any) -> None:
    async with setup.crib(DISCOVERED) as crib:
        bench = crib.workbench(ALICE)
        server.answers["/tenant/.well-known/openid-configuration"] = as_json(document(server, **also))
        result = await bench.call("use")
        assert (result.error.code, result.text) == (
            "unavailable",
            "The issuer of 'idp' has no valid metadata (RFC 8414). No person can be asked now.",
        )
        server.answers["/tenant/.well-known/openid-configuration"] = as_json(document(server))
        await url_of(bench)


@pytest.mark.parametrize(
    ("supported", "iss", "is_taken"),
    [
        (True, "own", True),
        (True, None, False),
        (True, "other", False),
        (False, "own", True),
        (False, None, True),
        (False, "other", False),
    ],
)
async def test_iss_is_compared_and_required_where_the_document_promises_it(
    setup: Setup, server: Server, supported: bool, iss: str | None, is_taken: bool
) -> None:
    async with setup.crib(DISCOVERED) as crib:
        found = document(server, authorization_response_iss_parameter_supported=supported)
        server.answers |= {
            "/tenant/.well-known/openid-configuration": as_json(found),
            "/token": as_json(TOKEN),
        }
        url = await url_of(crib.workbench(ALICE))
        values = {"own": f"{server.url}/tenant", "other": "https://evil.example"}
        extra = {"code": CODE, **({} if iss is None else {"iss": values[iss]})}
        if is_taken:
            await complete(crib, url, **extra)
            return
        with pytest.raises(CallbackError, match="RFC 9207"):
            await complete(crib, url, **extra)
        assert server.sent("/token") == []


OF_PROGRAM = """
[idp.oauth2]
grant = "client_credentials"
token_url = "SERVER/token"
"""


async def test_a_program_has_a_token_of_its_own_also_where_the_catalogue_says_so(setup: Setup, server: Server) -> None:
    async with setup.crib(OF_PROGRAM) as crib:
        server.answers["/token"] = as_json(TOKEN)
        assert {(await crib.workbench(caller).call("use")).text for caller in (ALICE, BOB)} == {"idp read"}
        assert [sent["grant_type"] for sent in server.sent("/token")] == ["client_credentials"]


async def test_a_refresh_token_that_was_used_is_not_kept_where_the_provider_rotates_them(
    setup: Setup, server: Server
) -> None:
    async with setup.crib(f'{IDP}refresh = "rotated"\n') as crib:
        bench = crib.workbench(ALICE)
        server.answers["/token"] = as_json({**TOKEN, "refresh_token": "a-refresh-token-0123", "expires_in": 3600})
        await complete(crib, await url_of(bench))
        server.answers["/token"] = as_json({**TOKEN, "expires_in": 3600})
        setup.now = NOON + timedelta(seconds=3580)
        assert (await bench.call("use")).text == "idp read"
        stored = await setup.broker.vault.get(ALICES)
        assert stored.grant.refresh_token is None
        setup.now = NOON + timedelta(seconds=7300)
        await url_of(bench)
        assert len(server.sent("/token")) == 2


async def test_a_token_of_somebody_is_exchanged_for_one_that_their_calls_use(setup: Setup, server: Server) -> None:
    async with setup.crib(IDP) as crib:
        server.answers["/token"] = as_json(
            {**TOKEN, "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}
        )
        flow = setup.broker.flow(setup.broker.needed(ToolAuth("idp", scopes=["read"]), "use"))
        grant = await flow.exchange_token("alices-own-token", scopes=["read"], audience="https://api.example")
        await setup.broker.save(ALICES, grant)
        assert (await crib.workbench(ALICE).call("use")).text == "idp read"
        assert (await crib.workbench(BOB).call("use")).pending is not None
        sent = server.sent("/token")[0]
        assert (sent["subject_token"], sent["audience"], sent["scope"]) == (
            "alices-own-token",
            "https://api.example",
            "read",
        )
