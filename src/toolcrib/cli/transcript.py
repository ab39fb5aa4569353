"""What a run of an agent shows as it goes: for people, or one line of JSON for each event.

For people, the model's words go to standard output, and everything else to standard error: a line for each call that
has ended, and on a terminal what runs now. Known secrets are redacted in all of it.
"""

import json
from collections.abc import Mapping
from typing import Any

from ..agent import CallEvent, CallFinished, CallStarted, ModelError, Outcome, RunEvent
from ..core import Call, Progress, Result, redacted_json
from ..formats import TextDelta, Usage
from ..record import Redactor
from .call import LiveOutput, progress_text
from .prompts import has_person
from .terminal import Output, WrappedText, clean, echo, is_terminal, one_line, terminal_width

_ARGUMENT_CHARS = 60
_LINE_CHARS = 120
_ERROR_CHARS = 400


class TextTranscript:
    """Shows one turn after the other, for people."""

    def __init__(self, output: Output, live: LiveOutput, redactor: Redactor) -> None:
        self._output = output
        self._live = live
        self._redact = redactor.redact
        self._pieces = _Pieces(redactor)
        self._wrapped = WrappedText(terminal_width(1) if output.is_terminal else 0)
        self._at_start = True
        self._running: dict[str, str] = {}

    def show(self, event: RunEvent) -> None:
        match event:
            case TextDelta(text):
                self._live.clear()
                self._write(self._pieces.ready(text))
            case CallStarted(call):
                self._end_line()
                self._running[call.id] = self._call_text(call)
                self._show_running()
            case CallEvent(call, inner):
                if isinstance(inner, Progress):
                    self._live.status(f"{self._call_text(call)} {progress_text(inner)}")
                    return
                self.pause()
                for part in inner.content:
                    echo(f"[{one_line(call.tool)}] {part.text}", dim=True)
                self._show_running()
            case CallFinished(call, result):
                self.pause()
                self._running.pop(call.id, None)
                echo(self._result_text(call, result), dim=True)
                self._show_running()

    def pause(self) -> None:
        """Finish the line, for something else that is written next."""
        self._live.clear()
        self._end_line()

    def end(self, outcome: Outcome, total: Usage) -> None:
        """Show how a turn ended; *total* is the usage of all turns until now."""
        was_open = not self._at_start and self._output.is_terminal
        self._running.clear()
        self.pause()
        if outcome.status == "cancelled":
            # The terminal has shown ^C where the cursor was.
            echo("Stopped." if was_open else "\nStopped.")
        elif outcome.why:
            alone = outcome.status == "pending" and not has_person()
            hint = " Nobody can be asked here: chat at a terminal." if alone else ""
            echo(f"{self._redact(outcome.why)}{hint}", wrap=True)
        self._echo_tokens(outcome.usage, total)

    def fail(self, error: ModelError, total: Usage) -> None:
        """Show why a turn ended without an outcome."""
        self._running.clear()
        self.pause()
        echo(f"Error ({error.problem}): {self._redact(str(error))}", wrap=True)
        self._echo_tokens(Usage() if error.so_far is None else error.so_far.usage, total)

    def _write(self, text: str) -> None:
        if text:
            self._at_start = text.endswith("\n")
            self._output.write_piece(self._wrapped.feed(clean(text)) if self._output.is_terminal else text)

    def _end_line(self) -> None:
        self._write(self._pieces.rest())
        self._output.write_piece(self._wrapped.rest())
        if not self._at_start:
            self._output.write_piece("\n")
            self._at_start = True

    def _call_text(self, call: Call) -> str:
        text = one_line(self._redact(_arguments_text(call.arguments)))
        text = text if len(text) <= _ARGUMENT_CHARS else f"{text[: _ARGUMENT_CHARS - 1]}…"
        return f"[{one_line(self._redact(call.tool))}{f' {text}' if text not in ('', '{}') else ''}]"

    def _show_running(self) -> None:
        if self._running:
            self._live.status(f"{' '.join(self._running.values())} ...")

    def _result_text(self, call: Call, result: Result[Any]) -> str:
        """The call, the first line of its result, and its time, all on one line."""
        begin = self._call_text(call)
        error = "" if result.error is None else f"error ({result.error.code}): "
        text = result.text if result.pending is None else f"waits: {result.pending.message}"
        first, _, more = self._redact(text).strip().partition("\n")
        shown = f"{error}{one_line(first)}{' …' if more else ''}"
        repaired = f", {len(result.repairs)} repaired" if result.repairs else ""
        took = f"({max(0.0, result.duration_s):.2f} s{repaired})"
        width = (terminal_width() or 80) - 1 if is_terminal(2) else _LINE_CHARS
        # Errors are read, so they may run over the line.
        room = _ERROR_CHARS if error else max(40, width - len(begin) - len(took) - 2)
        return f"{begin} {shown if len(shown) <= room else f'{shown[: room - 1]}…'} {took}"

    def _echo_tokens(self, usage: Usage, total: Usage) -> None:
        if total != Usage():
            echo(f"Tokens: {_tokens_text(usage)}; in total {_tokens_text(total)}.", dim=True)


class JsonTranscript:
    """The same for programs: one line of JSON for each event."""

    def __init__(self, output: Output, redactor: Redactor) -> None:
        self._output = output
        self._redact = redactor.redact
        self._pieces = _Pieces(redactor)

    def show(self, event: RunEvent) -> None:
        if isinstance(event, TextDelta):
            self._write_words(self._pieces.ready(event.text))
            return
        self.pause()
        match event:
            case CallStarted(call):
                self._write(
                    "call", **self._names(call), arguments=redacted_json(_arguments_text(call.arguments), self._redact)
                )
            case CallEvent(call, inner):
                if isinstance(inner, Progress):
                    progress = {"done": inner.done, "total": inner.total, "message": inner.message}
                    self._write("progress", **self._names(call), **progress)
                else:
                    content = Result(None, inner.content).to_dict()["content"]
                    self._write("emitted", **self._names(call), content=content)
            case CallFinished(call, result):
                self._write("result", **self._redacted(result.to_dict()))

    def pause(self) -> None:
        self._write_words(self._pieces.rest())

    def end(self, outcome: Outcome, total: Usage) -> None:
        self.pause()
        values = {
            "status": outcome.status,
            "text": outcome.text,
            "why": outcome.why or None,
            "pendings": [pending.to_dict() for pending in outcome.pendings] or None,
            "usage": outcome.usage.to_dict(),
            "total": total.to_dict(),
        }
        self._write("turn", **self._redacted(values))

    def fail(self, error: ModelError, total: Usage) -> None:
        self.pause()
        values = {"problem": error.problem, "message": str(error), "retry_after_s": error.retry_after_s}
        self._write("error", **self._redacted(values), total=total.to_dict())

    def _write_words(self, text: str) -> None:
        if text:
            self._write("words", text=text)

    def _names(self, call: Call) -> dict[str, str]:
        return {"call_id": call.id, "tool": self._redact(call.tool)}

    def _redacted(self, value: Any) -> Any:
        match value:
            case str():
                return self._redact(value)
            case dict():
                return {name: self._redacted(inner) for name, inner in value.items()}
            case list():
                return [self._redacted(inner) for inner in value]
            case _:
                return value

    def _write(self, event: str, **values: Any) -> None:
        present = {name: value for name, value in values.items() if value is not None}
        self._output.json_line({"event": event, **present})


Transcript = TextTranscript | JsonTranscript


class _Pieces:
    """Words that come in pieces: what may be the beginning of a secret, or of a line's end, is held back."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._rest = ""

    def ready(self, piece: str) -> str:
        self._rest, text = self._redactor.split(self._rest + piece)
        if text.endswith("\r"):
            self._rest, text = f"\r{self._rest}", text[:-1]
        return text

    def rest(self) -> str:
        rest, self._rest = self._rest, ""
        return self._redactor.redact(rest)


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


def _tokens_text(usage: Usage) -> str:
    cached = f" ({usage.cached} cached)" if usage.cached else ""
    return f"{usage.input} in{cached}, {usage.output} out"
