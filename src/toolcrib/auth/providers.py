"""What a broker knows of providers: the tables of its catalogue, servers that it finds out, and its clients there.

And what a tool requires, by its provider's table: whose grant that is, its scopes, and the credential of a grant.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import httpx2

from ..core import Caller, Credential, SetupError, ToolAuth, ToolcribError, ToolError
from ..net import client
from ..schema import closest_match, did_you_mean, display_name
from .catalogue import (
    Basic,
    Client,
    Handler,
    HandlerName,
    Key,
    KeyPair,
    OAuth2,
    Provider,
    absent_settings,
    callback_segment,
    filled,
)
from .flows import Flow
from .grant import Grant, Owner
from .servers import PREFIX, Servers
from .vault import Vault

OPERATOR = ""
"""The principal of what the operator gave for all callers. No caller has it."""


@dataclass(frozen=True, slots=True)
class Needed:
    """One requirement, resolved: *provider*, the *handler* of it, and the scopes that are asked for.

    *is_of_program* says that the token is the program's own, and no person is asked for it; *idp* is the provider that
    grants it for a person who has logged in there.
    """

    provider: str
    handler_name: HandlerName
    entry: Provider
    handler: Handler
    scopes: tuple[str, ...]
    is_of_program: bool = False
    idp: str | None = None

    @property
    def needs_no_person(self) -> bool:
        return self.is_of_program or self.idp is not None

    def owner(self, caller: Caller) -> Owner:
        if self.is_of_program:
            return Owner(OPERATOR, "default", self.provider, self.handler_name)
        return Owner.of(caller, self.provider, self.handler_name)

    def fits(self, grant: Grant) -> bool:
        """Return whether *grant* was given where this one would be, and for the same resource.

        A server may have changed who gives access to it, or what it says that it is.
        """
        handler = self.handler
        if not isinstance(handler, OAuth2) or handler.resource is None:
            return True
        detail = grant.detail
        return (detail.get("issuer"), detail.get("resource")) == (handler.issuer, handler.resource)

    def credential(self, grant: Grant, parameters: Mapping[str, str], allow: Sequence[str]) -> Credential:
        """Return what a tool is given of *grant*.

        *parameters* are those of the client, which fill templates of hosts.
        """
        handler = self.handler
        common: dict[str, Any] = {
            "expires_at": grant.expires_at,
            "detail": grant.detail,
            "hosts": self._hosts(parameters, grant),
            "allow": allow,
        }
        match handler:
            case Key():
                kind = "bearer" if handler.prefix == "Bearer " else "key"
                common |= {"header": handler.header, "prefix": handler.prefix}
                return Credential(self.provider, grant.access_token, kind, **common)
            case Basic():
                return Credential(self.provider, grant.access_token, "basic", prefix="Basic ", **common)
            case KeyPair():
                return Credential(self.provider, grant.access_token, "keypair", expires_at=grant.expires_at)
            case OAuth2():
                return Credential(self.provider, grant.access_token, "bearer", tuple(grant.scopes), **common)

    def _hosts(self, parameters: Mapping[str, str], grant: Grant) -> tuple[str, ...]:
        hosts: list[str] = []
        for template in self.entry.hosts:
            host = template
            if "{" in template:  # what is filled in may be a URL, and adds no wildcard
                try:
                    host = filled(template, parameters, grant.detail)
                except ToolcribError:  # without that setting, no host of this form is the provider's
                    continue
                host = urlsplit(host).netloc if "://" in host else host
                if not host or {"/", "@"} & {*host} or host.count("*") > template.count("*"):
                    continue
            hosts.append(host)
        return tuple(hosts)


def secret_owner(principal: str, profile: str, name: str) -> Owner:
    """Return whose row a named secret is."""
    return Owner(principal, profile, name, "secret")


def came_to(path: str, redirect_uri: str) -> bool:
    """Return whether *path* is that of *redirect_uri*, or its end, where a proxy takes the beginning away."""
    return path.startswith("/") and unquote(urlsplit(redirect_uri).path).endswith(unquote(path))


class Providers:
    """The providers of a broker, by its catalogue, and its *clients* there. Servers, `mcp:URL`, are found out once."""

    def __init__(
        self,
        catalogue: Mapping[str, Provider],
        clients: Mapping[str, Client],
        *,
        vault: Vault,
        redirect_uri: str | None,
        client_document_url: str | None,
        allow: Iterable[str],
        clock: Callable[[], datetime],
    ) -> None:
        self.providers = catalogue
        self.vault = vault
        self.redirect_uri = redirect_uri
        self.client_document_url = client_document_url
        self._configured = clients
        self._clients = dict(clients)
        self._servers: dict[str, Provider] = {}
        self._clock = clock
        self._allow = tuple(allow)
        self._resolved: dict[ToolAuth, Needed] = {}
        self._discovered: dict[str, OAuth2] = {}
        self._finder = Servers(self._http_near, vault, self._pages)
        for name, at in clients.items():
            if not name.startswith(PREFIX):
                self._entry(name)
                continue
            at.require_server(name)
            if at.idp and not ((oauth2 := self._entry(at.idp).oauth2) and oauth2.id_token):
                raise SetupError(f"'{at.idp}' gives no ID tokens: write id_token = true in its [{at.idp}.oauth2].")
        own = {name: client.redirect_uri for name, client in clients.items() if client.redirect_uri}
        for name in own:
            self._require_own_address(name, own)

    def _require_own_address(self, name: str, addresses: Mapping[str, str]) -> None:
        """Raise SetupError where the redirect address of *name* is also that of another one."""
        address = addresses[name]
        segment = urlsplit(address).path.rpartition("/")[2]
        others = {other for other, uri in addresses.items() if came_to(urlsplit(uri).path, address)}
        if wrong := sorted((others | {segment} & self.providers.keys()) - {name}):
            raise SetupError(
                f"'{name}' and '{wrong[0]}' would send people back to one address, by which they could not be told "
                f"apart (RFC 9700, 4.4): give 'redirect_uri' in [auth.{name}] another path, or leave it out."
            )

    def redirect_uri_of(self, name: str, *, base: str | None = None) -> str | None:
        """Return where *name* sends people back to: an address of its own (RFC 9700, 4.4.2.2). None where none is set.

        A server that sends a code to another one's address gives itself away. *base* is in place of `redirect_uri`.
        """
        client = self._configured.get(name)
        if client is not None and client.redirect_uri:
            return client.redirect_uri if base is None else urljoin(base, urlsplit(client.redirect_uri).path)
        base = base or self.redirect_uri
        return None if base is None else f"{base.rstrip('/')}/{callback_segment(name)}"

    def _pages(self, name: str) -> tuple[str | None, str | None]:
        """Return the addresses of this program for the server *name*: of its callback, and of its client document."""
        document_url = self.client_document_url
        if document_url is not None:
            document_url = document_url.replace("{provider}", callback_segment(name))
        return self.redirect_uri_of(name), document_url

    async def discover(self, provider: str) -> None:
        """Find out how access to the server *provider* is given, where that is `mcp:URL`. Raises ToolError."""
        if not provider.startswith(PREFIX) or provider in self._servers:
            return
        server = await self._finder.find(provider, self._configured.get(provider, Client("")))
        self._servers[provider], self._clients[provider] = server

    def _forget(self, name: str) -> None:
        """Find out again what the server *name* is, before it is used again."""
        if self._servers.pop(name, None) is not None:
            self._resolved = {required: of for required, of in self._resolved.items() if required.provider != name}

    def needed(self, required: ToolAuth, tool: str) -> Needed:
        """Return *required* by its provider's table. Raises ToolError `unauthorized` naming what is missing."""
        if (names := self._resolved.get(required)) is not None:
            return names
        try:
            entry = self._entry(required.provider)
            name, handler = entry.handler(required.handler)
        except SetupError as error:
            raise ToolError(f"Tool '{tool}' needs credentials that cannot be had: {error}", "unauthorized") from None
        except LookupError as names:
            raise ToolError(
                f"'{required.provider}' has no handler '{display_name(required.handler or '')}'. It has: {names}.",
                "unauthorized",
            ) from None
        if required.scopes and not (isinstance(handler, OAuth2) and handler.scoped):
            raise ToolError(f"'{required.provider}' has no scopes with its handler '{name}'.", "unauthorized")
        is_of_program = isinstance(handler, OAuth2) and handler.grant == "client_credentials"
        configured = self._configured.get(required.provider, Client(""))
        idp = configured.idp if configured.grant == "identity_assertion" else None
        need = Needed(required.provider, name, entry, handler, tuple(required.scopes), is_of_program, idp)
        self._resolved[required] = need
        return need

    def missing(self, name: str) -> list[str]:
        """Return the settings without which *name* cannot be used: keys of its table `[auth.NAME]`."""
        entry = self._entry(name)
        if entry.oauth2 is None or (entry.default or "oauth2") != "oauth2":
            return []
        return absent_settings(entry, entry.oauth2, self._clients.get(name))

    def to_register(self, name: str) -> str:
        """Return a sentence with the address to register at *name*; nothing where there is none."""
        address = self.redirect_uri_of(name)
        return "" if address is None else f" Register {address} as the redirect address at '{name}'."

    def flow(self, need: Needed) -> Flow:
        """Return the OAuth requests for *need*.

        Raises ToolError `unauthorized`, naming the settings that are missing.
        """
        assert isinstance(need.handler, OAuth2)
        client = self._clients.get(need.provider)
        absent = absent_settings(need.entry, need.handler, client)
        if client is None or absent not in ([], ["client_secret"]):  # a public client has no secret
            raise ToolError(
                f"'{need.provider}' is not configured: [auth.{need.provider}] in the settings needs "
                f"{' and '.join(absent)}.{self.to_register(need.provider)}",
                "unauthorized",
            )
        return Flow(
            need.provider, need.handler, client, self._http_of(need.provider), self._discovered, clock=self._clock
        )

    def _http_of(self, name: str) -> Callable[[], httpx2.AsyncClient]:
        near = name.removeprefix(PREFIX) if name.startswith(PREFIX) else None
        return partial(self._http_near, near)

    def _http_near(self, url: str | None) -> httpx2.AsyncClient:
        """Return a guarded client; it may also reach the host of *url*, which the operator has named."""
        also = () if url is None else (httpx2.URL(url).host,)
        return client(allow=(*self._allow, *also), timeout_s=20.0, max_bytes=1024 * 1024)

    def _entry(self, name: str) -> Provider:
        if (entry := self._servers.get(name) or self.providers.get(name)) is None:
            hint = did_you_mean(closest_match(name, self.providers))
            raise SetupError(
                f"There is no provider '{display_name(name)}'.{hint} `toolcrib auth providers` lists them."
            )
        return entry
