"""Sends the request of an operation, and reads the answer: within the guard, with credentials for this host only."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from ...core import Context, ToolError
from .operations import Operation
from .request import Prepared, prepare
from .response import raise_for_status, value_of
from .security import Applied, apply

if TYPE_CHECKING:
    import httpx2

_MAX_BYTES = 10 * 1024**2
"""How much a response may have."""
_MAX_REDIRECTS = 5
_REQUEST_TIMEOUT_S = 3600.0
"""How long a request may take where its call has no deadline."""
_SAFE = ("GET", "HEAD", "OPTIONS", "QUERY")


class Client:
    """A client of the running loop: it reaches *hosts*, and those of them that are private where *allow* has them."""

    def __init__(self, hosts: Sequence[str], allow: Sequence[str]) -> None:
        self._hosts = hosts
        self._allow = allow
        self._open: tuple[asyncio.AbstractEventLoop, httpx2.AsyncClient] | None = None

    def get(self) -> "httpx2.AsyncClient":
        loop = asyncio.get_running_loop()
        if self._open is None or self._open[0] is not loop:
            from ...net import client

            opened = client(
                hosts=self._hosts,
                allow=self._allow,
                max_bytes=_MAX_BYTES,
                timeout_s=_REQUEST_TIMEOUT_S,
                # What one caller's response sets is not sent with the next caller's request.
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                headers={"user-agent": "toolcrib"},
            )
            self._open = (loop, opened)
        return self._open[1]

    async def close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None and opened[0] is asyncio.get_running_loop():
            await opened[1].aclose()


async def call(
    operation: Operation,
    applied: Sequence[Applied],
    client: Client,
    arguments: Mapping[str, Any],
    context: Context,
) -> Any:
    """Return the value of *operation* with *arguments*. Raises ToolError."""
    request = prepare(operation, arguments)
    own = set(request.query)
    for scheme in applied:
        credential = context.credentials.get(scheme.provider)
        apply(scheme, credential, operation.server, request.headers, request.query, request.cookies)
    if request.cookies:
        request.headers["cookie"] = "; ".join(f"{name}={text}" for name, text in request.cookies)
    secrets = [member for member in request.query if member not in own]
    response = await _followed(request, secrets, client.get())
    if not 200 <= response.status_code < 300:
        raise_for_status(response.status_code, response.headers, response.content, datetime.now(UTC))
    return value_of(response.status_code, response.headers, response.content, request.method)


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

    headers = request.headers if content is not None else {**request.headers}
    if content is None:
        headers.pop("content-type", None)
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
