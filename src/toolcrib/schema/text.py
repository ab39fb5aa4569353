"""JSON text from outside: read within bounds, or refused with the place and the reason.

What is refused here: text that is no JSON, too long or too deep, NaN and infinities, one key twice in an object (two
readers would see two different calls), numbers beyond any bound, lone surrogates.
"""

import json
import math
import re
from typing import Any

import jiter

LIMIT_BYTES = 4 * 1024 * 1024
"""The longest arguments that are read."""


class BadText(ValueError):
    """JSON text that is not read. Its text says where and why, and never quotes a value."""


class TooLong(BadText):
    """JSON text over `LIMIT_BYTES`."""


def read(text: str | bytes) -> Any:
    """The value of JSON *text* (RFC 8259, and its keys unique in each object).

    Raises BadText, TooLong.
    """
    data = _encoded(text)
    if len(data) > LIMIT_BYTES:
        raise TooLong(f"{len(data)} bytes of JSON are over the limit of {LIMIT_BYTES} bytes")
    try:
        value = jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        raise BadText(_reason(str(error), data)) from None
    if b"e" in data or b"E" in data or len(data) > 300:
        _refuse_infinities(value)
    return value


def respelled(text: str | bytes) -> dict[str, set[str]]:
    """The numbers in *text* (JSON that `read` accepts) that would be written otherwise again: how → how they were.

    `1.50` is one: as text it would become `1.5`.
    """
    found: dict[str, set[str]] = {}

    def note(number_type: type[float] | type[int]) -> Any:
        def parse(spelled: str) -> float:
            number = number_type(spelled)
            if (again := repr(number)) != spelled:
                found.setdefault(again, set()).add(spelled)
            return number

        return parse

    json.loads(text, parse_float=note(float), parse_int=note(int))
    return found


def _encoded(text: str | bytes) -> bytes:
    if isinstance(text, bytes):
        return text
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        column = error.start - text.rfind("\n", 0, error.start)
        raise BadText(f"a lone surrogate (half of a character) at line {line} column {column}") from None


def _reason(said: str, data: bytes) -> str:
    """jiter's words, or better ones, and the place in characters."""
    found = _PLACE.search(said)
    if found is None:
        return said
    words, line, column = said[: found.start()], int(found[1]), int(found[2])
    text_line = data.split(b"\n", line)[line - 1]
    before = text_line[: max(column - 1, 0)]
    place = f"at line {line} column {len(before.decode(errors='replace')) + 1}"
    lowered = words.lower()
    if not data.strip():
        return "the text is empty"
    if data.startswith(b"\xef\xbb\xbf"):
        return "a byte order mark stands before it"
    if "duplicate key" in lowered:
        name = words.partition('"')[2].rstrip('"')
        return f"the name '{name[:64]}' stands twice in an object, {place}"
    if "recursion limit" in lowered:
        return f"nested too deeply {place}"
    if "hex escape" in lowered or "surrogate" in lowered:
        return f"a broken or lone \\u escape {place}"
    if "number out of range" in lowered:
        return f"a number with too many digits {place}"
    if "control character" in lowered:
        return f"a line break or other control character inside a string {place}; write it as an escape, like \\n"
    if word := _WORD.search(text_line[max(column - 2, 0) :]):
        wrong, right = word[0].decode().lstrip("-"), _RIGHT.get(word[0].lstrip(b"-"))
        if word[0].lstrip(b"-") in (b"NaN", b"Infinity"):
            return f"NaN and Infinity are not JSON, {place}"
        if right:
            return f"{wrong} is not JSON, {place}; JSON has {right}"
    return f"{words} {place}"


_PLACE = re.compile(r" at line (\d+) column (\d+)$")
_WORD = re.compile(rb"-?\b[A-Za-z]+")
_RIGHT = {b"None": "null", b"undefined": "null", b"True": "true", b"False": "false"}


def _refuse_infinities(value: Any) -> None:
    """`1e999` is well-formed JSON and no number that a program could hold."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if type(item) is float:
            if not math.isfinite(item):
                raise BadText("a number too large for any type")
        elif type(item) is dict:
            waiting.extend(item.values())
        elif type(item) is list:
            waiting.extend(item)
