"""JSON text: parsed within bounds, or refused with the place and the reason; and written again without loss.

Refused are: text that is not valid JSON, too long or too deep, NaN and infinities, one key twice in an object (two
readers would see two different calls), numbers beyond any bound, lone surrogates. Where numbers must be exact, one with
more digits than a float holds is a Decimal.
"""

import json
import math
import re
from collections import Counter
from contextlib import suppress
from decimal import Decimal, InvalidOperation
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

    Raises JSONError, JSONTooLong.
    """
    data = _encoded(text)
    require_size(data)
    try:
        value = jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        raise JSONError(_reason(str(error), data)) from None
    if b"e" in data or b"E" in data or len(data) > 300:
        _refuse_infinities(value)
    return value


def require_size(data: bytes) -> None:
    """Raise JSONTooLong where *data* is over `LIMIT_BYTES`, before anything is read of it."""
    if len(data) > LIMIT_BYTES:
        raise JSONTooLong(f"{len(data)} bytes of JSON are over the limit of {LIMIT_BYTES} bytes")


def most_names(text: str) -> int:
    """Return how many names JSON *text* has at most: before the colon of each is its quote, or white space."""
    return text.count('":') + sum(text.count(f"{space}:") for space in " \n\r\t" if space in text)


def refuse_repeated_names(data: bytes) -> None:
    """Raise JSONError where a name stands twice in an object of *data*, which is JSON in UTF-8.

    Raises ValueError, or nothing, where it is not.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        jiter.from_json(data, catch_duplicate_keys=True)
    except ValueError as error:
        if "duplicate key" in str(error).lower():
            raise JSONError(_reason(str(error), data)) from None
        with suppress(RecursionError):  # Python's reader accepts more, such as half of a character
            json.loads(data, object_pairs_hook=_require_unique)


def _require_unique(pairs: list[tuple[str, Any]]) -> None:
    for name, count in Counter(name for name, _ in pairs).items():
        if count > 1:
            raise JSONError(f"the name {json.dumps(name[:64])} appears twice in an object")


def respelled(text: str) -> dict[str, set[str]]:
    """Find the numbers in *text* (JSON that `parse_json` accepts) that Python writes differently: its form → originals.

    `1.50` is one: as text it would become `1.5`. No value is made of the rest: that would hold every thread.
    """
    spellings: dict[str, set[str]] = {}
    for match in _NUMBERS.finditer(text):
        original = match[1]
        if original is None or original.isdigit():
            continue
        python_form = repr(float(original)) if _FRACTION.search(original) else original if original != "-0" else "0"
        if python_form != original:
            spellings.setdefault(python_form, set()).add(original)
    return spellings


_NUMBERS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|(-?[0-9][0-9.eE+-]*+)', re.DOTALL)
_FRACTION = re.compile(r"[.eE]")


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
    """Return jiter's message, or a better one, with the place in characters."""
    place_match = _PLACE.search(message)
    if place_match is None:
        return message
    if not data.strip():
        return "the text is empty"
    if data.startswith(b"\xef\xbb\xbf"):
        return "a byte order mark stands before it"
    reason, line, column = message[: place_match.start()], int(place_match[1]), int(place_match[2])
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
    """Raise JSONError for `1e999`, which is well-formed JSON and no number that a program could hold."""
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


# Exact numbers

_MARK = "\ud800"
"""Stands before what is a Decimal: half of a character, which no accepted text contains."""
_MARKED = re.compile(f'"{_MARK}([^"]*)"')


def parse_exact(text: str | bytes) -> Any:
    """Parse JSON *text* that `parse_json` accepts."""
    return _EXACT_DECODER.decode(text if isinstance(text, str) else text.decode())


def exact(number: Decimal) -> float | Decimal:
    """Return the float that has all digits of *number*, or *number* itself where there is none."""
    near = float(number)
    return near if Decimal(repr(near)) == number else number


def canonical_json(value: Any) -> str:
    """Return the one text of a JSON value: its members sorted, its numbers by their exact value.

    An integer stays apart from the same number with a fraction, as a tool can tell 1 from 1.0.
    """
    return _CANONICAL_ENCODER.encode(value)


def write_json(value: Any, *, indent: int | None = None) -> str:
    """Return JSON *value* as text for a person, Decimals in full."""
    return _MARKED.sub(r"\1", json.dumps(value, ensure_ascii=False, default=_in_full, indent=indent))


def _number(text: str) -> float | Decimal:
    if len(text) <= 15:  # as many digits always fit
        return float(text)
    try:
        return exact(Decimal(text))
    except InvalidOperation:  # an exponent that no Decimal has: what is accepted of these is zero
        return float(text)


def _in_full(number: Decimal) -> str:
    # It was sent with a fraction or an exponent: read again, it must not become an integer.
    text = str(number)
    return f"{_MARK}{text}" if {".", "E"} & {*text} else f"{_MARK}{text}.0"


def _canonical(number: Decimal) -> str:
    # Not `normalize`, which rounds to the precision of the context.
    sign, digits, exponent = number.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    significant = text.rstrip("0")
    return f"{_MARK}{'-' if sign else ''}{significant}E{int(exponent) + len(text) - len(significant)}"


# The functions of `json` make one at each call where they are given options.
_EXACT_DECODER = json.JSONDecoder(parse_float=_number)
_CANONICAL_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_canonical)
