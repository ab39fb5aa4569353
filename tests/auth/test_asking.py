"""What a broker asks for, of whom, and whom it tells what was granted: by its own methods, against loopback."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from toolcrib import Call, Caller, Pending, Secret, ToolAuth, ToolError, net
from toolcrib.auth import CallbackError, Client, CredentialBroker, Flow, Grant, OAuth2, Owner, secret_owner
from toolcrib.auth.flows import DeviceCode
from toolcrib.auth.vault import Authorization
from toolcrib.core import Credential

from .conftest import ALICE, ALICES, BOB, IDP, NOON, TOKEN, Server, Setup, as_json

READ, WRITE = ToolAuth("idp", scopes=["read"]), ToolAuth("idp", scopes=["write"])


@pytest.fixture
def broker(setup: Setup, server: Server) -> CredentialBroker:
    setup.crib(f'[idp]\nrecommended_scopes = ["profile"]\n{IDP}revoke_url = "SERVER/revoke"\n[idp.token]\n')
    server.answers |= {"/token": as_json({**TOKEN, "refresh_token": "a-refresh-token"}), "/revoke": as_json({})}
    return setup.broker


async def asked(broker: CredentialBroker, *required: Any, caller: Caller = ALICE) -> Pending:
    found = await broker.authorize(required, caller, Call("use"))
    assert isinstance(found, Pending)
    return found


async def given(broker: CredentialBroker, *required: Any, caller: Caller = ALICE) -> Credential:
    found = await broker.authorize(required, caller, Call("use"))
    (credential,) = found
    return credential


async def test_what_was_given_is_given_again_as_it_is_until_it_changes_or_ends(
    broker: CredentialBroker, setup: Setup
) -> None:
    ends = NOON + timedelta(hours=1)
    await broker.save(ALICES, Grant("the-first-token", scopes=["read"], expires_at=ends))
    first = await given(broker, READ)
    assert await given(broker, READ) is first
    assert await given(broker, ToolAuth("idp", scopes=["read"])) is first
    await broker.save(replace(ALICES, profile="other"), Grant("the-other-token", scopes=["read"]))
    assert (await given(broker, READ, caller=Caller("alice", "other"))).secret == "the-other-token"
    assert await asked(broker, READ, caller=BOB)
    await broker.save(ALICES, Grant("the-second-token", scopes=["read"], expires_at=ends))
    assert (await given(broker, READ)).secret == "the-second-token"
    setup.now = ends
    assert (await asked(broker, READ)).message.startswith("Your grant at idp has ended.")


async def test_a_grant_answers_those_who_wait_for_no_more_than_it_has(broker: CredentialBroker) -> None:
    read, write = await asked(broker, READ), await asked(broker, WRITE)
    assert await broker.open_scopes(broker.needed(READ, "use"), ALICE) == {"read", "write"}
    assert await broker.open_scopes(broker.needed(READ, "use"), BOB) == set()
    assert await broker.save(ALICES, Grant("the-first-token", scopes=["read", "more"])) == [read.id]
    assert await broker.open_scopes(broker.needed(READ, "use"), ALICE) == {"read", "more", "write"}
    assert await broker.save(ALICES, Grant("the-second-token", scopes=["read", "write"])) == [write.id]
    assert await broker.save(ALICES, Grant("the-third-token")) == []


async def test_all_that_several_tools_need_is_asked_for_at_once(broker: CredentialBroker) -> None:
    key = ToolAuth("idp", "token")
    pendings = await broker.ask_for([READ, Secret("SHOP_KEY"), WRITE, key, Secret("SHOP_KEY")], ALICE, "use")
    assert sorted({each.message for each in pendings}) == [
        "A key for idp is needed: toolcrib auth login idp",
        "Grant access to your account at idp",
        "The secret SHOP_KEY is needed: toolcrib secrets set SHOP_KEY",
    ]
    assert "scope=read+write" in next(each.url for each in pendings if each.url)
    await broker.save(ALICES, Grant("the-first-token", scopes=["read", "write"]))
    await broker.save(Owner.of(ALICE, "idp", "token"), Grant("1234"))
    await broker.save(secret_owner("alice", "default", "SHOP_KEY"), Grant("the-shop-key"))
    assert await broker.ask_for([READ, Secret("SHOP_KEY"), WRITE, key], ALICE, "use") == []
    assert (await given(broker, key)).secret == "1234"
    assert (await given(broker, Secret("SHOP_KEY"))).secret == "the-shop-key"
    profile = await asked(broker, Secret("SHOP_KEY"), caller=Caller("alice", "work"))
    assert profile.message.endswith("(for the profile 'work')")


async def test_only_a_callback_of_a_provider_completes_what_a_provider_was_asked_for(broker: CredentialBroker) -> None:
    broker.form_uri = "http://127.0.0.1:1/auth/secret"
    form = await asked(broker, ToolAuth("idp", "token"))
    with pytest.raises(CallbackError) as raised:
        await broker.complete(f"{form.url}&code=a-code")
    assert raised.value.reason == "unknown"
    assert (await asked(broker, ToolAuth("idp", "token"))).id == form.id  # and is still open


async def test_what_is_revoked_is_forgotten_and_its_provider_notified(
    broker: CredentialBroker, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    secret, key = secret_owner("alice", "default", "idp"), Owner.of(ALICE, "idp", "token")
    for owner in (secret, key, ALICES):
        await broker.save(owner, Grant("the-first-token"))
    for owner in (secret, key, ALICES):
        assert await broker.revoke(owner)
        assert not await broker.revoke(owner)
        assert len(server.sent("/revoke")) == (owner == ALICES)
    assert caplog.text == ""
    server.answers["/revoke"] = as_json({}, 503)
    await broker.save(ALICES, Grant("the-first-token"))
    assert await broker.revoke(ALICES)
    assert "'idp' could not be notified that a grant ended" in caplog.text
    assert await broker.vault.get(ALICES) is None


async def test_a_token_that_is_not_accepted_is_refreshed_or_asked_for_before_it_is_given_again(
    broker: CredentialBroker, server: Server
) -> None:
    await broker.save(ALICES, Grant("the-first-token", "the-first-refresh", scopes=["read"]))
    refused = (await given(broker, READ)).refused
    await refused()
    assert (await given(broker, READ)).secret == TOKEN["access_token"]
    assert [each["refresh_token"] for each in server.sent("/token")] == ["the-first-refresh"]
    await refused()  # it was about the old one
    assert (await given(broker, READ)).secret == TOKEN["access_token"]
    assert len(server.sent("/token")) == 1
    await broker.save(ALICES, Grant("the-only-token", scopes=["read"]))
    refused = (await given(broker, READ)).refused
    await refused()
    assert not (await asked(broker, READ)).message.startswith("What you granted")


async def test_a_caller_without_a_name_is_given_and_asked_for_nothing(broker: CredentialBroker) -> None:
    for work in (broker.authorize([READ], Caller(""), Call("use")), broker.ask_for([READ], Caller(""), "use")):
        with pytest.raises(ToolError, match="this one has no name") as raised:
            await work
        assert raised.value.code == "unauthorized"


def test_no_value_shows_a_secret() -> None:
    client = Client("an-id", "hush-secret", {"domain_url": "x"}, private_key="hush-key")
    table = OAuth2(token_url="https://idp.example/token", authorize_url="https://idp.example/")
    asked = Authorization("id", ALICES, "t", (), NOON, "hush-url", "hush-state", "hush-verifier", "http://h/")
    assert [
        repr(client),
        repr(Flow("idp", table, client, net.client, {"hush": table}, print)),
        repr(Grant("hush-access", "hush-refresh")),
        repr(DeviceCode("hush-device", "USER", "https://idp.example/", NOON, 5.0)),
        repr(asked),
    ] == [
        "Client(id='an-id', parameters={'domain_url': 'x'}, redirect_uri=None, grant='authorization_code', "
        "issuer=None, idp=None)",
        f"Flow(name='idp', oauth2={table!r}, client={client!r})",
        "Grant(scopes=(), expires_at=None, detail={})",
        f"DeviceCode(user_code='USER', verification_url='https://idp.example/', expires_at={NOON!r}, interval_s=5.0)",
        f"Authorization(id='id', owner={ALICES!r}, thread='t', scopes=(), expires_at={NOON!r}, "
        "redirect_uri='http://h/')",
    ]
