"""Standard output and standard error: what is written to them, and what is never written raw.

Text of tools, sources and models is untrusted: it is never read as markup, and no control character of it reaches a
terminal.
"""

import io
import json
import logging
import os
import re
import select
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from ..core import ToolcribError

# Control characters except tab and line feed; marks that change the direction of text.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# The module that a source file is imported as: its name means nothing to the author of the file.
_FILE_MODULE = re.compile(r"\btoolcrib_(\w+?)_[0-9a-f]{12}\b")
# One frame of a traceback, with the lines of code below it; those of exception groups are indented by bars.
_FRAME = re.compile(r'^(?P<indent>[ |]+)File "(?P<file>[^"\n]+)", line \d+.*\n(?:(?P=indent)  .*\n)*', re.MULTILINE)
_PACKAGE = Path(__file__).resolve().parents[1]
_STDLIB = Path(sysconfig.get_path("stdlib")).resolve()
_PLUMBING = frozenset({"asyncio", "concurrent", "contextlib.py", "multiprocessing", "runpy.py", "threading.py"})


class UsageError(ToolcribError):
    """A command line that cannot be understood. Exit status 2."""


class OutputClosed(Exception):
    """The reader of standard output has closed the pipe."""


def clean(text: str) -> str:
    """Return *text* with control characters escaped, as in `\\x1b`."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Return *text*, cleaned, on one line."""
    return clean(" ".join(text.split()))


def indented_json(text: str) -> str:
    """Return JSON text indented for people. Control characters in its strings are escaped."""
    text = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    return "\n".join(f"  {line}" for line in _escaped(text).split("\n"))


def _escaped(json_text: str) -> str:
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", json_text)


def echo(message: str, *, dim: bool = False, wrap: bool = False) -> None:
    """Write *message* for people to standard error; *dim* what is secondary, *wrap* prose at words."""
    text = clean(_FILE_MODULE.sub(r"\1", message))
    if wrap and (columns := terminal_width()):
        fit = textwrap.TextWrapper(columns, break_long_words=False, break_on_hyphens=False)
        text = "\n".join(map(fit.fill, text.split("\n")))
    if dim and is_rich(sys.stderr) and not os.environ.get("NO_COLOR"):
        text = f"\x1b[2m{text}\x1b[0m"
    with suppress(OSError, ValueError):  # standard error is closed
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def terminal_width(descriptor: int = 2) -> int:
    """Return the columns of the terminal behind *descriptor*; 0 where there is none, or it does not report them."""
    try:
        return os.get_terminal_size(descriptor).columns
    except OSError:
        return 0


def is_terminal(descriptor: int) -> bool:
    return os.isatty(descriptor)


def is_rich(stream: TextIO) -> bool:
    """Return whether *stream* is a terminal that can move its cursor and show colour."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def prepare_streams() -> None:
    """Make sure that both streams are there and can write any text."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard(stream: TextIO) -> None:
    """Discard everything that is still written to *stream*."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextmanager
def silenced() -> Generator[None]:
    """Discard everything that is written inside."""
    with _redirected(sys.stdout, discard), _redirected(sys.stderr, discard):
        yield


@contextmanager
def prints_to_stderr() -> Generator[None]:
    """Send what is printed inside, also by programs that are started, to standard error."""
    with _redirected(sys.stdout, _send_to_stderr):
        yield


@contextmanager
def _redirected(stream: TextIO, redirect: Callable[[TextIO], None]) -> Generator[None]:
    stream.flush()
    try:
        before = os.dup(stream.fileno())
    except (OSError, ValueError):  # no file behind it, as in a test
        yield
        return
    try:
        redirect(stream)
        yield
    finally:
        stream.flush()
        os.dup2(before, stream.fileno())
        os.close(before)


def log_to_stderr(*, tracebacks: bool, prepare: Callable[[], None] = lambda: None) -> None:
    """Write warnings and errors to standard error, cleaned, each after *prepare*.

    Without *tracebacks*, those of tools that failed are left out.
    """

    def begin(record: logging.LogRecord) -> bool:
        if not tracebacks and getattr(record, "reference", None) is not None:
            return False
        prepare()
        return True

    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(begin)
    handler.setFormatter(LogFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


class LogFormatter(logging.Formatter):
    """A formatter of cleaned log records, whose tracebacks have the frames of the tools' code alone."""

    def format(self, record: logging.LogRecord) -> str:
        return clean(_FILE_MODULE.sub(r"\1", tool_frames(super().format(record))))


def tool_frames(traceback: str) -> str:
    """Return a traceback without the frames of Toolcrib and of the event loop; all of it if no other is there."""
    frames = [*_FRAME.finditer(traceback)]
    if all(_is_ours(frame["file"]) for frame in frames):
        return traceback
    return _FRAME.sub(lambda frame: "" if _is_ours(frame["file"]) else frame[0], traceback)


def _is_ours(file: str) -> bool:
    path = Path(file)
    if path.is_relative_to(_PACKAGE):
        return not path.is_relative_to(_PACKAGE / "demo")
    return file.startswith("<frozen ") or (
        path.is_relative_to(_STDLIB) and path.relative_to(_STDLIB).parts[0] in _PLUMBING
    )


class Output:
    """Standard output.

    An *exclusive* one is for results alone: whatever else is written to it from now on (prints of tools, of the modules
    that sources import, of programs that they start) goes to standard error.
    """

    def __init__(self, *, exclusive: bool = True) -> None:
        sys.stdout.flush()
        self._stream = _claimed() if exclusive else sys.stdout
        self.is_terminal = self._stream.isatty()
        self.is_rich = is_rich(self._stream)

    def write(self, text: str, *, end: str = "\n") -> None:
        """Write *text* as it is, or cleaned if this is a terminal. With `end=""` the line stays open."""
        self._write(clean(text) if self.is_terminal else text, end)

    def line(self, text: str) -> None:
        """Write *text*, cleaned, on one line."""
        self._write(one_line(text))

    def json(self, value: Any) -> None:
        """Write a JSON value: on one line, or indented for people at a terminal."""
        if self.is_terminal:
            self.indented(value)
        else:
            self.json_line(value)

    def json_line(self, value: Any) -> None:
        """Write a JSON value on one line, also at a terminal."""
        self._write(self._dumped(value, indent=None))

    def indented(self, value: Any) -> None:
        """Write a JSON value indented for people, also where this is not a terminal."""
        text = self._dumped(value, indent=2)
        if not self.is_rich:
            self._write(text)
            return
        from rich.highlighter import JSONHighlighter
        from rich.text import Text

        self.print(JSONHighlighter()(Text(text)), wrap=False)

    def members(self, data: Any) -> None:
        """Write a line for each member of an object that has a value; a list of objects with empty lines between."""
        objects = data if isinstance(data, list) else [data]
        texts = [
            "\n".join(f"{name}: {one_line(_plain(value))}" for name, value in each.items() if value is not None)
            for each in objects
        ]
        self.write("\n\n".join(texts))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Write *rows* under the names of their *columns*; elsewhere than at a terminal, with tabs between them."""
        plain = [[one_line(cell) for cell in row] for row in rows]
        if not self.is_rich:
            if plain:
                self._write("\n".join("\t".join(row) for row in plain))
            return
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for number, name in enumerate(columns):
            table.add_column(name, style="" if number else "bold cyan", overflow="fold", no_wrap=not number)
        for row in plain:
            table.add_row(*map(Text, row))
        self.print(table)

    def copied(self, line: str) -> None:
        """Write a line that is to be copied: a terminal gets it in one piece, however long it is."""
        if not self.is_rich:
            self.write(line)
            return
        from rich.text import Text

        self.print(Text(line), wrap=False)

    def print(self, rendered: Any, *, wrap: bool = True) -> None:
        """Write what Rich renders, wrapped at words or, to be copied, with long lines in one piece.

        Untrusted strings in *rendered* must be `rich.text.Text`.
        """
        from rich.console import Console

        console = Console(file=self._stream, force_terminal=True, markup=False, emoji=False, highlight=False)
        with console.capture() as capture:
            console.print(rendered, crop=False, soft_wrap=not wrap)
        self._write(capture.get())

    def require_reader(self) -> None:
        """Raise OutputClosed where standard output is a pipe whose reader has closed it."""
        if hasattr(select, "poll"):
            poll = select.poll()
            with suppress(OSError, ValueError):
                poll.register(self._stream.fileno(), 0)
                if any(event & select.POLLERR for _, event in poll.poll(0)):
                    raise OutputClosed

    def _dumped(self, value: Any, *, indent: int | None) -> str:
        is_unicode = self._stream.encoding.lower().replace("-", "") == "utf8"
        text = json.dumps(value, ensure_ascii=not is_unicode, indent=indent)
        return _escaped(text) if self.is_terminal else text

    def _write(self, text: str, end: str = "\n") -> None:
        try:
            self._stream.write(text if text.endswith("\n") else f"{text}{end}")
            self._stream.flush()
        except BrokenPipeError:
            discard(self._stream)
            raise OutputClosed from None


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _claimed() -> TextIO:
    try:
        ours = os.dup(sys.stdout.fileno())
    except (OSError, ValueError):
        return sys.stdout  # no file behind it, as in a test
    _send_to_stderr(sys.stdout)
    return open(ours, "w", encoding=sys.stdout.encoding, errors="backslashreplace")  # noqa: PTH123


def _send_to_stderr(stream: TextIO) -> None:
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(line_buffering=True)  # in order with the lines of standard error
    try:
        os.dup2(sys.stderr.fileno(), stream.fileno())
    except (OSError, ValueError):
        discard(stream)
