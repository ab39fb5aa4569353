"""TOML: read with a bound on its depth, and the line of each key, which `tomllib` does not give.

The lines are for messages. They are read from how the lines of a file begin, as people write TOML: what is inside of an
inline table, or of a list of several lines, has the line of the key before it.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from .declared import Keys
from .view import MAX_NESTING, is_deep

_TOO_DEEP = f"it is nested more than {MAX_NESTING} deep"
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_NAME = r"(?:[\w-]+|\"[^\"\n]*\"|'[^'\n]*')"
_NAMES = rf"{_NAME}(?:[ \t]*\.[ \t]*{_NAME})*"
_LINE = re.compile(rf"[ \t]*(?:(?P<bracket>\[\[?)[ \t]*(?P<table>{_NAMES})[ \t]*\]|(?P<key>{_NAMES})[ \t]*=)")


def parse_toml(text: str) -> dict[str, Any]:
    """Return the data in *text*. Raises ValueError: where it is not TOML, and where it is nested too deeply."""
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if is_deep(data):
        raise ValueError(_TOO_DEEP)
    return data


def to_toml(value: Any) -> str:
    """Return JSON data as a TOML value, on one line. Raises ValueError for null, which TOML does not have."""
    match value:
        case Mapping():
            names = {name: name if _BARE.fullmatch(name) else to_toml(name) for name in value}
            members = (f"{names[name]} = {to_toml(inner)}" for name, inner in value.items())
            return f"{{ {', '.join(members)} }}" if value else "{}"
        case list():
            return f"[{', '.join(map(to_toml, value))}]"
        case None:
            raise ValueError("TOML has no null")
        case _:
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def lines_of(text: str) -> dict[Keys, int]:
    """Return the line, from 1, of the tables and keys in *text*, which is valid TOML."""
    lines: dict[Keys, int] = {}
    last: dict[Keys, int] = {}  # of each list of tables: the index of the table that was begun last
    table: Keys = ()
    for number, line in enumerate(text.splitlines(), 1):
        if (match := _LINE.match(line)) is None:
            continue
        if match["key"]:
            lines.setdefault((*table, *_names(match["key"])), number)
            continue
        table, names = (), _names(match["table"])
        for index, name in enumerate(names, 1):
            table = (*table, name)
            lines.setdefault(table, number)
            if match["bracket"] == "[[" and index == len(names):
                last[table] = last.get(table, -1) + 1
            if table in last:
                table = (*table, last[table])
                lines.setdefault(table, number)
        if match["bracket"] == "[":  # also where a header of a table in it came first
            lines[table] = number
    return lines


def line_at(lines: Mapping[Keys, int], keys: Keys) -> int:
    """Return the line of *keys* in *lines*, of `lines_of`; of the nearest table around what is not there."""
    return next((lines[keys[:length]] for length in range(len(keys), 0, -1) if keys[:length] in lines), 1)


def _names(text: str) -> list[str]:
    """Return the names in a key or a header, as in `tool."my tool".x`."""
    names: list[str] = []
    data: Any = tomllib.loads(f"{text} = 0")
    while isinstance(data, dict):
        [(name, data)] = data.items()
        names.append(name)
    return names
