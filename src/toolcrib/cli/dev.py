"""What `toolcrib dev` and `serve` have in common: files that are followed, and what is said of what is saved."""

import logging
import sys
from pathlib import Path
from typing import Any

from ..tools.watch import Watched
from .streams import clean


def followed(source: Any) -> Any:
    """*source*; where it is a `.py` file or a folder, as one that follows what is saved."""
    if not isinstance(source, str | Path) or not str(source).strip():
        return source
    file, colon, _ = str(source).rpartition(":")
    path = Path(file if colon and file.endswith(".py") and not Path(source).exists() else source)
    return Watched(source) if path.is_dir() or (path.suffix == ".py" and path.exists()) else source


def say_what_is_loaded() -> None:
    """From now on, say on standard error what was loaded again, and what could not be, each with the time."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Said())
    log = logging.getLogger("toolcrib.watch")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


class _Said(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return clean(f"{self.formatTime(record, '%H:%M:%S')} {super().format(record)}")
