"""A server process for the tests: `python crib.py stdio` or `python crib.py http [seconds]`, with tools of every kind.

Over HTTP it prints its URL as the first line.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

from toolcrib import Context, Crib, Depends, File, Image, Text, ToolError, tool
from toolcrib.core import Audio
from toolcrib.serve import serve_http, serve_stdio

SECRET = "1234567890123"
cancelled = asyncio.Event()
PIXEL = bytes.fromhex("89504e470d0a1a0a")


@dataclass
class Point:
    x: int
    label: str | None = None


@dataclass
class Tree:
    name: str
    parts: "list[Tree]"


@tool(title="Addition", read_only=True, idempotent=True, open_world=False, icons=["https://crib.example/add.png"])
async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


@tool
def point(x: int) -> Point:
    """A point."""
    return Point(x)


@tool
def points(count: int) -> list[Point]:
    """Some points."""
    return [Point(x) for x in range(count)]


@tool
def prices(amounts: list[Decimal]) -> list[Decimal]:
    """Decimals, as they are."""
    return amounts


@tool
def tree() -> Tree:
    """A tree of trees."""
    return Tree("root", [Tree("leaf", [])])


@tool
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}"


@tool
def everything() -> list[Image | Audio | File | Text]:
    """One of each."""
    return [Text("look"), Image(PIXEL), Audio(b"RIFF", "audio/wav"), File(b"a,b\n", "text/csv", "a b.csv")]


@tool
def nothing():
    """Return nothing."""


@tool
def missing() -> str:
    """Say what went wrong."""
    raise ToolError("There is no such order.", retry="never")


@tool
def crash() -> str:
    """Fail by accident."""
    raise RuntimeError(f"accident at {SECRET}")


@tool
def leave() -> None:
    """Try to end the process."""
    sys.exit(3)


@tool
async def cancel_later() -> str:
    task = asyncio.current_task()

    def cancel() -> None:
        task.cancel()
        cancelled.set()

    asyncio.get_running_loop().call_later(0.01, cancel)
    return "done"


@tool
async def wait_for_that() -> str:
    await cancelled.wait()
    return "cancelled"


@tool
async def leave_inline() -> None:
    """Try to end the process, on the event loop."""
    sys.exit(3)


@tool
def tell_secret(how: str) -> str:
    """Show the secret in text."""
    return f"{how}: {SECRET}"


@tool
def count_secret() -> dict[str, int]:
    """Show the secret as a number."""
    return {"pin": int(SECRET)}


@tool
def key_secret() -> dict[str, int]:
    """Show the secret as a key."""
    return {SECRET: 1}


@tool
def shout(text: str) -> str:
    """Print to standard output in every way there is."""
    print(text)
    print(text, flush=True)
    sys.__stdout__.write(f"{text}\n")
    os.write(1, f"{text}\n".encode())
    subprocess.run([sys.executable, "-c", f"print({text!r})"], check=True)
    return subprocess.run([sys.executable, "-c", "print(input())"], capture_output=True, text=True).stderr[-200:]


@tool
def print_both() -> None:
    """Print a line to standard output, and then one to standard error."""
    print("printed")
    print("to standard error", file=sys.stderr)


@tool
def half() -> list[str]:
    """Give the name of a file that is not UTF-8, in the list of a type that promises JSON."""
    return [os.fsdecode(b"a\xff")]


@tool
def halves(how: str) -> str | File:
    """Give half a surrogate pair."""
    if how == "error":
        raise ToolError("\udcff", retry="never")
    return File(b"x", "text/\udcff", "\udcff") if how == "file" else "\udcff"


_meeting: dict[str, asyncio.Event] = {}
_seen: list[str] = []


@tool
async def meet(me: str, other: str) -> str:
    """Wait until the other has come too."""
    _meeting.setdefault(me, asyncio.Event()).set()
    await _meeting.setdefault(other, asyncio.Event()).wait()
    return f"{me} met {other}"


@tool
async def hang(me: str) -> str:
    """Wait until cancelled, and remember that."""
    _seen.append(f"{me} began")
    try:
        await asyncio.Event().wait()
    finally:
        _seen.append(f"{me} was cancelled")
    return "never"


@tool
def seen() -> list[str]:
    """What was remembered."""
    return _seen


@tool
def length(text: str) -> int:
    """The length of a text."""
    return len(text)


@tool(available=lambda caller: False)
def hidden() -> str:
    """Not for you."""
    return "hidden"


async def opened() -> AsyncIterator[str]:
    yield "open"
    print("closed what was opened", file=sys.stderr, flush=True)


@tool
async def use(context: Context, value: Annotated[str, Depends(opened)]) -> str:
    """Use what the host provides."""
    return f"{value} for {context.caller.principal}"


def crib() -> Crib:
    tools = [add, point, points, prices, tree, greet, everything, nothing, missing, crash, leave, leave_inline]
    tools += [cancel_later, wait_for_that]
    tools += [tell_secret, count_secret, key_secret, shout, meet, hang, seen, length, hidden, use]
    tools += [half, halves, print_both]
    return Crib(tools, secrets=[SECRET])


async def main(how: str) -> None:
    if how == "stdio":
        await serve_stdio(crib())
    else:
        await serve_http(crib(), port=0, ready=lambda url: print(url, flush=True))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
