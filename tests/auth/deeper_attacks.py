"""Attacks on what is behind the doors: vaults, stores, the runtime of a crib, and what a running tool is given."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
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

from .doors import ADA, BOB, NAMES, World, door

NOW = datetime.now(UTC)
OWNER = Owner("ada", "work", "example", "oauth2")
VAULT = ("alone", "authorizations", "close", "find", "get", "open", "owned_by", "put", "remove")


@door(*(f"{kind}.{name}" for kind in ("DatabaseVault", "MemoryVault") for name in VAULT))
async def vaults(world: World) -> None:
    """Nobody's name opens, changes, ends or holds up what is another's."""
    memory = MemoryVault()
    found = await world.broker.vault.get(OWNER)
    await memory.put(OWNER, found.grant, version=None)
    state, _ = await world.state_of()
    asked = replace(await world.broker.find(state), owner=OWNER, state="state-of-ada", scopes=("all",))
    for vault in (world.broker.vault, memory):
        await vault.open(asked, now=NOW)
        for name in NAMES:
            await _attack(vault, replace(OWNER, principal=name), asked)
            for owner in (replace(OWNER, profile=name), replace(OWNER, provider=name), replace(OWNER, handler=name)):
                assert await vault.get(owner) is None
                assert await vault.authorizations(owner, now=NOW) == []
                assert not await vault.remove(owner)
        stored = await vault.get(OWNER)
        assert stored.grant == found.grant
        assert [one.state for one in await vault.authorizations(OWNER, now=NOW)] == ["state-of-ada"]


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
    async with asyncio.timeout(30), vault.alone(owner), vault.alone(OWNER):
        pass  # neither waits for the other


@door(*(f"DatabasePendings.{name}" for name in ("open", "get", "answer", "answered", "take", "give_back", "waiting")))
@door("DatabasePendings.asked_by")
async def pendings(world: World) -> None:
    """A guessed id or digest gives nothing, and what is put back is no answer to anything else."""
    store = DatabasePendings(world.store)
    _, pending_id = await world.state_of()
    stored = await store.get(pending_id)
    digest = stored.pending.digest
    for name in (*NAMES, pending_id[:-1] + "_", f"{pending_id}%", f"{pending_id}\0"):
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


@door("Store.limits", "Limiter.budgets", "Limiter.middleware")
async def shared_limits(world: World) -> None:
    """Nobody uses up, or takes, what is another principal's."""

    @tool
    def cheap() -> None:
        """Cost one call."""

    for shared in (False, True):
        limit = Limit(per="principal", budget="10 calls/d", shared=shared)
        crib = Crib([cheap], limits=[limit], store=world.store)
        await crib.workbench(ADA).call("cheap")
        for name in NAMES:
            (row,) = await crib.limiter.budgets(crib.registry.specs(), Caller(name), world.store.limits)
            assert (row["left"] == 10, row["of"]) == ((False, "ada") if name == "ada" else (True, None))
        await crib.stop()
    limit = Limit(per="principal", rate="1/h", concurrency=1)
    adas = limit.shared_name("ada")
    assert await world.store.limits.take(adas, 1) is not None
    for name in NAMES:
        own = limit.shared_name(name)
        assert await world.store.limits.take(own, 1) is not None
        assert await world.store.limits.admit(own, name, burst=1, per_s=0.001) == 0.0
    assert await world.store.limits.admit(adas, "ada", burst=1, per_s=0.001) == 0.0
    assert await world.store.limits.take(adas, 1) is None


@door("Crib.preview", "Grants.list", "Grants.revoke", "Grants.find", "Grants.proposed", "PendingCalls.grants")
@door(*(f"Grants.{name}" for name in ("store", "policy", "tool", "specs", "clock")))
@door(*(f"DatabaseGrants.{name}" for name in ("add", "insert", "find", "page", "revoke")))
async def grants(world: World) -> None:
    """A grant is of one principal, thread and profile, given by who may answer, and nobody else's to see or end."""

    @tool
    def pay(to: str) -> str:
        return f"paid {to}"

    call = ("pay", {"to": "bob"})
    answer = Approve(until="conversation", where={"/to": "b*"})
    crib = Crib([pay], policy=Rules([Rule(name="pay", do="ask", others_only=True)]), store=world.store)
    bench = crib.workbench(ADA)
    waits = (await bench.call(*call)).pending
    for name in ("ada", ""):
        await world.refused(crib.preview(waits.id, answer, by=name))
        await world.refused(crib.answer(waits.id, answer, by=name))
    assert (await crib.grants.list())[0] == []
    await crib.answer(waits.id, answer, by="bob")
    assert [(await bench.call(*call)).status for _ in range(2)] == ["success"] * 2
    (grant,), _ = await crib.grants.list()
    store = world.store.pendings.grants
    for name in NAMES:
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


@door(*(f"DatabaseResults.{name}" for name in ("store", "find")))
async def results(world: World) -> None:
    """A handle is of one principal and thread."""
    store = DatabaseResults(world.store)
    assert await store.store(StoredResult("handle-of-ada", "ada", "t1", "read", (Text("adas-long-result"),), NOW))
    for name in NAMES:
        for principal, thread in ((name, "t1"), ("ada", name), ("bob", "t1")):
            assert await store.find("handle-of-ada", principal, thread) is None
        assert await store.find(name, "ada", "t1") is None
    assert await store.find("handle-of-ada", "ada", "t1") is not None


@door(*(f"Leases.{name}" for name in ("acquire", "hold", "release", "renew", "still_held")))
async def leases(world: World) -> None:
    """Nobody's name is another's lease, and whoever does not hold one neither extends nor ends it."""
    leases = Leases(world.store)
    adas = await leases.acquire("grant of ada", "ada", for_s=60)
    for name in NAMES:
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


@door(
    *(f"Flow.{name}" for name in ("client", "clock", "discovered", "http", "name", "oauth2", "on_answer", "table")),
    *(f"Flow.{name}" for name in ("authorization_url", "url_of", "require_issuer", "exchange_code", "refresh")),
    *(f"Flow.{name}" for name in ("client_credentials", "exchange_token", "start_device", "poll_device", "revoke")),
    *("Flow.identity_assertion", "Flow.exchange_assertion"),
)
async def flows(world: World) -> None:
    """A flow has nobody's tokens, shows no secret, and nothing that is filled in becomes another parameter."""
    flow = world.broker.flow(world.broker.needed(ToolAuth("example"), "read"))
    world.see(flow, flow.name, flow.oauth2, flow.client, flow.discovered, flow.on_answer, flow.clock(), flow.http)
    table = await flow.table()
    for name in (*NAMES, "s&redirect_uri=https://evil.example", "s#f", "s?state=t", "s;state=t", "s%26state=t"):
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
    for issuer in (None, "", "https://p.example/", "https://p.example.evil", *NAMES):
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


@door(
    *(
        f"Credentials.{name}"
        for name in ("ask_for", "broker", "complete", "configure", "given", "has_broker", "open", "pending", "save")
    ),
    *("Credentials.wait_for", "PendingCalls.answer", "PendingCalls.ask_now", "PendingCalls.remember"),
    *(
        f"PendingCalls.{name}"
        for name in ("ask", "clock", "may_answer", "opened", "redaction", "store", "tool", "within")
    ),
)
async def credentials_of_a_crib(world: World) -> None:
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
    for name in NAMES:
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


@door(
    *("Store.read", "Store.transact", "Store.write", "Store.changes", "Store.rotate_key", "Store.use", "Store.close"),
    *("Store.pending_migrations", "Store.has_sealed", "Store.file", "Store.pendings", "Store.results", "Store.schemas"),
    *("Store.on_close", "Store.was_away", "Store.notices", "Store.sign_events", "Store.threads", "Store.execute"),
    "Store.fetch",
)
async def database(world: World) -> None:
    """What is read past the vault is sealed, also after the keys have turned."""
    assert await world.store.results.find("any", "bob", "t1") is None
    await world.store.threads.remember("ada", "t1", {"seen untrusted"})
    for name in NAMES:
        assert await world.store.threads.recall(name, "t1", {"seen untrusted"}) == frozenset()
        assert await world.store.threads.clear(name) + await world.store.threads.clear("ada", name) == 0
    assert await world.store.pendings.get("any") is None
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


@door(
    *("Crib.add_view", "Crib.by_caller", "Crib.close_resources", "Crib.describe", "Crib.drop_view", "Crib.is_own"),
    *("Crib.keep_view", "Crib.marks", "Crib.database", "Crib.own", "Crib.program", "Crib.require_open"),
    *("Crib.runtime_for", "Crib.start_required", "Crib.offering", "Crib.reopen", "Crib.settle_sources"),
    *("Crib.lock_changes", "Crib.accept_change"),
)
async def runtime(world: World) -> None:
    """What a crib has for its workbenches is by caller."""
    assert world.crib.offering() == []
    assert (await world.crib.lock_changes(), await world.crib.accept_change("any")) == ([], None)
    world.crib.reopen()
    world.see(await world.crib.workbench(BOB).call("read"))
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


@door(
    *("Context.ask", "Context.call", "Context.caller", "Context.cancellation", "Context.credentials", "Context.http"),
    *("Context.deadline", "Context.deadline_at", "Context.emit", "Context.host", "Context.log"),
    *(
        "Context.run_on_loop",
        "Context.port",
        "Context.progress",
        "Context.time_left_s",
        "Context.variables",
        "Context.wait",
    ),
)
async def running_tool(world: World) -> None:
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
