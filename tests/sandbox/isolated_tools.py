"""Tools that run in processes of their own: what the tests of isolation load, as a user's file of tools."""

import asyncio
import ctypes
import functools
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

from pydantic import BaseModel, Field

from toolcrib import Context, Depends, File, Image, Text, ToolError, tool

process = functools.partial(tool, isolation="process")


class Colour(Enum):
    RED = "red"


class Order(BaseModel):
    id: int
    due: date = Field(alias="dueDate")
    price: Decimal
    colour: Colour | None = None


class Receipt(BaseModel):
    order: Order
    tags: set[str]
    paid: bool = True


@process()
async def add(a: int, b: int) -> int:
    return a + b


@process()
def pid() -> int:
    return os.getpid()


@process()
def receipt(order: Order, *, tags: set[str], **more: int) -> Receipt:
    assert isinstance(order.due, date)
    return Receipt(order=order, tags={*tags, *more})


@process(name="passed-through", parameters={"type": "object", "properties": {"x": {}}, "additionalProperties": False})
def passed_through(x: Any = "nothing") -> Any:
    return x


@process()
def of_kind(kind: str) -> Any:
    kinds = {
        "text": "plain ü text",
        "bytes": b"\x00\xff",
        "none": None,
        "image": Image(b"\x89PNG"),
        "mixed": [Text("see"), File(b"\x00", "x/y", "z"), {"a": 1}],
        "table": {"rows": [1, 2.5, None]},
    }
    return kinds[kind]


@process()
async def count(to: int) -> AsyncIterator[int]:
    for n in range(to):
        yield n


@process()
def count_in_a_thread(to: int) -> Iterator[int]:
    yield from range(to)


@process()
async def look_around(ctx: Context) -> dict[str, Any]:
    ctx.progress(1, 2, "half of hunter2-secret")
    await ctx.emit("some text")
    ctx.log.warning("logged %s", "hunter2-secret")
    return {
        "caller": [ctx.caller.principal, ctx.caller.profile, ctx.caller.thread],
        "variables": dict(ctx.variables),
        "call": ctx.call.id,
        "left_s": ctx.time_left_s,
    }


@process()
async def variable(ctx: Context, name: str) -> Any:
    return ctx.variables[name]


@process()
async def flood(ctx: Context) -> int:
    for n in range(1000):
        await ctx.emit(str(n))
    return 1000


@process()
async def book(ctx: Context, city: str) -> str:
    nights = await ctx.ask("nights", int, f"How many nights in {city}?")
    return f"{nights + 0} nights in {city}"


@process()
def book_in_a_thread(ctx: Context) -> str:
    return f"{ctx.wait(ctx.ask('order', Order, 'Which order?')).due.year}"


def opened() -> Iterator[str]:
    yield f"opened in {os.getpid()}"
    logging.getLogger("opened").warning("closed")


def opened_otherwise() -> str:
    return "otherwise"


@process()
def provided(value: Annotated[str, Depends(opened, scope="call")]) -> tuple[str, int]:
    return value, os.getpid()


@process()
def speak() -> str:
    print("printed hunter2-")
    sys.stdout.write("hunter2-")
    sys.stdout.flush()
    os.write(1, b"secret by a child\n")
    subprocess.run(["sh", "-c", "echo on stderr >&2"], check=True)
    return "done"


@process()
def shout() -> str:
    for _ in range(3000):
        print("x" * 999)
    return "done"


@process()
def refuse() -> None:
    raise ToolError("not today", "unavailable", retry="later", details={"when": "tomorrow"})


@process()
def fail() -> None:
    raise RuntimeError("password hunter2-secret")


@process()
def leave() -> None:
    raise SystemExit(3)


@process()
def die(how: str) -> None:
    if how == "exit":
        os._exit(3)
    if how == "segfault":
        ctypes.string_at(0)
    os.kill(os.getpid(), getattr(signal, how))


@process()
def fill_memory() -> int:
    return len(bytearray(8 * 2**30))


@process()
def much(size: int) -> str:
    return "x" * size


@process()
def emit_much(ctx: Context, size: int) -> None:
    ctx.wait(ctx.emit("x" * size))


@process()
def nap(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


@process()
def hold_the_interpreter() -> bool:
    """A regular expression that runs for ages without letting go of the interpreter's lock."""
    return re.fullmatch("(a|aa)+$", "a" * 60 + "b") is not None


@process()
async def tidy(path: str) -> None:
    try:
        await asyncio.sleep(60)
    finally:
        with open(path, "w") as file:
            file.write("tidied")


@process()
def start_others(folder: str, *, wait_s: float) -> int:
    """Start a child, a grandchild, children with sessions of their own, an orphan and a thread, all to leave a file."""

    def touch(name: str) -> str:
        return f"sleep 2; touch {folder}/{name}"

    subprocess.Popen(["sh", "-c", touch("child")])
    subprocess.Popen(["sh", "-c", f"sh -c '{touch('grandchild')}' & wait"])
    subprocess.Popen(["setsid", "sh", "-c", touch("session")])
    subprocess.Popen(["sh", "-c", f"setsid sh -c '{touch('grandchild_session')}' & wait"])
    subprocess.run(["sh", "-c", f"setsid sh -c '{touch('orphan')}' >/dev/null 2>&1 &"], check=True)

    def late() -> None:
        time.sleep(2)
        open(f"{folder}/thread", "w").close()

    threading.Thread(target=late).start()
    open(f"{folder}/begun", "w").close()
    time.sleep(wait_s)
    return os.getpid()


@process()
async def data(ctx: Context, name: str | None = None) -> Any:
    found = ctx.call.data
    return None if found is None else dict(found) if name is None else found[name]


@process()
def spin() -> None:
    while True:
        time.sleep(0.01)
