"""What a broker knows of providers: the tables of its catalogue, servers that it finds out, and its clients there."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial

import httpx2

from ..core import SetupError, ToolAuth, ToolError
from ..net import client
from ..schema.describe import closest_match, did_you_mean, display_name
from .catalogue import Client, OAuth2, Provider, absent_settings
from .flows import Flow
from .needed import Needed
from .servers import PREFIX, Servers
from .vault import Vault


class Providers:
    """The *catalogue*, and the *clients* that this program is. Servers by the name `mcp:URL` are found out once."""

    def __init__(
        self,
        catalogue: Mapping[str, Provider],
        clients: Mapping[str, Client],
        allow: Iterable[str],
        vault: Vault,
        pages: Callable[[], tuple[str | None, str | None]],
        clock: Callable[[], datetime],
    ) -> None:
        self.clients = dict(clients)
        self._configured = clients
        self._catalogue = catalogue
        self._servers: dict[str, Provider] = {}
        self._clock = clock
        self._allow = tuple(allow)
        self._resolved: dict[ToolAuth, Needed] = {}
        self._discovered: dict[str, OAuth2] = {}
        self._finder = Servers(self._http_near, vault, pages)
        for name in self.clients:
            if not name.startswith(PREFIX):
                self._entry(name)

    async def find(self, name: str) -> None:
        """Find out what the server *name* is, where it is one that is not known yet. Raises ToolError."""
        if not name.startswith(PREFIX) or name in self._servers:
            return
        server = await self._finder.find(name, self._configured.get(name))
        self._servers[name], self.clients[name] = server.provider, server.client

    def forget(self, name: str) -> None:
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
        need = Needed(required.provider, name, entry, handler, tuple(required.scopes), is_of_program)
        self._resolved[required] = need
        return need

    def missing(self, name: str) -> list[str]:
        """Return the settings without which *name* cannot be used: keys of its table `[auth.NAME]`."""
        entry = self._entry(name)
        if entry.oauth2 is None or (entry.default or "oauth2") != "oauth2":
            return []
        return absent_settings(entry, entry.oauth2, self.clients.get(name))

    def flow(self, needed: Needed) -> Flow:
        """Return the OAuth requests for *needed*.

        Raises ToolError `unauthorized`, naming the settings that are missing.
        """
        assert isinstance(needed.handler, OAuth2)
        client = self.clients.get(needed.provider)
        absent = absent_settings(needed.entry, needed.handler, client)
        if client is None or absent not in ([], ["client_secret"]):  # a public client has no secret
            raise ToolError(
                f"'{needed.provider}' is not configured: [auth.{needed.provider}] in the settings needs "
                f"{' and '.join(absent)}.",
                "unauthorized",
            )
        return Flow(
            needed.provider, needed.handler, client, self._http_of(needed.provider), self._discovered, clock=self._clock
        )

    def _http_of(self, name: str) -> Callable[[], httpx2.AsyncClient]:
        near = name.removeprefix(PREFIX) if name.startswith(PREFIX) else None
        return partial(self._http_near, near)

    def _http_near(self, url: str | None) -> httpx2.AsyncClient:
        """Return a guarded client; it may also reach the host of *url*, which the operator has named."""
        also = () if url is None else (httpx2.URL(url).host,)
        return client(allow=(*self._allow, *also), timeout_s=20.0, max_bytes=1024 * 1024)

    def _entry(self, name: str) -> Provider:
        if (entry := self._servers.get(name) or self._catalogue.get(name)) is None:
            hint = did_you_mean(closest_match(name, self._catalogue))
            raise SetupError(
                f"There is no provider '{display_name(name)}'.{hint} `toolcrib auth providers` lists them."
            )
        return entry
