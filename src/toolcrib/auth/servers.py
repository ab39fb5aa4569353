"""Servers that say themselves who gives access to them: as what MCP asks of a client's authorization.

A provider by the name `mcp:URL` is the protected resource at that URL (RFC 9728), with the authorization server that it
names (RFC 8414) and the client that this program is there: configured, a document of its own, or registered (RFC 7591).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard
from urllib.parse import urlsplit

import httpx2

from ..core import ToolError
from ..machinery import MIN_SECRET_CHARS
from ..net.client import challenge_of, scopes_in
from .catalogue import (
    AUTH_METHODS,
    METHOD_NAMES,
    Client,
    GrantKind,
    OAuth2,
    Provider,
    auth_methods,
    callback_segment,
    document_urls,
    is_loopback,
    require_endpoint,
    with_document,
)
from .grant import Grant, Owner
from .vault import Vault, version_of

PREFIX = "mcp:"
_WELL_KNOWN = "/.well-known/oauth-protected-resource"


@dataclass(frozen=True, slots=True)
class Servers:
    """Finds servers out. *pages* are the addresses of this program for one: of the callback, and of its document."""

    http: Callable[[str], httpx2.AsyncClient]
    vault: Vault
    pages: Callable[[str], tuple[str | None, str | None]]

    async def find(self, name: str, configured: Client) -> tuple[Provider, Client]:
        """Return the server *name*, `mcp:URL`, as a provider, and the client that this program is there.

        Raises ToolError `unauthorized` or `unavailable`, naming what is missing.
        """
        url = name.removeprefix(PREFIX)
        resource = await self._resource(url)
        # Where the operator names the issuer, a server cannot have the secret sent to another one.
        issuer = configured.issuer or (_origin(url) if resource is None else _issuer_of(resource, url))
        document = await self._document(issuer, near=url, is_named=bool(configured.issuer or resource))
        published = document.get("issuer")
        if isinstance(published, str) and {issuer, published} <= {_origin(issuer), f"{_origin(issuer)}/"}:
            issuer = published  # of an origin alone, the last slash means nothing, and libraries add it
        table = self._table(url, issuer, document, resource, configured.grant)
        client, method = await self._client(name, configured, issuer, document)
        changes: dict[str, Any] = {"client_auth": method}
        if configured.grant == "authorization_code" and "offline_access" in scopes_in(document.get("scopes_supported")):
            # OpenID Connect Core 1.0, 11: without it, no refresh token is given.
            changes |= {"offline_scope": "offline_access", "parameters": {"prompt": "consent"}}
        host, scopes = urlsplit(url).netloc, scopes_in((resource or {}).get("scopes_supported"))
        oauth2 = table.model_copy(update=changes).model_dump(exclude_unset=True)
        fields = {"title": host, "hosts": [host], "recommended_scopes": list(scopes), "oauth2": oauth2}
        return Provider.model_validate(fields), client

    async def _resource(self, url: str) -> Mapping[str, Any] | None:
        """Return what the server says of itself as a protected resource (RFC 9728); None where it says nothing.

        Wherever it is, a document is of this server, which must not be sent tokens for its neighbours. One at the
        root of the origin, as MCP has it, may be of the whole origin.
        """
        candidates = {
            f"{_origin(url)}{_WELL_KNOWN}{urlsplit(resource).path.rstrip('/')}": resource
            for resource in (url.partition("?")[0], _origin(url))
        }
        async with self.http(url) as http:
            try:
                response = await http.post(url, json={}, headers={"Accept": "application/json, text/event-stream"})
                metadata_url = challenge_of(response.headers.get("www-authenticate", "")).get("resource_metadata")
            except httpx2.HTTPError as error:
                raise _unreachable(url, error) from None
        for candidate in [metadata_url] if metadata_url else candidates:
            document = await self._json(candidate, near=url)
            if document is None:
                continue
            resource = document.get("resource")
            own = (url, candidates.get(candidate, url))
            if not isinstance(resource, str) or not any(_is_same(resource, of) for of in own):
                raise _unusable(url, "its metadata belongs to another resource (RFC 9728, 3.3)")
            return document
        return None

    async def _document(self, issuer: str, *, near: str, is_named: bool) -> Mapping[str, Any]:
        """Return what the authorization server publishes (RFC 8414), also where OpenID Connect has it."""
        try:
            require_endpoint(issuer)
        except ValueError:
            raise _unusable(issuer, "its address is not one that a secret can be sent to") from None
        for url in document_urls(issuer):
            if (document := await self._json(url, near=near)) is not None:
                return document
        if is_named:
            raise _unusable(issuer, "it publishes no metadata (RFC 8414)")
        # Servers of the first revision that had an authorization: by fixed names.
        endpoints = {
            "authorization_endpoint": "authorize",
            "token_endpoint": "token",
            "registration_endpoint": "register",
        }
        return {
            "issuer": issuer,
            **{key: f"{issuer}/{name}" for key, name in endpoints.items()},
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_post", "client_secret_basic"],
        }

    def _table(
        self, url: str, issuer: str, document: Mapping[str, Any], resource: Mapping[str, Any] | None, grant: GrantKind
    ) -> OAuth2:
        methods = document.get("code_challenge_methods_supported")
        is_asked = grant == "authorization_code"
        if is_asked and not (isinstance(methods, list) and "S256" in methods):
            raise _unusable(issuer, "it does not support PKCE with S256 (RFC 7636)")
        resource_url = url if resource is None else str(resource["resource"])
        try:
            table = OAuth2(issuer=issuer, resource=resource_url, refresh="kept" if is_asked else "none")
            if grant == "client_credentials":
                table = table.model_copy(update={"grant": grant})
            return with_document(table, document, issuer)
        except ValueError:
            raise _unusable(issuer, "its metadata is not valid, or belongs to another issuer (RFC 8414, 3.3)") from None

    # The client

    async def _client(
        self, name: str, configured: Client, issuer: str, document: Mapping[str, Any]
    ) -> tuple[Client, str]:
        """Return what this program is there, and how it authenticates."""
        methods = auth_methods(document)
        if configured.id:
            return configured, _method_of(configured, methods)
        owner = Owner("", "default", name, "client")
        stored_grant = await self.vault.get(owner)
        redirect_uri, document_url = self.pages(name)
        # At a terminal, a port of this computer that is not known yet (RFC 8252).
        redirect_uri = redirect_uri or f"http://127.0.0.1/auth/callback/{callback_segment(name)}"
        ours = {"issuer": issuer, "redirect_uri": redirect_uri}
        if stored_grant is not None and ours.items() <= stored_grant.grant.detail.items():
            return _registered(stored_grant.grant)  # what was granted to it would not be refreshed for another
        if document_url and document.get("client_id_metadata_document_supported") is True:
            return Client(document_url), "none"
        endpoint = document.get("registration_endpoint")
        if not isinstance(endpoint, str):
            raise ToolError(
                f"{name.removeprefix(PREFIX)} needs a login, and {issuer} registers no clients by itself. Register "
                f'this program there, and write in the settings: [auth."{name}"] client_id = "...".',
                "unauthorized",
            )
        grant = await self._register(endpoint, ours, methods, near=name.removeprefix(PREFIX))
        if not await self.vault.put(owner, grant, version=version_of(stored_grant)):
            # Another process has registered meanwhile: what is asked for as one client is not given to another.
            return await self._client(name, configured, issuer, document)
        return _registered(grant)

    async def _register(self, endpoint: str, ours: Mapping[str, str], methods: Sequence[str], *, near: str) -> Grant:
        """Return a client of our own (RFC 7591) at an issuer, with a redirect address: *ours* has both."""
        issuer = ours["issuer"]
        method_here = "none" if "none" in methods or not methods else methods[0]
        body = client_metadata(ours["redirect_uri"], METHOD_NAMES[method_here])
        try:
            require_endpoint(endpoint)
            async with self.http(near) as http:
                response = await http.post(endpoint, json=body)
            answer: Any = response.json()
        except httpx2.HTTPError as error:
            raise _unreachable(issuer, error) from None
        except ValueError:
            raise _unusable(issuer, "it did not register this program as RFC 7591 requires") from None
        client_id = answer.get("client_id") if isinstance(answer, dict) else None
        if response.status_code not in (200, 201) or not _is_text(client_id):
            raise _unusable(issuer, f"it did not register this program (status {response.status_code})")
        secret = answer.get("client_secret")
        method = AUTH_METHODS.get(answer.get("token_endpoint_auth_method", ""), "post" if secret else "none")
        return Grant(client_id, secret if _is_text(secret) else None, detail={**ours, "method": method})

    async def _json(self, url: str, *, near: str) -> dict[str, Any] | None:
        """Return the JSON object at *url*; None where there is none. The host of *near* was named by the operator."""
        try:
            require_endpoint(url)
            async with self.http(near) as http:
                response = await http.get(url, headers={"Accept": "application/json"})
            document: Any = response.json() if response.status_code == 200 else None
        except httpx2.HTTPError as error:
            raise _unreachable(url, error) from None
        except ValueError:
            return None
        return document if isinstance(document, dict) else None


def _issuer_of(resource: Mapping[str, Any], url: str) -> str:
    issuers = resource.get("authorization_servers")
    if not (isinstance(issuers, list) and issuers and isinstance(issuers[0], str)):
        raise _unusable(url, "it names no authorization server")
    return issuers[0]


def client_metadata(redirect_uri: str, method: str) -> dict[str, Any]:
    """Describe this program as a client, which authenticates by *method* (RFC 7591, 2)."""
    return {
        "client_name": "Toolcrib",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": "native" if is_loopback(urlsplit(redirect_uri).hostname or "") else "web",
    }


def _method_of(configured: Client, methods: Sequence[str]) -> str:
    """Return by which of *methods* a *configured* client authenticates: with its secret, where it has one."""
    return next((method for method in methods if method != "none"), "post") if configured.secret else "none"


def _registered(grant: Grant) -> tuple[Client, str]:
    return Client(grant.access_token, grant.refresh_token or ""), grant.detail.get("method", "none")


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and value.isascii() and value.isprintable() and MIN_SECRET_CHARS <= len(value) <= 2000


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _is_same(described: str, url: str) -> bool:
    """Return whether the resource *described* is *url* (RFC 9728, 3.3); a last slash means nothing."""
    one, other = (urlsplit(text) for text in (described, url))
    places = [(of.scheme, of.netloc.lower(), of.path.rstrip("/"), of.query) for of in (one, other)]
    return places[0] == places[1] and not one.fragment


def _unusable(where: str, why: str) -> ToolError:
    return ToolError(f"A login at {where[:200]} is not possible: {why}.", "unauthorized")


def _unreachable(where: str, error: Exception) -> ToolError:
    return ToolError(f"{where[:200]} cannot be reached ({type(error).__name__}).", "unavailable")
