"""Files of settings, read whole and within a bound."""

from pathlib import Path

from ..core import LoadError

MAX_TEXT_BYTES = 1024**2
"""How large a file of settings may be: a `tool.toml`, a schema, a client's list of servers."""


def bytes_of(file: Path, max_bytes: int) -> bytes:
    """Return what is in *file*. Raises LoadError where it cannot be read, or is larger than *max_bytes*."""
    try:
        if not file.is_file():
            raise LoadError(f"There is no file {file}.")
        with file.open("rb") as stream:
            content = stream.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        raise LoadError(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it has no valid name'}."
        ) from None
    if len(content) > max_bytes:
        raise LoadError(f"{file} is larger than {max_bytes // 1024**2} MiB, which is the limit.")
    return content
