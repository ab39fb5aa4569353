"""Where secrets are redacted: in the strings, names and numbers of a value, never in its JSON text.

So what is redacted is as valid as it was. Where no secret is found nothing is done, and the same object is returned.
"""

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from ..core import Content, Data, File, Redaction, Text

MIN_SECRET_CHARS = 4
"""A shorter text would be found in ordinary words, so it cannot be redacted."""

_STRING, _OTHER = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', r'[^\s"{}\[\],:]++'
_TOKEN = re.compile(f"({_STRING})|{_OTHER}", re.DOTALL)
"""A string of JSON; a number, or whatever else."""
_PASSAGES = [re.compile(rf"(?:{_STRING}|{_OTHER}|[\s{{}}\[\],:]){{1,{size}}}+", re.DOTALL) for size in (1024, 32)]
"""So many tokens, and what is between them: where a passage has no secret, its tokens are not looked at one by one."""


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

    def token(match: re.Match[str]) -> str:
        value = match[0] if match[1] is None else _unquoted(match[1])
        if (clean := redact(value)) == value:
            return match[0]
        return json.dumps(clean, ensure_ascii="\\u" in match[0])

    def passage(match: re.Match[str], level: int = 0) -> str:
        if redact(text := match[0]) == text:
            return text
        return _TOKEN.sub(token, text) if level else _PASSAGES[1].sub(partial(passage, level=1), text)

    result = _PASSAGES[0].sub(passage, text)
    clean = redact(result)
    return result if clean == result else json.dumps(clean)


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
    clean = redacted_json(text, redaction)
    return value if clean is text else json.loads(clean)


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
