"""JSON with exact numbers: a number with more digits than a float holds is a Decimal."""

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any

_MARK = "\ud800"
"""Stands before what is a Decimal: half of a character, which no accepted text contains."""
_MARKED = re.compile(f'"{_MARK}([^"]*)"')


def parse_exact(text: str | bytes) -> Any:
    """Parse JSON *text* that `parse_json` accepts."""
    return json.loads(text, parse_float=_number)


def exact(number: Decimal) -> float | Decimal:
    """Return the float that has all digits of *number*, or *number* itself where there is none."""
    near = float(number)
    return near if Decimal(repr(near)) == number else number


def canonical_json(value: Any) -> str:
    """Return the one text of a JSON value: its members sorted, its numbers by their exact value.

    An integer stays apart from the same number with a fraction, as a tool can tell 1 from 1.0.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_canonical)


def write_json(value: Any) -> str:
    """Return JSON *value* as text for a person, Decimals in full."""
    return _MARKED.sub(r"\1", json.dumps(value, ensure_ascii=False, default=_in_full))


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
