"""JSON text from outside: read within bounds, or refused with the place and the reason.

What is refused here: text that is no JSON, too long or too deep, NaN and infinities, one key twice in an object (two
readers would see two different calls), numbers beyond any bound, lone surrogates.
"""

import json
import math
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
        raise BadText(_reason(str(error))) from None
    if b"e" in data or b"E" in data or len(data) > 300:
        _refuse_infinities(value)
    return value


def lossy_numbers(text: str | bytes) -> frozenset[float]:
    """The numbers in *text* (JSON that `read` accepts) that would be spelled differently when written again.

    `1.50` is one: as text it would become `1.5`.
    """
    lossy: set[float] = set()

    def note(kind: type[float] | type[int]) -> Any:
        def parse(spelled: str) -> float:
            number = kind(spelled)
            if repr(number) != spelled:
                lossy.add(number)
            return number

        return parse

    json.loads(text, parse_float=note(float), parse_int=note(int))
    return frozenset(lossy)


def _encoded(text: str | bytes) -> bytes:
    if isinstance(text, bytes):
        return text
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadText(f"a lone surrogate (half of a character) at character {error.start + 1}") from None


def _reason(said: str) -> str:
    lowered = said.lower()
    if "duplicate key" in lowered:
        return said[0].lower() + said[1:]
    if "recursion limit" in lowered:
        return f"nested too deeply ({said})"
    if "hex escape" in lowered or "surrogate" in lowered:
        return f"a broken or lone \\u escape ({said})"
    if "number out of range" in lowered:
        return f"a number with too many digits ({said})"
    return said


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
