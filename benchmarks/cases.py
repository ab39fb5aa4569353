"""The tools that are measured, the JSON text that is sent to them, what they must answer, and the floor under each.

The floor is what a careful programmer would write by hand for one tool: pydantic validates the JSON text straight into
arguments, the function is awaited, pydantic writes the value as JSON text. No check for duplicate keys, no result
object, no error handling, no deadline.
"""

import asyncio
import functools
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import AnyUrl, BaseModel, ConfigDict, TypeAdapter
from typing_extensions import TypedDict

Loop = Callable[[int], Awaitable[str]]
"""Makes one call so many times, one after the other, and gives the text of the last."""


class Item(BaseModel):
    """Every field must be sent."""

    name: str
    quantity: int
    price: float
    in_stock: bool


class Sparse(BaseModel):
    """Two fields must be sent, two may be."""

    name: str
    quantity: int
    price: float | None = None
    note: str | None = None


class Event(BaseModel):
    """A time and a link, for which pydantic has types."""

    title: str
    starts_at: datetime
    link: AnyUrl
    seats: int


async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


def add_sync(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def suspend(a: int, b: int) -> int:
    """Add two numbers, after the event loop had a turn."""
    await asyncio.sleep(0)
    return a + b


async def pause(a: int, b: int) -> int:
    """Add two numbers, after a millisecond."""
    await asyncio.sleep(0.001)
    return a + b


def hold(a: int, b: int) -> int:
    """Add two numbers, after a millisecond in which the thread is held."""
    time.sleep(0.001)
    return a + b


async def total(items: list[Item]) -> int:
    """Sum up what is in the list."""
    return sum(item.quantity for item in items)


async def total_sparse(items: list[Sparse]) -> int:
    """Sum up what is in the list."""
    return sum(item.quantity for item in items)


async def seats(events: list[Event]) -> int:
    """Count the seats of what is planned."""
    return sum(event.seats for event in events)


async def stock(page: int) -> list[Item]:
    """List what is in stock."""
    return ITEMS


async def offers(page: int) -> list[Sparse]:
    """List what is on offer."""
    return OFFERS


async def stock_dicts(page: int) -> list[dict[str, Any]]:
    """List what is in stock."""
    return ROWS


# Names as people write them, with capitals and spaces.
_NAMES = ("Iron nail", "Nut M8", "Washer", "Hex bolt M10", "Inner ring")
ROWS: list[dict[str, Any]] = [
    {"name": f"{_NAMES[n % 5]} {n}", "quantity": n, "price": n + 0.25, "in_stock": n % 3 > 0} for n in range(50)
]
ITEMS = [Item(**row) for row in ROWS]
SPARSE: list[dict[str, Any]] = [
    {
        "name": row["name"],
        "quantity": row["quantity"],
        **({"price": row["price"]} if n % 2 else {}),
        **({"note": "in the last row"} if n % 3 else {}),
    }
    for n, row in enumerate(ROWS)
]


OFFERS = [Sparse(**row) for row in SPARSE]
LINKED = [{**row, "name": f"{row['name']}, until 12:30, see https://shop.example/{n}"} for n, row in enumerate(ROWS)]


EVENTS = [
    {
        "title": row["name"],
        "starts_at": f"2026-11-{n % 28 + 1:02}T12:30:00Z",
        "link": f"https://a.example/{n}",
        "seats": n,
    }
    for n, row in enumerate(ROWS)
]


class _Two(TypedDict):
    a: int
    b: int


class _Items(TypedDict):
    items: list[Item]


class _SparseItems(TypedDict):
    items: list[Sparse]


class _Events(TypedDict):
    events: list[Event]


class _Page(TypedDict):
    page: int


@dataclass(frozen=True, slots=True)
class Case:
    """One tool and one call of it. *json_answer* is what its text must mean; *takes* and *gives* are for the floor."""

    title: str
    fn: Callable[..., Any]
    text: str
    json_answer: Any
    takes: Any
    gives: Any

    @property
    def name(self) -> str:
        return self.fn.__name__


_SUM = sum(row["quantity"] for row in ROWS)
TINY = Case("tiny async tool", add, '{"a": 1, "b": 2}', 3, _Two, int)
SUSPEND = Case("tiny async tool that suspends, with a deadline", suspend, '{"a": 1, "b": 2}', 3, _Two, int)
PAUSE = Case("10,000 calls at once, 1 ms sleep each", pause, '{"a": 1, "b": 2}', 3, _Two, int)
HOLD = Case("10,000 blocking calls at once, 32 threads, 1 ms each", hold, '{"a": 1, "b": 2}', 3, _Two, int)
APART = Case("warm call in a process", add_sync, '{"a": 1, "b": 2}', 3, _Two, int)
CALLS: Sequence[Case] = (
    TINY,
    Case("tiny sync tool", add_sync, '{"a": 1, "b": 2}', 3, _Two, int),
    Case("50 models as argument", total, json.dumps({"items": ROWS}), _SUM, _Items, int),
    Case(
        "50 models, fields optional",
        total_sparse,
        json.dumps({"items": SPARSE}),
        _SUM,
        _SparseItems,
        int,
    ),
    Case("50 models, times and links in them", total, json.dumps({"items": LINKED}), _SUM, _Items, int),
    Case("50 models, datetime and URL fields", seats, json.dumps({"events": EVENTS}), _SUM, _Events, int),
    Case("50 models as result", stock, '{"page": 1}', ROWS, _Page, list[Item]),
    Case(
        "50 models as result, some fields null",
        offers,
        '{"page": 1}',
        [offer.model_dump() for offer in OFFERS],
        _Page,
        list[Sparse],
    ),
    Case("50 dicts as result", stock_dicts, '{"page": 1}', ROWS, _Page, list[dict[str, Any]]),
)


def floor(case: Case, executor: Executor | None = None, *, timeout_s: float | None = None) -> Loop:
    """*case* by hand, an async function within *timeout_s* where that is given.

    A sync function goes to *executor*, asyncio's own by default, to not hold up the event loop.
    """
    kind = case.takes
    kind.__pydantic_config__ = ConfigDict(extra="forbid")
    validate = TypeAdapter(kind).validator.validate_json
    write = TypeAdapter(case.gives).serializer.to_json
    fn, text = case.fn, case.text

    async def by_hand(text: str) -> str:
        return write(await fn(**validate(text))).decode()

    async def by_hand_in_time(text: str) -> str:
        async with asyncio.timeout(timeout_s):
            return write(await fn(**validate(text))).decode()

    async def by_hand_in_executor(text: str) -> str:
        work = functools.partial(fn, **validate(text))
        return write(await asyncio.get_running_loop().run_in_executor(executor, work)).decode()

    in_loop = by_hand if timeout_s is None else by_hand_in_time
    call = in_loop if asyncio.iscoroutinefunction(fn) else by_hand_in_executor

    async def loop(times: int) -> str:
        answer = ""
        for _ in range(times):
            answer = await call(text)
        return answer

    return loop


def fresh() -> Callable[..., Any]:
    """A new function each time: a library may remember those it has seen."""

    async def add(a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: The first.
            b: The second.
        """
        return a + b

    return add


def thousand() -> list[Callable[..., Any]]:
    """A thousand tools; the last one is `add`, where a search from the front ends."""
    tools = [fresh() for _ in range(1000)]
    for number, fn in enumerate(tools[:-1]):
        fn.__name__ = fn.__qualname__ = f"add_{number}"
    return tools
