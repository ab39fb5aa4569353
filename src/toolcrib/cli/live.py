"""What a call says while it runs: progress on one line of the terminal, emitted content as it comes."""

import os
import sys
from collections.abc import Callable

from ..core import Data, Emitted, Event, Progress
from .streams import Output, is_terminal, one_line, tell


def in_words(progress: Progress) -> str:
    of = "" if progress.total is None else f"/{progress.total:g}"
    return f"{progress.done:g}{of} {progress.message or ''}"


def width() -> int:
    """How many columns the terminal on standard error has; 80 where it does not say."""
    try:
        return os.get_terminal_size(2).columns or 80
    except OSError:
        return 80


class Live:
    """Shows events, until *is_over*. With *as_json* all goes to standard error: standard output is the result's."""

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
                self.say(in_words(event))
            case Emitted(content):
                self.clear()
                for part in content:
                    if self._as_json:
                        tell(part.text)
                    elif isinstance(part, Data) and self._output.is_terminal:
                        self._output.json(part.value)
                    else:
                        self._output.write(part.text)

    def clear(self) -> None:
        """Take the line with the progress away, for what is written next."""
        if self._shown and not self._is_over():
            self._write("")
            sys.stderr.write("\r")
            sys.stderr.flush()
            self._shown = 0

    def say(self, what: str) -> None:
        """Show *what* on the line that comes and goes, if there is a terminal for it."""
        if self._shows_progress and not self._is_over():
            self._write(one_line(what)[: width() - 1])

    def _write(self, line: str) -> None:
        # Blanks over what was longer: so it works on terminals that cannot erase.
        sys.stderr.write(f"\r{line.ljust(self._shown)}")
        sys.stderr.flush()
        self._shown = len(line)
