"""Tools that run in processes of their own: what the tests of isolation load, as a user's file of tools."""

import asyncio
import builtins
import calendar
import contextlib
import ctypes
import dataclasses
import fcntl
import functools
import logging
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from toolcrib import Context, Depends, File, Image, Text, ToolAuth, ToolError, Workbench, tool

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
async def spend(ctx: Context, amount: float) -> str:
    await ctx.spend("tokens", amount)
    return "spent"


@process()
def wait_for(file: str) -> None:
    while not Path(file).exists():
        time.sleep(0.01)


@process()
def pid() -> int:
    return os.getpid()


@process()
def receipt(order: Order, *, tags: set[str], **more: int) -> Receipt:
    assert isinstance(order.due, date)
    return Receipt(order=order, tags={*tags, *more})


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
        "caller": repr((ctx.caller, ctx.caller.claims)),
        "variables": dict(ctx.variables),
        "call": ctx.call.id,
        "left_s": ctx.time_left_s,
    }


@process()
async def variable(ctx: Context, name: str) -> Any:
    return ctx.variables[name]


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
    Path(f"{path}.begun").touch()
    try:
        await asyncio.sleep(60)
    finally:
        with open(path, "w") as file:
            file.write("tidied")


def hold(folder: str) -> int:
    """Return a file whose lock this process, and those that get the file, hold until all of them have ended."""
    file = os.open(f"{folder}/alive", os.O_CREAT | os.O_RDWR)
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


@process()
def start_others(folder: str, *, wait_s: float) -> int:
    """Start a child, a grandchild, children with sessions of their own, an orphan and a thread, which all go on."""
    held = [hold(folder)]
    subprocess.Popen(["sleep", "600"], pass_fds=held)
    subprocess.Popen(["sh", "-c", "sh -c 'sleep 600' & wait"], pass_fds=held)
    subprocess.Popen(["setsid", "sleep", "600"], pass_fds=held)
    subprocess.Popen(["sh", "-c", "setsid sleep 600 & wait"], pass_fds=held)
    subprocess.run(["sh", "-c", "setsid sleep 600 >/dev/null 2>&1 &"], check=True, pass_fds=held)
    threading.Thread(target=time.sleep, args=(600,)).start()
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


@process()
def kill_guards(folder: str, at: str) -> None:
    """Start children, and kill whoever could end them."""
    held = [hold(folder)]
    for name in ("child", "session", "bare"):
        environ = {} if name == "bare" else None
        subprocess.Popen(["sleep", "600"], start_new_session=name != "child", env=environ, pass_fds=held)
    subprocess.run(["sh", "-c", "setsid sleep 600 >/dev/null 2>&1 &"], check=True, pass_fds=held)
    guards = [os.getppid()]
    while True:
        with open(f"/proc/{guards[-1]}/stat") as file:
            parent = int(file.read().rpartition(")")[2].split()[1])
        with open(f"/proc/{parent}/cmdline") as file:
            if "guard" not in file.read():
                break
        guards.append(parent)
    match at:
        case "its group":
            os.killpg(0, signal.SIGKILL)
        case "its parent":
            os.kill(guards[0], signal.SIGKILL)
        case "the group of its parent":
            os.killpg(guards[0], signal.SIGKILL)
        case "the outer guard":
            os.kill(guards[-1], signal.SIGKILL)
        case "a guard, by a stop":
            os.kill(guards[0], signal.SIGSTOP)
    time.sleep(60)


@process()
def process_facts() -> dict[str, Any]:
    """What this process has from its guards, and what its children would have from it."""
    files: dict[int, str] = {}
    for fd in range(3, 1000):
        with contextlib.suppress(OSError):
            files[fd] = os.readlink(f"/proc/self/fd/{fd}")
    with open("/proc/self/oom_score_adj") as file:
        oom_score = int(file.read())
    return {
        "pipes": [kind for kind in files.values() if kind.startswith("pipe:")],
        "inheritable": [kind for fd, kind in files.items() if os.get_inheritable(fd)],
        "core": resource.getrlimit(resource.RLIMIT_CORE),
        "memory": resource.getrlimit(resource.RLIMIT_AS),
        "oom_score": oom_score,
        "handlers": [signal.getsignal(each) is signal.SIG_DFL for each in (signal.SIGTERM, signal.SIGCHLD)],
        "adopts_orphans": _adopts_orphans(),
    }


def _adopts_orphans() -> bool:
    found = ctypes.c_int()
    ctypes.CDLL(None).prctl(37, ctypes.byref(found))  # PR_GET_CHILD_SUBREAPER
    return bool(found.value)


@process()
async def report_and(ctx: Context, then: str) -> str:
    ctx.progress(1)
    if then == "emit":
        await ctx.emit("some text")
    return then


@process(timeout_s=60)
async def time_within() -> bool:
    def time_left(ctx: Context) -> float | None:
        return ctx.time_left_s

    async with Workbench([time_left]) as bench:
        left_s = (await bench.call("time_left")).unwrap()
    return left_s is not None and 0 < left_s <= 60


@process()
def give_up(how: str) -> None:
    ways = {"memory": MemoryError, "interrupt": KeyboardInterrupt, "cancelled": asyncio.CancelledError}
    raise ways[how]


@process()
def tidy_in_a_thread(ctx: Context, path: str) -> None:
    Path(f"{path}.begun").touch()
    while not ctx.cancellation.is_cancelled():
        time.sleep(0.001)
    with open(path, "w") as file:
        file.write("tidied")


@process()
def die_before_others(folder: str) -> None:
    started = subprocess.Popen(["sleep", "60"], start_new_session=True)
    with open(f"{folder}/pid", "w") as file:
        file.write(str(started.pid))
    os._exit(3)


@process(auth=ToolAuth("github"))
async def credentials(ctx: Context) -> list[Any]:
    return [dataclasses.asdict(each) for each in ctx.credentials.values()]


@process()
def narrate(folder: str) -> str:
    """Print a line, wait until the host has seen it, and print something without an end of line."""
    print("begun \ud800")
    while not os.path.exists(f"{folder}/seen"):
        time.sleep(0.001)
    logging.getLogger("of_narrate").info("logged")
    print("ended", end="")
    return "done"


@process()
def close_output() -> str:
    sys.stdout.close()
    return "done"


@process()
def die_noting(path: str) -> None:
    with open(path, "a") as file:
        file.write("ran ")
    os._exit(3)


@process(name="passed-through", parameters={"type": "object", "properties": {"x": {}}, "additionalProperties": False})
def passed_through(x: Any = "nothing") -> Any:
    return x


@process()
def change_process(folder: str) -> None:
    """Change what a process has but once."""
    builtins.left_behind = "yes"  # type: ignore[attr-defined]
    os.environ["LEFT_BEHIND"] = "yes"
    os.chdir(folder)
    os.umask(0o077)
    calendar.isleap = lambda year: year == 7
    threading.Thread(target=time.sleep, args=(600,), name="left_behind", daemon=True).start()


@process()
def process_state() -> dict[str, Any]:
    umask = os.umask(0)
    os.umask(umask)
    return {
        "pid": os.getpid(),
        "builtin": hasattr(builtins, "left_behind"),
        "environ": os.environ.get("LEFT_BEHIND"),
        "folder": os.getcwd(),
        "umask": umask,
        "patched": calendar.isleap(7),
        "threads": [thread.name for thread in threading.enumerate() if thread.name == "left_behind"],
    }
