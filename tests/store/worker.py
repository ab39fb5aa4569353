"""One process of several: `worker.py JOB URL KEY [ARGUMENT]` gets ready, waits for a line, and does its job."""

import asyncio
import signal
import sys
from datetime import UTC, datetime, timedelta
from os import getpid

from toolcrib import Pending
from toolcrib.machinery import LedgerEntry
from toolcrib.store import DatabaseLedger, DatabasePendings, Leases, Store

NOW = datetime.fromtimestamp(1000, UTC)


def pending(id: str, digest: str = "d") -> Pending:
    return Pending(id, "approval", "May it?", digest, "pay", "bob", "t", NOW + timedelta(seconds=60))


async def job(name: str, store: Store, argument: str) -> str:
    pendings, leases = DatabasePendings(store), Leases(store)
    if name == "take":
        await pendings.waiting(now=NOW)
    print("ready", flush=True)
    sys.stdin.readline()
    match name:
        case "open":
            return (await pendings.open(pending(argument), now=NOW)).id
        case "take":
            taken = await pendings.take("d", "approval", "", now=NOW)
            return "" if taken is None else taken.pending.id
        case "acquire":
            lease = await leases.acquire("github", argument, for_s=600)
            return "" if lease is None else str(lease.fence)
        case "hold":  # until it is killed
            print((await leases.acquire("github", argument, for_s=1)) is not None, flush=True)
            await asyncio.sleep(600)
        case "claim":
            entry = LedgerEntry(f"run_{getpid()}", "bob", argument, "d", "pay", "t", False, NOW)
            return str((await store.ledger.claim(entry)).is_own)
        case "hold key":  # frozen before it ends
            ledger = DatabaseLedger(store, lease_s=1)
            held = await ledger.claim(LedgerEntry("run_held", "bob", argument, "d", "pay", "t", True, NOW))
            print(held.is_own, flush=True)
            while (await ledger.find("bob", argument) or held).fence == held.fence:
                await asyncio.sleep(0.01)
            return str(await ledger.finish(held, {"text": "late"}))
        case "write":  # until it is killed
            for number in range(1_000_000):
                await pendings.open(pending(f"{argument}-{number}", f"d-{number}"), now=NOW)
                print(number, flush=True)
        case "write slowly":  # and is killed in the middle of a transaction

            def write(connection: object) -> None:
                connection.exec_driver_sql("DELETE FROM toolcrib_pendings")  # type: ignore[attr-defined]
                print("deleted", flush=True)
                sys.stdin.readline() or signal.pause()  # its end: whoever kills this has closed it meanwhile

            await store.transact(write)
    return "?"


_, name, url, key, *arguments = sys.argv
print(asyncio.run(job(name, Store(url, key=key), arguments[0] if arguments else "")), flush=True)
