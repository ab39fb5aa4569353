"""What goes to standard output and standard error, and what never may.

Text of tools and sources is a stranger's: it is never read as markup, and no control character of it reaches a
terminal.
"""

import io
import json
import logging
import os
import re
import select
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

# Control characters but tab and line feed; marks that change the direction of text.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class OutputClosed(Exception):
    """Nobody reads standard output any more."""


def clean(text: str) -> str:
    """*text* with control characters spelled out, as in `\\x1b`."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """*text*, cleaned, on one line."""
    return clean(" ".join(text.split()))


def laid_out(text: str) -> str:
    """JSON text for people to read, indented. What is in its texts stays in one place."""
    shown = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    return "\n".join(f"  {line}" for line in _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", shown).split("\n"))


def tell(message: str, *, aside: bool = False) -> None:
    """Say *message* to the person, on standard error; dimmed where it is said *aside*."""
    said = clean(message)
    if aside and is_rich(sys.stderr) and not os.environ.get("NO_COLOR"):
        said = f"\x1b[2m{said}\x1b[0m"
    try:
        sys.stderr.write(f"{said}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return  # standard error is closed: there is nobody to tell


def is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


def is_rich(stream: TextIO) -> bool:
    """Whether *stream* is a terminal that can move its cursor and show colour."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def prepare_streams() -> None:
    """Make sure that both streams are there and can write any text."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def put_aside(stream: TextIO) -> None:
    """Let everything that is still written to *stream* go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextmanager
def kept_quiet() -> Generator[None]:
    """Let nothing that is written meanwhile be seen."""
    with _turned(sys.stdout, put_aside), _turned(sys.stderr, put_aside):
        yield


@contextmanager
def prints_to_stderr() -> Generator[None]:
    """Let what is printed meanwhile, also by programs that are started, go to standard error."""
    with _turned(sys.stdout, _divert):
        yield


@contextmanager
def _turned(stream: TextIO, turn: Callable[[TextIO], None]) -> Generator[None]:
    stream.flush()
    try:
        kept = os.dup(stream.fileno())
    except (OSError, ValueError):  # no file behind it, as in a test
        yield
        return
    try:
        turn(stream)
        yield
    finally:
        stream.flush()
        os.dup2(kept, stream.fileno())
        os.close(kept)


def log_to_stderr(*, tracebacks: bool) -> None:
    """Write warnings and errors to standard error, cleaned; without *tracebacks*, not those of tools that failed."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Clean("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    if not tracebacks:
        # `call/fail.py` writes them, and nothing else.
        logging.getLogger("toolcrib").addFilter(lambda record: record.module != "fail")


class _Clean(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return clean(super().format(record))


class Output:
    """Standard output.

    With *alone* it is ours: whatever else writes to it from now on (prints of tools, of the modules that sources
    import, of programs that they start) goes to standard error.
    """

    def __init__(self, *, alone: bool) -> None:
        sys.stdout.flush()
        self._stream = _claimed() if alone else sys.stdout
        self.is_terminal = self._stream.isatty()
        self.is_rich = is_rich(self._stream)

    def write(self, text: str) -> None:
        """Write *text* as it is, or cleaned if this is a terminal, on lines of its own."""
        self._write(clean(text) if self.is_terminal else text)

    def write_piece(self, text: str) -> None:
        """Write *text* as `write` does, wherever the line is, and leave the line open."""
        self._put(clean(text) if self.is_terminal else text)

    def json(self, value: Any) -> None:
        """Write a JSON value: on one line, or on a terminal for people to read."""
        if self.is_terminal:
            self.laid_out(value)
        else:
            self.json_line(value)

    def json_line(self, value: Any) -> None:
        """Write a JSON value on one line, also on a terminal."""
        self._write(self._dumped(value, indent=None))

    def laid_out(self, value: Any) -> None:
        """Write a JSON value for people to read, also elsewhere than on a terminal."""
        text = self._dumped(value, indent=2)
        if not self.is_rich:
            self._write(text)
            return
        from rich.highlighter import JSONHighlighter
        from rich.text import Text

        self.print(JSONHighlighter()(Text(text)))

    def _dumped(self, value: Any, *, indent: int | None) -> str:
        is_unicode = self._stream.encoding.lower().replace("-", "") == "utf8"
        text = json.dumps(value, ensure_ascii=not is_unicode, indent=indent)
        return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text) if self.is_terminal else text

    def require_reader(self) -> None:
        """Raises OutputClosed where standard output is a pipe that nobody reads any more."""
        if hasattr(select, "poll"):
            poll = select.poll()
            with suppress(OSError, ValueError):
                poll.register(self._stream.fileno(), 0)
                if any(event & select.POLLERR for _, event in poll.poll(0)):
                    raise OutputClosed

    def print(self, rendered: Any, *, cut_lines: bool = False) -> None:
        """Write what Rich renders, for a terminal; *cut_lines* fits them to its width, else it wraps them itself.

        Strings of strangers in *rendered* must be `rich.text.Text`.
        """
        console = self._console()
        with console.capture() as capture:
            console.print(rendered, soft_wrap=not cut_lines)
        self._write(capture.get())

    def _console(self) -> "Console":
        from rich.console import Console

        return Console(file=self._stream, force_terminal=True, markup=False, emoji=False, highlight=False)

    def _write(self, text: str) -> None:
        self._put(text if text.endswith("\n") else f"{text}\n")

    def _put(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            put_aside(self._stream)
            raise OutputClosed from None


def _claimed() -> TextIO:
    try:
        ours = os.dup(sys.stdout.fileno())
    except (OSError, ValueError):
        return sys.stdout  # no file behind it, as in a test
    _divert(sys.stdout)
    return open(ours, "w", encoding=sys.stdout.encoding, errors="backslashreplace")  # noqa: PTH123


def _divert(stream: TextIO) -> None:
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(line_buffering=True)  # among the lines of standard error, in order
    try:
        os.dup2(sys.stderr.fileno(), stream.fileno())
    except (OSError, ValueError):
        put_aside(stream)
