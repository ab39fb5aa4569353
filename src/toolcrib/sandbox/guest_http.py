"""HTTP requests of a guest: to the hosts that it was granted, through the guarded client, within limits.

Runs in the worker process, which is ended at the deadline of the call with whatever is under way. So what a hostile
server sends is read there, and not in the host.
"""

import asyncio
import base64
import json
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from ..core import SetupError, ToolError

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

MAX_BYTES = 8 * 1024**2
"""How much a request may have, and a response, which is read whole."""
_TIMEOUT_S = 30.0
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# What says where a request goes or how long it is: a server that has several hosts would give the one that is named.
_RESERVED_HEADERS = frozenset(
    ["host", "connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"]
)


class RequestRefused(Exception):
    """A request that has no response, for the reason in its text, which is one line."""


class _Request(BaseModel):
    """A request as in `python/guest.wit`."""

    model_config = ConfigDict(val_json_bytes="base64", coerce_numbers_to_str=True)

    url: str
    method: str | None = None
    headers: list[tuple[str, str]] | None = None
    body: bytes | None = None
    timeout_s: float | None = None


class GuestHttp:
    """The requests of one call, for a guest that may reach *hosts*, and of those that are not public the *allow*.

    *run* runs a coroutine on the event loop of the call, from another thread.
    """

    def __init__(
        self, hosts: Sequence[str], allow: Sequence[str], run: Callable[[Coroutine[Any, Any, str]], str]
    ) -> None:
        self._hosts = hosts
        self._allow = allow
        self._run = run
        self._client: AsyncClient | None = None

    def fetch(self, request: str) -> str:
        """Send *request*, as in `python/guest.wit`, and wait for the response. Raises RequestRefused.

        From any thread but that of the loop.
        """
        if not self._hosts:
            raise RequestRefused("This tool may not send requests: its tool.toml lists no 'hosts'.")
        fields = _read(request)
        try:
            return self._run(self._sent(**fields))
        except RequestRefused:
            raise
        except (SetupError, ToolError) as error:  # of the guard
            raise RequestRefused(str(error)) from None
        except Exception as error:
            raise RequestRefused(f"The request failed: {type(error).__name__}.") from None

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _sent(self, method: str, url: str, headers: Any, content: bytes | None, timeout_s: float) -> str:
        if self._client is None:
            from ..net import client

            self._client = client(hosts=self._hosts, allow=self._allow, max_bytes=MAX_BYTES)
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._client.request(
                    method, url, headers=headers, content=content, follow_redirects=True
                )
        except TimeoutError:
            raise RequestRefused(f"The server did not answer within {timeout_s:g} s.") from None
        return _written(response)


def _read(request: str) -> dict[str, Any]:
    if len(request) > 2 * MAX_BYTES:
        raise RequestRefused(f"The request has more than {MAX_BYTES} bytes.")
    try:
        fields = _Request.model_validate_json(request)
    except ValueError:
        raise RequestRefused("A request must be a JSON object with a 'url'.") from None
    method = fields.method or "GET"
    if method not in _METHODS:
        raise RequestRefused(f"A request has one of the methods {', '.join(_METHODS)}.")
    for name, value in fields.headers or ():
        _require_harmless(name, value)
    if fields.body is not None and len(fields.body) > MAX_BYTES:
        raise RequestRefused(f"The request has more than {MAX_BYTES} bytes.")
    timeout_s = min(_TIMEOUT_S if fields.timeout_s is None else fields.timeout_s, _TIMEOUT_S)
    return {**fields.model_dump(include={"url", "headers"}), "method": method, "content": fields.body} | {
        "timeout_s": max(timeout_s, 0.0)
    }


def _require_harmless(name: str, value: str) -> None:
    is_reserved = name.lower() in _RESERVED_HEADERS or name.lower().startswith("proxy-")
    if is_reserved or not {*"\r\n\0"}.isdisjoint(name + value):
        raise RequestRefused(f"A request may not set the header {name[:40]!a}.")


def _written(response: "Response") -> str:
    return json.dumps(
        {
            "url": str(response.url),
            "status": response.status_code,
            "headers": [[name.lower(), value] for name, value in response.headers.multi_items()],
            "body": base64.b64encode(response.content).decode(),
        }
    )
