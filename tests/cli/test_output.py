"""What the command writes, and what of it goes where: standard output, standard error, or nowhere."""

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import toolcrib.cli
import toolcrib.demo
from toolcrib.cli.terminal import (
    LogFormatter,
    Output,
    echo,
    indented_json,
    prepare_streams,
    prints_to_stderr,
    silenced,
    tool_frames,
)


class Streams:
    """Standard output and standard error in files."""

    def __init__(self, folder: Path) -> None:
        self._files = folder / "out", folder / "err"

    @contextmanager
    def opened(self, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
        out, err = self._files
        with out.open("w", encoding="utf-8") as stdout, err.open("w", encoding="utf-8", buffering=1) as stderr:
            monkeypatch.setattr(sys, "stdout", stdout)
            monkeypatch.setattr(sys, "stderr", stderr)
            yield
        monkeypatch.undo()

    def read(self) -> tuple[str, str]:
        out, err = self._files
        return out.read_text("utf-8"), err.read_text("utf-8")


@pytest.fixture
def streams(tmp_path: Path) -> Streams:
    return Streams(tmp_path)


def descriptors() -> list[str]:
    return sorted(os.listdir("/dev/fd"))


def test_arguments_to_approve_show_what_is_not_seen_of_them() -> None:
    assert (
        indented_json('{"to": "ann\u3164\u200b\U000e0041"}') == '  {\n    "to": "ann\\u3164\\u200b\\udb40\\udc41"\n  }'
    )
    assert indented_json('{"a": "é\\u001b\\u202e", "b": [1]}') == (
        '  {\n    "a": "é\\u001b\\u202e",\n    "b": [\n      1\n    ]\n  }'
    )


def test_what_is_written_inside_is_discarded_or_sent_to_standard_error_and_nothing_after_it(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    with streams.opened(monkeypatch):
        before = descriptors()
        print("before")
        with silenced():
            print("hidden")
            echo("hidden")
            os.write(sys.stdout.fileno(), b"hidden too\n")
        print("between")
        with pytest.raises(KeyError), prints_to_stderr():
            print("inside")
            echo("in order")
            os.write(sys.stdout.fileno(), b"from a program\n")
            raise KeyError
        print("after")
        assert descriptors() == before
    assert streams.read() == ("before\nbetween\nafter\n", "inside\nin order\nfrom a program\n")


def test_an_output_has_standard_output_for_itself_from_when_it_is_made(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    with streams.opened(monkeypatch):
        print("before")
        output = Output()
        print("printed by a tool")
        echo("in order")
        os.write(sys.stdout.fileno(), b"from a program\n")
        output.write("a result \ud800")
        output.write("with its line end\n")
        output.write("a piece", end="")
        output.json({"é": "\x1b"})
        output.table([], ("a", "b"))
        output.table([{"a": "1\n", "b": ["2", True]}], ("a", "b", "c"))
        output.lines([[("[bold]2[/bold]", "bold"), (" :smile:", "")]])
        output._stream.close()
    assert streams.read() == (
        'before\na result \\ud800\nwith its line end\na piece{"é": "\\u001b"}\n1\t2 True\t\n[bold]2[/bold] :smile:\n',
        "printed by a tool\nin order\nfrom a program\n",
    )


def test_streams_take_any_text_and_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    ascii_only = io.TextIOWrapper(io.BytesIO(), "ascii", errors="strict")
    monkeypatch.setattr(sys, "stdout", ascii_only)
    monkeypatch.setattr(sys, "stderr", None)
    prepare_streams()
    print("é")
    echo("to nobody")
    ascii_only.flush()
    assert ascii_only.buffer.getvalue() == b"\\xe9\n"  # type: ignore[attr-defined] - of a BytesIO
    sys.stderr.close()
    echo("to a stream that is closed")


def test_a_traceback_keeps_the_frames_of_the_tools_alone() -> None:
    def frame(file: str | None, indent: str = "  ") -> str:
        return f'{indent}File "{file}", line 1, in work\n{indent}  work()\n{indent}  ^^^^\n'

    ours, demo = frame(toolcrib.cli.__file__), frame(toolcrib.demo.__file__)
    plumbing = frame(asyncio.__file__) + frame("<frozen importlib._bootstrap>")
    plumbing += frame(json.__file__)
    theirs = demo + frame("/their/tools.py", "  | ")
    head, end = "Traceback (most recent call last):\n", "ValueError: no\n"
    assert tool_frames(head + ours + plumbing + theirs + ours + end) == head + theirs + end
    assert tool_frames(head + ours + plumbing + end) == head + ours + plumbing + end


BASE_INSTALL = """
import sys

for name in ("authlib", "sqlalchemy", "platformdirs", "httpx2", "starlette", "wasmtime", "numpy"):
    sys.modules[name] = None
from toolcrib.cli import main

for words in sys.argv[1].split("; "):
    print(main(words.split()), file=sys.stderr)
"""


def test_a_record_of_the_log_is_one_paragraph_whatever_a_stranger_put_in_it() -> None:
    """The model's text in a line of a tool's log; and a traceback, which the report of this fault does not name."""
    line = LogFormatter("%(levelname)s %(name)s: %(message)s")
    forged = logging.makeLogRecord({"msg": "name: %s", "args": ("x\nERROR toolcrib: all is lost\x1b[2J",)})
    assert line.format(forged).split("\n")[1:] == ["  ERROR toolcrib: all is lost\\x1b[2J"]
    try:
        raise ValueError("no\nERROR toolcrib: false")
    except ValueError:
        failed = logging.makeLogRecord({"msg": "failed", "exc_info": sys.exc_info()})
    assert all(text.startswith("  ") for text in line.format(failed).split("\n")[1:])


def test_a_package_that_is_missing_is_named_with_its_extra(folder: Path, environment: dict[str, str]) -> None:
    commands = {
        "keys list": "store",
        "calls list": "store",
        "auth list": "auth",
        "sandbox clear": "sandbox",
        "list openapi:http://127.0.0.1:1/x.json": "openapi",
        "serve toolcrib.demo": "serve",
    }
    words = [sys.executable, "-c", BASE_INSTALL, "; ".join(commands)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment, timeout=120)
    lines = done.stderr.splitlines()
    assert lines[1::2] == ["1"] * len(commands), done.stderr
    for line, extra in zip(lines[::2], commands.values(), strict=True):
        assert line.startswith("Error: ") and f"pip install 'toolcrib[{extra}]'" in line, line
