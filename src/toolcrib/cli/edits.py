"""Change one member of a file as people and programs write it, in JSON with comments or in TOML, and keep the rest.

In JSON with comments and trailing commas, what JSON does not have is blanked by spaces, so that each place in the rest
is its place in the text. TOML is changed by lines: a file in another form, such as with an inline table, comes out as
other data, so compare them. This file does no I/O.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..schema.toml import lines_of, parse_toml, to_toml

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|\ufeff|//[^\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_COMMA = re.compile(r"\s*,")
_SPACE = re.compile(r"\s*")
_UNIT = re.compile(r"\s*\{[^\S\n]*\n([ \t]+)")
_DECODER = json.JSONDecoder()


class Form(NamedTuple):
    """How a text in one form is read, or changed under the keys of a path. Reading raises ValueError."""

    parse: Callable[[str], Any]
    insert: Callable[[str, Sequence[str], Any], str]
    drop: Callable[[str, Sequence[str]], str]


class _Member(NamedTuple):
    key: int
    start: int
    end: int


def _parse_json(text: str) -> Any:
    """Return the data in *text*; an empty object where it is blank. Raises ValueError, which names the line."""
    try:
        return json.loads(_plain(text).rstrip() or "{}")
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _insert_json(text: str, path: Sequence[str], value: Any) -> str:
    """Return *text*, which is an object, with *value* under the keys of *path*. All else stays as it is written."""
    if not _plain(text).strip():
        text += "{}\n"
    plain = _plain(text)
    newline = _newline(text)
    unit = match[1] if (match := _UNIT.match(plain)) else "  "
    depth, opening, members, closing = _innermost(plain, path)
    for key in reversed(path[depth + 1 :]):
        value = {key: value}
    indent = newline + unit * (depth + 1)
    json_text = json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", indent)
    if member := members.get(path[depth]):
        return text[: member.start] + json_text + text[member.end :]
    last = max((member.end for member in members.values()), default=opening + 1)
    comma = "," if members and "," not in _blanked(_COMMENT, text)[last:closing] else ""
    gap = text[last:closing].rstrip()
    space = text[last + len(gap) : closing]
    end = space if "\n" in space else newline + unit * depth
    return f"{text[:last]}{comma}{gap}{indent}{json.dumps(path[depth])}: {json_text}{end}{text[closing:]}"


def _drop_json(text: str, path: Sequence[str]) -> str:
    """Return *text* without the member under the keys of *path*, which is there. Comments beside it stay."""
    depth, opening, members, _ = _innermost(_plain(text), path)
    start, _, end = members[path[depth]]
    bare = _blanked(_COMMENT, text)
    comma = bare.rfind(",", opening, start)
    if following := _COMMA.match(bare, end):
        end, comma = following.end(), -1
    elif bare[comma + 1 : start].strip():
        comma = -1
    line = text.rfind("\n", 0, start)
    if line > comma and not text[line:start].strip() and not text[end:].partition("\n")[0].strip():
        start, end = line, end + len(text[end:].partition("\n")[0].rstrip("\r"))
    return text[:start] + text[end:] if comma < 0 else text[:comma] + text[comma + 1 : start] + text[end:]


def _plain(text: str) -> str:
    return _blanked(_TRAILING_COMMA, _blanked(_COMMENT, text))


def _blanked(pattern: re.Pattern[str], text: str) -> str:
    """Return *text* with spaces in place of what matches, except in strings."""
    return pattern.sub(lambda match: match[0] if match[0][0] == '"' else re.sub(r"[^\r\n]", " ", match[0]), text)


def _innermost(plain: str, path: Sequence[str]) -> tuple[int, int, dict[str, _Member], int]:
    """Return the last object on *path* that is there: how deep it is, where it begins, its members, where it ends."""
    depth, opening = 0, plain.index("{")
    members, closing = _members(plain, opening)
    while path[depth] in members and depth < len(path) - 1:
        depth, opening = depth + 1, members[path[depth]].start
        members, closing = _members(plain, opening)
    return depth, opening, members, closing


def _members(plain: str, opening: int) -> tuple[dict[str, _Member], int]:
    """Return the members of the object that begins at *opening*, by key, and where it ends."""
    members: dict[str, _Member] = {}
    place = _past_space(plain, opening + 1)
    while plain[place] != "}":
        key, end = _DECODER.raw_decode(plain, place)
        start = _past_space(plain, _past_space(plain, end) + 1)
        end = _DECODER.raw_decode(plain, start)[1]
        members[key] = _Member(place, start, end)
        place = _past_space(plain, end)
        place = _past_space(plain, place + 1) if plain[place] == "," else place
    return members, place


def _past_space(plain: str, place: int) -> int:
    match = _SPACE.match(plain, place)
    return place if match is None else match.end()


def _insert_toml(text: str, path: Sequence[str], value: Any) -> str:
    """Return *text* with *value* under the keys of *path*: a table at the end, or a line of a table that is there."""
    newline = _newline(text)
    if not isinstance(value, Mapping):
        lines = text.splitlines(keepends=True)
        lines[lines_of(text)[tuple(path)] - 1] = f"{path[-1]} = {to_toml(value)}{newline}"
        return "".join(lines)
    table = [f"[{'.'.join(path)}]", *(f"{key} = {to_toml(inner)}" for key, inner in value.items())]
    space = "" if not text.strip() else newline if text.endswith("\n") else newline * 2
    return text + space + newline.join(table) + newline


def _drop_toml(text: str, path: Sequence[str]) -> str:
    """Return *text* without the table under *path* and those below it. Comments before and after it stay."""
    # By line, whether what begins there is under *path*. What has a part of it alone says nothing.
    ownership = {
        number - 1: keys[: len(path)] == tuple(path)
        for keys, number in lines_of(text).items()
        if len(keys) >= len(path) or (keys and keys[0] != path[0])
    }
    rest: list[str] = []
    comments: list[str] = []
    is_own = False
    for number, line in enumerate(text.splitlines(keepends=True)):
        is_own = ownership.get(number, is_own)
        if not is_own:
            rest += [*comments, line]
            comments = []
        elif line.strip() and not line.lstrip().startswith("#"):
            comments = []
        else:
            comments.append(line)
    return "".join(rest + comments)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


JSONC = Form(_parse_json, _insert_json, _drop_json)
TOML = Form(parse_toml, _insert_toml, _drop_toml)
