"""The keys of an issuer: which are used, how they are found, and how they turn over."""

import asyncio
import base64
from typing import Any

import pytest
from joserfc.jwk import OctKey, RSAKey

from toolcrib.serve.access import tokens as module
from toolcrib.serve.access.tokens import AccessTokens

from .issuer import AUDIENCE, EC, NEW, OKP, RSA, Issuer, accepting, refusal


@pytest.mark.filterwarnings("ignore:Key size should be")
async def test_a_key_that_anybody_can_sign_by_is_not_used(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    short = RSAKey.generate_key(1024, {"kid": "rsa"})
    padded = short.as_dict(private=False)
    number = base64.urlsafe_b64decode(str(padded["n"]) + "==")
    padded["n"] = base64.urlsafe_b64encode(bytes(128) + number).rstrip(b"=").decode()  # as long as others, in letters
    issuer.keys = [padded, EC.as_dict(private=True)]
    tokens = accepting(issuer)
    for key, reason in ((short, "it has less than 2048 bits"), (EC, "its private part is published")):
        assert await refusal(tokens, issuer.token(key=key)) == 401
        assert f"A key of the issuer cannot be used: {reason}" in caplog.text
    assert str(EC.as_dict(private=True)["d"]) not in caplog.text


async def test_keys_of_two_types_may_share_an_id_and_what_is_no_key_costs_itself_alone(issuer: Issuer) -> None:
    public = {"rsa": RSA.as_dict(private=False), "ec": EC.as_dict(private=False)}
    odd: list[Any] = [None, "x", [], {}, {**public["rsa"], "kid": ["rsa"]}, {**public["rsa"], "kty": ["RSA"]}]
    odd += [{**public["rsa"], "e": "AQ", "kid": "one"}, {**public["ec"], "crv": "secp256k1", "kid": "k"}]
    for named in ([RSA, EC], [EC, RSA]):
        issuer.keys = [*odd, *({**key.as_dict(private=False), "kid": "both"} for key in named)]
        for key in (RSA, EC):
            tokens = accepting(issuer)
            assert (await tokens.caller(issuer.token(key=key, header={"kid": "both"}))).principal.endswith("|alice")
            assert await refusal(tokens, issuer.token(key=key, header={"kid": None})) == 401
    for use in ({"alg": "PS512"}, {"alg": "RSA-OAEP"}, {"key_ops": ["encrypt"]}, {"use": "enc"}):
        issuer.keys = [{**public["rsa"], **use}]
        assert await refusal(accepting(issuer), issuer.token(key=RSA)) == 401


@pytest.mark.parametrize("moved", ["/jwks", "/.well-known/openid-configuration"])
async def test_keys_and_metadata_are_where_the_issuer_says_and_nowhere_else(issuer: Issuer, moved: str) -> None:
    issuer.moved = moved
    assert await refusal(accepting(issuer), issuer.token()) == 503


@pytest.mark.parametrize("document", [[], {}, None, "x", {"keys": None}, {"keys": 1}])
async def test_what_is_no_set_of_keys_leaves_those_that_are_known(
    issuer: Issuer, document: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    tokens = accepting(issuer)
    await tokens.caller(issuer.token())
    for issuer.document in (document, {"keys": [None] * 300_000}):  # of over a megabyte
        assert await refusal(tokens, issuer.token(header={"kid": "unknown"})) == 401
    assert await refusal(tokens, issuer.token(header={"kid": "unknown"})) == 401
    await tokens.caller(issuer.token())
    assert await refusal(accepting(issuer), issuer.token()) == 503


async def test_a_secret_or_broken_key_of_the_issuer_is_not_used(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    secret = OctKey.import_key("0123456789abcdef0123456789abcdef", {"kid": "oct"})
    published = {"kty": "oct", "kid": "oct", "k": base64.urlsafe_b64encode(secret.raw_value).decode()}
    issuer.keys = [published, {"kty": "EC", "kid": "broken"}, EC.as_dict(private=False)]
    issuer.keys.append({**RSA.as_dict(private=False), "use": "enc"})
    tokens = accepting(issuer)
    # The only one that is left is also found by tokens that name none.
    assert (await tokens.caller(issuer.token(header={"kid": None}))).principal.endswith("|alice")
    assert "A key of the issuer cannot be used: " in caplog.text
    assert await refusal(tokens, issuer.token(key=secret)) == 401
    assert await refusal(tokens, issuer.token(header={"kid": "other"})) == 401


async def test_keys_turn_over_and_are_not_fetched_for_every_name(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = accepting(issuer)
    await tokens.caller(issuer.token())
    issuer.keys = [NEW.as_dict(private=False)]
    for name in range(20):
        assert await refusal(tokens, issuer.token(header={"kid": f"unknown-{name}"})) == 401
    assert issuer.asked == 1
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    many = [tokens.caller(issuer.token(key=NEW)) for _ in range(10)]
    assert {caller.principal for caller in await asyncio.gather(*many)} == {f"{issuer.url}|alice"}
    assert issuer.asked == 2
    assert await refusal(tokens, issuer.token()) == 401  # the old key is gone


async def test_a_key_that_the_issuer_withdraws_ends_when_the_keys_are_fetched_again(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = accepting(issuer)
    await tokens.caller(issuer.token())
    monkeypatch.setattr(module, "_FRESH_S", 0.0)
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    # Nobody came meanwhile: the first token of a withdrawn key is refused, and not only those after a fetch.
    issuer.keys = [each.as_dict(private=False) for each in (RSA, OKP)]
    assert await refusal(tokens, issuer.token()) == 401
    # A key that is withdrawn while the issuer cannot be asked holds until it can.
    issuer.keys, issuer.is_down = [OKP.as_dict(private=False)], True
    await tokens.caller(issuer.token(key=RSA))
    issuer.is_down = False
    many = await asyncio.gather(*(refusal(tokens, issuer.token(key=RSA)) for _ in range(20)))
    assert many == [401] * 20
    await tokens.caller(issuer.token(key=OKP))


async def test_without_the_issuer_known_keys_hold_for_a_while_and_nobody_new_is_let_in(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    issuer.is_down = True
    tokens = accepting(issuer)
    assert await refusal(tokens, issuer.token()) == 503
    assert f"The keys of the issuer {issuer.url} could not be fetched" in caplog.text
    assert "it has no metadata (RFC 8414)" in caplog.text
    issuer.is_down = False
    issuer.fails = "/jwks"  # whatever its body is
    assert await refusal(tokens, issuer.token()) == 503
    issuer.fails = ""
    await tokens.caller(issuer.token())
    issuer.is_down = True
    monkeypatch.setattr(module, "_FRESH_S", 0.0)
    await tokens.caller(issuer.token())
    monkeypatch.setattr(module, "_KEPT_S", 0.0)
    assert await refusal(tokens, issuer.token()) == 503


async def test_metadata_of_another_issuer_and_a_private_address_are_not_used(issuer: Issuer) -> None:
    issuer.named = "https://evil.example"
    assert await refusal(accepting(issuer), issuer.token()) == 503
    issuer.named = None
    guarded = AccessTokens(issuer.url, AUDIENCE)
    assert await refusal(guarded, issuer.token()) == 503
    assert issuer.asked == 0
