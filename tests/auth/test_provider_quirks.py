"""The eight supported providers, each imitated: asked for, granted, used, refreshed and revoked, through a Crib."""

import logging
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from toolcrib import ToolAuth
from toolcrib.auth import CallbackError

from .imitation import QUIRKS, Imitation
from .person import ALICE, SCOPES, Person


@pytest.fixture
def server() -> Iterator[Imitation]:
    server = Imitation()
    yield server
    server.close()


@pytest.fixture
async def person(request: pytest.FixtureRequest, server: Imitation) -> AsyncIterator[Person]:
    person = Person(request.param, server)
    async with person.crib:
        yield person


each = pytest.mark.parametrize("person", list(QUIRKS), indirect=True)
each_that_expires = pytest.mark.parametrize("person", [name for name in QUIRKS if name != "notion"], indirect=True)


@each
async def test_a_grant_is_asked_for_used_refreshed_and_revoked(
    person: Person, server: Imitation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    name, quirks = person.name, QUIRKS[person.name]
    await person.grant()
    assert await person.says() == f"200 hello from {name}"

    stored = await person.broker.vault.get(person.owner)
    assert set(SCOPES[name]) <= set(stored.grant.scopes)
    current = stored.grant
    if stored.grant.expires_at is None:  # Notion's tokens do not expire, and are refreshed by nobody
        assert name == "notion"
    else:
        person.shift = stored.grant.expires_at - datetime.now(UTC) - timedelta(seconds=30)
        assert await person.says() == f"200 hello from {name}"
        assert server.refreshes == {name: 1}
        person.shift = timedelta()
        again = await person.broker.vault.get(person.owner)
        assert again.grant.access_token != stored.grant.access_token
        assert (again.grant.refresh_token != stored.grant.refresh_token) == quirks.rotates
        assert set(SCOPES[name]) <= set(again.grant.scopes)
        current = again.grant

    assert await person.broker.revoke(person.owner)
    if quirks.revoke:  # Atlassian documents no such endpoint
        assert current.access_token not in server.tokens
        assert current.refresh_token not in server.refresh_tokens
    await person.asked()
    assert server.problems == []
    assert [secret for secret in server.secrets if secret in caplog.text] == []


@each
async def test_a_code_that_was_used_or_has_expired_is_a_clear_result(person: Person) -> None:
    back = await person.open(await person.asked())
    person.server.codes.clear()
    with pytest.raises(CallbackError) as raised:
        await person.crib.complete(back, caller=ALICE)
    code = QUIRKS[person.name].code_error
    assert str(raised.value) == f"'{person.name}' refused: {code}. Call the tool again to be asked."
    assert raised.value.reason == "failed"
    await person.grant()
    assert await person.says() == f"200 hello from {person.name}"


@each_that_expires
async def test_a_grant_that_the_provider_has_ended_is_asked_for_again(person: Person) -> None:
    await person.grant()
    stored = await person.broker.vault.get(person.owner)
    person.server.refresh_tokens.clear()
    person.shift = stored.grant.expires_at - datetime.now(UTC) + timedelta(seconds=30)
    await person.asked()
    assert await person.broker.vault.get(person.owner) is None


@pytest.mark.parametrize("person", ["github", "google"], indirect=True)
async def test_a_grant_is_given_on_another_device(person: Person, server: Imitation) -> None:
    needed = person.broker.needed(ToolAuth(person.name, "oauth2", SCOPES[person.name]), "hello")
    flow, scopes = person.broker.flow(needed), person.broker.scopes_of(needed)
    code = await flow.start_device(scopes)
    assert code.user_code == "WDJB-MJHT"
    assert code.verification_url == f"{server.url}/device"
    assert await flow.poll_device(code.device_code, scopes) == "pending"
    server.entered.add(code.device_code)
    grant = await flow.poll_device(code.device_code, scopes)
    await person.broker.save(person.owner, grant)
    assert await person.says() == f"200 hello from {person.name}"
    assert server.problems == []
