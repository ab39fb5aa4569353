"""Several processes: `worker.py URL KEY CATALOGUE JOBS`. Each calls `who` once for each line that it reads.

A job is `[CALLER, STOP, STDIN, STDOUT]`. It stops, to be killed, where it comes to STOP: `held`, with the lease;
`marked`, before the request (at `!held` and `!marked`, the whole process stands still by a signal); `answered`,
before what the provider has answered is written; `written`, before the lease is let go.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from toolcrib import Caller, Context, Crib, ToolAuth, tool
from toolcrib.auth import Client, CredentialBroker, DatabaseVault, Grant, Owner, load_catalogue
from toolcrib.store import Store

_, url, key, catalogue, jobs = sys.argv
principal = stop = ""


async def at(step: str) -> None:
    if f"!{step}" == stop:
        print("here", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    if step == stop:
        print("here", flush=True)
        await asyncio.Event().wait()


class Stopping(DatabaseVault):
    @asynccontextmanager
    async def alone(self, owner: Owner, /) -> AsyncGenerator[None]:
        async with super().alone(owner):
            await at("held")
            yield

    async def put(self, owner: Owner, grant: Grant, /, **options: Any) -> bool:
        if grant.spending_since is not None:
            done = await super().put(owner, grant, **options)
            await at("marked")
            return done
        await at("answered")
        done = await super().put(owner, grant, **options)
        await at("written")
        return done


@tool(auth=ToolAuth("local", scopes=["openid", "read"]))
async def who(ctx: Context) -> str:
    host = ctx.credentials["local"].hosts[0]
    async with ctx.http("local") as http:
        response = await http.get(f"http://{host}/me")
    return f"{response.status_code} {response.json().get('sub')}"


async def main() -> None:
    vault = Stopping(Store(url, key=key), lease_s=LEASE_S)
    broker = CredentialBroker(
        catalogue=load_catalogue(Path(catalogue)),
        clients={"local": Client("web", "canary-client-secret-0123456789")},
        redirect_uri="http://127.0.0.1:9/auth/callback",
        allow=["127.0.0.1"],
        vault=vault,
    )
    async with Crib([who], broker=broker) as crib:
        bench = crib.workbench(Caller(principal))
        await vault.owned_by(principal)  # opens the database
        while True:
            print("ready", os.getpid(), flush=True)
            if not await asyncio.to_thread(sys.stdin.readline):
                return
            print((await bench.call("who")).text, flush=True)


LEASE_S = 4.0
children = []
for principal, stop, stdin, stdout in json.loads(jobs):
    if not (child := os.fork()):
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        asyncio.run(main())
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
