"""The pages of the console of a large server: how many bytes each has, and when a browser first paints it.

Run it alone: `python benchmarks/console_pages.py [CHROMIUM]`. It fills a store of SQLite by real calls, serves it, and
opens each page in Chromium by Playwright.
"""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from playwright.async_api import async_playwright

from toolcrib import Caller, Crib, ToolSpec
from toolcrib.core import Hints
from toolcrib.record import DatabaseCalls
from toolcrib.serve import serve_http
from toolcrib.serve.console import Sessions
from toolcrib.store import Store
from toolcrib.tools.function import from_work
from toolcrib.workbench import Rule, Rules

TITLE = "pages of the console"
TOOLS, CALLS, WAITING, LOADS = 1_000, 10_000, 10_000, 5
MAX_BYTES, MAX_PAINT_MS = 150_000, 300.0
_AT_ONCE, _PRINCIPALS = 50, 20
_TEXT = "Do something that takes a whole sentence of a hundred characters to describe, as most tools do now."
_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
_PAINT_MS = """() => new Promise((resolve) => new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (entry.name === "first-contentful-paint") resolve(entry.startTime);
}).observe({ type: "paint", buffered: true }))"""


def crib_in(folder: Path, tools: int = TOOLS) -> Crib:
    """Return a crib of so many *tools*, with its store in *folder*: each tenth asks before it runs."""

    async def work(*_: object) -> str:
        return "done"

    store = Store(folder / "console.db")
    specs = [
        ToolSpec(f"tool_{number:04}", _TEXT, _SCHEMA, hints=Hints(destructive=number % 10 == 0, open_world=True))
        for number in range(tools)
    ]
    rules = Rules([Rule(do="ask", hint="destructive", name="careful")])
    options: Any = {"policy": rules, "recorder": DatabaseCalls(store, with_content=True), "pending_timeout_s": 86_400}
    return Crib([from_work(spec, work, home=__name__) for spec in specs], store=store, **options)


async def fill(crib: Crib, calls: int, waiting: int) -> None:
    """Make so many *calls*, and so many that are left *waiting* for an approval, of several principals."""
    names = [spec.name for spec in crib.registry.specs()]
    free, asking = ([name for name in names if (int(name[5:]) % 10 == 0) is asks] for asks in (False, True))
    benches = [crib.workbench(Caller("local" if not number else f"p{number}")) for number in range(_PRINCIPALS)]
    for group, count in ((free, calls), (asking, waiting)):
        for start in range(0, count, _AT_ONCE):
            numbers = range(start, min(count, start + _AT_ONCE))
            works = [
                benches[number % _PRINCIPALS].call(
                    group[number % len(group)], {"city": f"c{number}", "days": str(number)}
                )
                for number in numbers
            ]
            await asyncio.gather(*works)
    log: Any = crib.recorders[0]
    await log.flush()


async def serve(folder: Path) -> None:
    """Serve what is in *folder*, and print a link."""
    crib = crib_in(folder)
    assert crib.database is not None
    sessions = Sessions(crib.database)

    async def announce(base_url: str) -> None:
        print(await sessions.link(base_url), flush=True)

    def ready(url: str) -> None:
        asyncio.get_running_loop().create_task(announce(url.removesuffix("/mcp")))

    await serve_http(crib, port=0, console=True, ready=ready)


@asynccontextmanager
async def served(folder: Path) -> AsyncGenerator[str]:
    """Serve what is in *folder* in a process of its own, and give the link."""
    process = subprocess.Popen([sys.executable, __file__, "--serve", str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield (await asyncio.to_thread(process.stdout.readline)).strip()
    finally:
        process.terminate()
        process.wait()


async def measure(link: str, chromium: str) -> list[tuple[str, int, float]]:
    """Return each page with its bytes, and the median of the times to its first paint, in milliseconds."""
    base_url = link.partition("/login")[0]
    rows: list[tuple[str, int, float]] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = await browser.new_page()
        await page.goto(link)
        call = await (await page.request.get(f"{base_url}/calls.json?limit=1")).json()
        pending = await (await page.request.get(f"{base_url}/approvals.json?limit=1")).json()
        own = [f"/calls/{call['calls'][0]['id']}", f"/approvals/{pending['pending'][0]['id']}", "/tools/tool_0001"]
        lists = [
            "/",
            "/approvals",
            "/approvals/grants",
            "/tools",
            "/tools?q=tool+09",
            "/calls",
            "/calls?status=pending",
        ]
        for path in [*lists, *own, "/tools/tool_0001/formats", "/tasks", "/connections", "/sources", "/stats"]:
            times: list[float] = []
            size = 0
            for _ in range(LOADS):
                answer = await page.goto(f"{base_url}{path}")
                assert answer is not None
                assert answer.status == 200, (path, answer.status)
                size = len(await answer.body())
                times.append(await page.evaluate(_PAINT_MS))
            name = re.sub("(run|pending)_.*", "ID", path)
            rows.append((name, size, median(times)))
        await browser.close()
    return rows


async def main(chromium: str) -> None:
    """Print a table of all pages, and fail where one is too large or too late."""
    with TemporaryDirectory() as folder:
        async with crib_in(Path(folder)) as crib:
            await fill(crib, CALLS, WAITING)
        async with served(Path(folder)) as link:
            rows = await measure(link, chromium)
    print(f"## {TITLE.capitalize()}: {CALLS:,} calls, {WAITING:,} waiting approvals, {TOOLS:,} tools, SQLite\n")
    print("| page | kB | first paint |\n|---|--:|--:|")
    for path, size, paint_ms in rows:
        print(f"| `{path}` | {size / 1000:.1f} | {paint_ms:.0f} ms |")
    late = [path for path, size, paint_ms in rows if size > MAX_BYTES or paint_ms > MAX_PAINT_MS]
    sys.exit(f"Over {MAX_BYTES // 1000} kB or {MAX_PAINT_MS:g} ms: {', '.join(late)}" if late else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(serve(Path(sys.argv[2])))
    else:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "/usr/bin/chromium"))
