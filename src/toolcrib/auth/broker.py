"""The broker: gives a call the credentials that its tool requires, refreshes them, or says what has to be granted.

It knows providers by the tables of its catalogue, and servers by what they say themselves. What a tool requires is
resolved by its provider's table: whose grant that is, its scopes, and the credential of a grant.

Whether a grant is asked for, refreshed or given is decided by `vault.step_for`. A refresh token is spent once: one
refresh at a time over all processes that share the vault, and its outcome is stored before it is used. That it is being
spent is stored before it is sent: where no outcome follows, it is never sent again, and the person is asked.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urljoin, urlsplit

import httpx2

from ..core import (
    Broker,
    Call,
    Caller,
    Credential,
    Pending,
    Requirement,
    Secret,
    SetupError,
    StoreError,
    ToolAuth,
    ToolcribError,
    ToolError,
)
from ..machinery import log_failure
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
    load_catalogue,
)
from .flows import Flow, FlowError
from .grant import Grant, Owner
from .servers import PREFIX, Servers, client_metadata
from .vault import (
    MAX_CACHED,
    Authorization,
    CallbackError,
    Completed,
    MemoryVault,
    StoredGrant,
    Vault,
    covers,
    new_authorization,
    page_url,
    pending_of,
    step_for,
    version_of,
)

_log = logging.getLogger("toolcrib")

_SETTLE_TIMEOUT_S, _SETTLE_INTERVAL_S = 35.0, 0.1
_WRITE_AGAIN_S = (0.1, 0.5, 2.0, 5.0)

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
        near = need.provider.removeprefix(PREFIX) if need.provider.startswith(PREFIX) else None
        http = partial(self._http_near, near)
        return Flow(need.provider, need.handler, client, http, self._discovered, clock=self._clock)

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


@dataclass(frozen=True, slots=True)
class _CachedCredential:
    """A credential as it was given, of what was stored for *owner*; None as *until* is for ever."""

    owner: Owner
    stored_grant: StoredGrant
    credential: Credential
    until: datetime | None


class CredentialBroker(Providers, Broker):
    """A Broker of OAuth 2.0 grants, keys and named secrets, each caller's own, in *vault*.

    *clients* are what the providers know this program as, by the provider's name; *catalogue* is a file of providers
    beside those that come with the package. *secrets* are the operator's, by name, for callers who have none of their
    own. *redirect_uri* is where providers send people back to, each to a path of its own under it:
    `redirect_uri_of(name)`; without it none can be sent. *form_uri* is where one enters a key or a secret, and with
    *browser_codes* first of all the code that the pending shows: where a browser does not say whose it is.
    *client_document_url* is where this program describes itself, for servers that take such a document as the id of
    a client; `{provider}` in it stands for the last part of that server's redirect address. *allow* are hosts and
    networks that are reached although they are private, as for `net.client`. *clock* gives the time by which grants
    and questions expire, as an aware datetime.
    """

    def __init__(
        self,
        *,
        clients: Mapping[str, Client] | None = None,
        vault: Vault | None = None,
        catalogue: Path | Mapping[str, Provider] | None = None,
        secrets: Mapping[str, str] | None = None,
        redirect_uri: str | None = None,
        form_uri: str | None = None,
        browser_codes: bool = False,
        client_document_url: str | None = None,
        allow: Iterable[str] = (),
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__(
            catalogue if isinstance(catalogue, Mapping) else load_catalogue(catalogue),
            clients or {},
            vault=MemoryVault() if vault is None else vault,
            redirect_uri=redirect_uri,
            client_document_url=client_document_url,
            allow=allow,
            clock=clock,
        )
        self.form_uri = form_uri
        self.browser_codes = browser_codes
        self._secrets = dict(secrets or {})
        self._cached: dict[tuple[Requirement, str, str], _CachedCredential] = {}
        self._refreshes: set[asyncio.Task[Any]] = set()

    # The broker of the pipeline

    async def authorize(
        self, requirements: Sequence[Requirement], caller: Caller, call: Call, /
    ) -> Sequence[Credential] | Pending:
        """Return a credential for each of *requirements*, or what has to be granted first."""
        self._require_principal(caller, call.tool)
        credentials: list[Credential] = []
        try:
            for required in requirements:
                last = self._cached.get((required, caller.principal, caller.profile))
                is_fresh = last is not None and (last.until is None or last.until > self._clock())
                if last is not None and is_fresh and await self.vault.get(last.owner) is last.stored_grant:
                    answer: Credential | Pending = last.credential  # as it was given last time
                elif isinstance(required, Secret):
                    answer = await self._secret(required, caller, call.tool)
                else:
                    answer = await self._of_provider(required, caller, call.tool)
                if isinstance(answer, Pending):
                    return answer
                credentials.append(answer)
        except (StoreError, SetupError) as error:
            log_failure(f"The credentials of '{call.tool}' cannot be read", error, None)
            raise ToolError(f"The credentials of '{call.tool}' cannot be read now.", "unavailable") from None
        return credentials

    async def has_granted(self, required: ToolAuth, caller: Caller) -> bool:
        """Return whether there is a grant of *caller* for the server of *required*, valid or not. Opens no question."""
        if self._configured.get(required.provider, Client("")).grant == "client_credentials":
            return True
        return await self.vault.get(Owner.of(caller, required.provider, required.handler or "oauth2")) is not None

    # Asking

    async def ask_for(self, requirements: Iterable[Requirement], caller: Caller, tool: str) -> list[Pending]:
        """Return what *caller* has yet to grant for all of *requirements*.

        One pending a provider, its scopes united.
        """
        self._require_principal(caller, tool)
        pendings: list[Pending] = []
        united: dict[tuple[str, str], Needed] = {}
        for required in requirements:
            if isinstance(required, Secret):
                answer = await self._secret(required, caller, tool)
                pendings += [answer] if isinstance(answer, Pending) else []
                continue
            await self.discover(required.provider)
            need = self.needed(required, tool)
            key = (need.provider, need.handler_name)
            scopes = {*need.scopes, *(united[key].scopes if key in united else ())}
            united[key] = replace(need, scopes=tuple(sorted(scopes)))
        for need in united.values():
            credential = await self._credential(need, caller, tool)
            pendings += [credential] if isinstance(credential, Pending) else []
        return pendings

    async def ask(
        self,
        need: Needed,
        caller: Caller,
        tool: str,
        scopes: Sequence[str] = (),
        *,
        has_ended: bool = False,
        redirect_uri: str | None = None,
    ) -> Pending:
        """Return what a person has to grant, and where. Asked again before it is granted, it is the same.

        *scopes* were granted before. With *has_ended* that grant has ended, and the person is told so.
        *redirect_uri* is where this one is sent back to, in place of the broker's.
        """
        if need.is_of_program:
            raise SetupError(f"'{need.provider}' gives this program a token of its own: no person is asked.")
        if need.idp is not None:
            raise SetupError(f"'{need.provider}' is granted by '{need.idp}': log in there.")
        with_code = self.browser_codes and redirect_uri is None
        now, redirect_uri = self._clock(), redirect_uri or self.redirect_uri_of(need.provider)
        authorization = new_authorization(
            need.owner(caller),
            thread=caller.thread,
            scopes=self.scopes_of(need, scopes),
            redirect_uri=redirect_uri or "",
            form_uri=self.form_uri,
            now=now,
        )
        if isinstance(need.handler, OAuth2):
            authorization = replace(authorization, url=await self._url_at_provider(need, authorization))
        authorization = await self.vault.open(authorization, now=now)
        if with_code and authorization.url:
            authorization = replace(authorization, url=page_url(self.form_uri, authorization.state))
        title = need.entry.title
        return pending_of(authorization, title=title, tool=tool, has_ended=has_ended, with_code=with_code)

    async def _url_at_provider(self, need: Needed, authorization: Authorization) -> str:
        """Return where the provider asks a person; empty where they cannot be sent there and back. Raises ToolError."""
        flow = self.flow(need)  # raises where no client is configured
        if not authorization.redirect_uri:
            return ""
        try:
            return await flow.authorization_url(
                redirect_uri=authorization.redirect_uri,
                scopes=authorization.scopes,
                state=authorization.state,
                verifier=authorization.verifier,
            )
        except FlowError as error:
            if error.error == "unsupported":
                return ""
            raise ToolError(f"{error} No person can be asked now.", "unavailable") from None

    async def complete(self, url: str, *, caller: Caller | None = None) -> Completed:
        """Take what a provider sent back, *url* with its path and query, and store the grant. Raises CallbackError.

        It must have come to the address of that provider: at another one, the code may be another provider's.
        With *caller*, only an authorization of that principal is completed: give it where the host knows who is at the
        browser. A state is used once, whatever the outcome.
        """
        try:
            parts = urlsplit(url)
            parameters = parse_qs(parts.query, keep_blank_values=True)
        except ValueError:  # it is not a URL, and has no state
            parts, parameters = urlsplit(""), {}
        query = {name: values[-1] for name, values in parameters.items()}
        request = await self.find(query.get("state", ""), caller=caller)
        if request.owner.handler != "oauth2" or not await self.vault.close(request):
            raise CallbackError("This authorization was completed already.", "unknown")
        await self.discover(request.owner.provider)
        need = self.needed(ToolAuth(request.owner.provider, request.owner.handler), request.owner.provider)
        if not came_to(parts.path, request.redirect_uri):
            raise CallbackError(
                f"This did not come back to the address of '{need.entry.title}', so it may be of another provider. "
                f"Register {request.redirect_uri} there as the redirect address, and call the tool again to be asked.",
                "failed",
                request.id,
            )
        try:
            flow = self.flow(need)
            await flow.require_issuer(query.get("iss"))
            if "error" in query or not query.get("code"):
                reason = f"'{need.entry.title}' granted nothing. Call the tool again to be asked."
                raise CallbackError(reason, "denied", request.id)
            grant = await flow.exchange_code(
                query["code"], redirect_uri=request.redirect_uri, verifier=request.verifier, scopes=request.scopes
            )
        except FlowError as error:
            raise CallbackError(f"{error} Call the tool again to be asked.", "failed", request.id) from None
        return Completed((request.id, *await self.save(request.owner, grant)), request.owner, request.thread)

    async def find(self, state: str, *, caller: Caller | None = None) -> Authorization:
        """Return the open authorization with *state*, of *caller* if one is given. Raises CallbackError."""
        authorization = await self.vault.find(state, now=self._clock())
        if authorization is None:
            raise CallbackError("This authorization is not known, or has expired. Call the tool again.", "unknown")
        if caller is not None and caller.principal != authorization.owner.principal:
            raise CallbackError("This authorization was started by another person.", "foreign")
        return authorization

    async def save(self, owner: Owner, grant: Grant) -> list[str]:
        """Store *grant* in place of what *owner* has. Returns the ids of the pendings that had waited for it.

        Raises SetupError for a secret that could not be redacted or sent.
        """
        grant.require_usable(owner.handler)
        while True:
            stored_grant = await self.vault.get(owner)
            if await self.vault.put(owner, grant, version=version_of(stored_grant)):
                break
        waiting = await self.vault.authorizations(owner, now=self._clock())
        return [
            request.id
            for request in waiting
            if covers(grant.scopes, request.scopes) and await self.vault.close(request)
        ]

    def client_document(self, provider: str) -> dict[str, Any]:
        """Return what is at `client_document_url` for the server *provider*: this program as a client there.

        *provider* is `mcp:URL`, or the last part of the redirect address of that.
        Raises SetupError without that address, and without a `redirect_uri`.
        """
        redirect_uri, document_url = self._pages(provider)
        if document_url is None or redirect_uri is None:
            raise SetupError("This broker has no client document: it needs a client_document_url and a redirect_uri.")
        return {"client_id": document_url, **client_metadata(redirect_uri, "none")}

    async def revoke(self, owner: Owner) -> bool:
        """Forget what *owner* has granted, and tell the provider. False where there was nothing.

        It is also forgotten if the provider cannot be told, or if it cannot be opened; both are logged.
        """
        try:
            stored_grant = await self.vault.get(owner)
        except StoreError as error:
            log_failure(f"'{owner.provider}' could not be notified that a grant ended", error, None)
            return await self.vault.remove(owner)
        if stored_grant is None or not await self.vault.remove(owner):
            return False
        if owner.handler != "secret":
            await self._end(owner, stored_grant.grant)
        return True

    async def _end(self, owner: Owner, grant: Grant) -> None:
        """Tell the provider that *grant* ends, if it wants to know. Where that fails, it is logged."""
        try:
            await self.discover(owner.provider)
            need = self.needed(ToolAuth(owner.provider, owner.handler), owner.provider)
            if isinstance(need.handler, OAuth2):
                await self.flow(need).revoke(grant)
        except (ToolcribError, ToolError) as error:
            log_failure(f"'{owner.provider}' could not be notified that a grant ended", error, None)

    async def settle(self) -> None:
        """Wait until no refresh is under way: what a provider has rotated is stored before an event loop ends."""
        if refreshes := self._refreshes & asyncio.all_tasks():
            await asyncio.wait(refreshes)

    # Giving

    async def _of_provider(self, required: ToolAuth, caller: Caller, tool: str) -> Credential | Pending:
        """Return the credential of *caller* at a provider, and keep it for the next call."""
        await self.discover(required.provider)
        answer = await self._credential(self.needed(required, tool), caller, tool)
        if isinstance(answer, Pending):
            return answer
        if len(self._cached) >= MAX_CACHED:
            self._cached.clear()
        self._cached[required, caller.principal, caller.profile] = answer
        return answer.credential

    def _require_principal(self, caller: Caller, tool: str) -> None:
        if caller.principal == OPERATOR:  # what they enter would be everybody's
            raise ToolError(
                f"Tool '{tool}' needs the credentials of a caller, and this one has no name.", "unauthorized"
            )

    async def _credential(self, need: Needed, caller: Caller, tool: str) -> _CachedCredential | Pending:
        owner, now = need.owner(caller), self._clock()
        earlier = stored_grant = await self._fitting(need, owner)
        step = step_for(stored_grant, need.scopes, now)
        id_token = None if step == "give" else await self._id_token(need, caller, tool)
        if isinstance(id_token, Pending):
            return id_token
        if step == "refresh" or (step == "ask" and need.needs_no_person):
            stored_grant = await self._refreshed(need, owner, stored_grant, id_token)
            step = step_for(stored_grant, need.scopes, self._clock(), is_refreshed=True)
        if step == "give" and stored_grant is not None:
            return self._cached_credential(need, owner, stored_grant)
        if need.needs_no_person:
            raise ToolError(f"'{need.provider}' does not grant all scopes of '{tool}'.", "unauthorized")
        if earlier is None:
            return await self.ask(need, caller, tool)
        # It has ended, or it was never for these scopes.
        has_ended = stored_grant is None or covers(stored_grant.grant.scopes, need.scopes)
        return await self.ask(need, caller, tool, earlier.grant.scopes, has_ended=has_ended)

    async def _id_token(self, need: Needed, caller: Caller, tool: str) -> Credential | Pending | None:
        """Return what *caller* has of the identity provider that grants *need*; None where it is not granted so."""
        return None if need.idp is None else await self._of_provider(ToolAuth(need.idp, "oauth2"), caller, tool)

    async def _fitting(self, need: Needed, owner: Owner) -> StoredGrant | None:
        """Return the grant of *owner*. One that was given elsewhere is removed."""
        stored_grant = await self.vault.get(owner)
        if stored_grant is None or need.fits(stored_grant.grant):
            return stored_grant
        await self.vault.remove(owner, version=stored_grant.version)
        return None

    def _cached_credential(self, need: Needed, owner: Owner, stored_grant: StoredGrant) -> _CachedCredential:
        client = self._clients.get(need.provider)
        credential = need.credential(stored_grant.grant, {} if client is None else client.parameters, self._allow)
        credential = replace(credential, refused=partial(self._refused, owner, stored_grant))
        return _CachedCredential(owner, stored_grant, credential, stored_grant.ready_until)

    async def _refused(self, owner: Owner, stored_grant: StoredGrant) -> None:
        """Note that the token of *stored* is not accepted any more: refresh it, or ask, before it is given again."""
        self._forget(owner.provider)
        grant = stored_grant.grant
        if grant.refresh_token:
            await self.vault.put(owner, replace(grant, expires_at=self._clock()), version=stored_grant.version)
        else:
            await self.vault.remove(owner, version=stored_grant.version)

    async def _refreshed(
        self, need: Needed, owner: Owner, stored_grant: StoredGrant | None, id_token: Credential | None
    ) -> StoredGrant | None:
        """Return what *owner* has after a refresh. It goes on if the call is cancelled: its token may be spent then."""
        task = asyncio.ensure_future(self._refresh(need, owner, stored_grant, id_token))
        self._refreshes.add(task)
        task.add_done_callback(self._refresh_done)
        return await asyncio.shield(task)

    def _refresh_done(self, task: "asyncio.Task[Any]") -> None:
        self._refreshes.discard(task)
        if not task.cancelled():
            task.exception()  # an error without a waiting call is no news

    async def _refresh(
        self, need: Needed, owner: Owner, earlier: StoredGrant | None, id_token: Credential | None
    ) -> StoredGrant | None:
        async with self.vault.alone(owner):
            stored_grant = await self._settled(owner)
            if need.needs_no_person:
                return await self._obtained(need, owner, stored_grant, id_token)
            if stored_grant is None or earlier is None or stored_grant.grant.secrets != earlier.grant.secrets:
                return stored_grant  # another task or process has done it
            unspent, now = stored_grant.grant, self._clock()
            if unspent.spending_since is not None or step_for(stored_grant, need.scopes, now) != "refresh":
                return stored_grant
            flow = self.flow(need)
            # By compare-and-set, so that one process sends it, however long another has stood still.
            spending = replace(unspent, spending_since=now)
            is_first = await self.vault.put(owner, spending, version=stored_grant.version)
            stored_grant = await self.vault.get(owner)
            if not is_first or stored_grant is None or stored_grant.grant != spending:
                return stored_grant
            await self._spend(flow, owner, unspent, stored_grant)
            return await self.vault.get(owner)

    async def _spend(self, flow: Flow, owner: Owner, unspent: Grant, spending: StoredGrant) -> None:
        """Send the refresh token of *unspent*, and store the outcome in place of *spending*. Raises ToolError."""
        try:
            grant = await flow.refresh(unspent)
        except FlowError as error:
            if error.refused:
                _log.warning("'%s' refused a refresh (%s): its grant has ended", owner.provider, error.error)
                await self.vault.remove(owner, version=spending.version)
                return
            if not spending.is_spent(self._clock()):  # else others have given it up by now
                await self._put_refreshed(owner, unspent, spending.version)
            if spending.is_over(self._clock()):
                raise ToolError(f"{error} The credentials cannot be refreshed now.", "unavailable") from None
        else:
            is_stored = await self._put_refreshed(owner, grant, spending.version)
            if not is_stored and not await self.vault.get(owner):
                await self._end(owner, grant)  # it was revoked meanwhile, and the provider knows the old token only

    async def _settled(self, owner: Owner) -> StoredGrant | None:
        """Return what *owner* has, once the refresh of a process that lost its lease has an outcome, or is given up."""
        give_up_at_s = time.monotonic() + _SETTLE_TIMEOUT_S
        while True:
            stored_grant, now = await self.vault.get(owner), self._clock()
            is_spending = stored_grant is not None and stored_grant.grant.spending_since is not None
            if stored_grant is None or not is_spending or stored_grant.is_spent(now) or not stored_grant.is_over(now):
                return stored_grant
            if time.monotonic() > give_up_at_s:  # the clock was set back
                return stored_grant
            await asyncio.sleep(_SETTLE_INTERVAL_S)

    async def _put_refreshed(self, owner: Owner, grant: Grant, version: int) -> bool:
        """Store what a refresh brought. Tried again where the store fails: the token that it has is spent."""
        for pause_s in _WRITE_AGAIN_S:
            try:
                return await self.vault.put(owner, grant, version=version)
            except StoreError as error:
                log_failure(f"The refreshed grant of '{owner.provider}' could not be stored yet", error, None)
                await asyncio.sleep(pause_s)
        return await self.vault.put(owner, grant, version=version)

    async def _obtained(
        self, need: Needed, owner: Owner, stored_grant: StoredGrant | None, id_token: Credential | None
    ) -> StoredGrant | None:
        """Return a token for all scopes that it was ever needed for; *stored_grant* where that is one.

        It is for the person of *id_token*, or without that, the program's own.
        """
        if stored_grant is not None and covers(stored_grant.grant.scopes, need.scopes):
            until = stored_grant.ready_until
            if until is None or until > self._clock():
                return stored_grant
        scopes = self.scopes_of(need, () if stored_grant is None else stored_grant.grant.scopes)
        try:
            if id_token is None:
                grant = await self.flow(need).client_credentials(scopes)
            else:
                grant = await self._asserted(need, id_token, scopes)
        except FlowError as error:
            code: Any = "unavailable" if error.error in ("unreachable", "malformed") else "unauthorized"
            raise ToolError(f'{error} This login is that of [auth."{need.provider}"] in the settings.', code) from None
        await self.vault.put(owner, grant, version=version_of(stored_grant))
        return await self.vault.get(owner)

    async def _asserted(self, need: Needed, id_token: Credential, scopes: Sequence[str]) -> Grant:
        """Return the grant that the identity provider of *need* decides on, for the person of *id_token*."""
        assert isinstance(need.handler, OAuth2)
        idp = self.flow(self.needed(ToolAuth(id_token.provider, "oauth2"), need.provider))
        audience, resource = need.handler.issuer or "", need.handler.resource or ""
        try:
            assertion = await idp.identity_assertion(
                id_token.secret, audience=audience, resource=resource, scopes=scopes
            )
        except FlowError as error:
            if error.error == "invalid_grant" and id_token.refused is not None:
                await id_token.refused()  # the next call logs in again
            raise
        return await self.flow(need).exchange_assertion(assertion, scopes)

    async def _secret(self, required: Secret, caller: Caller, tool: str) -> Credential | Pending:
        name = required.name
        own = secret_owner(caller.principal, caller.profile, name)
        for owner in (own, secret_owner(OPERATOR, "default", name)):
            if (stored_grant := await self.vault.get(owner)) is not None:
                return Credential(name, stored_grant.grant.access_token, "secret")
        if (secret := self._secrets.get(name)) is not None:
            return Credential(name, secret, "secret")
        now = self._clock()
        authorization = new_authorization(
            own, thread=caller.thread, scopes=(), redirect_uri="", form_uri=self.form_uri, now=now
        )
        authorization = await self.vault.open(authorization, now=now)
        return pending_of(authorization, title=name, tool=tool, with_code=self.browser_codes)

    async def open_scopes(self, need: Needed, caller: Caller) -> set[str]:
        """Return the scopes that *caller* has granted, or is asked for now."""
        owner = need.owner(caller)
        stored_grant, waiting = await self.vault.get(owner), await self.vault.authorizations(owner, now=self._clock())
        scopes = {name for question in waiting for name in question.scopes}
        return scopes if stored_grant is None else {*scopes, *stored_grant.grant.scopes}

    def scopes_of(self, need: Needed, granted: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the scopes to ask for: those of the tool, those *granted*, and what the provider's table adds."""
        if not isinstance(need.handler, OAuth2) or not need.handler.scoped:
            return ()
        offline = need.handler.offline_scope
        also = (*(() if need.scopes else need.entry.recommended_scopes), *((offline,) if offline else ()))
        also += ("openid",) if need.handler.id_token else ()
        return tuple(sorted({*need.scopes, *granted, *also}))
