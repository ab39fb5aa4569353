"""JSON with comments and trailing commas, as editors keep it: read it, and change one member of it.

What JSON does not have is blanked by spaces, so that each place in the rest is its place in the text. This file does no
I/O.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|\ufeff|//[^\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_COMMA = re.compile(r"\s*,")
_SPACE = re.compile(r"\s*")
_UNIT = re.compile(r"\s*\{[^\S\n]*\n([ \t]+)")
_DECODER = json.JSONDecoder()


class _Member(NamedTuple):
    key: int
    start: int
    end: int


def parse(text: str) -> Any:
    """Return the data in *text*; an empty object where it is blank. Raises ValueError, which names the line."""
    try:
        return json.loads(_plain(text).rstrip() or "{}")
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def put(text: str, path: Sequence[str], value: Any) -> str:
    """Return *text*, which is an object, with *value* under the keys of *path*. All else stays as it is written."""
    if not _plain(text).strip():
        text += "{}\n"
    plain = _plain(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    unit = match[1] if (match := _UNIT.match(plain)) else "  "
    opening, depth = plain.index("{"), 0
    members, closing = _members(plain, opening)
    while path[depth] in members and depth < len(path) - 1:
        opening, depth = members[path[depth]].start, depth + 1
        members, closing = _members(plain, opening)
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


def drop(text: str, path: Sequence[str]) -> str:
    """Return *text* without the member under the keys of *path*, which is there. Comments beside it stay."""
    plain = _plain(text)
    opening = plain.index("{")
    for key in path[:-1]:
        opening = _members(plain, opening)[0][key].start
    start, _, end = _members(plain, opening)[0][path[-1]]
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
