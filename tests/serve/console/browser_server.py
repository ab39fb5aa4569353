"""A console with hostile text in all that others write: names, descriptions, arguments, results, errors, reasons."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from toolcrib import Context, Crib, tool
from toolcrib.record import DatabaseCalls
from toolcrib.serve import serve_http
from toolcrib.serve.console import Sessions
from toolcrib.store import Store
from toolcrib.workbench import Rule, Rules

HOSTILE = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>\"'><svg onload=window.hacked=1>{{7*7}}‮​"


@tool(description=f"Echo. {HOSTILE}")
def echo(text: str, times: int = 1) -> dict[str, Any]:
    return {HOSTILE: [text] * times}


@tool(description=f"Fail. {HOSTILE}")
def fail(text: str) -> str:
    raise ValueError(HOSTILE)


@tool(destructive=True)
def drop(table: str, limit: int = 10) -> str:
    """Drop rows of a table."""
    return f"dropped {limit} rows of {table}"


@tool(task=True, idempotent=True)
async def report(topic: str, context: Context) -> str:
    """Write a report."""
    context.progress(1, 2, HOSTILE)
    return HOSTILE


async def main(folder: Path) -> None:
    store = Store(folder / "store.db")
    log = DatabaseCalls(store, with_content=True)
    rules = Rules([Rule(do="ask", hint="destructive", message=HOSTILE, name="careful")])
    crib = Crib([echo, fail, drop, report], store=store, recorder=log, policy=rules, show_errors=True)

    async def fill() -> None:
        bench = crib.workbench()
        for name, arguments in (
            ("echo", {"text": HOSTILE}),
            ("fail", {"text": HOSTILE}),
            ("echo", {"text": 1, "wrong": HOSTILE}),
            ("drop", {"table": HOSTILE}),
        ):
            await bench.call(name, arguments)
        task = await bench.call("report", {"topic": HOSTILE})
        await crib.tasks.wait(task.pending.id, timeout_s=60)
        await log.flush()

    def ready(url: str) -> None:
        filling = asyncio.ensure_future(fill())
        filling.add_done_callback(lambda _: asyncio.ensure_future(announce(url.removesuffix("/mcp"))))

    async def announce(base_url: str) -> None:
        links = [await Sessions(store).link(base_url) for _ in range(20)]
        print(" ".join(links), flush=True)

    await serve_http(crib, port=0, console=True, ready=ready)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
