"""Asks the person at the terminal what a call waits for.

The keyboard is read on the event loop. So Ctrl-C ends the question at once, and no thread stays behind in a read that
would take the next line from whoever reads after us.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, TypeVar

from ..call import time_left_s
from ..core import Answer, Approve, Deny, Input, Pending
from .arguments import Reader
from .streams import clean, is_terminal, laid_out, one_line, tell

if sys.platform != "win32":
    import termios

T = TypeVar("T")

_YES = ("y", "yes")
_NO = ("", "n", "no")
_LEFT_OPEN = object()
_LEFT_OUT = object()


class Asks:
    """Asks one question at a time, after *prepare*. Once the person has left one open, with Ctrl-D, no more."""

    def __init__(self, prepare: Callable[[], None]) -> None:
        self._prepare = prepare
        self._gave_up = False
        self._lock = asyncio.Lock()

    def begin(self) -> None:
        """Ask again, whatever was left open before."""
        self._gave_up = False

    def can_ask(self, pending: Pending) -> bool:
        """Whether there is a person to ask, who may answer."""
        is_answered_here = pending.kind in ("approval", "input") and not pending.others_only
        return is_answered_here and not self._gave_up and has_person()

    async def at_once(self, pending: Pending) -> Answer | None:
        """For `Workbench(ask=...)`: an answer while the call runs; None where it runs against a deadline.

        What a person takes to think should not count, so there the call ends, and is made again with the answer.
        """
        return None if time_left_s() is not None or not self.can_ask(pending) else await self.ask(pending)

    async def ask(self, pending: Pending) -> Answer | None:
        """The answer of the person; None where they leave the question open."""
        async with self._lock:
            self._prepare()
            _forget_what_was_typed()
            _show(pending)
            answer = await (_approval() if pending.kind == "approval" else _input(pending))
            if answer is None:
                self._gave_up = True
                tell("")
            return answer


def has_person() -> bool:
    """Whether somebody sees standard error and has the keyboard."""
    return is_terminal(0) and is_terminal(2)


def _show(pending: Pending) -> None:
    until = pending.expires_at.astimezone().strftime("%H:%M:%S")
    wants = "wants to run" if pending.kind == "approval" else "asks you something"
    tell(f"\nTool '{pending.tool}' {wants}, and waits until {until}.\n{pending.message}\n{laid_out(pending.arguments)}")


async def _approval() -> Answer | None:
    line = await read_line("Let it run? [y/N, or why not] ")
    if line is None:
        return None
    said = line.strip()
    if said.lower() in _YES:
        return Approve()
    return Deny() if said.lower() in _NO else Deny(said)


async def _input(pending: Pending) -> Answer | None:
    from ..schema import Question

    schema = dict(pending.schema or {})
    while True:
        value = await _value(Reader(schema))
        if value is _LEFT_OPEN:
            return None
        problem = Question(schema).problems(value)
        if problem is None:
            return Input(value)
        tell(problem)


async def _value(reader: Reader) -> Any:
    """The answer to what the schema of *reader* asks for: field by field where it has fields."""
    places = reader.members()
    if not places:
        return await _field("Answer", reader, "", required=True)
    value: dict[str, Any] = {}
    for name, (place, required) in places.items():
        given = await _field(name, reader, place, required=required)
        if given is _LEFT_OPEN:
            return given
        if given is not _LEFT_OUT:
            value[name] = given
    return value


async def _field(name: str, reader: Reader, place: str, *, required: bool) -> Any:
    described = reader.described(place)
    if note := reader.note(place):
        tell(f"  {one_line(note)}")
    while True:
        leave_out = "" if required else "; Enter leaves it out"
        line = await read_line(f"{one_line(name)} ({one_line(described)}{leave_out}): ", hidden=reader.is_secret(place))
        if line is None:
            return _LEFT_OPEN
        if not line and not required:
            return _LEFT_OUT
        value = reader.values([line], place)
        if isinstance(value, str) and reader.is_flag(place):
            value = {**dict.fromkeys(_YES, True), **dict.fromkeys(_NO[1:], False)}.get(value.strip().lower(), value)
        if reader.admits(value, place):
            return value
        tell(f"Expected {described}.")


async def read_line(prompt: str, *, hidden: bool = False) -> str | None:
    """A line from the keyboard, without its end; None at its end, Ctrl-D."""
    with _echo_off() if hidden else nullcontext():
        sys.stderr.write(clean(prompt))
        sys.stderr.flush()
        read = await (_in_thread() if sys.platform == "win32" else _when_readable())
    text = read.decode(errors="replace")
    return text.rstrip("\r\n") if text else None


async def _when_readable() -> bytes:
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    loop.add_reader(0, _settle, readable, None)
    try:
        await readable
    finally:
        loop.remove_reader(0)
    try:
        return os.read(0, 65536)  # a line at most: so a terminal gives them
    except OSError:  # it has been hung up
        return b""


async def _in_thread() -> bytes:
    # Windows' loop cannot wait for a console. A daemon, since nothing can end its read.
    loop = asyncio.get_running_loop()
    read: asyncio.Future[bytes] = loop.create_future()

    def work() -> None:
        line = sys.stdin.readline().encode()
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(_settle, read, line)

    threading.Thread(target=work, name="toolcrib-ask", daemon=True).start()
    return await read


def _settle(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


@contextmanager
def _echo_off() -> Generator[None]:
    """What is typed meanwhile is not shown."""
    if sys.platform == "win32":
        yield
        return
    before = termios.tcgetattr(0)
    quiet = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(0, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        tell("")  # the end of the line, which was not shown either


def _forget_what_was_typed() -> None:
    # What was typed before the question was seen is no answer to it.
    if sys.platform != "win32":
        with suppress(OSError, termios.error):
            termios.tcflush(0, termios.TCIFLUSH)
