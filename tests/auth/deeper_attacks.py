"""Attacks on what is behind the doors: vaults, stores, the runtime of a crib, and what a running tool is given."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlalchemy import text

from toolcrib import Approve, Caller, Context, Crib, Secret, ToolAuth, ToolcribError, tool
from toolcrib.auth import Authorization, CallbackError, FlowError, Grant, MemoryVault, Owner
from toolcrib.auth import Vault as AnyVault
from toolcrib.core import Text
from toolcrib.machinery import StoredResult
from toolcrib.store import DatabasePendings, DatabaseResults, Leases
from toolcrib.workbench import Limit, Rule, Rules

if TYPE_CHECKING:
    from .test_identity import World

NOW = datetime.now(UTC)
ADA, BOB = Owner("ada", "work", "example", "oauth2"), Caller("bob", "work", "t1")


async def vaults(world: "World", names: tuple[str, ...]) -> None:
    """Nobody's name opens, changes, ends or holds up what is another's."""
    memory = MemoryVault()
    found = await world.broker.vault.get(ADA)
    await memory.put(ADA, found.grant, version=None)
    state, _ = await world.state_of()
    asked = replace(await world.broker.find(state), owner=ADA, state="state-of-ada", scopes=("all",))
    for vault in (world.broker.vault, memory):
        await vault.open(asked, now=NOW)
        for name in names:
            await _attack(vault, replace(ADA, principal=name), asked)
            for owner in (replace(ADA, profile=name), replace(ADA, provider=name), replace(ADA, handler=name)):
                assert await vault.get(owner) is None
                assert await vault.authorizations(owner, now=NOW) == []
                assert not await vault.remove(owner)
        stored = await vault.get(ADA)
        assert stored.grant == found.grant
        assert [one.state for one in await vault.authorizations(ADA, now=NOW)] == ["state-of-ada"]


async def _attack(vault: AnyVault, owner: Owner, asked: Authorization) -> None:
    assert await vault.get(owner) is None
    assert await vault.owned_by(owner.principal) == []
    assert await vault.authorizations(owner, now=NOW) == []
    assert not await vault.remove(owner)
    assert await vault.put(owner, Grant("of-another"), version=None)
    assert not await vault.put(owner, Grant("of-another"), version=-1)
    assert await vault.remove(owner)
    own = await vault.open(replace(asked, owner=owner, state="another-state"), now=NOW)
    assert own.owner == owner
    assert await vault.close(own)
    for guess in ("state-of-ad_", "%", "state-of-ada\0", ""):
        assert await vault.find(guess, now=NOW) is None
        assert not await vault.close(replace(asked, state=guess))
    async with asyncio.timeout(30), vault.alone(owner), vault.alone(ADA):
        pass  # neither waits for the other


async def pendings(world: "World", names: tuple[str, ...]) -> None:
    """A guessed id or digest gives nothing, and what is put back is no answer to anything else."""
    store = DatabasePendings(world.store)
    _, pending_id = await world.state_of()
    stored = await store.get(pending_id)
    digest = stored.pending.digest
    for name in (*names, pending_id[:-1] + "_", f"{pending_id}%", f"{pending_id}\0"):
        assert await store.get(name) is None
        assert not await store.answer(name, Approve(), by="bob", now=NOW)
        for guess in (name, digest[:-1] + "_", f"{digest}%"):
            assert await store.take(guess, "authorization", "", now=NOW) is None
            assert await store.answered(guess, "authorization", "", now=NOW) is None
            assert await store.asked_by(guess, now=NOW) == []
    bobs = replace(stored.pending, id="pending_of_bob", principal="bob", digest="d" * 64)
    assert await store.open(bobs, now=NOW) == bobs
    assert await store.answer(bobs.id, Approve(), by="bob", now=NOW)
    assert await store.answered(digest, "authorization", "", now=NOW) is None
    taken = await store.take(bobs.digest, "authorization", "", now=NOW)
    await store.give_back(taken)
    assert [one.principal for one in await store.waiting(now=NOW)] == ["ada"]


async def shared_limits(world: "World", names: tuple[str, ...]) -> None:
    """Nobody uses up, or takes, what is another principal's."""
    limit = Limit(per="principal", rate="1/h", concurrency=1)
    adas = limit.shared_name("ada")
    assert await world.store.limits.take(adas, 1) is not None
    for name in names:
        own = limit.shared_name(name)
        assert await world.store.limits.take(own, 1) is not None
        assert await world.store.limits.admit(own, name, burst=1, per_s=0.001) == 0.0
    assert await world.store.limits.admit(adas, "ada", burst=1, per_s=0.001) == 0.0
    assert await world.store.limits.take(adas, 1) is None


async def grants(world: "World", names: tuple[str, ...]) -> None:
    """A grant is of one principal, thread and profile, given by who may answer, and nobody else's to see or end."""

    @tool
    def pay(to: str) -> str:
        return f"paid {to}"

    ada, call = Caller("ada", "work", "t1"), ("pay", {"to": "bob"})
    answer = Approve(until="conversation", where={"/to": "b*"})
    crib = Crib([pay], policy=Rules([Rule(name="pay", do="ask", others_only=True)]), store=world.store)
    bench = crib.workbench(ada)
    waits = (await bench.call(*call)).pending
    for name in ("ada", ""):
        await world.refused(crib.preview(waits.id, answer, by=name))
        await world.refused(crib.answer(waits.id, answer, by=name))
    assert (await crib.grants.list())[0] == []
    await crib.answer(waits.id, answer, by="bob")
    assert [(await bench.call(*call)).status for _ in range(2)] == ["success"] * 2
    (grant,), _ = await crib.grants.list()
    store = world.store.pendings.grants
    for name in names:
        others = (Caller(name, "work", "t1"), Caller("ada", name, "t1"), Caller("ada", "work", name))
        for other in others:
            assert (await crib.workbench(other).call(*call)).status == "pending"
        assert await store.find(name, "t1", grant.rule, now=NOW) == []
        assert await store.find("ada", name, grant.rule, now=NOW) == []
        assert await store.find("ada", "t1", name, now=NOW) == []
        assert (await crib.grants.list(principal=name))[0] == []
        await world.refused(crib.grants.revoke(grant.id, principal=name))
        await world.refused(crib.grants.revoke(name))
    assert (await bench.call(*call)).status == "success"
    await crib.grants.revoke(grant.id, principal="ada")
    assert (await bench.call(*call)).status == "pending"


async def results(world: "World", names: tuple[str, ...]) -> None:
    """A handle is of one principal and thread."""
    store = DatabaseResults(world.store)
    assert await store.store(StoredResult("handle-of-ada", "ada", "t1", "read", (Text("adas-long-result"),), NOW))
    for name in names:
        for principal, thread in ((name, "t1"), ("ada", name), ("bob", "t1")):
            assert await store.find("handle-of-ada", principal, thread) is None
        assert await store.find(name, "ada", "t1") is None
    assert await store.find("handle-of-ada", "ada", "t1") is not None


async def leases(world: "World", names: tuple[str, ...]) -> None:
    """Nobody's name is another's lease, and whoever does not hold one neither extends nor ends it."""
    leases = Leases(world.store)
    adas = await leases.acquire("grant of ada", "ada", for_s=60)
    for name in names:
        own = await leases.acquire(f"grant of ada{name}" if name else "grant of", "bob", for_s=60)
        await leases.release(own)
        for forged in (replace(adas, owner=name), replace(adas, fence=adas.fence + 1), replace(adas, name=name)):
            assert not await leases.renew(forged, for_s=60)
            assert not await world.store.transact(lambda c, lease=forged: leases.still_held(c, lease))
            await leases.release(forged)
    assert await leases.acquire("grant of ada", "bob", for_s=60) is None
    async with leases.hold("grant of ada", "bob", for_s=60, wait_s=0.01) as held:
        assert held is None
    assert await leases.renew(adas, for_s=60)


async def flows(world: "World", names: tuple[str, ...]) -> None:
    """A flow has nobody's tokens, shows no secret, and nothing that is filled in becomes another parameter."""
    flow = world.broker.flow(world.broker.needed(ToolAuth("example"), "read"))
    world.see(flow, flow.name, flow.oauth2, flow.client, flow.discovered, flow.on_answer, flow.clock(), flow.http)
    table = await flow.table()
    for name in (*names, "s&redirect_uri=https://evil.example", "s#f", "s?state=t", "s;state=t", "s%26state=t"):
        state = name or "s"
        given: dict[str, Any] = {"redirect_uri": f"http://127.0.0.1:1/{name}", "scopes": [state], "verifier": "v"}
        if "\ud800" in name:
            await world.refused(flow.authorization_url(**given, state=state))
            continue
        for url in (await flow.authorization_url(**given, state=state), flow.url_of(table, **given, state=state)):
            parts = urlsplit(url)
            assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "p.example", "")
            asked = parse_qs(parts.query, keep_blank_values=True)
            assert asked["state"] == [state]
            assert asked["redirect_uri"] == [given["redirect_uri"]]
            assert "client_secret" not in asked
    await flow.require_issuer("https://evil.example")  # its table has no issuer to compare
    strict = replace(flow, oauth2=table.model_copy(update={"issuer": "https://p.example", "iss_required": True}))
    for issuer in (None, "", "https://p.example/", "https://p.example.evil", *names):
        with pytest.raises(FlowError):
            await strict.require_issuer(issuer)
    # The provider does not answer: nothing of what is sent comes back in an error.
    stolen = Grant("adas-access-token", "adas-refresh-token")
    await world.refused(flow.exchange_code("c", redirect_uri="http://h", verifier="v", scopes=[]))
    await world.refused(flow.refresh(stolen))
    await world.refused(flow.client_credentials([]))
    await world.refused(flow.exchange_token("adas-access-token", scopes=[]))
    await world.refused(flow.identity_assertion("adas-id-token", audience="a", resource="r", scopes=[]))
    await world.refused(flow.exchange_assertion("adas-assertion", []))
    await world.refused(flow.start_device([]))
    await world.refused(flow.poll_device("device-code-of-ada", []))
    await world.refused(flow.revoke(stolen))


async def credentials_of_a_crib(world: "World", names: tuple[str, ...]) -> None:
    """Nobody is asked, answers, or ends what is asked of another."""
    credentials, pending = world.crib.credentials, world.crib.pending
    state, pending_id = await world.state_of("use")
    asked = await world.broker.find(state)
    world.see(credentials, credentials.broker, credentials.given, credentials.pending, pending, pending.store)
    world.see(pending.redaction, pending.clock(), pending.within, pending.may_answer, pending.ask)
    for one in await credentials.ask_for([ToolAuth("example"), Secret("KEY")], BOB):
        assert one.principal == "bob"
        assert await credentials.open(one) == one
        assert not await credentials.wait_for(one, 0.01)
    for name in names:
        if name == "ada":
            continue
        with pytest.raises(CallbackError):
            await credentials.complete(f"?state={state}&code=c", Caller(name, "work"))
        with pytest.raises(CallbackError, match="of somebody else"):
            await credentials.save(Owner(name, "fresh", "KEY", "secret"), Grant("of-bob"), asked=asked)
        await world.refused(pending.answer(name, Approve(), by="bob"))
        pending.remember(name, None)
    stored = await pending.store.get(pending_id)
    assert stored.state == "open"
    world.see(await pending.ask_now(stored.pending))
    assert await world.broker.find(state) == asked


async def database(world: "World") -> None:
    """What is read past the vault is sealed, also after the keys have turned."""
    await world.state_of()
    for _ in range(2):
        for table in ("grants", "authorizations", "pendings", "results", "calls"):
            statement = text(f"SELECT * FROM toolcrib_{table}")
            world.see(*await world.store.read(statement))
            world.see(*await world.store.transact(lambda c, s=statement: c.execute(s).fetchall(), write=False))
            world.see(*world.store.write(lambda c, s=statement: c.execute(s).fetchall()))
        assert await world.store.rotate_key() > 0
        world.see(world.store.changes(), world.store, await world.store.pending_migrations(), world.store.file)
    world.store.close()


async def runtime(world: "World") -> None:
    """What a crib has for its workbenches is by caller."""
    crib: Any = world.crib
    bench = crib.workbench(BOB)
    for change in (crib.add_view, crib.keep_view, crib.drop_view):
        change(bench)
    made = crib.runtime_for(BOB, ask=None, variables={"principal": "ada"}, resolve=None, session=None)
    assert made.caller == BOB
    assert await crib.store.results.find("any", "bob", "t1") is None
    world.see(crib.by_caller(), crib.program(), crib.describe(ValueError("x")), crib.is_own(bench))
    crib.own(None)
    crib.require_open()
    await crib.start_required()
    await crib.close_resources()


async def running_tool(world: "World") -> None:
    """What a tool is given is its caller's: no provider, argument or attribute leads to another's."""
    begun: list[str] = []

    @tool(auth=ToolAuth("example", "token"))
    async def pry(context: Context) -> None:
        for name in ("KEY", "ada", "example\0", "%", ""):
            for look in (context.http, context.credentials.__getitem__):
                with suppress(ToolcribError, LookupError):
                    world.see(look(name))
        with suppress(AttributeError):
            context.caller = Caller("ada", "work", "t1")  # type: ignore[misc]
        assert context.caller == BOB
        assert [one.secret for one in context.credentials.values()] == ["bobs-own-key"]
        world.see(context.call, context.variables, context.credentials, context.deadline_at, context.cancellation)
        world.see(context.deadline, context.time_left_s, context.log, context.host, context.port)
        world.see(context.run_on_loop)
        context.progress(1, 2, "x")
        await context.emit("x")
        begun.append("pry")
        await context.ask("ada", str, "Adas secret?")

    @tool(auth=ToolAuth("example", "token"))
    def pry_in_a_thread(context: Context) -> None:
        context.wait(asyncio.sleep(0))
        world.see(context.credentials)
        begun.append("thread")

    await world.broker.save(Owner("bob", "work", "example", "token"), Grant("bobs-own-key"))
    async with Crib([pry, pry_in_a_thread], broker=world.broker) as crib:
        bench = crib.workbench(BOB)
        world.see(await bench.call("pry"), await bench.call("pry_in_a_thread"))
    assert begun == ["pry", "thread"]
