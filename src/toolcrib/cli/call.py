"""`toolcrib call`: one call, shown while it runs, made again when the person has answered what it waited for, and its
result: to standard output, everything else to standard error.
"""

import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

from ..core import (
    AnswerError,
    Audio,
    Call,
    Data,
    Emitted,
    Event,
    File,
    Image,
    Pending,
    Progress,
    Repair,
    Result,
    ToolAuth,
    ToolcribError,
)
from ..workbench import Workbench
from .prompts import Prompter, has_person
from .terminal import Output, UsageError, echo, indented_json, is_terminal, one_line, terminal_width


class LiveOutput:
    """Shows the events of a call while it runs: progress on one line of the terminal, emitted content as it comes.

    With *as_json* all goes to standard error: standard output is for the result alone. Nothing is shown once *is_over*.
    """

    def __init__(self, output: Output, *, as_json: bool, is_over: Callable[[], bool]) -> None:
        self._output = output
        self._is_over = is_over
        self._as_json = as_json
        self._shows_progress = is_terminal(2)
        self._shown = 0

    def show(self, event: Event) -> None:
        if self._is_over():
            return
        match event:
            case Progress():
                self.status(progress_text(event))
            case Emitted(content):
                self.clear()
                for part in content:
                    if self._as_json:
                        echo(part.text)
                    elif isinstance(part, Data) and self._output.is_terminal:
                        self._output.json(part.value)
                    else:
                        self._output.write(part.text)

    def status(self, text: str) -> None:
        """Show *text* on the line that comes and goes, if there is a terminal for it."""
        if self._shows_progress and not self._is_over():
            self._write(one_line(text)[: (terminal_width() or 80) - 1])

    def clear(self) -> None:
        """Take the line with the progress away, for what is written next."""
        if self._shown and not self._is_over():
            self._write("")
            sys.stderr.write("\r")
            sys.stderr.flush()
            self._shown = 0

    def _write(self, line: str) -> None:
        # Blanks over what was longer: so it works on terminals that cannot erase.
        sys.stderr.write(f"\r{line.ljust(self._shown)}")
        sys.stderr.flush()
        self._shown = len(line)


def progress_text(progress: Progress) -> str:
    total = "" if progress.total is None else f"/{progress.total:g}"
    return f"{progress.done:g}{total} {progress.message or ''}"


async def answered_call(bench: Workbench, call: Call, prompter: Prompter, live: LiveOutput) -> Result[Any]:
    """The result of *call*; pending only where the person at the terminal cannot or does not answer."""
    while True:
        result = await _streamed(bench, call, live)
        if result.pending is None:
            return result
        if result.pending.kind == "authorization":
            if not await prompter.may_log_in(result.pending):
                return result
            await log_in_for(bench, call.tool)
            continue
        if not prompter.can_ask(result.pending):
            return result
        answer = await prompter.ask(result.pending)
        if answer is None:
            return result
        try:
            await bench.answer(result.pending.id, answer, by=bench.caller.principal)
        except AnswerError as error:
            echo(str(error))
            if error.reason != "expired":
                return result


async def connect(bench: Workbench, prompter: Prompter, live: LiveOutput) -> None:
    """Have servers that need a login list their tools: the person at the terminal logs in, if they have not yet."""
    for tool in list(bench.registry):
        if getattr(tool.source, "connecting", None) == tool.origin:
            await answered_call(bench, Call(tool.spec.name, {}), prompter, live)


async def log_in_for(bench: Workbench, tool: str) -> None:
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


async def _streamed(bench: Workbench, call: Call, live: LiveOutput) -> Result[Any]:
    try:
        async with aclosing(cast(AsyncGenerator[Event | Result[Any]], bench.stream(call))) as events:
            async for event in events:
                if isinstance(event, Result):
                    return event
                live.show(event)
    finally:
        live.clear()
    raise AssertionError("a stream ends with a result")


def require_writable(path: Path) -> None:
    """Raises UsageError for a path that no file can be saved under: better before the call than after it."""
    if path.is_dir():
        raise UsageError(f"--output {path} is a folder. Name a file in it.")
    if not path.parent.is_dir():
        raise UsageError(f"--output {path}: there is no folder {path.parent}. Create it first.")


def write_result(result: Result[Any], output: Output, *, as_json: bool, save_to: Path | None, stored: bool) -> None:
    """Write *result*; images, audio and files are named, and saved where *save_to* says.

    *stored* is whether what waits is in a store, where others can answer it.
    """
    if as_json:
        output.json(result.to_dict())
    elif result.error is not None:
        output.require_reader()  # a tool that prints fails when nobody reads it, which needs no message
        is_hidden = result.error.message.endswith("is in the log.") and not is_terminal(2)
        hint = " To see it: --show-errors" if is_hidden else ""
        echo(f"Error ({result.error.code}): {result.error.message}{hint}", wrap=True)
    elif result.pending is not None:
        _echo_pending(result.pending, stored=stored)
    if result.error is not None or result.pending is not None:
        return
    saved = _save(result, save_to) if save_to is not None else ()
    if as_json:
        return
    unsaved = False
    for part in result.content:
        if part in saved:
            continue
        if isinstance(part, Data) and output.is_terminal:
            output.json(part.value)
        else:
            output.write(part.text)
        unsaved = unsaved or isinstance(part, Image | Audio | File)
    if unsaved:
        echo("To save it: --output FILE")


def _echo_pending(pending: Pending, *, stored: bool) -> None:
    where = f"\nGo to: {pending.url}" if pending.url else ""
    if pending.kind == "authorization":
        way_out = "Call it again once that is done."
    elif pending.others_only:
        way_out = "Somebody other than the caller must answer it."
    elif pending.kind in ("approval", "input") and not has_person():
        way_out = "Nobody can be asked here. Run this command at a terminal."
    else:
        way_out = "It was left unanswered."
    if stored and pending.kind == "approval":
        way_out += f" To answer it elsewhere: toolcrib pending approve {pending.id} (or deny)."
    echo(
        f"Pending ({pending.kind}): Tool '{pending.tool}' was not executed. {pending.message}{where}\n"
        f"{indented_json(pending.arguments)}\n{way_out}"
    )


def echo_repairs(repairs: Sequence[Repair], names: Iterable[str], *, by_key: bool) -> None:
    """Name what was repaired of arguments with these *names*.

    With *by_key* not what only comes from `key=value` being text.
    """
    from ..schema import closest_match

    names = list(names)
    for repair in repairs:
        is_top = repair.path.count("/") == 1
        if by_key and is_top and repair.from_kind == "string":
            continue
        name = repair.path[1:] if is_top else repair.path
        if repair.from_kind == "key":
            target = closest_match(name, names) if is_top else None
            renamed = f"renamed to '{target}'" if target else "renamed as in the schema"
            echo(f"Repaired: '{name}' was {renamed}.")
        else:
            what = f"'{name}'" if name else "the arguments"
            echo(f"Repaired: {what}, from {repair.from_kind} to {repair.to_kind}.")


def _save(result: Result[Any], path: Path) -> tuple[object, ...]:
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
