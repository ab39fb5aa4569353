"""What is shown of calls as they run: for people, or one line of JSON for each event. `call` and `chat` share it.

For people, results and the model's words go to standard output, and everything else to standard error: a line for each
call of a model that has ended, and on a terminal what runs now. Known secrets are redacted in all of it.
"""

import json
import re
import sys
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core import Call, Content, Data, Emitted, Progress, Result
from ..machinery import escaped, redacted_data, redacted_json
from .prompts import has_person
from .terminal import Output, echo, is_terminal, one_line, shortened, terminal_width

if TYPE_CHECKING:
    from ..agent import ModelError, Outcome, RunEvent
    from ..formats import Usage
    from ..record import Redactor
    from ..workbench import TaskEvent

MAX_ARGUMENT_CHARS, MAX_ERROR_CHARS = 60, 400


class CallTranscript:
    """Shows what one call sends: progress on a line of the terminal that comes and goes, and content as it comes.

    With *as_json* content goes to standard error: standard output is for the result alone. Nothing is shown once
    *is_over*.
    """

    def __init__(self, output: Output, *, as_json: bool = False, is_over: Callable[[], bool]) -> None:
        self._output = output
        self._as_json = as_json
        self._is_over = is_over
        self._status_chars = 0
        self._is_asking = False
        self._held = deque[Callable[[], object]]()

    @contextmanager
    def held(self) -> Generator[None]:
        """Hold back what comes inside: the question to a person stays the last line."""
        self.pause()
        self._is_asking = True
        try:
            yield
        finally:
            self._is_asking = False
            while self._held:
                self._held.popleft()()

    def holds(self, show: Callable[[], object]) -> bool:
        """Return whether *show* is called later, as a question is open."""
        if self._is_asking:
            self._held.append(show)
        return self._is_asking

    def show_event(self, event: "TaskEvent") -> None:
        if self.holds(partial(self.show_event, event)):
            return
        if isinstance(event, Progress):
            self.status(_progress_text(event))
        elif self._is_over():
            return
        elif isinstance(event, Emitted):
            self.pause()
            for part in event.content:
                if self._as_json:
                    echo(part.text)
                else:
                    self.content(part)
        else:
            self.pause()
            echo(f"{event.level}: {event.message}", wrap=True)

    def content(self, part: Content) -> None:
        """Write *part* to standard output: JSON is indented at a terminal."""
        if isinstance(part, Data) and self._output.is_terminal:
            self._output.json(part.value)
        else:
            self._output.write(part.text)

    def status(self, text: str) -> None:
        """Show *text* on the line that comes and goes, if there is a terminal for it."""
        if is_terminal(2) and not self._is_over():
            self._overwrite(one_line(text)[: (terminal_width() or 80) - 1])

    def pause(self) -> None:
        """Take the status line away, for what is written next."""
        if self._status_chars and not self._is_over():
            self._overwrite("")
            sys.stderr.write("\r")
            sys.stderr.flush()

    def _overwrite(self, line: str) -> None:
        # Blanks over what was longer: so it works on terminals that cannot erase.
        sys.stderr.write(f"\r{line.ljust(self._status_chars)}")
        sys.stderr.flush()
        self._status_chars = len(line)


class ChatTranscript(CallTranscript):
    """Shows one turn after the other: for people, or with *as_json* as one line of JSON for each event."""

    def __init__(
        self, output: Output, redactor: "Redactor", *, as_json: bool = False, is_over: Callable[[], bool]
    ) -> None:
        super().__init__(output, as_json=as_json, is_over=is_over)
        self._redact = redactor.redact
        self._words = _Words(redactor, terminal_width(1) if output.is_terminal and not as_json else 0)
        self._at_start = True
        self._running: dict[str, str] = {}  # the calls that run, by their ids: "1" -> '[search {"query": "x"}]'

    def show(self, event: "RunEvent") -> None:
        from ..formats import TextDelta

        if self.holds(partial(self.show, event)):
            return
        if isinstance(event, TextDelta):
            super().pause()
            self._write_words(self._words.feed(event.text))
        elif self._as_json:
            self.pause()
            self._show_as_json(event)
        else:
            self._show_to_people(event)

    def _show_as_json(self, event: "RunEvent") -> None:
        from ..agent import CallEvent, CallFinished, CallStarted

        match event:
            case CallStarted(call):
                arguments = redacted_json(_arguments_text(call.arguments), self._redact)
                self._write_event("call", call_id=call.id, tool=call.tool, arguments=arguments)
            case CallFinished(_, result):
                self._write_event("result", **result.to_dict())
            case CallEvent(call, Progress(done, total, message)):
                values = {"done": done, "total": total, "message": message}
                self._write_event("progress", call_id=call.id, tool=call.tool, **values)
            case CallEvent(call, Emitted(content)):
                content_data = Result(None, content).to_dict()["content"]
                self._write_event("emitted", call_id=call.id, tool=call.tool, content=content_data)
            case _:
                pass

    def _show_to_people(self, event: "RunEvent") -> None:
        from ..agent import CallEvent, CallFinished, CallStarted

        match event:
            case CallStarted(call):
                self._end_line()
                self._running[call.id] = self._call_text(call)
            case CallFinished(call, result):
                self.pause()
                self._running.pop(call.id, None)
                echo(self._result_text(call, result), dim=True)
            case CallEvent(call, Progress() as progress):
                self.status(f"{self._call_text(call)} {_progress_text(progress)}")
                return
            case CallEvent(call, Emitted(content)):
                self.pause()
                for part in content:
                    echo(f"[{one_line(call.tool)}] {part.text}", dim=True)
            case _:
                pass
        if self._running:
            self.status(f"{' '.join(self._running.values())} ...")

    def pause(self) -> None:
        """Write the words that were held back, and end their line, for what is written next."""
        super().pause()
        self._end_line()

    def end(self, outcome: "Outcome", total: "Usage") -> None:
        """Show how a turn ended; *total* is the usage of all turns until now."""
        was_open = not self._at_start and self._output.is_terminal
        if outcome.status == "cancelled":
            # The terminal has shown ^C where the cursor was.
            message = "Stopped." if was_open else "\nStopped."
        else:
            has_no_answer = outcome.status == "pending" and not has_person()
            hint = " No one can be asked here: chat at a terminal." if has_no_answer else ""
            message = f"{outcome.why}{hint}"
        pendings = [pending.to_dict() for pending in outcome.pendings] or None
        values = {"status": outcome.status, "text": outcome.text, "why": outcome.why or None, "pendings": pendings}
        self._end("turn", {**values, "usage": outcome.usage.to_dict()}, message, outcome.usage, total)

    def fail(self, error: "ModelError", total: "Usage") -> None:
        """Show why a turn ended without an outcome."""
        usage = type(total)() if error.so_far is None else error.so_far.usage
        values = {"problem": error.problem, "message": str(error), "retry_after_s": error.retry_after_s}
        self._end("error", values, f"Error ({error.problem}): {error}", usage, total)

    def _end(self, event: str, values: dict[str, Any], message: str, usage: "Usage", total: "Usage") -> None:
        """Show the last *event* of a turn: its *values* to a program, *message* and the tokens to people."""
        self._running.clear()
        self.pause()
        if self._as_json:
            self._write_event(event, **values, total=total.to_dict())
            return
        if message:
            echo(self._redact(message), wrap=True)
        if total != type(total)():
            echo(f"Tokens: {_tokens_text(usage)}; in total {_tokens_text(total)}.", dim=True)

    def _write_words(self, text: str) -> None:
        if text and self._as_json:
            self._write_event("words", text=text)
        elif text:
            self._at_start = text.endswith("\n")
            self._output.write(text, end="")

    def _end_line(self) -> None:
        self._write_words(self._words.rest())
        if not self._at_start:
            self._write_words("\n")

    def _write_event(self, event: str, **values: Any) -> None:
        present = {name: value for name, value in values.items() if value is not None}
        self._output.json({"event": event, **redacted_data(present, self._redact)}, indent=False)

    def _call_text(self, call: Call) -> str:
        text = one_line(self._redact(_arguments_text(call.arguments)))
        text = shortened(text, MAX_ARGUMENT_CHARS)
        return f"[{one_line(self._redact(call.tool))}{f' {text}' if text not in ('', '{}') else ''}]"

    def _result_text(self, call: Call, result: Result[Any]) -> str:
        """Return the call, the first line of its result, and its time, all on one line."""
        begin = self._call_text(call)
        error = "" if result.error is None else f"error ({result.error.code}): "
        text = result.text if result.pending is None else f"waits: {result.pending.message}"
        first, _, more = self._redact(text).strip().partition("\n")
        outcome = f"{error}{one_line(first)}{' …' if more else ''}"
        repairs = f", {len(result.repairs)} repaired" if result.repairs else ""
        end = f"({max(0.0, result.duration_s):.2f} s{repairs})"
        width = (terminal_width() or 120) - 1
        # Errors are read, so they may run over the line.
        room = MAX_ERROR_CHARS if error else max(40, width - len(begin) - len(end) - 2)
        return f"{begin} {shortened(outcome, room)} {end}"


class _Words:
    """Words that come in pieces: the beginning of a secret, of a line's end or of a word is held back.

    They are wrapped at a terminal of so many *columns*; 0 wraps nothing.
    """

    def __init__(self, redactor: "Redactor", columns: int = 0) -> None:
        self._redactor = redactor
        self._columns = columns
        self._secret = ""  # what may be the beginning of one
        self._word = ""
        self._column = 0

    def feed(self, piece: str) -> str:
        """Return what can be written now."""
        self._secret, text = self._redactor.split(self._secret + piece)
        if text.endswith("\r"):
            self._secret, text = f"\r{self._secret}", text[:-1]
        return self._wrapped(text)

    def rest(self) -> str:
        """Return what is still held back. What is written next begins on a line of its own."""
        rest, self._secret = self._redactor.redact(self._secret), ""
        return self._wrapped(rest) + self._wrapped("\n")[:-1]

    def _wrapped(self, text: str) -> str:
        if not self._columns:
            return text
        from rich.cells import cell_len

        *words, self._word = re.findall(r"\S+|\s", self._word + escaped(text)) or [""]
        if self._word.isspace():
            words, self._word = [*words, self._word], ""
        line = ""
        for word in words:
            width = cell_len(word)
            if word == "\n":
                line, self._column = f"{line}\n", 0
            elif self._column > 0 and self._column + width > self._columns:
                # A blank at the margin is the end of the line: the next word begins another.
                line, self._column = (line, self._columns) if word.isspace() else (f"{line}\n{word}", width)
            else:
                line, self._column = f"{line}{word}", self._column + width
        return line


def _progress_text(progress: Progress) -> str:
    total = "" if progress.total is None else f"/{progress.total:g}"
    return f"{progress.done:g}{total} {progress.message or ''}"


def _arguments_text(arguments: str | bytes | Mapping[str, Any] | None) -> str:
    match arguments:
        case None:
            return ""
        case str():
            return arguments
        case bytes():
            return arguments.decode(errors="replace")
        case _:
            return json.dumps(dict(arguments), ensure_ascii=False, default=str)


def _tokens_text(usage: "Usage") -> str:
    cached = f" ({usage.cached} cached)" if usage.cached else ""
    return f"{usage.input} in{cached}, {usage.output} out"
