"""Where secrets are redacted: in the strings, names and numbers of a value, never in its JSON text.

So what is redacted is as valid as it was. Where no secret is found nothing is done, and the same object is returned.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Any

from ..core import Content, Data, File, Redaction, Text

_TOKEN = re.compile(r'("[^"\\]*+(?:\\.[^"\\]*+)*+"?)(\s*:)?|[^\s"{}\[\],:]+', re.DOTALL)
"""A string of JSON, and whether it is the name of a member; a number, or whatever else."""


def redacted(text: str, redaction: Redaction | None) -> str:
    return text if redaction is None else redaction.redact(text)


def redacted_json(text: str, redaction: Redaction | Callable[[str], str] | None) -> str:
    """Return the JSON *text* with the secrets redacted that its strings, names and numbers have: it remains valid JSON.

    A number in which there is a secret becomes a string. Where there is one beyond single values, all of it becomes one
    string. Text that is not valid JSON is redacted word by word.
    """
    if redaction is None:
        return text
    redact = redaction if callable(redaction) else redaction.redact
    if redact(text) == text:
        return text
    names = _Names(text)

    def token(match: re.Match[str]) -> str:
        string, colon = match[1], match[2]
        value = match[0] if string is None else _unquoted(string)
        shown = redact(value)
        if shown == value:
            return match[0]
        if colon is not None:
            shown = names.shown(value, shown)
        return json.dumps(shown, ensure_ascii="\\u" in match[0]) + (colon or "")

    result = _TOKEN.sub(token, text)
    shown = redact(result)
    return result if shown == result else json.dumps(shown)


class _Names:
    """The redacted names of members: two names that differ still do, and none is that of another member."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._shown: dict[str, str] = {}
        self._numbers: Counter[str] = Counter()

    def shown(self, name: str, redacted: str) -> str:
        if name not in self._shown:
            shown = redacted
            while shown in self._taken:
                self._numbers[redacted] += 1
                shown = f"{redacted} {self._numbers[redacted] + 1}"
            self._taken.add(shown)
            self._shown[name] = shown
        return self._shown[name]

    @cached_property
    def _taken(self) -> set[str]:
        return {_unquoted(match[1]) for match in _TOKEN.finditer(self._text) if match[2] is not None}


def _unquoted(string: str) -> str:
    try:
        return str(json.loads(string, strict=False))
    except ValueError:
        return string


def redacted_data(value: Any, redaction: Redaction | Callable[[str], str] | None) -> Any:
    """Return *value*, which is JSON data, with its secrets redacted."""
    if redaction is None:
        return value
    text = json.dumps(value)
    shown = redacted_json(text, redaction)
    return value if shown is text else json.loads(shown)


def redacted_content(part: Content, redaction: Redaction | None) -> Content:
    """Return *part* with the secrets redacted in its text, or in the name and media type of a file, but not in its
    bytes.
    """
    if redaction is None:
        return part
    if isinstance(part, Text):
        text = redaction.redact(part.text)
        return part if text is part.text else Text(text)
    if isinstance(part, Data):
        text = redacted_json(part.json, redaction)
        return part if text is part.json else Data(text)
    media_type = redaction.redact(part.media_type)
    if isinstance(part, File):
        name = part.name and redaction.redact(part.name)
        return part if (media_type, name) == (part.media_type, part.name) else File(part.data, media_type, name)
    return part if media_type == part.media_type else type(part)(part.data, media_type)
