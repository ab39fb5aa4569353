"""Values as rows have them. What comes from a database is untrusted: whatever it is, decoding raises only ValueError.

Tables are declared without types, so that a row is read as it is, and a damaged one does not hide the others.
"""

import re
from datetime import UTC, datetime, timedelta

from sqlalchemy import Column, MetaData, Table

_EPOCH = datetime.fromtimestamp(0, UTC)
_ODD = re.compile("[\\\\\x00\ud800-\udfff]")
_ESCAPE = re.compile(r"\\u([0-9a-f]{4})")


def table(name: str, *columns: str, key: tuple[str, ...]) -> Table:
    """Return the table *name*, whose types are known to its migrations only.

    *key* are the columns of its primary key.
    """
    return Table(name, MetaData(), *(Column(column, primary_key=column in key, nullable=True) for column in columns))


def encode_name(name: str) -> str:
    """Return *name* as text that every database takes.

    NULs, lone surrogates and backslashes are escaped, one to one.
    """
    return _ODD.sub(lambda found: f"\\u{ord(found[0]):04x}", name)


def decode_name(value: object) -> str:
    """Return the text that `encode_name` wrote."""
    if not isinstance(value, str):
        raise ValueError(f"a name is text, not {type(value).__name__}")
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), value) if "\\" in value else value


def encode_time(moment: datetime) -> int:
    """Return *moment*, an aware datetime, in microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def decode_time(value: object) -> datetime:
    """Return the moment that `encode_time` wrote, in UTC."""
    if not isinstance(value, int):
        raise ValueError(f"a time is a number, not {type(value).__name__}")
    try:
        return _EPOCH + timedelta(microseconds=value)
    except OverflowError:
        raise ValueError("a time out of range") from None


def decode_bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError(f"sealed data is bytes, not {type(value).__name__}")
    return value
