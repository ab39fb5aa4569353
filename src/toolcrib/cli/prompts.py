"""Asks the person at the terminal what a call waits for.

The keyboard is read on the event loop, by prompt_toolkit: Ctrl-C ends a question at once, and no thread is left behind
in a read that would take the next line from the program after this one.
"""

import asyncio
import json
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime, time, timedelta
from functools import partial
from getpass import getuser
from typing import TYPE_CHECKING, Any

from ..call.pending import MAX_REMEMBERED
from ..core import Answer, AnswerError, Approve, Caller, Deny, Input, Pending
from ..machinery import current_deadline, escaped, named_approvers
from ..schema import Elicitation, SchemaView, parse_json
from ..schema.describe import describe
from .arguments import read_value
from .terminal import echo, indented_json, is_rich, is_terminal, one_line

if TYPE_CHECKING:
    from ..workbench import Crib

_YES = ("y", "yes")
_NO = ("", "n", "no")
_EDIT = ("e", "edit")
_UNCLEAR = re.compile(r"(y|yes|yeah|ok|okay|sure)\b", re.IGNORECASE)
"""The beginning of an answer that is neither an approval nor a reason against one: more than a yes."""
_UNTIL = re.compile(r"(?:y|yes) until (?P<end>.+)", re.IGNORECASE)
_UNANSWERED = object()
_OMITTED = object()


class Prompter:
    """Asks the person at the terminal one question at a time, each within a *frame*.

    Once they leave one unanswered, with Ctrl-D, no more.
    """

    def __init__(self, frame: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._frame = frame
        self._gave_up = False
        self._lock = asyncio.Lock()

    def reset(self) -> None:
        """Ask again, also after a question that was left unanswered."""
        self._gave_up = False

    def can_ask(self, pending: Pending, by: str | None = None) -> bool:
        """Return whether there is a person to ask, who may answer: the caller, or *by*."""
        is_own = by is None or by == pending.principal
        is_answered_here = pending.kind in ("approval", "input") and not (pending.others_only and is_own)
        return is_answered_here and not self._gave_up and has_person()

    async def may_log_in(self, pending: Pending) -> bool:
        """Ask whether the person at the terminal grants what *pending* asks for, now."""
        if self._gave_up or not has_person():
            return False
        with self._frame():
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
            with self._frame():
                _discard_typeahead()
                _show(pending)
                answer = await (_approval(pending) if pending.kind == "approval" else _input(pending))
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
    if pending.rule:
        echo("To approve its next calls as well: y until 18:00, or: y until conversation", wrap=True)


async def _approval(pending: Pending) -> Answer | None:
    while (line := await read_line("Run it? [y/N, e to edit, or a reason to deny it] ")) is not None:
        text = line.strip()
        if text.lower() in _EDIT:
            if (answer := await _edited(pending)) is not None:
                return answer
            continue
        if (match := _UNTIL.fullmatch(text)) is not None:
            if (answer := await _grant(pending, match["end"])) is not None:
                return answer
            continue
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


async def _grant(pending: Pending, end: str) -> Approve | None:
    """Return the approval of this call and the next ones until *end*, once the person has seen what that means."""
    until = end if end == "conversation" else moment(end)
    if until is None:
        echo("That is not a time, such as 18:00 or 2026-01-31T18:00, nor 'conversation'.", wrap=True)
        return None
    period = "for this conversation" if isinstance(until, str) else f"until {until:%Y-%m-%d %H:%M %Z}"
    echo(
        f"{pending.principal!r} may then call {pending.tool!r} with any arguments {period}, in the thread "
        f"{pending.thread!r}, where the same rule would ask.",
        wrap=True,
    )
    line = await read_line("Grant that? [y/N] ")
    return Approve(until=until) if line is not None and line.strip().lower() in _YES else None  # type: ignore[arg-type]


def moment(text: str) -> datetime | None:
    """Return the moment that a person has written, in their time zone: of a time alone, the next one."""
    now = datetime.now().astimezone()
    with suppress(ValueError, OverflowError):
        at = datetime.combine(now, time.fromisoformat(text)).astimezone()
        return at if at > now else at + timedelta(days=1)
    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(text).astimezone()
    return None


async def _edited(pending: Pending) -> Approve | None:
    """Return the approval with the arguments that the person has changed in an editor; None where they left it."""
    import click

    before = f"{json.dumps(json.loads(pending.arguments), indent=2)}\n"
    try:
        # In a thread: what else this process does goes on meanwhile.
        text = await asyncio.to_thread(partial(click.edit, before, extension=".json"))
        if text is None:
            echo("The arguments were left as they are.")
            return None
        arguments = parse_json(text)
    except click.ClickException as error:
        echo(f"{error.message} The editor is named by $VISUAL or $EDITOR.", wrap=True)
        return None
    except ValueError as error:
        echo(f"This is not JSON: {error}.", wrap=True)
        return None
    if isinstance(arguments, dict):
        return Approve(arguments)
    echo("Arguments are a JSON object: { ... }.")
    return None


async def answer_as_operator(crib: "Crib", report: Callable[[str], None], *, asks: bool) -> None:
    """Say what waits from now on, and where *asks* and a person is at the terminal, ask them.

    They answer as the user of the operating system, who is not one of the callers.
    """
    queue, operator = asyncio.Queue[Pending](MAX_REMEMBERED), Caller(os_user())
    prompter = Prompter()

    def opened(pending: Pending) -> None:
        if pending.kind in ("approval", "input"):
            with suppress(asyncio.QueueFull):
                queue.put_nowait(pending)

    crib.pending.opened = opened
    while True:
        pending = await queue.get()
        if not await _is_open(crib, pending):
            continue
        may_ask = asks and pending.kind == "approval" and await crib.pending.allows(pending, operator)
        if may_ask and prompter.can_ask(pending, operator.principal):
            await _ask_operator(crib, pending, prompter, operator)
        else:
            report(_waits(pending, crib))


def outcome_of(answer: Answer, pending: Pending) -> str:
    """Return what comes of an approval or a denial."""
    outcome = "Approved: it runs, once, when" if isinstance(answer, Approve) else "Denied: the model reads it when"
    return f"{outcome} '{one_line(pending.principal)}' calls '{one_line(pending.tool)}' again."


def os_user() -> str:
    """Return the name of the user of this process."""
    try:
        return getuser()
    except (OSError, KeyError, ImportError):  # of a number without a name, as in containers
        return "operator"


async def _ask_operator(crib: "Crib", pending: Pending, prompter: Prompter, operator: Caller) -> None:
    """Ask the operator, until they or others have answered *pending*."""
    echo(f"\n'{one_line(pending.principal)}' waits.")
    elsewhere = asyncio.ensure_future(crib.wait_for(pending, timeout_s=None))
    try:
        while await _is_open(crib, pending):
            asking = asyncio.ensure_future(prompter.ask(pending))
            try:
                await asyncio.wait({asking, elsewhere}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                asking.cancel()
            if not asking.done() or (answer := asking.result()) is None:
                break
            try:
                await crib.answer(pending.id, answer, by=operator)
                echo(outcome_of(answer, pending))
                return
            except AnswerError as error:
                echo(str(error), wrap=True)
        echo("\n" + ("It was answered elsewhere, or has expired." if elsewhere.done() else _waits(pending, crib)))
    finally:
        elsewhere.cancel()


async def _is_open(crib: "Crib", pending: Pending) -> bool:
    row = await crib.pending.store.get(pending.id)
    return row is not None and row.state == "open" and crib.pending.clock() < pending.expires_at


def _waits(pending: Pending, crib: "Crib") -> str:
    """Return that *pending* waits, and how it is answered."""
    names = "" if pending.approvers is None else f" of {named_approvers(pending.approvers)}"
    if pending.kind == "input" or crib.database is None:
        way = f"POST /api/pending/{pending.id}/answer"
    else:
        way = f"toolcrib pending approve {pending.id} (or deny)"
    need = "an answer" if pending.kind == "input" else "approval"
    text = (
        f"'{pending.principal}' waits for {need}{names}, to call '{pending.tool}': {pending.message} To give it: {way}"
    )
    return one_line(text)


async def _input(pending: Pending) -> Answer | None:
    schema = dict(pending.schema or {})
    while (value := await _value(SchemaView(schema).resolved)) is not _UNANSWERED:
        problem = Elicitation(schema).problems(value)
        if problem is None:
            return Input(value)
        echo(problem)
    return None


async def _value(view: SchemaView) -> Any:
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


async def _field(name: str, view: SchemaView, *, required: bool) -> Any:
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
        if view.is_valid(value := _read(line, view)):
            return value
        echo(f"Expected {description}.")
    return _UNANSWERED


def _read(line: str, view: SchemaView) -> Any:
    value = read_value([line], view)
    if isinstance(value, str) and "boolean" in view.admitted_kinds:
        return {**dict.fromkeys(_YES, True), **dict.fromkeys(_NO[1:], False)}.get(value.strip().lower(), value)
    return value


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
