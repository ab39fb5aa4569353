"""Every flow with a real provider, through the whole pipeline: a call waits, somebody grants, the same call runs."""

import re
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from toolcrib import Caller, ToolAuth
from toolcrib.auth import CallbackError, FlowError, Owner

from .conftest import MakeParts, Parts, Provider

ALICE, BOB = Caller("alice"), Caller("bob")


async def introspected(parts: Parts, token: str) -> bool:
    """Whether the provider takes *token*."""
    async with httpx2.AsyncClient() as http:
        body = {"token": token, "client_id": "machine", "client_secret": "canary-client-secret-0123456789"}
        answer = await http.post(f"{parts.provider.issuer}/token/introspection", data=body)
    return bool(answer.json()["active"])


async def test_a_call_waits_for_a_grant_and_then_runs(parts: Parts) -> None:
    before = parts.provider.counts()["given"].get("authorization_code", 0)
    async with parts.crib as crib:
        alice, bob = crib.workbench(ALICE), crib.workbench(BOB)
        waiting = await alice.call("who")
        asked = parse_qs(urlsplit(waiting.pending.url).query)
        assert asked["code_challenge_method"] == ["S256"]
        assert asked["scope"] == ["offline_access openid read"]
        assert (await alice.call("who")).pending == waiting.pending
        callback = parts.provider.grant(waiting.pending.url)
        assert (await crib.complete(callback, caller=ALICE)).pending_ids == (waiting.pending.id,)
        assert await crib.wait_for(waiting.pending, timeout_s=30)
        assert not [one for one in await crib.pendings() if one.id == waiting.pending.id]
        assert (await alice.call("who")).text == "200 alice"
        # A state is used once; and what is one caller's grant is no other's.
        with pytest.raises(CallbackError) as raised:
            await crib.complete(callback)
        assert raised.value.reason == "unknown"
        await parts.log_in(BOB)
        assert (await bob.call("who")).text == "200 bob"
        assert (await alice.call("who")).text == "200 alice"
    assert parts.provider.counts()["given"]["authorization_code"] == before + 2


async def test_a_code_of_another_authorization_is_refused(parts: Parts) -> None:
    """An attacker puts their own code into the victim's callback: PKCE binds it to what it was begun with."""
    async with parts.crib as crib:
        urls: dict[str, str] = {}
        for caller in (ALICE, BOB):
            pending = (await crib.workbench(caller).call("who")).pending
            urls[caller.principal] = parts.provider.grant(pending.url, login=caller.principal)
        code = {name: parse_qs(urlsplit(url).query)["code"][0] for name, url in urls.items()}
        with pytest.raises(CallbackError, match="invalid_grant") as raised:
            await crib.complete(urls["bob"].replace(code["bob"], code["alice"]))
        assert raised.value.reason == "failed"
        with pytest.raises(CallbackError, match="another provider"):
            await crib.complete(re.sub("iss=[^&]*", "iss=https%3A%2F%2Fevil.example", urls["alice"]))
        assert (await crib.workbench(BOB).call("who")).pending is not None


async def test_a_device_is_granted_by_a_code_that_somebody_enters(parts: Parts) -> None:
    needed = parts.broker.needed(ToolAuth("local", scopes=["openid", "read"]), "who")
    flow, scopes = parts.broker.flow(needed), parts.broker.scopes_of(needed)
    begun = await flow.start_device(scopes)
    assert await flow.poll_device(begun.device_code, scopes) == "pending"
    assert "Sign-in Success" in parts.provider.grant(begun.verification_url)
    grant = await flow.poll_device(begun.device_code, scopes)
    async with parts.crib as crib:
        waiting = (await crib.workbench(ALICE).call("who")).pending
        assert await parts.broker.save(needed.owner(ALICE), grant) == [waiting.id]
        assert (await crib.workbench(ALICE).call("who")).text == "200 alice"
    with pytest.raises(FlowError, match="invalid_grant"):
        await flow.poll_device(begun.device_code, scopes)


async def test_a_refresh_rotates_and_a_spent_token_ends_the_grant(parts: Parts) -> None:
    owner, vault = Owner.of(ALICE, "local", "oauth2"), parts.broker.vault
    async with parts.crib as crib:
        alice = crib.workbench(ALICE)
        await parts.log_in(ALICE)
        assert (await alice.call("who")).text == "200 alice"
        first = await parts.expire(ALICE)
        assert (await alice.call("who")).text == "200 alice"
        second = await vault.get(owner)
        assert second.grant.refresh_token not in (None, first.refresh_token)
        assert parts.tokens[-1] == second.grant.access_token != first.access_token
        # Somebody else has the old one, and uses it: the provider ends the whole family.
        needed = parts.broker.needed(ToolAuth("local"), "who")
        with pytest.raises(FlowError, match="invalid_grant"):
            await parts.broker.flow(needed).refresh(first)
        await parts.expire(ALICE)
        ended = (await alice.call("who")).pending
        assert ended.message == "Your grant at Local has ended. Grant access to your account at Local"
        assert await vault.get(owner) is None
        await parts.log_in(ALICE)
        assert (await alice.call("who")).text == "200 alice"


async def test_what_is_revoked_is_over_here_and_there(parts: Parts) -> None:
    owner = Owner.of(ALICE, "local", "oauth2")
    async with parts.crib as crib:
        await parts.log_in(ALICE)
        stored = await parts.broker.vault.get(owner)
        assert await introspected(parts, stored.grant.access_token)
        assert await parts.broker.revoke(owner)
        assert not await introspected(parts, stored.grant.refresh_token or "")
        assert not await introspected(parts, stored.grant.access_token)
        assert not await parts.broker.revoke(owner)
        assert (await crib.workbench(ALICE).call("who")).pending is not None


@pytest.mark.full
async def test_a_token_that_has_really_expired_is_refreshed(make_parts: MakeParts) -> None:
    """The provider's own clock: a token of one second, which counts as nearly over from the start."""
    provider = Provider(lifetime_s=1)
    try:
        parts = make_parts(provider)
        async with parts.crib as crib:
            await parts.log_in(ALICE)
            for _ in range(3):
                assert (await crib.workbench(ALICE).call("who")).text == "200 alice"
            needed = parts.broker.needed(ToolAuth("local", scopes=["openid", "read"]), "who")
            flow, scopes = parts.broker.flow(needed), parts.broker.scopes_of(needed)
            begun = await flow.start_device(scopes)
            assert 0 < (begun.expires_at - datetime.now(UTC)).total_seconds() <= 1
            with pytest.raises(FlowError, match="expired_token") as raised:
                while await flow.poll_device(begun.device_code, scopes) == "pending":
                    pass
            assert raised.value.refused
    finally:
        provider.close()
