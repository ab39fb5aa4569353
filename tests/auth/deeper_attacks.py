"""Attacks on what is behind the doors: vaults, stores, the runtime of a crib, and what a running tool is given."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from toolcrib import Approve, Caller, Context, Crib, ToolAuth, ToolcribError, tool
from toolcrib.auth import Authorization, Grant, MemoryVault, Owner
from toolcrib.auth import Vault as AnyVault
from toolcrib.core import StoredResult, Text
from toolcrib.store import DatabasePendings, DatabaseResults

if TYPE_CHECKING:
    from .test_identity import World

NOW = datetime.now(UTC)
ADA, BOB = Owner("ada", "work", "example", "oauth2"), Caller("bob", "work", "t1")


async def vaults(world: "World", names: tuple[str, ...]) -> None:
    """Nobody's name opens, changes, ends or holds up what is another's."""
    memory = MemoryVault()
    found = await world.broker.vault.get(ADA)
    assert found is not None
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
        assert stored is not None
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
    assert stored is not None
    digest = stored.pending.digest
    for name in (*names, pending_id[:-1] + "_", f"{pending_id}%", f"{pending_id}\0"):
        assert await store.get(name) is None
        assert not await store.answer(name, Approve(), by="bob", now=NOW)
        for guess in (name, digest[:-1] + "_", f"{digest}%"):
            assert await store.take(guess, "authorization", "", now=NOW) is None
    bobs = replace(stored.pending, id="pending_of_bob", principal="bob", digest="d" * 64)
    assert await store.open(bobs, now=NOW) == bobs
    assert await store.answer(bobs.id, Approve(), by="bob", now=NOW)
    taken = await store.take(bobs.digest, "authorization", "", now=NOW)
    assert taken is not None
    await store.give_back(taken)
    assert [one.principal for one in await store.waiting(now=NOW)] == ["ada"]


async def results(world: "World", names: tuple[str, ...]) -> None:
    """A handle is of one principal and thread."""
    store = DatabaseResults(world.store)
    assert await store.store(StoredResult("handle-of-ada", "ada", "t1", "read", (Text("adas-long-result"),), NOW))
    for name in names:
        for principal, thread in ((name, "t1"), ("ada", name), ("bob", "t1")):
            assert await store.find("handle-of-ada", principal, thread) is None
            assert not await store.holds(principal, thread)
        assert await store.find(name, "ada", "t1") is None
    assert await store.find("handle-of-ada", "ada", "t1") is not None


async def database(world: "World") -> None:
    """What is read past the vault is sealed, also after the keys have turned."""
    await world.state_of()
    for _ in range(2):
        for table in ("grants", "authorizations", "pendings", "results"):
            statement = text(f"SELECT * FROM toolcrib_{table}")
            world.see(*await world.store.read(statement))
            world.see(*await world.store.transact(lambda c, s=statement: c.execute(s).fetchall(), write=False))
        assert await world.store.rotate_key() > 0
        world.see(world.store.changes(), world.store)
    world.store.close()


async def runtime(world: "World") -> None:
    """What a crib has for its workbenches is by caller."""
    crib: Any = world.crib
    bench = crib.workbench(BOB)
    for change in (crib.add_view, crib.keep_view, crib.drop_view):
        change(bench)
    made = crib.runtime_for(BOB, ask=None, variables={"principal": "ada"}, resolve=None, session=None)
    assert made.caller == BOB
    assert await crib.result_store().find("any", "bob", "t1") is None
    world.see(crib.by_caller(), crib.program(), crib.describe(ValueError("x")), crib.is_own(bench))
    crib.own(None)
    crib.require_open()
    await crib.start_required()
    crib.new_lifespan(bool, lambda *_: None, lambda: None)
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
        world.see(context.deadline, context.time_left_s, context.log, context.loop, context.host, context.port)
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
