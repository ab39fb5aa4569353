"""Tokens of an issuer: which are accepted, as whom, and how the issuer's keys are found and turn over."""

import base64
import hashlib
import hmac
import importlib
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from joserfc.jwk import ECKey, OctKey

from toolcrib import Caller, SetupError
from toolcrib.serve import Authentication, AuthenticationError, Authenticator
from toolcrib.serve.access import tokens as module
from toolcrib.serve.access.authentication import configured_identify
from toolcrib.serve.access.callers import CALLER
from toolcrib.serve.access.keys import AccessKeys
from toolcrib.serve.access.tokens import AccessTokens
from toolcrib.store import Store
from toolcrib.workbench.settings import read_settings

from .issuer import AUDIENCE, EC, NEW, OKP, RSA, Issuer, accepting, part, refusal


async def test_a_token_is_read_as_its_subject_with_the_groups_and_claims_that_are_asked_for(issuer: Issuer) -> None:
    tokens = accepting(
        issuer, groups_claim="realm_access.roles", claims=["org", "sure", "scope", "deep.level", "a.b", "none"]
    )
    more = {
        "realm_access": {"roles": ["staff", "admins", {"no": "text"}]},
        "org": "acme",
        "sure": True,
        "scope": "read write",
        "deep": {"level": 3},
        "a.b": "a name with a dot",
        "jti": "differs",
        "email": "a@b.example",
    }
    expected = Caller(
        f"{issuer.url}|alice",
        groups=frozenset({"staff", "admins"}),
        claims=frozenset(
            {
                *{("org", "acme"), ("sure", "true"), ("scope", "read"), ("scope", "write"), ("deep.level", "3")},
                ("a.b", "a name with a dot"),
            }
        ),
    )
    for key in (RSA, EC, OKP):
        assert await tokens.caller(issuer.token(key=key, **more)) == expected
    # What differs in each token makes no other caller.
    assert await tokens.caller(issuer.token(**{**more, "jti": "other", "exp": int(time.time()) + 999})) == expected
    for right in (
        {"aud": ["other", AUDIENCE]},
        {"header": {"typ": "application/at+jwt"}},
        {"header": {"typ": "JWT"}},
        {"header": {"typ": None}},
        *({"typ": "Bearer"}, {"token_use": "access"}, {"token_type": "Bearer"}, {"typ": None}),
        {"exp": int(time.time()) - 10},  # clocks differ a little
        {"sub": "a"},
        {"sub": "x" * 255},
    ):
        subject = right.get("sub", "alice")
        assert (await tokens.caller(issuer.token(**right))).principal == f"{issuer.url}|{subject}"
    assert issuer.asked == 1


async def test_tokens_that_are_not_for_here_or_not_of_the_issuer_are_refused(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tokens, now = accepting(issuer), int(time.time())
    own = ECKey.generate_key("P-256", {"kid": "ec"})
    wrong = [
        issuer.token(**claims)
        for claims in (
            *(
                {"aud": aud}
                for aud in (None, "", "other", [], ["other"], f"{AUDIENCE}/", AUDIENCE.upper(), {AUDIENCE: 1})
            ),
            *({"iss": iss} for iss in (None, "", f"{issuer.url}/", "https://evil.example", [issuer.url], 1)),
            *({"sub": sub} for sub in (None, "", 1, ["alice"], "a\nb", "al\u202eice", "x" * 256)),
            *({"exp": exp} for exp in (None, now - 60, "soon", "", [], -1)),
            {"nbf": now + 60},
            {"cnf": {"jkt": "bound to a key"}},
            *({name: "x"} for name in ("nonce", "at_hash", "events")),
            *({"typ": typ} for typ in ("ID", "Refresh", "Offline", ["Bearer"])),  # as Keycloak has it, and Cognito
            *({"token_use": "id"}, {"token_type": "refresh"}),
            *({"exp": exp} for exp in (float("nan"), float("inf"), True, "9999999999")),
            *({name: value} for name in ("iat", "nbf") for value in (now + 600, "soon", float("nan"))),
            *({"aud": aud} for aud in ([AUDIENCE, 1], AUDIENCE[:-1], f"x {AUDIENCE}", [[AUDIENCE]])),
            *({"sub": sub} for sub in ("a\0b", "al\u200bice", {"a": 1}, True)),
            {"header": {"b64": False, "crit": ["b64"]}},
            *({"header": {"typ": typ}} for typ in ("logout+jwt", "dpop+jwt", "secevent+jwt", "")),
            *({"header": {"kid": kid}} for kid in ("rsa", "okp", "unknown", "", "../ec", None)),
            {"key": own},
            {"key": own, "header": {"jwk": own.as_dict(private=False), "jku": "https://evil.example/jwks"}},
        )
    ]
    # What must be understood and is not (RFC 7515, 4.1.11), rightly signed.
    signed = f"{part({'alg': 'RS256', 'kid': 'rsa', 'crit': ['x'], 'x': 1})}.{issuer.token().split('.')[1]}"
    by_rsa = RSA.private_key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    wrong.append(f"{signed}.{base64.urlsafe_b64encode(by_rsa).rstrip(b'=').decode()}")
    right = issuer.token()
    first, second, signature = right.split(".")
    # HS256 with the public key as the secret, in each form that it is published in.
    for secret in (
        RSA.as_pem(private=False),
        RSA.as_der(private=False),
        json.dumps(RSA.as_dict(private=False)).encode(),
    ):
        signed = f"{part({'alg': 'HS256', 'kid': 'rsa', 'typ': 'at+jwt'})}.{second}"
        mac = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
        wrong.append(f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}")
    wrong += [
        *(
            f"{part({'alg': alg, 'kid': 'ec', 'typ': 'at+jwt'})}.{second}.{end}"
            for alg in ("none", "None", "NONE", "", None, "ES384", "RS256", "HS256", 1, ["ES256"])
            for end in ("", signature)
        ),
        f"{first}.{part({**json.loads(base64.urlsafe_b64decode(second + '==')), 'sub': 'bob'})}.{signature}",
        f"{first}.{second}.{signature[:-4]}AAAA",
        f"{first}.{second}.",
        f"{first}.{second}",
        f"{right}.{signature}",
        *(f"{first}{odd}.{second}.{signature}" for odd in ("=", "!", "\n", " ")),
        *(f"{right}{odd}" for odd in ("=", "==", "!", "\n")),
        f"{right}.{second}.{signature}",  # as many parts as what is encrypted has
        *("", ".", "..", "a.b.c", "\xff.b.c", f"{part([])}.b.c", f"{part('x')}.b.c", f"{'[' * 100_000}.b.c"),
        f"{base64.urlsafe_b64encode(b'[' * 60_000).decode()}.b.c",
        issuer.token(key=OctKey.import_key("0123456789abcdef0123456789abcdef", {"kid": "oct"})),
    ]
    for token in wrong:
        assert await refusal(tokens, token) == 401, token
    assert await refusal(accepting(issuer), wrong[-1]) == 401  # also as the first token of all
    assert (await tokens.caller(right)).principal.endswith("|alice")
    assert second not in caplog.text
    assert signature not in caplog.text


NO_ISSUERS = ("id.example.com", "", "ftp://id.example", "https://i?x", "https://i|j", "https://i#x", "https://i\u200b")


@pytest.mark.parametrize(("url", "audience"), [*((url, "a") for url in NO_ISSUERS), ("https://i", "")])
def test_what_is_no_issuer_or_no_audience_is_refused(url: str, audience: str) -> None:
    with pytest.raises(SetupError):
        AccessTokens(url, audience)


async def test_all_scopes_are_needed_and_their_lack_is_answered_with_403(issuer: Issuer) -> None:
    tokens = accepting(issuer, scopes=["read", "write"])
    for claims in ({"scope": "write read more"}, {"scp": ["read", "write"]}, {"scp": "read write"}):
        assert (await tokens.caller(issuer.token(**claims))).principal.endswith("|alice")
    for claims in ({}, {"scope": "read"}, {"scope": "readwrite"}, {"scp": []}, {"scope": ["read,write"]}, {"scope": 5}):
        assert await refusal(tokens, issuer.token(**claims)) == 403


async def test_the_challenge_leads_to_the_metadata_of_rfc_9728(issuer: Issuer) -> None:
    seen: list[Caller] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope[CALLER])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    identify = Authenticator(tokens=[accepting(issuer, scopes=["tools"])])
    for base_url, base in [("https://tools.example.com/", "https://tools.example.com"), (None, "http://h:8")]:
        guarded = Authentication(app, identify, base_url=base_url)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(guarded), base_url="http://h:8") as client:
            answer = await client.post("/mcp")
            where = f"{base}/.well-known/oauth-protected-resource/mcp"
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == (
                f'Bearer realm="toolcrib", resource_metadata="{where}", scope="tools"'
            )
            for path in ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"):
                answer = await client.get(path)
                assert answer.headers["access-control-allow-origin"] == "*"
                assert answer.json() == {
                    "resource": f"{base}/mcp",
                    "authorization_servers": [issuer.url],
                    "scopes_supported": ["tools"],
                    "bearer_methods_supported": ["header"],
                }
            bare = {"Authorization": f"Bearer {issuer.token()}", "Host": 'h"x'}
            answer = await client.post("/mcp", headers=bare)
            assert (answer.status_code, answer.json()["title"]) == (403, "Not authorized")
            challenge = answer.headers["www-authenticate"]
            assert 'error="insufficient_scope"' in challenge
            assert 'scope="tools"' in challenge
            assert 'h"x' not in challenge
            right = {"Authorization": f"bEaReR {issuer.token(scope='tools')}", "Toolcrib-Thread": "t1"}
            assert (await client.post("/mcp", headers=right)).status_code == 204
    assert seen == [Caller(f"{issuer.url}|alice", thread="t1")] * 2


async def test_of_the_groups_in_a_token_only_so_many_are_taken_and_none_that_is_very_long(issuer: Issuer) -> None:
    names = ["a" * 1001, "b" * 1000, *map(str, range(1000))]
    caller = await accepting(issuer).caller(issuer.token(groups=names))
    assert caller.groups == {"b" * 1000, *map(str, range(999))}


def test_without_its_package_tokens_of_an_issuer_name_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joserfc", None)
    monkeypatch.delitem(sys.modules, module.__name__)
    with pytest.raises(SetupError, match=r"toolcrib\[serve\]"):
        importlib.import_module(module.__name__)


async def test_principals_of_several_issuers_never_collide(issuer: Issuer) -> None:
    other = Issuer()
    other.keys = [NEW.as_dict(private=False)]
    try:
        identify = Authenticator(tokens=[accepting(issuer), accepting(other)])
        pairs = [(issuer, EC), (other, NEW)]
        found = [await identify({"authorization": f"Bearer {one.token(key=key)}"}) for one, key in pairs]
        assert [caller.principal for caller in found] == [f"{issuer.url}|alice", f"{other.url}|alice"]
        # One issuer's signature under the other's name.
        for token in (issuer.token(iss=other.url), issuer.token(iss="https://evil.example"), "a.b.c", "x"):
            with pytest.raises(AuthenticationError):
                await identify({"authorization": f"Bearer {token}"})
    finally:
        other.server.shutdown()
        other.server.server_close()
    with pytest.raises(SetupError, match="needs keys"):
        Authenticator()


async def test_the_settings_name_the_issuer_and_rules_the_claims_that_are_kept(issuer: Issuer, tmp_path: Path) -> None:
    (tmp_path / "toolcrib.toml").write_text(f"""
[[rule]]
do = "deny"
claims = {{ org = "evil" }}

[net]
allow = ["127.0.0.1"]

[server]
keys = true
issuer = "{issuer.url}"
public_base_url = "https://tools.example.com/"
groups_claim = "roles"
scopes = ["tools"]
""")
    settings = read_settings(tmp_path / "toolcrib.toml", {})
    store = Store(tmp_path / "store.db")
    identify: Any = configured_identify(settings, store)
    token = issuer.token(org="acme", email="a@b.example", roles=["staff"], scope="tools")
    expected = Caller(f"{issuer.url}|alice", groups=frozenset({"staff"}), claims=frozenset({("org", "acme")}))
    assert await identify({"authorization": f"Bearer {token}"}) == expected
    key, _ = await AccessKeys(store).add("alice")
    assert await identify({"authorization": f"Bearer {key}"}) == Caller("key:alice")
    # A key that is none is not sent on to be read as a token, nor the other way round.
    for wrong in (f"{key}x", f"toolcrib_{token}", issuer.token(org="acme")):
        with pytest.raises(AuthenticationError):
            await identify({"authorization": f"Bearer {wrong}"})
    store.close()
