"""The message of a validator, which its author wrote, with the values of the call removed from it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic_core.core_schema import ErrorType

_QUOTING = {
    "uuid_parsing": "expected a valid UUID",
    "timezone_offset": "expected another timezone offset",
    "zoneinfo_str": "expected a valid timezone name",
    "import_error": "expected something that can be imported",
    "union_tag_invalid": "expected one of the known tags",
    "url_parsing": "expected a valid URL",
}
"""pydantic's errors whose own messages quote the value."""


def validator_message(error: Mapping[str, Any], value: Any, arguments: Any) -> str:
    """The message of *error* of pydantic over *value*, to stand in a sentence, with no value of *arguments* in it."""
    if (own := _QUOTING.get(error["type"])) is not None:
        return own
    if type(error.get("ctx", {}).get("error")).__module__ == "ipaddress":
        return "expected a valid IP address or network"
    message = " ".join(str(error["msg"]).removeprefix("Value error,").removeprefix("Assertion failed,").split())
    # pydantic's own messages list what it expects, which may be a value elsewhere.
    others = () if error["type"] in _KNOWN_TYPES else _scalars(arguments)
    message = _without_values(message, [*_scalars(value), *others])
    message = message[:_LONGEST].rstrip(".") or "refused"
    for beginning, better in _BEGINNINGS.items():
        message = re.sub(f"^{beginning}", better, message)
    return message if message[1:2].isupper() else f"{message[:1].lower()}{message[1:]}"


_LONGEST = 500
_BEGINNINGS = {
    "Input should be in ": "expected text in ",
    "Input should be ": "expected ",
    "Input should have ": "expected it to have ",
}


_KNOWN_TYPES = frozenset(get_args(ErrorType)) - {"value_error", "assertion_error"}
"""The types of pydantic's own errors."""


def _scalars(value: Any) -> Iterator[Any]:
    """The texts and numbers in *value*, at any depth: the first of them, if there are very many."""
    left, most = [value], _SCALARS
    while left and most:
        value = left.pop()
        most -= 1
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
        elif isinstance(value, str | float) or (type(value) is int and value.bit_length() < 1000):
            yield value


def _without_values(message: str, values: Sequence[Any]) -> str:
    """*message* with what it has of *values* replaced by "…".

    Where an author quotes only a part of a long text, that part is found by its length.
    """
    message = message[:_LONGEST]
    texts = [" ".join(value.split()) for value in values if isinstance(value, str)]
    whole = "\n".join(texts)[:_SEARCHED]
    kept, at = "", 0
    while at < len(message):
        size = _PART
        if at + size <= len(message) and message[at : at + size] in whole:
            while at + size < len(message) and message[at : at + size + 1] in whole:
                size += 1
            kept, at = f"{kept}…", at + size
        else:
            kept, at = kept + message[at], at + 1
    numbers = {
        form for value in values if not isinstance(value, str) for form in (str(value), f"{value:,}", f"{value:g}")
    }
    short = {text for text in texts if 0 < len(text) <= _LONGEST}
    for text in sorted(short | {number for number in numbers if len(number) > 1}, key=len, reverse=True):
        if text not in kept:
            continue
        # As a word by itself only where it is long enough to be no word of the sentence.
        is_word = len(text) >= 4 or text in numbers or not text.isalpha()
        bare = rf"|(?<![\w.]){re.escape(text)}(?![\w]|\.\w)" if is_word else ""
        kept = re.sub(rf"(?<=['\"]){re.escape(text)}(?=['\"]){bare}", "…", kept)
    return kept


_SCALARS = 500
_SEARCHED = 5000
_PART = 12
