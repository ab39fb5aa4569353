"""A program with webhooks: `hooked.py STORE URL SECRET LEASE_S`. It runs and sends what is due, until it is killed."""

import asyncio
import sys

from toolcrib import Context, Crib, tool
from toolcrib.store import Store, Webhook, outbox

PLACE, URL, SECRET, LEASE_S = sys.argv[1:]
outbox.HOOK_LEASE_S = float(LEASE_S)


@tool(task=True, idempotent=True)
async def dig(depth: int) -> str:
    return f"a hole of {depth}"


@tool(task=True)
async def pay(context: Context) -> None:
    print("hangs", flush=True)
    await asyncio.sleep(600)


async def main() -> None:
    store = Store(PLACE)
    store.webhooks["tasks"] = Webhook(URL, SECRET)
    store.ledger._lease_s = 1.0
    async with Crib([dig, pay], store=store):
        print("ready", flush=True)
        await asyncio.sleep(600)


asyncio.run(main())
