"""Each key of the catalogue matters: without it, somebody at the imitated provider meets something else.

A *journey* is all that can happen to a grant at one provider, from the first question to the revocation. It is made
with the table as it is, and again without each of its keys and each of their entries.
"""

import copy
import tomllib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any

import pytest

from toolcrib import Context, ToolAuth, ToolcribError, ToolError, tool
from toolcrib.auth import Client, CredentialBroker, FlowError, Grant, OAuth2, Owner, Provider, load_catalogue
from toolcrib.auth.catalogue import Basic, Key, KeyPair

from .imitation import QUIRKS, Imitation, query_of
from .person import ALICE, CALLBACK, SCOPES, Person

Step = Callable[[Person], Awaitable[Any]]
STEPS: list[Step] = []

# What these do is shown in test_catalogue.py and in tests/cli/test_auth.py, which compare them as they are.
SHOWN = {"source", "checked", "environment", "supported"}


def step(function: Step) -> Step:
    STEPS.append(function)
    return function


async def stored(person: Person) -> Grant:
    found = await person.broker.vault.get(person.owner)
    assert found is not None
    if found.grant.expires_at is None and person.name == "notion":  # which does not say when a token ends, today
        ends = replace(found.grant, expires_at=datetime.now(UTC) + timedelta(hours=1))
        assert await person.broker.vault.put(person.owner, ends, version=found.version)
        return ends
    return found.grant


async def wait_until(person: Person, seconds: float) -> None:
    """Have it be so many seconds before the token ends, or after."""
    ends = (await stored(person)).expires_at
    assert ends is not None, "it does not end"
    person.shift = ends - datetime.now(UTC) - timedelta(seconds=seconds)


@step
async def asked(person: Person) -> Any:
    pending = (await person.bench.call("hello")).pending
    assert pending is not None
    assert pending.url is not None
    return pending.message, {**query_of(pending.url), "state": "", "code_challenge": ""}


@step
async def asked_by_a_tool_that_names_no_scopes(person: Person) -> Any:
    needed = person.broker.needed(ToolAuth(person.name), "work")
    return needed.handler_name, person.broker.scopes_of(needed)


@step
async def refused_scopes(person: Person) -> Any:
    return person.broker.needed(ToolAuth(person.name, "oauth2", ["any"]), "work").scopes


@step
async def granted(person: Person) -> Any:
    await person.grant()
    grant = await stored(person)
    detail = {name: value.replace(person.server.url, "SERVER") for name, value in grant.detail.items()}
    return await person.says(), sorted(grant.scopes), grant.refresh_token is not None, detail


@step
async def refreshed(person: Person) -> Any:
    before, count = await stored(person), person.server.refreshes.get(person.name, 0)
    await wait_until(person, 30)
    text = await person.says()
    after = await stored(person)
    is_same = after.refresh_token == before.refresh_token
    return text, person.server.refreshes.get(person.name, 0) - count, is_same, sorted(after.scopes)


@step
async def refreshed_without_another_refresh_token(person: Person) -> Any:
    person.server.withholds = True
    await wait_until(person, 30)
    texts = [await person.says()]
    if (await stored(person)).expires_at is not None:
        await wait_until(person, -30)
        texts.append((await person.bench.call("hello")).status)
    return texts


@step
async def granted_again(person: Person) -> Any:
    await person.broker.vault.remove(person.owner)
    await person.grant()
    return (await stored(person)).refresh_token is not None


@step
async def granted_what_is_in_another_scope(person: Person) -> Any:
    """By a tool that needs a scope that is itself in a wider one, and what is in it."""
    tree = QUIRKS[person.name].tree
    narrow = {one for inner in tree.values() for one in inner.split()}
    scopes = sorted({each for one in narrow & set(tree) for each in (one, *tree[one].split())})
    flow = person.broker.flow(person.broker.needed(ToolAuth(person.name, "oauth2"), "work"))
    verifier = "v" * 50
    url = await flow.authorization_url(redirect_uri=CALLBACK, scopes=scopes, state="s", verifier=verifier)
    code = query_of(await person.open(url))["code"]
    grant = await flow.exchange_code(code, redirect_uri=CALLBACK, verifier=verifier, scopes=scopes)
    return set(scopes) - set(grant.scopes)


@step
async def ended(person: Person) -> Any:
    messages = []
    for error in QUIRKS[person.name].ended_errors:
        await person.broker.vault.remove(person.owner)
        await person.grant()
        person.server.refresh_tokens.clear()
        person.server.ended_error = error
        await wait_until(person, -30)
        result = await person.bench.call("hello")
        messages.append(result.pending.message if result.pending else result.text)
        person.shift = timedelta()
    return messages


@step
async def given_an_expired_code(person: Person) -> Any:
    back = await person.open(await person.asked())
    person.server.codes.clear()
    await person.crib.complete(back, caller=ALICE)


@step
async def cut_off_before_an_answer(person: Person) -> Any:
    person.server.breaks = True
    await person.grant()


@step
async def answered_by_another_issuer(person: Person) -> Any:
    back = await person.open(await person.asked())
    await person.crib.complete(f"{back}&iss=https://evil.example", caller=ALICE)


@step
async def granted_on_another_device(person: Person) -> Any:
    needed = person.broker.needed(ToolAuth(person.name, "oauth2", SCOPES[person.name]), "hello")
    flow, scopes = person.broker.flow(needed), person.broker.scopes_of(needed)
    code = await flow.start_device(scopes)
    person.server.entered.add(code.device_code)
    grant = await flow.poll_device(code.device_code, scopes)
    return grant if isinstance(grant, str) else sorted(grant.scopes)


@step
async def sent_a_key(person: Person) -> Any:
    await person.broker.save(Owner.of(ALICE, person.name, "token"), Grant("a-key-0123456789"))

    @tool(auth=ToolAuth(person.name, "token"))
    async def with_key(ctx: Context) -> int:
        return (await ctx.http(person.name).get(f"{person.server.url}/api")).status_code

    crib = person.crib_of(with_key)
    async with crib:
        return (await crib.workbench(ALICE).call("with_key")).text, person.server.sent.get("authorization")


@step
async def revoked(person: Person) -> Any:
    person.server.tokens.clear()
    person.server.refresh_tokens.clear()
    await person.broker.vault.remove(person.owner)
    await person.grant()
    await person.broker.revoke(person.owner)
    return len(person.server.tokens), len(person.server.refresh_tokens), len(person.server.revocations)


async def journey(name: str, table: Provider) -> dict[str, Any]:
    """What happens in each step, or the error that it ends with; and what the provider did not like."""
    server = Imitation()
    facts: dict[str, Any] = {}
    try:
        try:
            person = Person(name, server, table)
        except ValueError as error:
            return {"error": str(error)}
        async with person.crib:
            for each in STEPS:
                try:
                    facts[each.__name__] = await each(person)
                except (ToolcribError, ToolError, AssertionError) as error:
                    facts[each.__name__] = str(error).replace(server.host, "HOST").replace(str(server.port), "PORT")
                person.shift = timedelta()
                server.withholds = server.breaks = False
        facts["problems"] = sorted(set(server.problems))
        return facts
    finally:
        server.close()


def paths(table: dict[str, Any], at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of each key in *table*, and of each entry of a list."""
    for key, value in table.items():
        yield (*at, key)
        if isinstance(value, dict):
            yield from paths(value, (*at, key))
        elif isinstance(value, list) and len(value) > 1:
            yield from ((*at, key, index) for index in range(len(value)))


def without(table: dict[str, Any], path: tuple[Any, ...]) -> Provider | None:
    changed = inner = copy.deepcopy(table)
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    try:
        return Provider.model_validate({"title": "?", **changed})
    except ValueError:  # it is noticed when the file is read
        return None


SHIPPED: dict[str, Any] = tomllib.loads(resources.files("toolcrib.auth").joinpath("providers.toml").read_text("utf-8"))


@pytest.mark.full
@pytest.mark.parametrize("name", QUIRKS)
async def test_no_key_of_a_supported_provider_can_be_removed_unnoticed(name: str) -> None:
    table = SHIPPED[name]
    whole = await journey(name, load_catalogue()[name])
    assert whole["problems"] == []
    assert [whole[each][0] for each in ("granted", "refreshed")] == [f"200 hello from {name}"] * 2
    unnoticed: list[tuple[Any, ...]] = []
    for path in paths(table):
        if path[0] in SHOWN or (path[0] == "hosts" and len(path) > 1):  # the hosts are one server here
            continue
        changed = without(table, path)
        if changed is not None and await journey(name, changed) == whole:
            unnoticed.append(path)
    assert unnoticed == []


URLS = {"token_url": "https://idp.example/token", "authorize_url": "https://idp.example/authorize"}
# Tables with the keys that no supported provider has.
OTHERS: dict[str, dict[str, Any]] = {
    "iss_required": {"oauth2": {**URLS, "issuer": "https://idp.example", "iss_required": True}},
    "resource": {"oauth2": {**URLS, "resource": "https://idp.example/mcp"}},
    "grant": {"oauth2": {**URLS, "grant": "client_credentials"}},
    "header": {"token": {"header": "X-Key"}},
    "default": {"default": "token", "token": {}, "oauth2": URLS},
    "basic": {"basic": {}, "token": {}},
    "keypair": {"keypair": {}, "token": {}},
}


async def met(table: dict[str, Any]) -> Any:
    """What a table leads to without a request."""
    entry = Provider.model_validate({"title": "Idp", **table})
    broker = CredentialBroker(catalogue={"idp": entry}, clients={"idp": Client("id", "a-client-secret")})
    needed = broker.needed(ToolAuth("idp"), "work")
    credential = needed.credential(Grant("a-key-0123456789"), {}, ())
    facts = [list(entry.handlers), needed.handler_name, needed.is_of_program, credential.header]
    if needed.handler_name == "oauth2":
        assert isinstance(needed.handler, OAuth2)
        facts.append(needed.handler.resource)
        try:
            await broker.flow(needed).require_issuer(None)
        except FlowError as error:
            facts.append(error.error)
    return facts


@pytest.mark.parametrize("key", OTHERS)
async def test_no_other_key_can_be_removed_unnoticed(key: str) -> None:
    table = OTHERS[key]
    path = (key,) if key in table else (next(iter(table)), key)
    changed = copy.deepcopy(table)
    del (changed if len(path) == 1 else changed[path[0]])[key]
    assert await met(changed) != await met(table)


def test_these_are_all_keys_that_a_table_takes() -> None:
    supported = {key for name in QUIRKS for path in paths(SHIPPED[name]) for key in path}
    known = {key for model in (Provider, OAuth2, Key, Basic, KeyPair) for key in model.model_fields}
    assert known - supported - set(OTHERS) == set()
    assert set(OTHERS) - known == set()
