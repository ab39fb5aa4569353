"""Sends the request of an operation, and reads the answer: within the guard, with credentials for this host only."""

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urljoin, urlsplit

import pydantic_core

from ...core import Audio, Context, File, Image, Result, RetryAdvice, ToolError
from ...machinery import PerLoop, in_thread_if_long
from .operations import Operation, kind_of
from .request import Prepared, prepare
from .security import Applied, apply

if TYPE_CHECKING:
    import httpx2

_MAX_REDIRECTS = 5
_REQUEST_TIMEOUT_S = 3600.0
"""Of a request whose call has no deadline, in seconds."""
_SAFE = ("GET", "HEAD", "OPTIONS", "QUERY")


def http_client(hosts: Sequence[str], allow: Sequence[str]) -> "httpx2.AsyncClient":
    """Return a client that reaches *hosts*, and those of them that are private where *allow* has them."""
    from ...net import client

    return client(
        hosts=hosts,
        allow=allow,
        timeout_s=_REQUEST_TIMEOUT_S,
        # What one caller's response sets is not sent with the next caller's request.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        headers={"user-agent": "toolcrib"},
    )


async def call(
    operation: Operation,
    applied: Sequence[Applied],
    clients: "PerLoop[httpx2.AsyncClient]",
    arguments: Mapping[str, Any],
    context: Context,
) -> Any:
    """Return the value of *operation* with *arguments*. Raises ToolError."""
    request = prepare(operation, arguments)
    own = set(request.query)
    for scheme in applied:
        apply(scheme, context.credentials.get(scheme.provider), operation.server, request)
    if request.cookies:
        request.headers["cookie"] = "; ".join(f"{name}={text}" for name, text in request.cookies)
    secrets = [member for member in request.query if member not in own]
    response = await _followed(request, secrets, clients.get())
    status, content = response.status_code, response.content
    if not 200 <= status < 300:
        raise_for_status(status, response.headers, content, datetime.now(UTC))
    value = await in_thread_if_long(partial(value_of, status, response.headers, content, request.method), content)
    headers = shown_headers(response.headers, operation.headers_of(response.status_code))
    return Result(value, (), metadata={"headers": headers}) if headers else value


async def _followed(
    request: Prepared, secrets: Sequence[tuple[str, str]], client: "httpx2.AsyncClient"
) -> "httpx2.Response":
    """Return the response, after redirects to the same origin. *secrets* are the credentials in the query."""
    method, target, content = request.method, request.target(), request.content
    status = 0
    for _ in range(_MAX_REDIRECTS):
        response = await _sent(client, method, request, target, content)
        location = response.headers.get("location")
        status = response.status_code
        if location is None or status not in (301, 302, 303, 307, 308):
            return response
        try:
            parts = urlsplit(urljoin(request.origin + target, location))
        except ValueError:
            raise _not_followed("redirects to something that is not an address", status) from None
        if f"{parts.scheme}://{parts.netloc}" != request.origin:
            raise _not_followed(f"redirects to '{parts.netloc[:100]}', which is not followed", status)
        if status == 303 and method != "HEAD":
            method, content = "GET", None
        elif method not in _SAFE:
            raise _not_followed(f"redirects to another address, and a {method} is not repeated", status)
        members = [parts.query, *(f"{name}={text}" for name, text in secrets if f"{name}=" not in parts.query)]
        query = "&".join(filter(None, members))
        target = (parts.path or "/") + (f"?{query}" if query else "")
        if not (target.isascii() and target.isprintable()) or " " in target:
            break
    raise _not_followed("redirects again and again", status)


def _not_followed(why: str, status: int) -> ToolError:
    return ToolError(f"The server {why} (HTTP {status}).", "failed", retry="never")


async def _sent(
    client: "httpx2.AsyncClient", method: str, request: Prepared, target: str, content: bytes | None
) -> "httpx2.Response":
    import httpx2

    headers = {name: text for name, text in request.headers.items() if content is not None or name != "content-type"}
    # The client writes the URL to its log, so it has the origin alone: the target may have a credential in it, and is
    # sent as it was encoded here.
    outgoing = client.build_request(
        method, f"{request.origin}/", headers=headers, content=content, extensions={"target": target.encode("ascii")}
    )
    try:
        return await client.send(outgoing, follow_redirects=False)
    except ToolError:  # of the guard
        raise
    except (httpx2.ConnectError, httpx2.ConnectTimeout):
        raise ToolError("The server cannot be reached.", "unavailable") from None
    except httpx2.DecodingError:
        raise ToolError("The server's answer cannot be decompressed.", "invalid_result") from None
    except httpx2.HTTPError as error:
        if method in (*_SAFE, "PUT", "DELETE"):
            raise ToolError(f"The server did not answer ({type(error).__name__}).", "unavailable") from None
        raise ToolError(
            f"The connection ended before the answer ({type(error).__name__}), so it is not known whether the server "
            "did what was asked. Look before you call it again.",
            "lost",
        ) from None


# What a server answered, as the value of a tool or as an error

_SHOWN_CHARS = 1000
# Python has others, of which some take very long.
_CHARSET = re.compile(r"utf-(8|16|32)(le|be)?|us-ascii|(iso-8859|windows|cp|koi8|euc|shift|gb|big)[a-z0-9_-]{1,12}")
_TEXT_TYPE = re.compile(r"text/.*|.*([/+](xml|yaml)|/x-ndjson|/jsonl)")
_MAX_WAIT_S = 24 * 3600.0
# Where an answer brings a credential: `X-Subject-Token` is Keystone's. The tokens of pages are for the next request.
_SECRET = re.compile(
    r"auth|cookie|secret|passw|session|credential|jwt|[cx]srf|signature|api-?key|access-?key"
    r"|(?<!page)(?<!page-)(?<!next-)(?<!continuation-)token"
)

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
        return shown_headers(headers, {*map(str.lower, headers)})
    if not content:
        return None
    kind = _field("content-type", headers)
    if not kind["content-type"].strip():
        return _untyped(content)
    media_type = kind.get_content_type()
    if kind_of(media_type) == "json":
        try:
            return pydantic_core.from_json(content.removeprefix(b"\xef\xbb\xbf"), allow_inf_nan=False)
        except ValueError:
            reason = "The server's answer is labelled as JSON, but is not valid JSON."
            raise ToolError(reason, "invalid_result") from None
    if media_type.startswith("image/") and media_type != "image/svg+xml":
        return Image(content, media_type)
    if media_type.startswith("audio/"):
        return Audio(content, media_type)
    if _TEXT_TYPE.fullmatch(media_type):
        return _text(content, kind.get_content_charset())
    return File(content, media_type, _name(headers))


def _untyped(content: bytes) -> Any:
    """Return what an answer without a content type is: JSON, else text, else bytes."""
    with suppress(ValueError):
        return pydantic_core.from_json(content.removeprefix(b"\xef\xbb\xbf"), allow_inf_nan=False)
    with suppress(UnicodeDecodeError):
        if "\0" not in (text := content.decode("utf-8-sig")):
            return text
    return File(content, "application/octet-stream")


def shown_headers(headers: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Return the *headers* of an answer with one of *names*, in lower case: of those that may be secrets, none."""
    texts = {name.lower(): text[: 2 * _SHOWN_CHARS] for name, text in headers.items()}
    return {name: text for name, text in texts.items() if name in names and not _SECRET.search(name)}


def raise_for_status(status: int, headers: Mapping[str, str], content: bytes, now: datetime) -> NoReturn:
    """Raise the ToolError that *status* is."""
    code, retry = _ERRORS.get(status, ("unavailable", None) if status >= 500 else ("failed", "never"))
    details: dict[str, Any] = {"status": status}
    wait_s = _retry_after_s(headers.get("retry-after", ""), now)
    if wait_s is not None and status in (429, 503):
        code, retry = "limited", None
        details["retry_after_s"] = wait_s
    words = _WORDS.get(status, "The server failed" if status >= 500 else "The server refused the request")
    again = f" Try again in {wait_s:g} s." if "retry_after_s" in details else ""
    text = _message(headers, content)
    raise ToolError(
        f"{words} (HTTP {status}).{again}{f' It answered: {text}' if text else ''}", code, retry=retry, details=details
    )


def _retry_after_s(text: str, now: datetime) -> float | None:
    """Return the seconds in a `Retry-After` (RFC 9110, section 10.2.3): a number of them, or a date."""
    with suppress(ValueError, OverflowError):
        if text.strip().isdecimal():
            seconds = float(text[:20])
        else:
            moment = parsedate_to_datetime(text)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            seconds = (moment - now).total_seconds()
        return round(min(max(seconds, 0.0), _MAX_WAIT_S), 3)
    return None


def _message(headers: Mapping[str, str], content: bytes) -> str:
    """Return what the server has to say, in one line, shortened."""
    kind = _field("content-type", headers)
    media_type = kind.get_content_type()
    if not (kind_of(media_type) == "json" or media_type.startswith("text/")) or media_type == "text/html":
        return ""
    text = " ".join(_text(content[: 8 * _SHOWN_CHARS], kind.get_content_charset()).split())
    text = "".join(character for character in text if character.isprintable())
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _text(content: bytes, charset: str | None) -> str:
    if charset is not None and _CHARSET.fullmatch(charset.lower()):
        with suppress(LookupError, UnicodeError):
            return content.decode(charset)
    return content.decode("utf-8", "replace")


def _field(name: str, headers: Mapping[str, str]) -> Message:
    """Return the header *name*, which `email` reads: as far as that takes no long time."""
    read = Message()
    read[name] = headers.get(name, "")[: 2 * _SHOWN_CHARS]
    return read


def _name(headers: Mapping[str, str]) -> str | None:
    """Return the name of the file, without folders."""
    name = ""
    with suppress(UnicodeError):  # some encodings of Python raise it whatever they are given
        name = _field("content-disposition", headers).get_filename("")
    name = "".join(char for char in name.replace("\\", "/").rpartition("/")[2] if char.isprintable())[:200]
    return name if name.strip(". ") else None
