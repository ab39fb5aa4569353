"""Text as it may be shown: known secrets redacted, and escaped what moves the cursor, forges lines or is unseen.

Secrets are redacted in the strings, names and numbers of a value, never in its JSON text: so it is as valid as it was.
Where no secret is found nothing is done, and the same object is returned.
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
    """Return *part*, secrets redacted in its text, or in the name and media type of a file, but not in its bytes."""
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


# Text from outside, for people

# Control characters except tab and line feed; marks that change the direction of text.
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
# The category Cf, fillers and blanks that are letters, variation selectors, tags, and what is ignored by default.
_UNSEEN = (
    "\u00ad\u034f\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_UNSAFE = re.compile(f"[{_CONTROLS}]")
_INVISIBLE = re.compile(f"[{_CONTROLS}{_UNSEEN}]")


def escaped(text: str, *, invisible: bool = False, as_json: bool = False) -> str:
    """Return *text* with control characters escaped, as in `\\x1b`; with *invisible*, also others that are not seen.

    JSON text remains JSON, of the same value, with *as_json*. Tabs and line feeds stay.
    """
    pattern = _INVISIBLE if invisible else _UNSAFE
    if as_json:
        return pattern.sub(lambda match: json.dumps(match[0])[1:-1], text)
    return pattern.sub(lambda match: match[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def one_line(text: str, *, invisible: bool = False) -> str:
    """Return *text*, escaped, on one line."""
    return escaped(" ".join(text.split()), invisible=invisible)
