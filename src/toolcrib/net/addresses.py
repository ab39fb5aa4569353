"""Which URLs and addresses may be reached. This file opens no connection."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Literal

from httpx2 import URL, InvalidURL, TransportError

from ..core import SetupError, ToolError

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a name, for a port. Raises OSError where it has none."""

_PORTS = {"https": 443, "http": 80}
_UNICAST = IPv6Network("2000::/3")
# Teredo and 6to4 lead to IPv4 addresses inside them, 3fff::/20 is documentation (RFC 9637).
_INDIRECT = [IPv6Network(network) for network in ("2001::/32", "2002::/16", "3fff::/20")]
# Of the IETF's protocols (RFC 6890), and relays of 6to4 (RFC 7526): some versions of Python take them for public.
_SPECIAL = [IPv4Network(network) for network in ("192.0.0.0/24", "192.88.99.0/24")]


class GuardError(ToolError, TransportError):
    """A request that was refused, or a response that was. A model reads why; for `httpx2`, it is a TransportError."""

    def __init__(self, message: str, code: Literal["denied", "timeout", "too_large"] = "denied") -> None:
        super().__init__(message, code, retry="changed" if code == "denied" else None)


class Guard:
    """What may be reached: `https` URLs of public addresses.

    With *hosts*, no others than these: names, addresses, or `*.example.com` for every name under it, each with its
    port (`example.com:8443`) if that is not 443. *allow* are names and networks (`10.0.0.0/8`) that may be reached
    though they are not public, also by `http`. *resolve* looks names up, by default as the system does.

    Raises SetupError for an entry that is neither.
    """

    def __init__(
        self, *, hosts: Iterable[str] | None = None, allow: Iterable[str] = (), resolve: Resolve | None = None
    ) -> None:
        self._hosts = None if hosts is None else [_entry(host) for host in _texts(hosts, "hosts")]
        entries = [(text, _network(text)) for text in _texts(allow, "allow")]
        self._networks = [network for _, network in entries if network is not None]
        self._names = [_entry(text)[0] for text, network in entries if network is None]
        self._resolve = resolve or _system_resolve

    def check(self, url: str | URL) -> None:
        """Raise GuardError where *url* may not be reached, whatever address its name has."""
        try:
            url = URL(url)
            host = url.raw_host.decode("ascii")
        except (InvalidURL, UnicodeError):
            raise GuardError("The URL is not valid.") from None
        if url.scheme not in _PORTS or not host:
            raise GuardError(f"A URL begins with https:// and a host, not with '{url.scheme[:20]}:'.")
        port = url.port or _PORTS[url.scheme]
        if url.userinfo:
            raise GuardError(f"A URL may not have a user name in it; this one, of '{host}', has.")
        self._require_listed(host, port)
        if _address(host) is not None:
            self._require_address(host, host, url.scheme)

    def _require_listed(self, host: str, port: int) -> None:
        hosts = [(host, port)] if self._hosts is None else self._hosts
        if not any(_matches(host, name) and port == number for name, number in hosts):
            names = ", ".join(name if number == 443 else f"{name}:{number}" for name, number in hosts)
            raise GuardError(f"'{host}', port {port}, may not be reached here. Only these may: {names or 'none'}.")

    async def addresses(self, host: str, port: int, scheme: str) -> Sequence[str]:
        """Return the addresses of *host*, all of them checked. Raises GuardError, or OSError where it has none.

        To be connected to as they are: another look-up could give others.
        """
        addresses = [host] if _address(host) is not None else list(await self._resolve(host, port))
        for address in addresses:
            self._require_address(host, address, scheme)
        return addresses

    def _require_address(self, host: str, text: str, scheme: str) -> None:
        address = _address(text)
        if any(_matches(host, name) for name in self._names):
            return
        if address is not None and any(address in network for network in self._networks):
            return
        if address is None or not _is_public(address):
            raise GuardError(
                f"'{host}' may not be reached: it does not lead to a public address. The operator can allow it."
            )
        if scheme != "https":
            raise GuardError(f"'{host}' may be reached by https only.")


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if not address.is_global or address.is_multicast or address.is_reserved:
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL)
    # Mapped and translated (NAT64) IPv4 addresses are outside of what is unicast.
    return address in _UNICAST and not any(address in network for network in _INDIRECT)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text.partition("%")[0])  # without the zone of an IPv6 address
    except ValueError:
        return None


def _network(text: str) -> Any:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


def _entry(text: str) -> tuple[str, int]:
    """Return the name and the port of an entry. The name as URLs have it: in lower case, and as IDNA."""
    wildcard, name = ("*.", text[2:]) if text.startswith("*.") else ("", text)
    if isinstance(_address(name), IPv6Address):
        name = f"[{name}]"
    try:
        url = URL(f"https://{name}")
        if not url.raw_host or url.userinfo or url.raw_path != b"/" or {*"*%"} & {*url.host}:
            raise InvalidURL(text)
    except (InvalidURL, UnicodeError):
        raise SetupError(
            f"'{text}' is not a host, such as 'example.com', '*.example.com' or 'example.com:8443'."
        ) from None
    return wildcard + url.raw_host.decode("ascii"), url.port or 443


def _matches(host: str, name: str) -> bool:
    return host.endswith(name[1:]) if name.startswith("*.") else host == name


def _texts(entries: Iterable[str], option: str) -> list[str]:
    if isinstance(entries, str):
        raise SetupError(f"'{option}' is a list of hosts, not one text.")
    return list(entries)


async def _system_resolve(host: str, port: int) -> Sequence[str]:
    entries = await asyncio.to_thread(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))
