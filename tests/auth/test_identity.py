"""Every door to credentials has an attack here that tries to reach another principal's through it.

The doors are the public names, also inherited ones, of what takes a caller or an owner or runs with one: cribs,
workbenches, brokers, vaults, stores and the Context of a tool; the routes of the servers; and the commands.
Ada has granted and entered; bob has nothing. What the tools get is written down with whom it was given to.
"""

import asyncio
import inspect
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
import typer
from mcp.shared.exceptions import MCPError
from starlette.routing import Route

import toolcrib.auth
import toolcrib.store
from toolcrib import (
    Approve,
    Call,
    Caller,
    Context,
    Crib,
    Result,
    Secret,
    SetupError,
    ToolAuth,
    ToolError,
    Workbench,
    tool,
)
from toolcrib.auth import (
    CallbackError,
    Client,
    CredentialBroker,
    DatabaseVault,
    Flow,
    Grant,
    MemoryVault,
    Owner,
    Provider,
    secret_owner,
)
from toolcrib.call import EventStream, Grants, PendingCalls, StepLog, TaskRun
from toolcrib.cli.app import app as command
from toolcrib.serve import callback_app, local_caller, server
from toolcrib.serve.mcp.tasks import EXTENSION
from toolcrib.serve.protocol.core import Exchange, Request
from toolcrib.store import DatabaseLedger, DatabasePendings, DatabaseResults, Leases, Store
from toolcrib.store.pendings import DatabaseGrants
from toolcrib.workbench import Limiter, UnknownTaskError
from toolcrib.workbench.credentials import Credentials
from toolcrib.workbench.lifespan import Lifespan
from toolcrib.workbench.resources import PromptList, ResourceList
from toolcrib.workbench.search import SharedIndex

from . import deeper_attacks  # noqa: F401 - has attacks of its own
from .doors import ADA, ATTACKS, BOB, NAMES, REFRESH, REFUSALS, SECRET, TOKEN, Attack, World, door

TABLE = Provider.model_validate(
    {
        "title": "Example",
        "source": "https://example.com",
        "checked": date(2026, 1, 1),
        "oauth2": {"authorize_url": "https://p.example/a", "token_url": "https://p.example/t"},
        "token": {},
    }
)
KINDS: tuple[type, ...] = (
    *(Crib, Workbench, Credentials, PendingCalls, Grants, DatabaseGrants, CredentialBroker, Flow, DatabaseVault),
    *(MemoryVault, DatabaseLedger, DatabasePendings, DatabaseResults, Leases, Store, Context, Limiter),
)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    given: list[tuple[str, str, str]] = []

    @tool(auth=ToolAuth("example"))
    def read(context: Context, n: int = 1) -> str:
        given.append((context.caller.principal, context.caller.profile, context.credentials["example"].secret))
        return context.credentials["example"].secret

    @tool(auth=Secret("KEY"))
    def use(context: Context) -> str:
        given.append((context.caller.principal, context.caller.profile, context.credentials["KEY"].secret))
        return context.credentials["KEY"].secret

    store = Store(tmp_path / "store.db")
    broker = CredentialBroker(
        clients={"example": Client("id", "client-secret")},
        catalogue={"example": TABLE},
        vault=DatabaseVault(store),
        redirect_uri="http://127.0.0.1:1/auth/callback",
        form_uri="http://127.0.0.1:1/auth/secret",
    )
    async with Crib([read, use], broker=broker, store=store) as crib:
        await broker.save(Owner("ada", "work", "example", "oauth2"), Grant(TOKEN, REFRESH))
        await broker.save(secret_owner("ada", "work", "KEY"), Grant(SECRET))
        yield World(tmp_path, store, crib, given)
    store.close()


async def require_unharmed(world: World) -> None:
    """Nobody but ada, as whom she granted it, got anything; and she still has it."""
    assert [one for one in world.given if one[:2] != ("ada", "work")] == []
    shown = "\n".join(world.seen)
    assert [secret for secret in (TOKEN, REFRESH, SECRET, "client-secret") if secret in shown] == []
    bench = world.crib.workbench(ADA)
    results = [await bench.call("read"), await bench.call("use")]
    assert [result.status for result in results] == ["success", "success"]
    assert world.given[-2:] == [("ada", "work", TOKEN), ("ada", "work", SECRET)]
    for name in ("read", "use"):
        result = await world.crib.workbench(BOB).call(name)
        assert result.status == "pending"
        assert result.pending.principal == "bob"


def doors() -> Iterator[str]:
    for kind in KINDS:
        yield from (f"{kind.__name__}.{name}" for name in dir(kind) if not name.startswith("_"))
    crib = Crib([], broker=CredentialBroker(catalogue={}))
    routes = [*callback_app(crib).routes, *server(crib, local_caller).streamable_http_app().routes]
    for route in routes:
        assert isinstance(route, Route)
        yield from (f"{method} {route.path}" for method in route.methods or ("ANY",) if method != "HEAD")
    yield from (f"toolcrib {name}" for name in commands(typer.main.get_command(command)))


def commands(group: Any, before: str = "") -> Iterator[str]:
    for name in group.commands:
        one = group.get_command(None, name)  # which imports its module
        if hasattr(one, "commands"):
            yield from commands(one, f"{before}{name} ")
        else:
            yield f"{before}{name}"


def test_every_door_has_its_attack() -> None:
    assert sorted(ATTACKS) == sorted(doors())


def test_each_public_class_that_does_something_is_a_door() -> None:
    public = {getattr(room, name) for room in (toolcrib.auth, toolcrib.store) for name in room.__all__}
    does = {one for one in public if inspect.isclass(one) and any(map(inspect.iscoroutinefunction, vars(one).values()))}
    assert {one for one in does if not getattr(one, "_is_protocol", False)} <= {*KINDS}
    crib = Crib([])
    held = {type(value) for name, value in vars(crib).items() if not name.startswith("_")}
    assert {one for one in held if any(map(inspect.iscoroutinefunction, vars(one).values()))} <= {
        *(*KINDS, Lifespan),
        *(ResourceList, PromptList, SharedIndex),  # what the program itself offers to all: nothing of a caller
    }


# Calls


@door("Workbench.call", "Workbench.call_many", "Workbench.call_sync", "Workbench.run_sync", "Workbench.stream")
async def arguments(world: World) -> None:
    bench = world.crib.workbench(BOB)
    for listed in ((), ["work", "home"]):
        bench.specs(profiles=listed)
        for name in ("profile", "principal", "thread", "caller", "thread_id", "context", "credentials", "auth"):
            for value in ("ada", "work", {"principal": "ada", "profile": "work"}, ["ada", "work", "t1"]):
                call = Call("read", json.dumps({name: value}), data={"principal": "ada"})
                world.see(await bench.call("read", {name: value}), await bench.call(call))
        events = [event async for event in bench.stream("use", {"profile": "ada"})]
        world.see(events, await bench.call_many([("read", {"profile": "ada"}), ("use", '{"profile": "work"}')]))
        world.see(await asyncio.to_thread(bench.call_sync, "read", {"profile": "ada"}))


@door(
    "Workbench.specs",
    "Workbench.check",
    "Workbench.dry_run",
    "Workbench.needs_approval",
    "Workbench.would_ask",
    "Workbench.is_started",
)
async def profiles(world: World) -> None:
    with pytest.raises(AttributeError, match="is now"):
        world.crib.workbench(BOB).would_ask("use", {"profile": "work"})
    for principal in ("bob", "ad_", "%", "ADA"):
        bench = world.crib.workbench(Caller(principal, "work", "t1"))
        with suppress(SetupError):
            bench.specs(profiles=["work", "default", *filter(None, NAMES)])
        for profile in ("work", "default", *NAMES):
            world.see(await bench.call("read", {"profile": profile}), await bench.check("use", {"profile": profile}))
            world.see(await bench.needs_approval("use", {"profile": profile}), bench.is_started)
            world.see(await bench.dry_run("use", {"profile": profile}))


@door("Crib.workbench", "Workbench.caller")
async def callers(world: World) -> None:
    for name in NAMES:
        for caller in (
            Caller(name),
            Caller(name, "work"),
            Caller("ada", name),
            Caller("bob", name, name),
            Caller("ad", f"a{name}"),
        ):
            bench = world.crib.workbench(caller)
            world.see(bench, await bench.call("read"), await bench.call("use"))
    bench = world.crib.workbench(BOB)
    with pytest.raises(AttributeError):
        bench.caller = ADA  # type: ignore[misc]
    for given in ("ada", {"principal": "ada"}, ("ada", "work", "t1")):
        with pytest.raises(SetupError):
            world.crib.workbench(given)  # type: ignore[arg-type]


@door("Workbench.remember", "Workbench.stored_result")
async def handles(world: World) -> None:
    @tool
    def long() -> str:
        return "adas-long-result " * 5_000

    world.crib.registry.add(Workbench([long]).registry["long"])
    handle = (await world.crib.workbench(ADA).call("long")).metadata["handle"]
    for caller in (BOB, Caller("ada", "work", "t2"), *(Caller(name, "work", "t1") for name in NAMES)):
        bench = world.crib.workbench(caller)
        for guess in (handle, f"{handle}\0", handle[:-1] + "_", handle[:-1] + "%", f"../{handle}"):
            await world.refused(bench.stored_result(guess))
            world.see(await bench.call("read_result", {"handle": guess}))
    assert "adas-long-result" not in "".join(world.seen)


# What waits


@door("Crib.answer", "Workbench.answer")
async def pending_ids(world: World) -> None:
    _, pending_id = await world.state_of()
    bench = world.crib.workbench(BOB)
    for one in (pending_id, *NAMES, pending_id[:-1] + "_", f"{pending_id}\0"):
        for answer in (Approve(), {"kind": "input", "value": "of-bob"}, {"kind": "approve"}):
            await world.refused(world.crib.answer(one, answer, by="ada"))
            await world.refused(bench.answer(one, answer, by="bob"))
    assert (await world.crib.workbench(Caller("ada", "fresh", "t1")).call("read")).status == "pending"


@door("PendingCalls.allows", "PendingCalls.id_for", "PendingCalls.remember_call")
async def call_ids(world: World) -> None:
    _, pending_id = await world.state_of()
    waits = world.crib.pending
    (pending,) = await world.crib.pendings()
    waits.remember_call("call-1", Caller("ada", "fresh", "t1"), pending_id)
    for caller in (BOB, Caller("ada", "work", "t1"), *(Caller(name, "fresh", "t1") for name in NAMES)):
        for named in ({"call_id": "call-1"}, {"pending_id": "call-1"}):
            await world.refused(world.crib.workbench(caller).answer(answer=Approve(), **named))
    world.see(await waits.allows(pending, "bob"))


@door("PendingCalls.visible", "PendingCalls.may_see", "DatabasePendings.page")
async def what_others_may_see(world: World) -> None:
    await world.state_of()
    waits, (pending,) = world.crib.pending, await world.crib.pendings()
    for caller in (BOB, *map(Caller, NAMES)):
        for of_others in (False, True):
            assert await waits.visible(caller, "", 50, of_others=of_others) == ([], None)
        assert not await waits.may_see(pending, caller)


@door("Crib.pendings", "Workbench.pendings", "Crib.wait_for")
async def what_waits(world: World) -> None:
    await world.state_of()
    (pending,) = await world.crib.pendings()
    world.see(pending, await world.crib.workbench(BOB).pendings())
    assert not await world.crib.wait_for(pending, timeout_s=0.01)
    world.see(await world.crib.workbench(BOB).call("read"))


@door("Crib.authorize", "CredentialBroker.ask_for", "CredentialBroker.ask", "CredentialBroker.open_scopes")
async def asking(world: World) -> None:
    needed = world.broker.needed(ToolAuth("example"), "read")
    for caller in (BOB, Caller("ada", "home"), *(Caller(name, "work") for name in NAMES)):
        with suppress(*REFUSALS):
            asked = await world.crib.authorize(["read", "use"], caller)
            assert {one.principal for one in asked} == {caller.principal}
            assert len(asked) == 2
            assert "adas" not in str(asked)
            own = await world.broker.ask(needed, caller, "read")
            assert own.principal == caller.principal
            world.see(asked, own, await world.broker.open_scopes(needed, caller))


@door("Crib.complete", "CredentialBroker.complete", "CredentialBroker.find")
async def states(world: World) -> None:
    state, _ = await world.state_of()
    secret_state, _ = await world.state_of("use")
    for one in (state, secret_state):
        for caller in (BOB, *(Caller(name, "work") for name in NAMES)):
            for url in (f"https://h/auth/callback?state={one}&code=c", f"?state={one}&error=access_denied"):
                with pytest.raises(CallbackError) as raised:
                    await world.crib.complete(url, caller=caller)
                assert raised.value.reason == "foreign"
                world.see(raised.value)
            with pytest.raises(CallbackError):
                await world.broker.find(one, caller=caller)
    for guess in (*NAMES, state[:-1], f"{state}\0", f"{state[:-1]}_", f"%{state}", state.swapcase()):
        with pytest.raises(CallbackError):
            await world.broker.complete(f"?state={quote(guess, errors='surrogatepass')}&code=c")
    # What fails at the provider has used the state up: it is not replayed.
    for reason in ("failed", "unknown"):
        with pytest.raises(CallbackError) as raised:
            await world.crib.complete(f"?state={state}&code=stolen", caller=ADA)
        assert raised.value.reason == reason


# The broker


@door("CredentialBroker.authorize", "CredentialBroker.has_granted")
async def authorize(world: World) -> None:
    for caller in (
        BOB,
        Caller("ada", "home"),
        *(Caller(name, "work") for name in NAMES),
        *(Caller("ada", name) for name in NAMES),
    ):
        for required in (
            ToolAuth("example"),
            ToolAuth("example", "token"),
            Secret("KEY"),
            Secret("K_Y"),
            Secret("%"),
            Secret("example"),
        ):
            await world.refused(world.broker.authorize([required], caller, Call("read")))
            assert not (isinstance(required, ToolAuth) and await world.broker.has_granted(required, caller))


@door("CredentialBroker.save", "CredentialBroker.revoke", "CredentialBroker.settle")
async def owners(world: World) -> None:
    for name in NAMES:
        for owner in (
            Owner(name, "work", "example", "oauth2"),
            Owner("bob", name, "KEY", "secret"),
            Owner("ada", name, "example", "oauth2"),
        ):
            await world.refused(world.broker.save(owner, Grant(f"of {name!r}")))
            await world.refused(world.broker.revoke(owner))
            await world.refused(world.broker.revoke(owner))
    await world.broker.settle()


@door(
    *(
        "CredentialBroker.discover",
        "CredentialBroker.needed",
        "CredentialBroker.missing",
        "CredentialBroker.scopes_of",
        "CredentialBroker.flow",
        "CredentialBroker.client_document",
        "CredentialBroker.redirect_uri_of",
        "CredentialBroker.to_register",
    ),
)
async def tables(world: World) -> None:
    needed = world.broker.needed(ToolAuth("example"), "read")
    world.see(
        needed, world.broker.missing("example"), world.broker.scopes_of(needed), world.broker.flow(needed), world.broker
    )
    world.broker.client_document_url = "https://h/auth/client.json"
    world.see(world.broker.client_document("example"))
    for name in NAMES:
        world.see(world.broker.redirect_uri_of(name), world.broker.to_register(name))
        await world.broker.discover(name)  # only what begins with "mcp:" is looked for
        with suppress(*REFUSALS):
            world.see(world.broker.needed(ToolAuth(name, name), name))


# The rest of the program


@door(
    *("Crib.start", "Crib.drain", "Crib.reset", "Crib.save_state", "Crib.load_state", "Crib.from_config"),
    *("Workbench.start", "Workbench.stop", "Workbench.reset", "Workbench.save_state", "Workbench.load_state"),
    *("Workbench.enter", "Workbench.leave"),
    *("Workbench.invalidate", "Workbench.ended", "Workbench.from_config", "Crib.stop"),
)
async def lives(world: World) -> None:
    bench = world.crib.workbench(BOB)
    await world.crib.reset()
    await bench.start()
    world.see(await bench.save_state(), await world.crib.save_state())
    await world.refused(bench.load_state({"version": 1, "sources": {"caller": {"principal": "ada"}}}))
    bench.invalidate()
    bench.ended()
    await bench.reset()
    await bench.enter()
    world.see(await bench.call("read"))
    await bench.leave()
    await bench.stop()
    path = world.folder / "toolcrib.toml"
    path.write_text('[variables]\nprincipal = "ada"\n')
    async with (
        Workbench.from_config(path, broker=world.broker) as own,
        Crib.from_config(path, broker=world.broker) as crib,
    ):
        world.see(own.caller, crib, await own.call("read"))


@door(
    *("Workbench.registry", "Workbench.problems", "Crib.problems", "Workbench.now", "Workbench.redacted"),
    *("Workbench.finder", "Workbench.reader", "Workbench.count", "Crib.unclaimed_tasks"),
)
async def looks(world: World) -> None:
    bench = world.crib.workbench(BOB)
    world.see(
        list(bench.registry),
        bench.problems,
        world.crib.unclaimed_tasks,
        bench.now(),
        bench.redacted("x"),
        bench.specs(),
    )

    async def tried() -> Any:
        return await bench.call("read")

    world.see(bench.finder(), bench.reader(), await bench.count("tools/list", tried))


@door(
    *(f"DatabaseLedger.{name}" for name in ("claim", "find", "find_id", "finish", "give_up", "lost", "settle")),
    *("Store.ledger", "Crib.tasks", "Workbench.run_task"),
    *("Context.idempotency_key", "Context.step", "Context.steps", "Context.sleep", "Context.spend"),
)
async def keys_and_tasks(world: World) -> None:
    """Ada's key gives others neither her result nor her task, and what they claim is not hers."""

    @tool(task=True)
    async def night(context: Context) -> str:
        await context.sleep(0)
        return str(await context.step("whose", lambda: (context.caller.principal, context.idempotency_key)))

    ledger, bench = world.store.ledger, world.crib.workbench(BOB)
    await world.crib.workbench(ADA).call("read", idempotency_key="k")
    world.see(await bench.call("read", idempotency_key="k"), await ledger.lost())
    entry = await ledger.find("ada", "k")
    assert not await ledger.settle(entry, None)
    assert not await ledger.finish(replace(entry, fence=2), {})
    ledger.give_up(replace(entry, principal="bob", fence=2))
    for name in filter(lambda name: name != "ada", NAMES):
        assert await ledger.find(name, "k") is None
        claimed = await ledger.claim(replace(entry, id=f"run_{name}", principal=name, state="running", result=None))
        assert (claimed.is_own, claimed.result) == (True, None)
        assert await ledger.finish(claimed, {})
    async with Crib([night], store=world.store) as crib:
        pending = (await crib.workbench(ADA).call("night", idempotency_key="n")).pending
        for name in filter(lambda name: name != "ada", NAMES):
            of_tasks = crib.tasks
            for work in (of_tasks.get, of_tasks.wait, of_tasks.cancel, of_tasks.questions, of_tasks.progress):
                with pytest.raises(UnknownTaskError):
                    await work(pending.id, principal=name)
        other = (await crib.workbench(BOB).call("night", idempotency_key="n")).pending
        assert other.id != pending.id
        assert (await crib.tasks.wait(pending.id, timeout_s=60)).text == "['ada', 'n']"
        task = await ledger.find_id(pending.id)
    run = TaskRun(task, StepLog(task, ledger, await ledger.steps(task.id)))
    world.see(await bench.run_task(Call("read", id=task.id), run, EventStream()))


# Web


@door("GET /auth/callback", "GET /auth/callback/{provider}", "GET /auth/secret", "POST /auth/secret")
@door("GET /auth/client.json/{provider}")
async def pages(world: World) -> None:
    state, _ = await world.state_of()
    secret_state, _ = await world.state_of("use")
    app = callback_app(world.crib, lambda headers: Caller(headers["x-user"]))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://h") as browser:
        for name in ("bob", "ad_", "%", ".*", "ada ", "ADA", "../ada", "ada,bob"):
            browser.headers["x-user"] = name
            for one in (state, secret_state):
                answers = [
                    await browser.get("/auth/callback", params={"state": one, "code": "c", "principal": "ada"}),
                    await browser.get("/auth/callback/example", params={"state": one, "code": "c"}),
                    await browser.get("/auth/secret", params={"state": one}),
                    await browser.post("/auth/secret", params={"state": one}, data={"secret": "of-bob", "token": ""}),
                ]
                assert {answer.status_code for answer in answers} == {403}
                world.see(*(answer.text for answer in answers))
            world.see((await browser.get("/auth/client.json/server", params={"state": state})).text)
    assert (await world.crib.workbench(Caller("ada", "fresh", "t1")).call("use")).status == "pending"


@door("ANY /mcp")
async def mcp(world: World) -> None:
    from mcp import Client

    async def bob(_: Any) -> Caller:
        return BOB

    async with Client(server(world.crib, bob)) as client:
        for given in ({}, {"profile": "work"}, {"principal": "ada"}, {"caller": ["ada", "work", "t1"]}):
            world.see(await client.call_tool("read", given), await client.call_tool("use", given))

    @tool(task=True)
    async def wait(context: Context) -> str:
        return str(await context.ask("word", str, "Which word?"))

    async with Crib([wait], store=world.store) as crib:
        pending = (await crib.workbench(ADA).call("wait")).pending
        while not (asked := await crib.tasks.questions(pending.id)):
            await asyncio.sleep(0.01)
        own, errors = server(crib, bob), list[str]()
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            for id in (pending.id, "task_0", "%", pending.id[:-1] + "_"):
                responses = {asked[0].id: {"action": "accept", "content": {"value": "bobs"}}}
                params = {"taskId": id, "inputResponses": responses, "principal": "ada"}
                request = Request(1, method, params, "2026-07-28", {"extensions": {EXTENSION: {}}})
                with pytest.raises(MCPError) as refused:
                    await own.answer(Exchange.of(request, lambda _: None, None))
                errors.append(str(refused.value.error))
        assert errors == [errors[0]] * 12
        assert await crib.tasks.questions(pending.id) == asked


# Commands


COMMANDS: dict[str, list[list[str]]] = {
    **{name: [[name, "tools.py", *(["read"] if name != "list" else [])]] for name in ("show", "list", "call")},
    "chat": [["chat"]],
    "eval": [["eval", "tools.py", "tools.py", "--model", "scripted:x.json"]],
    "serve": [["serve", "tools.py", "--stdio"]],
    "console": [["console"], ["console", "--port", "%"]],
    "worker": [["worker", "tools.py", "--tool", name] for name in ("ada", "%")],  # it ends at once
    "dev": [["dev", "tools.py", "--stdio"]],
    "check": [["check", "--json"], ["check", "--connect", "--json"], ["check", "tools.py", "--json"]],
    "install": [["install", name, "tools.py", "--name", "ada"] for name in ("json", "%", "../ada")],
    "uninstall": [["uninstall", "claude-code", "--name", name] for name in ("ada", "%", "../ada")],
    "init": [["init"]],
    "new": [["new", name] for name in ("../ada", "%", "store.db")],
    "sandbox status": [["sandbox", "status", "--json"]],
    "sandbox clear": [["sandbox", "clear", name] for name in ("../ada", "%", "")],
    "sandbox build-python": [["sandbox", "build-python"]],
    "auth login": [["auth", "login", "example", "--token", "-", "--principal", who] for who in ("ad_", "%", "../ada")],
    "auth list": [["auth", "list", "--json", "--principal", name] for name in ("bob", "ad_", "%", ".*", "")],
    "auth show": [
        ["auth", "show", name, "--principal", who]
        for name, who in (("example", "bob"), ("%", "ada"), ("exampl_", "ada"))
    ],
    "auth revoke": [
        ["auth", "revoke", "example", "--principal", who, "--profile", as_]
        for who, as_ in (("bob", "work"), ("ad_", "work"), ("%", "%"), ("ada", "wor_"))
    ],
    "auth providers": [["auth", "providers", "--json"]],
    "auth rotate-key": [["auth", "rotate-key"]],
    "secrets set": [["secrets", "set", "KEY", "--principal", who] for who in ("ad_", "../ada", "%")],
    "secrets list": [["secrets", "list", "--principal", who] for who in ("ada", "bob", "%")],
    "secrets remove": [
        ["secrets", "remove", name, "--principal", who, "--profile", "work"]
        for name, who in (("KEY", "bob"), ("K_Y", "ada"), ("%", "ada"), ("KEY", "ad_"))
    ],
    "pending list": [["pending", "list", "--json"]],
    "pending show": [["pending", "show", name] for name in ("pending_%", "%", "_", "../x")],
    "pending approve": [["pending", "approve", name, "--by", "ada"] for name in ("ID", "%", "pending_%")],
    "grants list": [["grants", "list", "--json", "--principal", who] for who in ("eve", "ad_", "%")],
    "grants revoke": [["grants", "revoke", name] for name in ("grant_%", "%", "_", "../x")],
    "pending deny": [["pending", "deny", name, "--by", "ada"] for name in ("ID", "%", "pending_%")],
    "keys add": [["keys", "add", name] for name in ("ada", "../ada", "%", "key:ada", "", "ada\n", "\uff41da")],
    "keys list": [["keys", "list"], ["keys", "list", "--json"]],
    "keys revoke": [["keys", "revoke", name] for name in ("ada", "%", "_" * 12, "' OR 1=1 --", "")],
    "calls list": [["calls", "list", "--json", "--principal", who] for who in ("bob", "ad_", "%")],
    "calls show": [["calls", "show", name, "--json"] for name in ("run_%", "%", "_", "../x")],
    "calls follow": [["calls", "follow", "--json"]],
    "calls export": [["calls", "export"], ["calls", "export", "--since", "1d"]],
    "calls verify": [["calls", "verify", "--json"], ["calls", "verify", "tools.py"], ["calls", "verify", "--key", "%"]],
    "calls to-scenarios": [["calls", "to-scenarios", "--principal", who] for who in ("bob", "ad_", "%")],
    "calls lost": [["calls", "lost", "--json"]],
    "calls settle": [["calls", "settle", name, "--done", "--by", "ada"] for name in ("run_%", "%", "../x")],
    "tasks list": [["tasks", "list", "--json", "--principal", who] for who in ("bob", "ad_", "%")],
    "tasks show": [["tasks", "show", name, "--json"] for name in ("task_%", "%", "_", "../x")],
    "tasks follow": [["tasks", "follow", name, "--json"] for name in ("task_%", "%", "_", "../x")],
    "tasks cancel": [["tasks", "cancel", name] for name in ("task_%", "%", "_", "../x")],
    "tasks settle": [["tasks", "settle", name, "--done", "--by", "ada"] for name in ("task_%", "%", "../x")],
    "store key": [["store", "key", "--json"]],
    "store backup": [["store", "backup", "/dev/null"], ["store", "backup", "tools.py"]],
    "store restore": [["store", "restore", "tools.py"], ["store", "restore", "tools.py", "--replace"]],
    "store export": [["store", "export", who] for who in ("bob", "ad_", "%", "ada\0")],
    "store forget": [["store", "forget", who, "--yes"] for who in ("ad_", "%", "ADA", "ada ")],
    "threads clear": [["threads", "clear", who, "t1"] for who in ("bob", "ad_", "%", "ada\0")],
    "lock": [["lock", "tools.py"], ["lock", "tools.py", "--check", "--json"], ["lock", "--accept", "%"]],
}

_RUN_ALL = """
import json, os, signal, sys
from toolcrib.cli import main
import toolcrib.auth, toolcrib.cli.app, toolcrib.store
for arguments in json.load(open(sys.argv[1])):
    if (child := os.fork()) == 0:
        if "follow" in arguments:
            signal.alarm(2)  # it goes on until somebody ends it
        status = main(arguments)
        sys.stdout.flush()
        os._exit(status)
    os.waitpid(child, 0)
"""


@door(*(f"toolcrib {name}" for name in COMMANDS))
async def operator(world: World) -> None:
    _, pending_id = await world.state_of()
    lines = [[pending_id if word == "ID" else word for word in line] for each in COMMANDS.values() for line in each]
    (world.folder / "lines.json").write_text(json.dumps(lines))
    (world.folder / "toolcrib.toml").write_text('providers = "providers.toml"\n[store]\nurl = "store.db"\n')
    (world.folder / "providers.toml").write_text(
        '[example]\ntitle = "Example"\nsource = "https://example.com"\nchecked = 2026-01-01\ndefault = "oauth2"\n'
        '[example.oauth2]\nauthorize_url = "https://p.example/a"\ntoken_url = "https://p.example/t"\n[example.token]\n'
    )
    (world.folder / "tools.py").write_text(
        "from toolcrib import Context, Secret, ToolAuth, tool\n"
        '@tool(auth=[ToolAuth("example"), Secret("KEY")])\n'
        "def read(context: Context) -> str:\n    found = context.credentials.values()\n"
        "    return str([one.secret[::-1] for one in found])\n"
    )
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", _RUN_ALL, "lines.json"],
        cwd=world.folder,
        # No folder can be made below a file, so nothing is built here.
        env={**os.environ, "XDG_DATA_HOME": str(world.folder), "XDG_CACHE_HOME": str(world.folder / "tools.py")},
        input="",
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert "KEY" in done.stdout  # they ran, on this store
    world.see(done.stdout, done.stderr)
    assert not any(secret[::-1] in done.stdout for secret in (TOKEN, SECRET))


# All of them


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(attack, id=name, marks=[pytest.mark.full] if name == "operator" else [])
        for name, attack in sorted({attack.__name__: attack for attack in ATTACKS.values()}.items())
    ],
)
async def test_no_attack_reaches_what_is_anothers(attack: Attack, world: World) -> None:
    await attack(world)
    await require_unharmed(world)


# The database


def rows(world: World, statement: str, *values: Any) -> list[Any]:
    with sqlite3.connect(world.folder / "store.db") as database:
        found = database.execute(statement, values).fetchall()
    database.close()
    return found


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE toolcrib_grants SET principal = 'bob' WHERE principal = 'ada'",
        "UPDATE toolcrib_grants SET envelope = (SELECT envelope FROM toolcrib_grants a WHERE a.principal = 'ada' "
        "AND a.handler = toolcrib_grants.handler) WHERE principal = 'bob'",
        "UPDATE toolcrib_grants SET (envelope, version) = (SELECT envelope, version FROM toolcrib_grants a WHERE "
        "a.principal = 'ada' AND a.handler = toolcrib_grants.handler) WHERE principal = 'bob'",
        "UPDATE toolcrib_grants SET profile = 'home' WHERE principal = 'ada'",
        "UPDATE toolcrib_grants SET provider = 'example', handler = 'oauth2' "
        "WHERE provider = 'KEY' AND principal = 'bob'",
    ],
    ids=["principal", "envelope", "envelope and version", "profile", "provider"],
)
async def test_rows_that_are_moved_in_the_database_do_not_open(world: World, change: str) -> None:
    await world.broker.save(Owner("bob", "work", "example", "oauth2"), Grant("bobs-access-token"))
    await world.broker.save(secret_owner("bob", "work", "KEY"), Grant("bobs-named-secret"))
    world.given.clear()
    if "SET principal" in change:
        rows(world, "DELETE FROM toolcrib_grants WHERE principal = 'bob'")
    if "SET provider" in change:
        rows(world, "DELETE FROM toolcrib_grants WHERE principal = 'bob' AND handler = 'oauth2'")
    rows(world, change)
    for caller in (BOB, Caller("ada", "home", "t1"), Caller("bob", "home", "t1")):
        for name in ("read", "use"):
            result = await world.crib.workbench(caller).call(name)
            world.see(result)
    theirs = {("bob", "work", "bobs-access-token"), ("bob", "work", "bobs-named-secret")}
    assert {*world.given} <= theirs
    assert not any(secret in text for text in world.seen for secret in (TOKEN, SECRET, REFRESH))


async def test_an_authorization_that_is_moved_in_the_database_completes_nothing(world: World) -> None:
    state, _ = await world.state_of()
    rows(world, "UPDATE toolcrib_authorizations SET principal = 'bob'")
    for caller in (BOB, ADA, None):
        with pytest.raises(CallbackError) as raised:
            await world.crib.complete(f"?state={state}&code=c", caller=caller)
        assert raised.value.reason == "unknown"
    assert TOKEN not in str(rows(world, "SELECT * FROM toolcrib_grants"))
    await require_unharmed(world)


async def test_nothing_of_a_caller_without_a_name_is_everybodys(world: World) -> None:
    results: list[Result[Any]] = [await world.crib.workbench(Caller("")).call(name) for name in ("read", "use")]
    assert [result.error and result.error.code for result in results] == ["unauthorized", "unauthorized"]
    with pytest.raises(ToolError):
        await world.crib.authorize(["use"], Caller(""))
