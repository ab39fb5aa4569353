"""Looks for secrets of a run, in clear and in every encoding that redaction knows."""

from collections.abc import Iterable
from pathlib import Path

from toolcrib.record import Redactor


def require_hidden(canaries: Iterable[str], *texts: str, folder: Path) -> None:
    """None of *canaries* is in *texts*, or in the files of *folder*, of which one is a store, but for its keys."""
    canaries = {*canaries}
    find = Redactor(canaries)
    for canary in canaries:
        assert find.redact(f"x {canary}") == "x [secret]"
    for text in texts:
        assert find.redact(text) == text
    files = [file for file in folder.rglob("*") if file.is_file() and file.suffix != ".key"]
    assert "store.db" in {file.name for file in files}
    for file in files:
        text = file.read_bytes().decode("latin-1")
        assert find.redact(text) == text, file
