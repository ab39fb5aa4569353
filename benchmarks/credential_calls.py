"""Credentials: look-ups in a vault in SQLite, and a call whose caller has a valid token."""

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cases import TINY, Loop

from toolcrib import Caller, Crib, Tool, ToolAuth
from toolcrib.auth import Client, CredentialBroker, DatabaseVault, Grant, Owner
from toolcrib.store import Store

SEALED, CACHED, AUTHORIZED = "a sealed grant in SQLite", "a cached grant", "tiny async tool that needs a token"
LOGGED = "tiny async tool that needs a token, start committed in the call log"
_CALLER = Caller("alice")
_OWNER = Owner.of(_CALLER, "github", "oauth2")


@asynccontextmanager
async def vault() -> AsyncGenerator[tuple[Store, DatabaseVault]]:
    """A vault in a file, with a grant that lasts."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store.db")
        made = DatabaseVault(store)
        ends = datetime.now(UTC) + timedelta(days=1)
        await made.put(_OWNER, Grant("gho_0123456789abcdefghij", None, ("repo",), ends), version=None)
        yield store, made
        store.close()


def look_ups(store: Store, vault: DatabaseVault) -> tuple[Loop, Loop]:
    """One of a vault that has nothing cached, and one of a vault that has looked before."""

    async def sealed(times: int) -> str:
        for _ in range(times):
            assert await DatabaseVault(store).get(_OWNER) is not None
        return ""

    async def cached(times: int) -> str:
        for _ in range(times):
            assert await vault.get(_OWNER) is not None
        return ""

    return sealed, cached


@asynccontextmanager
async def calls(vault: DatabaseVault, log: Store | None = None) -> AsyncGenerator[tuple[Loop, Loop]]:
    """The tiny tool without `auth` and with it, of one crib; with *log*, the start of each call is committed there."""
    broker = CredentialBroker(vault=vault, clients={"github": Client("id", "a-client-secret")})
    tools = [Tool(TINY.fn, name="without"), Tool(TINY.fn, name="with", auth=ToolAuth("github", scopes=["repo"]))]
    async with Crib(tools, broker=broker, store=log) as crib:
        bench = crib.workbench(_CALLER)

        def loop(name: str) -> Loop:
            async def loop(times: int) -> str:
                answer = ""
                for _ in range(times):
                    answer = (await bench.call(name, TINY.text)).text
                return answer

            return loop

        yield loop("without"), loop("with")
