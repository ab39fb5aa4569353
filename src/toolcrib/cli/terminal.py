"""Standard output and standard error: what is written to them, and what is never written raw.

Text of tools, sources and models is untrusted: it is never read as markup, and no control character of it reaches a
terminal.
"""

import io
import json
import logging
import os
import re
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from ..core import ToolcribError
from ..machinery import escaped
from ..machinery import one_line as one_line

# The module that a source file is imported as: its name means nothing to the author of the file.
_FILE_MODULE = re.compile(r"\btoolcrib_(\w+?)_[0-9a-f]{12}\b")
# One frame of a traceback, with the lines of code below it; those of exception groups are indented by bars.
_FRAME = re.compile(r'^(?P<indent>[ |]+)File "(?P<file>[^"\n]+)", line \d+.*\n(?:(?P=indent)  .*\n)*', re.MULTILINE)
_PACKAGE = str(Path(__file__).resolve().parents[1])
_STDLIB = str(Path(sysconfig.get_path("stdlib")).resolve())

Line = Sequence[tuple[str, str]]
"""Pieces of text, each with its style in Rich's terms: `[("add", "bold cyan"), ("  Add two numbers.", "")]`."""


class UsageError(ToolcribError):
    """A command line that cannot be understood. Exit status 2."""


class OutputClosed(Exception):
    """The reader of standard output has closed the pipe."""


def indented_json(text: str) -> str:
    """Return JSON text, which a person is to approve, indented. What is not seen of its strings is escaped."""
    text = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    return "\n".join(f"  {line}" for line in escaped(text, invisible=True, as_json=True).split("\n"))


def echo(message: str, *, dim: bool = False, wrap: bool = False) -> None:
    """Write *message* for people to standard error; *dim* what is secondary, *wrap* prose at words."""
    text = escaped(_FILE_MODULE.sub(r"\1", message))
    if wrap and (columns := terminal_width()):
        fit = textwrap.TextWrapper(columns, break_long_words=False, break_on_hyphens=False)
        text = "\n".join(map(fit.fill, text.split("\n")))
    if dim and is_rich(sys.stderr) and not os.environ.get("NO_COLOR"):
        text = f"\x1b[2m{text}\x1b[0m"
    with suppress(OSError, ValueError):  # standard error is closed
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def shortened(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def no_such(begin: str, name: str, names: Iterable[str], where: str = "") -> str:
    """Return a sentence about a *name* that is not among *names*, with the nearest of them."""
    from ..schema import closest_match, did_you_mean, display_name

    return f"{begin} '{display_name(name)}'{where}.{did_you_mean(closest_match(name, names))}"


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


def log_to_stderr(
    *,
    tracebacks: bool,
    prepare: Callable[[], None] = lambda: None,
    holds: Callable[[Callable[[], object]], bool] = lambda show: False,
) -> None:
    """Write warnings and errors to standard error, cleaned, each after *prepare*, or when what *holds* it shows it.

    Without *tracebacks*, those of tools that failed are left out.
    """

    def begin(record: logging.LogRecord) -> bool:
        if not tracebacks and getattr(record, "reference", None) is not None:
            return False
        if holds(partial(handler.handle, record)):
            return False
        prepare()
        return True

    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(begin)
    handler.setFormatter(LogFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


class LogFormatter(logging.Formatter):
    """A formatter of escaped log records, whose tracebacks have the frames of the tools' code alone.

    Further lines of a record are indented: text in it, of a model or a stranger, cannot look like another record.
    """

    def format(self, record: logging.LogRecord) -> str:
        text = escaped(_FILE_MODULE.sub(r"\1", tool_frames(super().format(record))))
        return text.replace("\n", "\n  ")


def tool_frames(traceback: str) -> str:
    """Return a traceback without the frames of Toolcrib and of Python itself; all of it if no other is there."""
    if all(_is_ours(frame["file"]) for frame in _FRAME.finditer(traceback)):
        return traceback
    return _FRAME.sub(lambda frame: "" if _is_ours(frame["file"]) else frame[0], traceback)


def _is_ours(file: str) -> bool:
    if file.startswith(_PACKAGE):
        return not file.startswith(f"{_PACKAGE}{os.sep}demo")
    return file.startswith("<frozen ") or (file.startswith(_STDLIB) and "site-packages" not in file)


class Output:
    """Standard output, for results alone: whatever else is written to it from now on goes to standard error.

    That is what tools print, the modules that sources import, and the programs that they start.
    """

    def __init__(self) -> None:
        sys.stdout.flush()
        self._stream = _claimed()
        self.is_terminal = self._stream.isatty()
        self._is_rich = is_rich(self._stream)

    def write(self, text: str, *, end: str = "\n") -> None:
        """Write *text* as it is, or cleaned if this is a terminal. With `end=""` the line stays open."""
        self._write(escaped(text) if self.is_terminal else text, end)

    def json(self, value: Any, *, indent: bool | None = None) -> None:
        """Write a JSON value: on one line or, with *indent*, for people; by default for these only at a terminal."""
        indent = self.is_terminal if indent is None else indent
        is_unicode = self._stream.encoding.lower().replace("-", "") == "utf8"
        text = json.dumps(value, ensure_ascii=not is_unicode, indent=2 if indent else None)
        text = escaped(text, as_json=True) if self.is_terminal else text
        if not (self._is_rich and indent):
            self._write(text)
            return
        from rich.highlighter import JSONHighlighter
        from rich.text import Text

        self._print(JSONHighlighter()(Text(text)), wrap=False)

    def members(self, data: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Write a line for each member of an object that has a value; objects of a list have empty lines between."""
        objects = [data] if isinstance(data, Mapping) else data
        texts = (
            "\n".join(f"{name}: {_cell(name, value)}" for name, value in members.items() if value is not None)
            for members in objects
        )
        self.write("\n\n".join(texts))

    def table(self, data: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Write these members of objects in *columns*; elsewhere than at a terminal, with tabs between them."""
        if not self._is_rich:
            self.rows(data, columns)
            return
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for number, name in enumerate(columns):
            title = name.removesuffix("_at").replace("_", " ").capitalize()
            table.add_column(title, style="" if number else "bold cyan", overflow="fold", no_wrap=not number)
        for row in _cells(data, columns):
            table.add_row(*map(Text, row))
        self._print(table)

    def rows(self, data: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Write these members of each object on a line, with tabs between them."""
        for row in _cells(data, columns):
            self._write("\t".join(row))

    def lines(self, lines: Iterable[Line], *, wrap: bool = True) -> None:
        """Write *lines* in their styles, wrapped at words or, to be copied, in one piece however long they are."""
        if not self._is_rich:
            self.write("\n".join("".join(text for text, _ in line).rstrip() for line in lines))
            return
        from rich.text import Text

        self._print(Text("\n").join(Text.assemble(*line) for line in lines), wrap=wrap)

    def _print(self, rendered: Any, *, wrap: bool = True) -> None:
        # Untrusted strings in what is rendered are `rich.text.Text`, which is never read as markup.
        from rich.console import Console

        console = Console(file=self._stream, force_terminal=True, markup=False, emoji=False, highlight=False)
        with console.capture() as capture:
            console.print(rendered, crop=False, soft_wrap=not wrap)
        self._write(capture.get())

    def _write(self, text: str, end: str = "\n") -> None:
        try:
            self._stream.write(text if text.endswith("\n") else f"{text}{end}")
            self._stream.flush()
        except BrokenPipeError:
            discard(self._stream)
            raise OutputClosed from None


def _cells(data: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[list[str]]:
    return [[_cell(name, members.get(name)) for name in columns] for members in data]


def _cell(name: str, value: Any) -> str:
    """Return the member *name* of JSON data for people, on one line: moments (`expires_at`) in local time."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case list():
            return one_line(" ".join(map(str, value)))
        case str() if name == "arguments":
            return one_line(shortened(value, 500), invisible=True)
        case str() if name.endswith("_at"):
            return f"{datetime.fromisoformat(value).astimezone():%Y-%m-%d %H:%M:%S}"
        case _:
            return one_line(str(value))


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
