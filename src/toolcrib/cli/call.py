"""`toolcrib call`: one call, shown while it runs, made again when the person has answered what it waited for, and its
result: to standard output, everything else to standard error.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ..call import require_key
from ..core import (
    Answer,
    AnswerError,
    Audio,
    Call,
    Content,
    File,
    Image,
    Pending,
    Repair,
    Result,
    ToolAuth,
    ToolcribError,
    ToolError,
)
from ..machinery import named_approvers
from ..schema import closest_match
from ..workbench.results import READERS
from ..workbench.search import FINDERS
from .app import Session, command, group
from .arguments import CallWords, Source, ToolName, read_arguments, read_words, require_tool, to_json
from .interrupts import DEFAULT_GRACE_S
from .prompts import Prompter, has_person
from .terminal import UsageError, echo, indented_json, is_terminal, log_to_stderr
from .transcript import CallTranscript

if TYPE_CHECKING:
    from ..workbench import TaskEvent, Workbench

PENDING_STATUS = 3
"""The exit status of a call that waits for an answer."""

app = group()


@command(app, "call", example="toolcrib call tools.py search query=lathe limit=3", takes="caller config store json")
def call(
    session: Session,
    words: CallWords = None,
    source: Source = None,
    tool: ToolName = None,
    save_to: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Save an image, sound, file or text of the result."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Calls with one key take effect once; the others get its result."),
    ] = None,
    timeout_s: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", min=0.001, help="The longest a call may take."),
    ] = None,
    show_errors: Annotated[bool | None, typer.Option(help="Show the text of exceptions. For development.")] = None,
) -> int:
    """Call a tool and print its result.

    Where it waits for an approval or an answer, the person at the terminal is asked. Without a terminal, what it waits
    for is printed, and the exit status is 3.
    """
    read = read_words(words or (), tool)
    name = require_tool(read, "call")
    interrupts = session.interrupts
    output = session.output  # claimed before what the sources print
    arguments = read_arguments(read.arguments, tool=name)
    _require_writable(save_to)
    _require_key(key)
    transcript = CallTranscript(output, as_json=session.as_json, is_over=lambda: interrupts.came)
    # At a terminal sits the developer, who is shown where the tool failed.
    shows_errors = session.settings.options(show_errors=show_errors).get("show_errors", False)
    log_to_stderr(tracebacks=shows_errors or is_terminal(2), prepare=transcript.pause, holds=transcript.holds)
    prompter = Prompter(transcript.held)
    sources = session.open(
        [*read.sources, *(source or ())],
        example=f"To call '{name}', name its source: toolcrib call tools.py {name}",
        # A preview is for models, who can read on from it.
        defaults={"max_result_chars": None},
        ask=prompter.ask_at_once,
        caller=session.caller,
        timeout_s=timeout_s,
        show_errors=show_errors,
        # A preview and `read_result` are calls of two processes.
        tool=None if name in FINDERS else name,
        needs_store=key is not None or name in READERS or bool(session.settings.options().get("max_result_chars")),
    )
    sources.echo_problems()
    bench = sources.bench
    if key is not None and bench.crib.database is None:
        raise UsageError("--key needs a store, and its packages are missing: pip install 'toolcrib[auth]'.")

    async def work() -> int:
        async with sources.started():
            if sources.has_servers and name not in bench.registry:
                await _connect(bench, prompter, transcript)
            # `read_result` is not in the registry: there, what is no text is repaired.
            own = bench.registry.find(name)
            schema = {} if own is None else own.spec.input_schema
            to_make = Call(name, to_json(arguments, schema), idempotency_key=key)
            result = await answered_call(bench, to_make, prompter, transcript)
            if not session.as_json:
                if "repeated" in result.metadata:
                    echo("Repeated: the result of an earlier call with this key. The tool did not run again.")
                _echo_repairs(result.repairs, schema.get("properties", ()), by_key=arguments.json is None)
            if result.error is not None and result.error.code == "timeout":
                # What still runs must not hold the process.
                interrupts.leave_within(DEFAULT_GRACE_S, 1)
            if result.pending is not None and not session.as_json:
                _echo_pending(result.pending, stored=bool(bench.crib.database))
            return write_result(session, result, transcript, save_to)

    return session.run(work())


def write_result(session: Session, result: Result[Any], transcript: CallTranscript, save_to: Path | None) -> int:
    """Write *result*, or save it, and return the exit status."""
    if session.as_json:
        session.output.json(result.to_dict())
    elif result.error is not None:
        _echo_error(result.error.code, result.error.message)
    if result.error is not None:
        return 1
    if result.pending is not None:
        return PENDING_STATUS
    if "headers" in result.metadata and not session.as_json:  # standard output and the file are the body alone
        echo(result.content[-1].text)
        result = replace(result, content=result.content[:-1])
    files = _save(result, save_to) if save_to is not None else ()
    if not session.as_json:
        _write_parts(result.content, transcript, saved=files)
    return 0


def _write_parts(content: Sequence[Content], transcript: CallTranscript, *, saved: Sequence[object]) -> None:
    parts = [part for part in content if part not in saved]
    for part in parts:
        transcript.content(part)
    if any(isinstance(part, Image | Audio | File) for part in parts):
        echo("To save it: --output FILE")


async def answered_call(bench: "Workbench", call: Call, prompter: Prompter, transcript: CallTranscript) -> Result[Any]:
    """Return the result of *call*; pending only where the person at the terminal cannot or does not answer."""
    while True:
        result = await result_of(bench.stream(call), transcript)
        if result.pending is None:
            return result
        if result.pending.kind == "task":
            return await _followed(bench, result.pending, transcript)
        if result.pending.kind == "authorization":
            if not await prompter.may_log_in(result.pending):
                return result
            await _log_in_for(bench, call.tool)
            continue
        if (answer := await _answer_to(bench, result.pending, prompter)) is None:
            return result
        try:
            await bench.answer(result.pending.id, answer)
        except AnswerError as error:
            echo(str(error))
            if error.reason not in ("expired", "invalid"):
                return result


async def _answer_to(bench: "Workbench", pending: Pending, prompter: Prompter) -> Answer | None:
    if prompter.can_ask(pending) and await bench.crib.pending.allows(pending, bench.caller):
        return await prompter.ask(pending)
    return None


async def _followed(bench: "Workbench", pending: Pending, transcript: CallTranscript) -> Result[Any]:
    """Return the result of the task *pending*, and show what it reports until then."""
    caller, log = bench.caller, logging.getLogger("toolcrib.tool")
    echo(f"'{pending.tool}' runs as the task {pending.id}. Ctrl-C stops the waiting, and what runs here.", wrap=True)
    log.propagate = False  # what the tool logs here is among what it reports
    try:
        task = bench.crib.tasks.follow(pending.id, principal=caller.principal, thread=caller.thread)
        return await result_of(task, transcript)
    finally:
        log.propagate = True


async def _connect(bench: "Workbench", prompter: Prompter, transcript: CallTranscript) -> None:
    """Have servers that need a login list their tools: the person at the terminal logs in, if they have not yet."""
    for tool in list(bench.registry):
        if getattr(tool.source, "connecting", None) == tool.origin:
            await answered_call(bench, Call(tool.spec.name, {}), prompter, transcript)


async def _log_in_for(bench: "Workbench", tool: str) -> None:
    """Have the person at the terminal grant what *tool* requires, one thing after the other. Raises ToolcribError."""
    from .login import log_in, read_secret

    crib, caller = bench.crib, bench.caller
    broker = crib.credentials.broker
    for required in bench.registry.get(tool).spec.requirements:
        if not await broker.ask_for([required], caller, tool):
            continue
        if isinstance(required, ToolAuth):
            await log_in(crib, required, caller)
        else:
            from ..auth import Grant, secret_owner

            owner = secret_owner(caller.principal, caller.profile, required.name)
            await crib.credentials.save(owner, Grant(read_secret(f"{required.name}: ")))


async def result_of(stream: AsyncIterator["TaskEvent | Result[Any]"], transcript: CallTranscript) -> Result[Any]:
    """Return the result that *stream* ends with, and show the events before it."""
    try:
        async with aclosing(cast("AsyncGenerator[TaskEvent | Result[Any]]", stream)) as events:
            async for event in events:
                if isinstance(event, Result):
                    return event
                transcript.show_event(event)
    finally:
        transcript.pause()
    raise AssertionError("a stream ends with a result")


def _require_key(key: str | None) -> None:
    """Raise UsageError for a key that no call can have."""
    try:
        if key is not None:
            require_key(key)
    except ToolError as error:
        raise UsageError(f"--key: {error.message}") from None


def _require_writable(path: Path | None) -> None:
    """Raise UsageError for a path that no file can be saved under: better before the call than after it."""
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"--output {path} is a folder. Name a file in it.")
    if not path.parent.is_dir():
        raise UsageError(f"--output {path}: there is no folder {path.parent}. Create it first.")


def _echo_error(code: str, message: str) -> None:
    hint = " To see it: --show-errors" if message.endswith("is in the log.") and not is_terminal(2) else ""
    echo(f"Error ({code}): {message}{hint}", wrap=True)


def _echo_pending(pending: Pending, *, stored: bool) -> None:
    """Write what *pending* waits for; where it is *stored*, also how others answer it."""
    where = f"\nGo to: {pending.url}" if pending.url else ""
    if pending.kind == "authorization":
        way_out = "Call it again once that is done."
    elif pending.approvers is not None:
        way_out = f"To be answered by {named_approvers(pending.approvers)}."
    elif pending.others_only:
        way_out = "Someone other than the caller must answer it."
    elif pending.kind in ("approval", "input") and not has_person():
        way_out = "No one can be asked here. Run this command at a terminal."
    else:
        way_out = "It was left unanswered."
    if stored and pending.kind == "approval":
        way_out += f" To answer it elsewhere: toolcrib pending approve {pending.id} (or deny)."
    echo(
        f"Pending ({pending.kind}): Tool '{pending.tool}' was not executed. {pending.message}{where}\n"
        f"{indented_json(pending.arguments)}\n{way_out}"
    )


def _echo_repairs(repairs: Sequence[Repair], names: Iterable[str], *, by_key: bool) -> None:
    """Name what was repaired of arguments with these *names*.

    With *by_key* not what only comes from `key=value` being text.
    """
    names = list(names)
    for repair in repairs:
        is_top = repair.path.count("/") == 1
        if by_key and is_top and repair.from_kind == "string":
            continue
        name = repair.path[1:] if is_top else repair.path
        if repair.from_kind == "key":
            target = closest_match(name, names) if is_top else None
            change = f"renamed to '{target}'" if target else "renamed as in the schema"
            echo(f"Repaired: '{name}' was {change}.")
        else:
            subject = f"'{name}'" if name else "the arguments"
            echo(f"Repaired: {subject}, from {repair.from_kind} to {repair.to_kind}.")


def _save(result: Result[Any], path: Path) -> Sequence[object]:
    """Save images, audio and files, or if there are none, all text. Returns the parts that were saved."""
    parts = tuple(part for part in result.content if isinstance(part, Image | Audio | File))
    try:
        if not parts:
            text = result.text
            path.write_text(text if text.endswith("\n") else f"{text}\n", "utf-8", "surrogatepass")
            echo(f"Saved the text to {path}.")
            return result.content
        for number, part in enumerate(parts, 1):
            target = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
            target.write_bytes(part.data)
            echo(f"Saved {part.text.strip('[]')}, to {target}.")
        return parts
    except OSError as error:
        raise ToolcribError(f"The result cannot be saved to {path}: {error.strerror}.") from None
