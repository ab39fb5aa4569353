"""TOML of others: refused where it is nested too deeply, and the line of each key, which `tomllib` does not give.

For the lines, the text is read a second time, with each value replaced by the number of its line.
"""

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from .declared import Keys

_STRING = r'"""(?:\\.|(?!""")[^\\])*"{3,5}' + r"|'''(?:(?!''').)*'{3,5}|" + r'"(?:\\.|[^"\\])*"|' + r"'[^']*'"
_TOKEN = re.compile(
    rf"(?P<gap>\s+|#[^\n]*)|(?P<scalar>{_STRING}|[^\s\[\]{{}}=,#\"']+(?: \d\d:[^\s,\]}}#]+)?)|[\[\]{{}}=,]", re.DOTALL
)
_HEADER = re.compile(rf"\[\[?(?:{_STRING}|[^\[\]\"'])+\]\]?", re.DOTALL)
_KEY_GOES_ON = re.compile(r"[ \t]*[=.]")
_EMPTY = re.compile(r"\s*\}")
_LINE = "the line of this table"
_MOST_DEPTH = 100
# Strings as above, but read to their end or the text's, so that what is not TOML is passed once, too.
_TEXT = (
    r'"""(?:\\.|(?!""")[^\\])*(?:"{3,5}|\Z)'
    + r"|'''(?:(?!''').)*(?:'{3,5}|\Z)|"
    + r'"(?:\\.|[^"\\\n])*"?|'
    + r"'[^'\n]*'?"
)
_BRACKET = re.compile(rf"{_TEXT}|#[^\n]*|(?P<opens>[\[{{])|(?P<closes>[\]}}])", re.DOTALL)


def parse_toml(text: str) -> dict[str, Any]:
    """Return the data in *text*. Raises ValueError: where it is not TOML, and where it is nested more than 100 deep.

    `tomllib` would recurse to the limit of the interpreter, where whatever the garbage collector finishes then fails.
    """
    depth = 0
    for found in _BRACKET.finditer(text):
        depth += (found["opens"] is not None) - (found["closes"] is not None)
        if depth > _MOST_DEPTH:
            raise ValueError(_TOO_DEEP)
    data = tomllib.loads(text)
    level: list[Any] = [data]
    for _ in range(_MOST_DEPTH):  # dotted keys and headers nest, too
        level = [one for each in level for one in (each.values() if isinstance(each, dict) else each)]
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return data
    raise ValueError(_TOO_DEEP)


_TOO_DEEP = f"it is nested more than {_MOST_DEPTH} deep"


def lines_of(text: str) -> dict[Keys, int]:
    """Return the line, from 1, of each key and list item in *text*, which is valid TOML."""
    found: dict[Keys, int] = {}
    for key, value in tomllib.loads(_numbered(text)).items():
        _collect(value, (key,), found)
    return found


def line_at(lines: Mapping[Keys, int], keys: Keys) -> int:
    """Return the line of *keys* in *lines*, of `lines_of`; of the nearest table around what is not there."""
    return next((lines[keys[:length]] for length in range(len(keys), 0, -1) if keys[:length] in lines), 1)


def _numbered(text: str) -> str:
    """Return *text* with line numbers as values. A list begins with its own, and a table has its own under `_LINE`."""
    parts: list[str] = []
    at, line, depth, before = 0, 1, 0, ""
    while at < len(text):
        is_header = depth == 0 and before != "=" and text[at] == "["
        token = _HEADER.match(text, at) if is_header else _TOKEN.match(text, at)
        assert token is not None
        written, at = token[0], token.end()
        if is_header:
            parts.append(f'{written}\n"{_LINE}"={line}')
        elif written in ("[", "{"):
            own = f"[{line}," if written == "[" else f'{{"{_LINE}"={line}' + ("" if _EMPTY.match(text, at) else ",")
            parts.append(own)
        elif token["scalar"] and written != "." and not _KEY_GOES_ON.match(text, at):
            parts.append(str(line))
        else:
            parts.append(written)
        if not is_header:
            depth += (written in ("[", "{")) - (written in ("]", "}"))
        before = before if token.lastgroup == "gap" else written
        line += written.count("\n")
    return "".join(parts)


def _collect(value: Any, path: Keys, found: dict[Keys, int]) -> int:
    """Return the line of *value*; note in *found* those of all in it. A table without a header has its first."""
    own = value if isinstance(value, int) else None
    inner: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        own = value.pop(_LINE, None)
        inner = list(value.items())
    elif isinstance(value, list):
        own = value.pop(0) if isinstance(value[0], int) else None
        inner = list(enumerate(value))
    lines = [_collect(member, (*path, key), found) for key, member in inner]
    found[path] = min(lines) if own is None else own
    return found[path]
