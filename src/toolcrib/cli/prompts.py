"""Asks the person at the terminal what a call waits for.

The keyboard is read on the event loop, by prompt_toolkit: Ctrl-C ends a question at once, and no thread is left behind
in a read that would take the next line from whoever reads after us.
"""

import asyncio
import re
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ..core import Answer, Approve, Deny, Input, Pending, current_deadline
from .arguments import SchemaReader
from .terminal import clean, echo, indented_json, is_rich, is_terminal, one_line

if TYPE_CHECKING:
    from prompt_toolkit.buffer import Buffer

_YES = ("y", "yes")
_NO = ("", "n", "no")
_UNCLEAR = re.compile(r"(y|yes|yeah|ok|okay|sure)\b", re.IGNORECASE)
"""What begins like a yes and is more than that: neither an approval nor a reason against one."""
_UNANSWERED = object()
_OMITTED = object()


class Prompter:
    """Asks one question at a time, after *prepare*. Once the person leaves one unanswered, with Ctrl-D, no more."""

    def __init__(self, prepare: Callable[[], None]) -> None:
        self._prepare = prepare
        self._gave_up = False
        self._lock = asyncio.Lock()

    def reset(self) -> None:
        """Ask again, also after a question that was left unanswered."""
        self._gave_up = False

    def can_ask(self, pending: Pending) -> bool:
        """Whether there is a person to ask, who may answer."""
        is_answered_here = pending.kind in ("approval", "input") and not pending.others_only
        return is_answered_here and not self._gave_up and has_person()

    async def may_log_in(self, pending: Pending) -> bool:
        """Whether the person at the terminal wants to grant what *pending* asks for, now."""
        if self._gave_up or not has_person():
            return False
        self._prepare()
        _discard_typeahead()
        echo(f"\nTool '{pending.tool}' waits: {pending.message}.", wrap=True)
        line = await read_line("Grant it now? [Y/n] ")
        self._gave_up = line is None
        return line is not None and line.strip().lower() in ("", *_YES)

    async def ask_at_once(self, pending: Pending) -> Answer | None:
        """For `Workbench(ask=...)`: an answer while the call runs; None where it runs against a deadline.

        The time that a person takes should not count, so there the call ends, and is made again with the answer.
        """
        return None if current_deadline.get() is not None or not self.can_ask(pending) else await self.ask(pending)

    async def ask(self, pending: Pending) -> Answer | None:
        """The answer of the person; None where they leave the question unanswered."""
        async with self._lock:
            self._prepare()
            _discard_typeahead()
            _show(pending)
            answer = await (_approval() if pending.kind == "approval" else _input(pending))
            self._gave_up = answer is None
            return answer


def has_person() -> bool:
    """Whether somebody sees standard error and has the keyboard."""
    return is_terminal(0) and is_terminal(2)


def _show(pending: Pending) -> None:
    until = pending.expires_at.astimezone().strftime("%H:%M:%S")
    needs = "needs your approval" if pending.kind == "approval" else "needs an answer from you"
    echo(f"\nTool '{pending.tool}' {needs}, and waits until {until}.\n{pending.message}", wrap=True)
    echo(indented_json(pending.arguments))


async def _approval() -> Answer | None:
    while (line := await read_line("Run it? [y/N, or a reason to deny it] ")) is not None:
        text = line.strip()
        if text.lower() in _YES:
            return Approve()
        if text.lower() in _NO:
            return Deny()
        if not _UNCLEAR.match(text):
            return Deny(text)
        echo(
            "Only 'y' or 'yes' approves the call. 'n' or Enter denies it; other text denies it with a reason.",
            wrap=True,
        )
    return None


async def _input(pending: Pending) -> Answer | None:
    from ..schema import Elicitation

    schema = dict(pending.schema or {})
    while (value := await _value(SchemaReader(schema))) is not _UNANSWERED:
        problem = Elicitation(schema).problems(value)
        if problem is None:
            return Input(value)
        echo(problem)
    return None


async def _value(reader: SchemaReader) -> Any:
    """The answer that the schema of *reader* describes: field by field where it has fields."""
    places = reader.members()
    if not places:
        return await _field("Answer", reader, "", required=True)
    value: dict[str, Any] = {}
    for name, (place, required) in places.items():
        answer = await _field(name, reader, place, required=required)
        if answer is _UNANSWERED:
            return answer
        if answer is not _OMITTED:
            value[name] = answer
    return value


async def _field(name: str, reader: SchemaReader, place: str, *, required: bool) -> Any:
    described = reader.described(place)
    if note := reader.note(place):
        echo(f"  {one_line(note)}")
    optional = "" if required else "; Enter leaves it out"
    prompt = f"{one_line(name)} ({one_line(described)}{optional}): "
    while (line := await read_line(prompt, hidden=reader.is_secret(place))) is not None:
        if not line and not required:
            return _OMITTED
        value = reader.value([line], place)
        if isinstance(value, str) and reader.is_flag(place):
            value = {**dict.fromkeys(_YES, True), **dict.fromkeys(_NO[1:], False)}.get(value.strip().lower(), value)
        if reader.admits(value, place):
            return value
        echo(f"Expected {described}.")
    return _UNANSWERED


# Lines from the keyboard


class _CtrlC(Exception):
    """Ctrl-C, which is a key and no signal while the keyboard is read."""


async def read_line(prompt: str, *, hidden: bool = False, history: Sequence[str] = ()) -> str | None:
    """A line from the keyboard, without its end; None at Ctrl-D.

    It can be edited, and *history* recalled with the arrow keys. Nothing shows a *hidden* line while it is typed.
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import InMemoryHistory
    from prompt_toolkit.output import DummyOutput, create_output
    from prompt_toolkit.output.vt100 import Vt100_Output

    is_plain = hidden or not is_rich(sys.stderr)
    output = DummyOutput() if is_plain else create_output(sys.stderr)
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False  # a terminal that gives no answer would be warned about
    session: PromptSession[str] = PromptSession(
        history=InMemoryHistory(list(history)), output=output, interrupt_exception=_CtrlC
    )
    if is_plain and not hidden:
        session.default_buffer.on_text_changed += _echo_of(prompt)
    end = "\n"
    try:
        with _wakeup_kept(), session.input.raw_mode():  # before the prompt, so that no key typed after it is echoed
            if is_plain:
                _write(clean(prompt))
            return await session.prompt_async(clean(prompt), set_exception_handler=False, handle_sigint=False)
    except EOFError:
        return None
    except _CtrlC:
        end = "^C"
    finally:
        if is_plain:
            _write(end)
    signal.raise_signal(signal.SIGINT)
    await asyncio.sleep(1)  # the signal's handler cancels this; or the signal is ignored
    return None


def _echo_of(prompt: str) -> Callable[["Buffer"], None]:
    """Shows what is typed on a terminal that cannot move its cursor."""
    shown = ""

    def show(buffer: "Buffer") -> None:
        nonlocal shown
        text = clean(buffer.text)
        added = text.removeprefix(shown) if text.startswith(shown) else None
        _write(f"\r{clean(prompt)}{text.ljust(len(shown))}" if added is None else added)
        shown = text

    return show


def _write(text: str) -> None:
    with suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


@contextmanager
def _wakeup_kept() -> Generator[None]:
    # prompt_toolkit waits for SIGWINCH, for which the event loop takes the wakeup descriptor that `Interrupts` needs.
    before = -1 if sys.platform == "win32" else signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        if sys.platform != "win32":
            signal.set_wakeup_fd(before)


def _discard_typeahead() -> None:
    # Text that was typed before the question could be seen is not an answer to it.
    from prompt_toolkit.application import get_app_session
    from prompt_toolkit.input.typeahead import clear_typeahead

    clear_typeahead(get_app_session().input)
    if sys.platform != "win32":
        import termios

        with suppress(OSError, termios.error):
            termios.tcflush(0, termios.TCIFLUSH)
