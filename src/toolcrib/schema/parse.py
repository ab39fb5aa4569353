"""JSON text from outside: parsed within bounds, or refused with the place and the reason.

Refused are: text that is not valid JSON, too long or too deep, NaN and infinities, one key twice in an object (two
readers would see two different calls), numbers beyond any bound, lone surrogates.
"""

import json
import math
import re
from typing import Any

import jiter

LIMIT_BYTES = 4 * 1024 * 1024
"""The longest arguments that are read."""


class JSONError(ValueError):
    """JSON text that is refused. Its message gives the place and the reason, and never quotes a value."""


class JSONTooLong(JSONError):
    """JSON text over `LIMIT_BYTES`."""


def parse_json(text: str | bytes) -> Any:
    """Parse JSON *text* (RFC 8259, each key of an object unique).

    Raises BadText, TooLong.
    """
    data = _encoded(text)
    if len(data) > LIMIT_BYTES:
        raise JSONTooLong(f"{len(data)} bytes of JSON are over the limit of {LIMIT_BYTES} bytes")
    try:
        value = jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        raise JSONError(_reason(str(error), data)) from None
    if b"e" in data or b"E" in data or len(data) > 300:
        _refuse_infinities(value)
    return value


def respelled(text: str | bytes) -> dict[str, set[str]]:
    """Find the numbers in *text* (JSON that `read` accepts) that Python writes differently: its form → the originals.

    `1.50` is one: as text it would become `1.5`.
    """
    found: dict[str, set[str]] = {}

    def parser(number_type: type[float] | type[int]) -> Any:
        def parse(original: str) -> float:
            number = number_type(original)
            if (written := repr(number)) != original:
                found.setdefault(written, set()).add(original)
            return number

        return parse

    json.loads(text, parse_float=parser(float), parse_int=parser(int))
    return found


def _encoded(text: str | bytes) -> bytes:
    if isinstance(text, bytes):
        return text
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        column = error.start - text.rfind("\n", 0, error.start)
        raise JSONError(f"a lone surrogate (half of a character) at line {line} column {column}") from None


def _reason(message: str, data: bytes) -> str:
    """jiter's message, or a better one, with the place in characters."""
    found = _PLACE.search(message)
    if found is None:
        return message
    if not data.strip():
        return "the text is empty"
    if data.startswith(b"\xef\xbb\xbf"):
        return "a byte order mark stands before it"
    reason, line, column = message[: found.start()], int(found[1]), int(found[2])
    text_line = data.split(b"\n", line)[line - 1]
    place = f"at line {line} column {len(text_line[: max(column - 1, 0)].decode(errors='replace')) + 1}"
    if "duplicate key" in reason.lower():
        name = reason.partition('"')[2].rstrip('"')
        return f"the name '{name[:64]}' appears twice in an object, {place}"
    for sign, better, advice in _REASONS:
        if re.search(sign, reason, re.I):
            return f"{better} {place}{advice}"
    if word := _WORD.search(text_line[max(column - 2, 0) :]):
        name = word[0].decode().lstrip("-")
        if name in ("NaN", "Infinity"):
            return f"NaN and Infinity are not JSON, {place}"
        if name in _JSON_WORDS:
            return f"{name} is not JSON, {place}; JSON has {_JSON_WORDS[name]}"
    return f"{reason} {place}"


_PLACE = re.compile(r" at line (\d+) column (\d+)$")
_REASONS = (
    ("recursion limit", "nested too deeply", ""),
    ("hex escape|surrogate", "a broken or lone \\u escape", ""),
    ("number out of range", "a number with too many digits", ""),
    (
        "control character",
        "a line break or other control character inside a string",
        "; write it as an escape, like \\n",
    ),
)
"""What jiter's message contains, a better message, and advice."""
_WORD = re.compile(rb"-?\b[A-Za-z]+")
_JSON_WORDS = {"None": "null", "undefined": "null", "True": "true", "False": "false"}


def _refuse_infinities(value: Any) -> None:
    """Raise BadText for `1e999`, which is well-formed JSON and no number that a program could hold."""
    stack = [value]
    while stack:
        item = stack.pop()
        if type(item) is float:
            if not math.isfinite(item):
                raise JSONError("a number too large for any type")
        elif type(item) is dict:
            stack.extend(item.values())
        elif type(item) is list:
            stack.extend(item)
