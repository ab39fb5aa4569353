"""What a server answered, as the value of a tool or as an error. This file does no I/O."""

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn

import pydantic_core

from ...core import Audio, File, Image, RetryAdvice, ToolError
from .operations import is_json

_SHOWN_CHARS = 1000
_MAX_HEADER = 2000
# Python has others, of which some take very long.
_CHARSET = re.compile(r"utf-(8|16|32)(le|be)?|us-ascii|(iso-8859|windows|cp|koi8|euc|shift|gb|big)[a-z0-9_-]{1,12}")
_MAX_WAIT_S = 24 * 3600.0

_ERRORS: Mapping[int, tuple[str, RetryAdvice | None]] = {
    400: ("invalid_arguments", None),
    401: ("unauthorized", None),
    403: ("denied", None),
    404: ("failed", "changed"),
    405: ("failed", "never"),
    408: ("timeout", None),
    409: ("conflict", None),
    410: ("failed", "never"),
    412: ("conflict", None),
    413: ("too_large", None),
    422: ("invalid_arguments", None),
    429: ("limited", None),
    501: ("failed", "never"),
    504: ("timeout", None),
}
"""By status, the code of the error, and whether to call again where the code does not say."""

_WORDS: Mapping[int, str] = {
    401: "The server does not accept the credentials, or there are none",
    403: "The server does not allow this",
    404: "The server has nothing there",
    429: "The server was asked too often",
}


def value_of(status: int, headers: Mapping[str, str], content: bytes, method: str) -> Any:
    """Return what a successful response brought: JSON as its value, text, or an image, sound or file."""
    if method == "HEAD":
        return {name: text for name, text in headers.items() if name.lower() != "set-cookie"}
    if not content:
        return None
    kind = _field("content-type", headers, "application/octet-stream")
    media_type = kind.get_content_type()
    if is_json(media_type):
        try:
            return pydantic_core.from_json(content.removeprefix(b"\xef\xbb\xbf"), allow_inf_nan=False)
        except ValueError:
            reason = "The server's answer is labelled as JSON, but is not valid JSON."
            raise ToolError(reason, "invalid_result") from None
    if media_type.startswith("image/") and media_type != "image/svg+xml":
        return Image(content, media_type)
    if media_type.startswith("audio/"):
        return Audio(content, media_type)
    if (
        media_type.startswith("text/")
        or media_type in ("application/xml", "application/yaml", "image/svg+xml")
        or (media_type.endswith(("+xml", "+yaml")) or media_type in ("application/x-ndjson", "application/jsonl"))
    ):
        return _text(content, kind.get_content_charset())
    return File(content, media_type, _name(headers))


def raise_for_status(status: int, headers: Mapping[str, str], content: bytes, now: datetime) -> NoReturn:
    """Raise the ToolError that *status* is."""
    code, retry = _ERRORS.get(status, ("unavailable", None) if status >= 500 else ("failed", "never"))
    details: dict[str, Any] = {"status": status}
    wait_s = _retry_after_s(headers.get("retry-after"), now)
    if wait_s is not None and status in (429, 503):
        code, retry = "limited", None
        details["retry_after_s"] = wait_s
    words = _WORDS.get(status, "The server failed" if status >= 500 else "The server refused the request")
    again = f" Try again in {wait_s:g} s." if "retry_after_s" in details else ""
    text = _message(headers, content)
    raise ToolError(
        f"{words} (HTTP {status}).{again}{f' It answered: {text}' if text else ''}", code, retry=retry, details=details
    )


def _retry_after_s(text: str | None, now: datetime) -> float | None:
    """Return the seconds in a `Retry-After` (RFC 9110, section 10.2.3): a number of them, or a date."""
    if text is None:
        return None
    seconds: float | None = None
    with suppress(ValueError, OverflowError):
        if text.strip().isdecimal():
            seconds = float(text[:20])
        else:
            moment = parsedate_to_datetime(text)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            seconds = (moment - now).total_seconds()
    return None if seconds is None else round(min(max(seconds, 0.0), _MAX_WAIT_S), 3)


def _message(headers: Mapping[str, str], content: bytes) -> str:
    """Return what the server has to say, in one line, shortened."""
    kind = _field("content-type", headers)
    if not content or not (is_json(kind.get_content_type()) or kind.get_content_maintype() == "text"):
        return ""
    if kind.get_content_type() == "text/html":
        return ""
    text = " ".join(_text(content[: 8 * _SHOWN_CHARS], kind.get_content_charset()).split())
    text = "".join(character for character in text if character.isprintable())
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _text(content: bytes, charset: str | None) -> str:
    if charset is not None and _CHARSET.fullmatch(charset.lower()):
        with suppress(LookupError, UnicodeError):
            return content.decode(charset)
    return content.decode("utf-8", "replace")


def _field(name: str, headers: Mapping[str, str], default: str = "") -> Message:
    """Return the header *name*, which `email` reads: as far as that takes no long time."""
    read = Message()
    read[name] = headers.get(name, default)[:_MAX_HEADER]
    return read


def _name(headers: Mapping[str, str]) -> str | None:
    """Return the name of the file, without folders."""
    name = None
    with suppress(UnicodeError):  # some encodings of Python raise it whatever they are given
        name = _field("content-disposition", headers).get_filename()
    if name is None:
        return None
    name = "".join(char for char in name.replace("\\", "/").rpartition("/")[2] if char.isprintable())[:200]
    return name if name.strip(". ") else None
