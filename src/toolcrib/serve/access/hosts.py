"""Which names a request may be for, and which web pages may send it: DNS rebinding.

A web page can have its own name lead to this computer. Its requests then name it in `Host`, or come from another
`Origin`.
"""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

from ..wire import header

if TYPE_CHECKING:
    from starlette.responses import Response

LOOPBACK = ("127.0.0.1:*", "localhost:*", "[::1]:*")


class Hosts:
    """The names by which clients reach a server, as in `Host`: loopback, and *allowed*. `:*` stands for any port."""

    def __init__(self, allowed: Sequence[str] = ()) -> None:
        names = [name.lower() for name in (*LOOPBACK, *allowed)]
        self._exact = frozenset(names)
        self._any_port = frozenset(name.removesuffix(":*") for name in names if name.endswith(":*"))

    def refusal(self, scope: Scope) -> "Response | None":
        """Return the answer to a request that is for another name, or from a page of another one.

        None for any other.
        """
        if not self._has(header(scope, b"host")):
            return _problem(
                421,
                "Invalid Host header",
                "This server is not reached by that name. Its names are those of loopback, and 'allowed_hosts'.",
            )
        for name, value in scope["headers"]:
            if name == b"origin" and value:
                scheme, _, host = value.decode("latin-1").partition("://")
                if scheme not in ("http", "https") or not self._has(host):
                    return _problem(403, "Invalid Origin header", "Web pages of other origins may not use this server.")
        return None

    def _has(self, host: str) -> bool:
        host = host.lower()
        if host in self._exact:
            return True
        name, colon, port = host.rpartition(":")
        # Of an IPv6 address without a port, the last colon is inside the brackets.
        is_port = port.isdecimal() and len(port) <= 5 and int(port) < 1 << 16
        return (name if colon and is_port else host) in self._any_port


def _problem(status: int, title: str, detail: str) -> "Response":
    from ..problems import problem  # here: over stdio there are neither hosts nor answers of HTTP

    return problem(status, title, detail)


class Guarded:
    """*app*, for requests by names of this computer alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._hosts = Hosts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None if scope["type"] == "lifespan" else self._hosts.refusal(scope)
        await (self._app(scope, receive, send) if refusal is None else refuse(refusal, scope, receive, send))


async def refuse(answer: "Response", scope: Scope, receive: Receive, send: Send) -> None:
    """Send *answer*, or to a WebSocket, which has none before it is accepted, the end of it (RFC 6455, 7.4.1)."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    else:
        await answer(scope, receive, send)


@lru_cache(maxsize=256)  # each request asks it of an address
def is_loopback(host: str) -> bool:
    address = address_of(host)
    return host == "localhost" if address is None else address.is_loopback


def address_of(text: str) -> IPv4Address | IPv6Address | None:
    """Return the address that *text* is; None where it is none. A socket for both kinds has IPv4 as a kind of IPv6."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
