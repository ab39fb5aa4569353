"""TOML: read it, and change one table of it, as people and programs write it: by lines.

A file in another form, such as with an inline table, comes out as other data: compare them. This file does no I/O.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..schema.toml import lines_of, parse_toml, to_toml

parse = parse_toml


def put(text: str, path: Sequence[str], value: Any) -> str:
    """Return *text* with *value* under the keys of *path*: a table at the end, or a line of a table that is there."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if not isinstance(value, Mapping):
        lines = text.splitlines(keepends=True)
        lines[lines_of(text)[tuple(path)] - 1] = f"{path[-1]} = {to_toml(value)}{newline}"
        return "".join(lines)
    table = [f"[{'.'.join(path)}]", *(f"{key} = {to_toml(inner)}" for key, inner in value.items())]
    space = "" if not text.strip() else newline if text.endswith("\n") else newline * 2
    return text + space + newline.join(table) + newline


def drop(text: str, path: Sequence[str]) -> str:
    """Return *text* without the table under *path* and those below it. Comments before and after it stay."""
    places = {number - 1: keys[: len(path)] for keys, number in lines_of(text).items() if len(keys) >= len(path)}
    places |= {number - 1: keys for keys, number in lines_of(text).items() if keys and keys[0] != path[0]}
    rest: list[str] = []
    comments: list[str] = []
    is_own = False
    for number, line in enumerate(text.splitlines(keepends=True)):
        is_own = places[number] == tuple(path) if number in places else is_own
        if not is_own:
            rest += [*comments, line]
            comments = []
        elif line.strip() and not line.lstrip().startswith("#"):
            comments = []
        else:
            comments.append(line)
    return "".join(rest + comments)
