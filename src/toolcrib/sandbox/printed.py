"""What a tool in a worker prints, on its way to its log."""

import codecs
import logging
import sys
from collections.abc import Callable

from ..core import Redaction

_MOST_BYTES = 2**20
"""How much of what one call prints is passed on."""


class PrintedOutput:
    """What a tool prints → its log, line by line, secrets redacted; to standard error where the log does not take it.

    Never to standard output: that may be a protocol of the host's.
    """

    def __init__(self, tool: str, redaction: Redaction | None, redacted: Callable[[str], str]) -> None:
        self._redacted = redacted
        self._log = logging.getLogger(f"toolcrib.tool.{tool}")
        self._tool = tool
        self._redaction = redaction
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._left_bytes = _MOST_BYTES
        self._tail = self._line = ""  # what may be the beginning of a secret, and of a line

    def write(self, data: bytes) -> None:
        if self._left_bytes <= 0:
            return
        self._left_bytes -= len(data)
        ready = text = self._tail + self._decode(data)
        if self._redaction is not None:
            self._tail, ready = self._redaction.split(text)
        *lines, self._line = (self._line + ready).split("\n")
        for line in lines:
            self._write_line(line)
        if self._left_bytes <= 0:
            self.finish()
            self._write_line("[the rest of what was printed is left out]")

    def finish(self) -> None:
        rest, self._tail, self._line = self._line + self._tail, "", ""
        if rest:
            self._write_line(rest)

    def _write_line(self, line: str) -> None:
        line = self._redacted(line)
        if self._log.isEnabledFor(logging.INFO):
            self._log.info("%s", line)
        elif sys.stderr is not None:
            sys.stderr.write(f"{self._tool}: {line}\n")
