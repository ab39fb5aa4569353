"""What a run of an agent says, as it comes: for people, or one line of JSON for each event.

For people, the model's words go to standard output, and everything else to standard error: a line for each call that
has ended, and on a terminal what runs now. Known secrets are struck out of all of it.
"""

import json
import shutil
from collections.abc import Mapping
from typing import Any, Protocol

from ..agent import CallBegun, CallEnded, CallEvent, ModelError, Outcome, RunEvent
from ..core import Call, Progress, Result
from ..formats import Usage, Written
from ..record import Redactor
from .ask import has_person
from .live import Live, in_words
from .streams import Output, is_terminal, one_line, tell

_ARGUMENTS = 60
_WIDTH = 120
_ERROR = 400


class Speech(Protocol):
    """Shows one turn after the other."""

    def show(self, event: RunEvent) -> None: ...

    def pause(self) -> None:
        """Something else is written next."""
        ...

    def ended(self, outcome: Outcome, total: Usage) -> None:
        """A turn has ended; *total* are the tokens of all turns until now."""
        ...

    def failed(self, error: ModelError, total: Usage) -> None:
        """A turn has ended without an outcome."""
        ...


class InWords:
    """For people."""

    def __init__(self, output: Output, live: Live, redactor: Redactor) -> None:
        self._output = output
        self._live = live
        self._strike = redactor.strike
        self._words = _Pieces(redactor)
        self._at_start = True
        self._running: dict[str, str] = {}

    def show(self, event: RunEvent) -> None:
        match event:
            case Written(text):
                self._live.clear()
                self._write(self._words.ready(text))
            case CallBegun(call):
                self._break_line()
                self._running[call.id] = self._asked(call)
                self._say_running()
            case CallEvent(call, said):
                if isinstance(said, Progress):
                    self._live.say(f"{self._asked(call)} {in_words(said)}")
                    return
                self.pause()
                for part in said.content:
                    tell(f"[{one_line(call.tool)}] {part.text}", aside=True)
                self._say_running()
            case CallEnded(call, result):
                self.pause()
                self._running.pop(call.id, None)
                tell(self._how_it_ended(call, result), aside=True)
                self._say_running()

    def pause(self) -> None:
        self._live.clear()
        self._break_line()

    def ended(self, outcome: Outcome, total: Usage) -> None:
        was_open = not self._at_start and self._output.is_terminal
        self._running.clear()
        self.pause()
        if outcome.status == "cancelled":
            # The terminal has shown ^C where the cursor was.
            tell("Stopped." if was_open else "\nStopped.")
        elif outcome.why:
            alone = outcome.status == "pending" and not has_person()
            hint = " Nobody can be asked here: chat at a terminal." if alone else ""
            tell(f"{self._strike(outcome.why)}{hint}")
        self._tell_tokens(outcome.usage, total)

    def failed(self, error: ModelError, total: Usage) -> None:
        self._running.clear()
        self.pause()
        tell(f"Error ({error.problem}): {self._strike(str(error))}")
        self._tell_tokens(Usage() if error.so_far is None else error.so_far.usage, total)

    def _write(self, text: str) -> None:
        if text:
            self._output.write_piece(text)
            self._at_start = text.endswith("\n")

    def _break_line(self) -> None:
        self._write(self._words.rest())
        if not self._at_start:
            self._write("\n")

    def _asked(self, call: Call) -> str:
        text = one_line(self._strike(_written(call.arguments)))
        text = text if len(text) <= _ARGUMENTS else f"{text[: _ARGUMENTS - 1]}…"
        return f"[{one_line(self._strike(call.tool))}{f' {text}' if text not in ('', '{}') else ''}]"

    def _say_running(self) -> None:
        if self._running:
            self._live.say(f"{' '.join(self._running.values())} ...")

    def _how_it_ended(self, call: Call, result: Result[Any]) -> str:
        """The call, the first line of its result, and its time, all on one line."""
        asked = self._asked(call)
        error = "" if result.error is None else f"error ({result.error.code}): "
        text = result.text if result.pending is None else f"waits: {result.pending.message}"
        first, _, more = self._strike(text).strip().partition("\n")
        said = f"{error}{one_line(first)}{' …' if more else ''}"
        repaired = f", {len(result.repairs)} repaired" if result.repairs else ""
        took = f"({max(0.0, result.finished_s - result.started_s):.2f} s{repaired})"
        width = shutil.get_terminal_size().columns - 1 if is_terminal(2) else _WIDTH
        # What went wrong is read, so it may go over the line.
        room = _ERROR if error else max(40, width - len(asked) - len(took) - 2)
        return f"{asked} {said if len(said) <= room else f'{said[: room - 1]}…'} {took}"

    def _tell_tokens(self, usage: Usage, total: Usage) -> None:
        if total != Usage():
            tell(f"Tokens: {_tokens(usage)}; in all {_tokens(total)}.", aside=True)


class AsJson:
    """For programs: one line of JSON for each event."""

    def __init__(self, output: Output, redactor: Redactor) -> None:
        self._output = output
        self._strike = redactor.strike
        self._words = _Pieces(redactor)

    def show(self, event: RunEvent) -> None:
        if isinstance(event, Written):
            self._tell_words(self._words.ready(event.text))
            return
        self.pause()
        match event:
            case CallBegun(call):
                self._tell("call", **self._of(call), arguments=self._strike(_written(call.arguments)))
            case CallEvent(call, said):
                if isinstance(said, Progress):
                    of = {"done": said.done, "total": said.total, "message": said.message}
                    self._tell("progress", **self._of(call), **of)
                else:
                    self._tell("emitted", **self._of(call), content=Result(None, said.content).to_dict()["content"])
            case CallEnded(call, result):
                self._tell("result", **self._struck(result.to_dict()))

    def pause(self) -> None:
        self._tell_words(self._words.rest())

    def ended(self, outcome: Outcome, total: Usage) -> None:
        self.pause()
        said = {
            "status": outcome.status,
            "text": outcome.text,
            "why": outcome.why or None,
            "pendings": [pending.to_dict() for pending in outcome.pendings] or None,
            "usage": _usage(outcome.usage),
            "total": _usage(total),
        }
        self._tell("turn", **self._struck(said))

    def failed(self, error: ModelError, total: Usage) -> None:
        self.pause()
        said = {"problem": error.problem, "message": str(error), "retry_after_s": error.retry_after_s}
        self._tell("error", **self._struck(said), total=_usage(total))

    def _tell_words(self, text: str) -> None:
        if text:
            self._tell("words", text=text)

    def _of(self, call: Call) -> dict[str, str]:
        return {"call_id": call.id, "tool": self._strike(call.tool)}

    def _struck(self, value: Any) -> Any:
        match value:
            case str():
                return self._strike(value)
            case dict():
                return {name: self._struck(inner) for name, inner in value.items()}
            case list():
                return [self._struck(inner) for inner in value]
            case _:
                return value

    def _tell(self, event: str, **said: Any) -> None:
        self._output.json_line({"event": event, **{name: value for name, value in said.items() if value is not None}})


class _Pieces:
    """Words that come in pieces: what may be the beginning of a secret, or of a line's end, is held back."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""

    def ready(self, piece: str) -> str:
        self._held, text = self._redactor.split(self._held + piece)
        if text.endswith("\r"):
            self._held, text = f"\r{self._held}", text[:-1]
        return text

    def rest(self) -> str:
        held, self._held = self._held, ""
        return self._redactor.strike(held)


def _written(arguments: str | bytes | Mapping[str, Any] | None) -> str:
    match arguments:
        case None:
            return ""
        case str():
            return arguments
        case bytes():
            return arguments.decode(errors="replace")
        case _:
            return json.dumps(dict(arguments), ensure_ascii=False, default=str)


def _tokens(usage: Usage) -> str:
    cached = f" ({usage.cached} cached)" if usage.cached else ""
    return f"{usage.input} in{cached}, {usage.output} out"


def _usage(usage: Usage) -> dict[str, int]:
    return {"input": usage.input, "output": usage.output, "cached": usage.cached}
