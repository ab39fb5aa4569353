"""Asks the person at the terminal what a call waits for.

The keyboard is read on the event loop, by prompt_toolkit: Ctrl-C ends a question at once, and no thread is left behind
in a read that would take the next line from the program after this one.
"""

import asyncio
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..core import Answer, Approve, Deny, Input, Pending
from ..machinery import current_deadline, escaped
from .arguments import kinds_of, read_value
from .terminal import echo, indented_json, is_rich, is_terminal, one_line

if TYPE_CHECKING:
    from ..schema import SchemaView

_YES = ("y", "yes")
_NO = ("", "n", "no")
_UNCLEAR = re.compile(r"(y|yes|yeah|ok|okay|sure)\b", re.IGNORECASE)
"""The beginning of an answer that is neither an approval nor a reason against one: more than a yes."""
_UNANSWERED = object()
_OMITTED = object()


class Prompter:
    """Asks the person at the terminal one question at a time, after *prepare*.

    Once they leave one unanswered, with Ctrl-D, no more.
    """

    def __init__(self, prepare: Callable[[], None]) -> None:
        self._prepare = prepare
        self._gave_up = False
        self._lock = asyncio.Lock()

    def reset(self) -> None:
        """Ask again, also after a question that was left unanswered."""
        self._gave_up = False

    def can_ask(self, pending: Pending) -> bool:
        """Return whether there is a person to ask, who may answer."""
        is_answered_here = pending.kind in ("approval", "input") and not pending.others_only
        return is_answered_here and not self._gave_up and has_person()

    async def may_log_in(self, pending: Pending) -> bool:
        """Ask whether the person at the terminal grants what *pending* asks for, now."""
        if self._gave_up or not has_person():
            return False
        self._prepare()
        _discard_typeahead()
        echo(f"\nTool '{pending.tool}' waits: {pending.message}.", wrap=True)
        line = await read_line("Grant it now? [Y/n] ")
        self._gave_up = line is None
        return line is not None and line.strip().lower() in ("", *_YES)

    async def ask_at_once(self, pending: Pending) -> Answer | None:
        """Answer while the call runs, for `Workbench(ask=...)`; None where it runs against a deadline.

        The time that a person takes should not count, so there the call ends, and is made again with the answer.
        """
        return None if current_deadline.get() is not None or not self.can_ask(pending) else await self.ask(pending)

    async def ask(self, pending: Pending) -> Answer | None:
        """Return the answer of the person; None where they leave the question unanswered."""
        async with self._lock:
            self._prepare()
            _discard_typeahead()
            _show(pending)
            answer = await (_approval() if pending.kind == "approval" else _input(pending))
            self._gave_up = answer is None
            return answer


def has_person() -> bool:
    """Return whether a person sees standard error and has the keyboard."""
    return is_terminal(0) and is_terminal(2)


def _show(pending: Pending) -> None:
    until = pending.expires_at.astimezone().strftime("%H:%M:%S")
    needs = "needs your approval" if pending.kind == "approval" else "needs an answer from you"
    question = f"\nTool '{pending.tool}' {needs}, and waits until {until}.\n{pending.message}"
    echo(escaped(question, invisible=True), wrap=True)
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
    from ..schema import Elicitation, SchemaView

    schema = dict(pending.schema or {})
    while (value := await _value(SchemaView(schema).resolved)) is not _UNANSWERED:
        problem = Elicitation(schema).problems(value)
        if problem is None:
            return Input(value)
        echo(problem)
    return None


async def _value(view: "SchemaView") -> Any:
    """Return the answer that a schema describes: field by field where it has fields."""
    if view.kinds != frozenset({"object"}) or not view.members:
        return await _field("Answer", view, required=True)
    value: dict[str, Any] = {}
    for name, member in view.members.items():
        answer = await _field(name, member, required=name in view.required)
        if answer is _UNANSWERED:
            return answer
        if answer is not _OMITTED:
            value[name] = answer
    return value


async def _field(name: str, view: "SchemaView", *, required: bool) -> Any:
    from ..schema.describe import describe

    description = describe(dict(view.schema), view.root.schema)
    if (note := view.schema.get("description")) and view is not view.root:
        echo(f"  {one_line(str(note))}")
    optional = "" if required else "; Enter leaves it out"
    prompt = f"{one_line(name)} ({one_line(description)}{optional}): "
    # pydantic's SecretStr is such a value.
    is_secret = view.resolved.schema.get("format") == "password" or view.resolved.schema.get("writeOnly") is True
    while (line := await read_line(prompt, hidden=is_secret)) is not None:
        if not line and not required:
            return _OMITTED
        value = read_value([line], view)
        if isinstance(value, str) and "boolean" in kinds_of(view):
            value = {**dict.fromkeys(_YES, True), **dict.fromkeys(_NO[1:], False)}.get(value.strip().lower(), value)
        if view.is_valid(value):
            return value
        echo(f"Expected {description}.")
    return _UNANSWERED


# Lines from the keyboard


class _CtrlC(Exception):
    """A Ctrl-C, which is a key and no signal while the keyboard is read."""


async def read_line(prompt: str, *, hidden: bool = False, history: Sequence[str] = ()) -> str | None:
    """Return a line from the keyboard, without its end; None at Ctrl-D.

    It can be edited, and *history* recalled with the arrow keys. Nothing shows a *hidden* line while it is typed.
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.history import InMemoryHistory
    from prompt_toolkit.output import DummyOutput, create_output
    from prompt_toolkit.output.plain_text import PlainTextOutput
    from prompt_toolkit.output.vt100 import Vt100_Output

    # A session without an output of its own asks in plain text where the terminal cannot move its cursor.
    output = create_output(sys.stderr) if is_rich(sys.stderr) else PlainTextOutput(sys.stderr)
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False  # a terminal that gives no answer would be warned about
    with create_app_session(output=output):
        session: PromptSession[str] = PromptSession(
            history=InMemoryHistory(list(history)),
            output=DummyOutput() if hidden else None,
            interrupt_exception=_CtrlC,
        )
        try:
            with session.input.raw_mode():  # before the prompt, so that no key typed after it is echoed
                if hidden:
                    _write(escaped(prompt))
                return await session.prompt_async(escaped(prompt), set_exception_handler=False, handle_sigint=False)
        except EOFError:
            return None
        except _CtrlC:
            pass
        finally:
            if hidden:
                _write("\n")
    signal.raise_signal(signal.SIGINT)
    await asyncio.sleep(1)  # the signal's handler cancels this; or the signal is ignored
    return None


def _write(text: str) -> None:
    with suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _discard_typeahead() -> None:
    # Text that was typed before the question could be seen is not an answer to it.
    from prompt_toolkit.application import get_app_session
    from prompt_toolkit.input.typeahead import clear_typeahead

    clear_typeahead(get_app_session().input)
    if sys.platform != "win32":
        import termios

        with suppress(OSError, termios.error):
            termios.tcflush(0, termios.TCIFLUSH)
