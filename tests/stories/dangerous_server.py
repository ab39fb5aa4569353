"""A dangerous tool behind a server that may be killed: each caller has a key, and nobody approves their own."""

import asyncio

from toolcrib import Crib, tool
from toolcrib.serve import Authenticator, serve_http
from toolcrib.serve.access.keys import AccessKeys
from toolcrib.store import Store
from toolcrib.workbench import Rule, Rules

RULES = Rules([Rule(hint="destructive", do="ask", others_only=True, message="May this table be dropped for good?")])


@tool(destructive=True)
async def drop(table: str) -> str:
    """Drop a table."""
    with open("dropped.txt", "a") as file:
        print(table, file=file)
    return f"{table} is dropped"


async def main() -> None:
    store = Store("store.db")
    crib = Crib([drop], policy=RULES, store=store, may_answer=lambda _, by: by in ("key:alice", "key:bob"))
    await serve_http(crib, Authenticator(AccessKeys(store)), port=0, ready=lambda url: print(url, flush=True))


asyncio.run(main())
