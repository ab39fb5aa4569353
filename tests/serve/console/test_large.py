"""Pages of a server with much in its store: none has over 150 kB, or looks at more rows where there are more."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.pool import Pool

from toolcrib import Caller, Crib, ToolSpec
from toolcrib.record import DatabaseCalls
from toolcrib.store import Store
from toolcrib.tools.function import from_work
from toolcrib.workbench import Limit, Rule, Rules

from .conftest import Open

MAX_BYTES = 150_000
FEW, MANY = 60, 300
"""So many calls, and as many that wait: more than any page shows; then five times as many."""
LISTS = (
    "/",
    "/approvals",
    "/approvals/grants",
    "/calls",
    "/calls?status=pending",
    "/tasks",
    "/sources",
    "/connections",
)
TEXT = "Do something that takes a whole sentence of a hundred characters to describe, as most tools do now."


@pytest.fixture
def steps() -> Iterator[Callable[[], int]]:
    """Return what counts the steps of SQLite, by tens of its instructions."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1

    def listen(connection: Any, _: object) -> None:
        connection.set_progress_handler(step, 10)

    event.listen(Pool, "connect", listen)
    yield lambda: count
    event.remove(Pool, "connect", listen)


def crib_in(folder: Path) -> Crib:
    async def work(*_: object) -> str:
        return "done"

    schema = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    specs = [ToolSpec(f"tool_{number:04}", TEXT, schema) for number in range(1000)]
    store = Store(folder / "large.db")
    return Crib(
        [from_work(spec, work, home=__name__) for spec in specs],
        store=store,
        recorder=DatabaseCalls(store, with_content=True),
        policy=Rules([Rule(do="ask", tools=[f"tool_0{digit}*" for digit in range(5)], name="careful")]),
        limits=[Limit(budget="1000 calls/d")],
    )


async def test_pages_are_bounded_and_look_at_no_more_rows_where_there_are_more(
    open_console: Open, tmp_path: Path, steps: Callable[[], int]
) -> None:
    crib = crib_in(tmp_path)
    log: Any = crib.recorders[0]

    async def fill(first: int, last: int) -> None:
        benches = [crib.workbench(Caller("local", thread=f"t{number}")) for number in range(3)]
        for start in range(first, last, 20):
            numbers = (number + half for number in range(start, start + 20) for half in (0, 500))
            calls = (benches[n % 3].call(f"tool_{n:04}", {"city": "Oslo " * 10, "days": str(n)}) for n in numbers)
            await asyncio.gather(*calls)
        await log.flush()

    async with open_console(crib=crib) as browser:

        async def cost(path: str) -> int:
            """Return the fewest steps of a request: what runs beside it takes some, too."""
            costs: list[int] = []
            for _ in range(3):
                before = steps()
                answer = await browser.get(path)
                costs.append(steps() - before)
                assert (answer.status_code, len(answer.content) <= MAX_BYTES) == (200, True), path
            return min(costs)

        await fill(0, FEW)
        few = [await cost(path) for path in LISTS]
        await fill(FEW, MANY)
        assert len(await crib.pendings()) == MANY
        many = [await cost(path) for path in LISTS]
        growths = {path: later - earlier for path, earlier, later in zip(LISTS, few, many, strict=True)}
        assert {path: growth for path, growth in growths.items() if growth > 100} == {}, (few, many)
        for path in ("/tools", "/tools?q=tool+0", "/stats", "/tools/tool_0001"):  # figures are sums of all calls
            await cost(path)
