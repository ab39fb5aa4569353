"""Security schemes as what a tool requires of the broker, and how a credential is put into a request.

A document is a stranger's: it names where credentials go, so it must not choose which. What it asks for by itself are
secrets under a name that begins with the host they are sent to; any other credential is one that the operator mapped to
a scheme, or one of a provider of the catalogue, which goes to that provider's hosts only.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from ...core import Credential, Requirement, Secret, SetupError, ToolAuth, ToolError
from .documents import Documents, Unusable, mapping, texts
from .request import Prepared


@dataclass(frozen=True, slots=True)
class Applied:
    """One scheme: the *required* credential, and where it is put. *kind* is `key`, `bearer` or `basic`."""

    required: Requirement
    kind: Literal["key", "bearer", "basic"]
    where: Literal["header", "query", "cookie"] = "header"
    name: str = "Authorization"

    @property
    def provider(self) -> str:
        return self.required.provider if isinstance(self.required, ToolAuth) else self.required.name


def read_mapping(written: Mapping[str, Any]) -> Mapping[str, Requirement | None]:
    """Return the credentials in *written*: 'PROVIDER', 'secret:NAME' or 'none' by scheme. Raises SetupError."""
    credentials: dict[str, Requirement | None] = {}
    for scheme, text in written.items():
        if isinstance(text, ToolAuth | Secret) or text is None:
            credentials[scheme] = text
        elif not isinstance(text, str) or not text or text == "secret:":
            raise SetupError(f"The credentials of '{scheme}' are a provider, 'secret:NAME' or 'none'.")
        elif text.startswith("secret:"):
            credentials[scheme] = Secret(text.removeprefix("secret:"))
        else:
            credentials[scheme] = None if text == "none" else ToolAuth(text)
    return credentials


class Security:
    """The security schemes of a document."""

    def __init__(self, documents: Documents, mapped: Mapping[str, Requirement | None]) -> None:
        self._schemes = mapping(mapping(documents.root.get("components")).get("securitySchemes"))
        self._documents = documents
        self._mapped = mapped
        if unknown := [name for name in mapped if name not in self._schemes]:
            has = ", ".join(self._schemes) or "none"
            raise SetupError(f"The document has no security scheme '{unknown[0]}'. It has: {has}.")

    def applied(self, alternatives: Sequence[Any], server: str) -> tuple[Applied, ...]:
        """Return what is required for one of *alternatives*: one that the operator mapped, else the first that works.

        Raises Unusable where none works.
        """
        problems: list[str] = []
        usable: list[tuple[bool, bool, int, tuple[Applied, ...]]] = []
        for number, alternative in enumerate(alternatives):
            try:
                schemes = [self._one(name, scopes, server) for name, scopes in dict(alternative).items()]
            except Unusable as error:
                problems.append(str(error))
                continue
            is_mapped = bool(alternative) and self._mapped.keys() >= {*alternative}
            required = tuple(scheme for scheme in schemes if scheme is not None)
            # Where nothing is mapped, and none is needed, no caller is asked.
            usable.append((not is_mapped, bool(required), number, required))
        if alternatives and not usable:
            raise Unusable("; ".join(dict.fromkeys(problems)))
        return min(usable)[3] if usable else ()

    def _one(self, name: str, scopes: Any, server: str) -> Applied | None:
        if name not in self._schemes:
            raise Unusable(f"its security scheme '{name[:60]}' is not declared")
        scheme, _ = self._documents.followed(self._schemes[name], self._documents.where)
        required = self._mapped.get(name, Secret(f"{_host(server)}/{name}"))
        if required is None:
            return None
        if scheme.get("type") == "oauth2":
            asked_scopes = tuple(texts(scopes))
            if name not in self._mapped:
                required = _known_provider(scheme, server, asked_scopes) or required
            elif isinstance(required, ToolAuth) and required.handler in (None, "oauth2"):
                required = ToolAuth(required.provider, required.handler, required.scopes or asked_scopes)
        return _placed(required, scheme, f"its security scheme '{name[:60]}'")


def _placed(required: Requirement, scheme: Mapping[str, Any], label: str) -> Applied:
    """Return *required* with the place that *scheme* has for it. Raises Unusable, in words about *label*."""
    match scheme.get("type"):
        case "apiKey":
            where, key = scheme.get("in"), scheme.get("name")
            if where not in ("header", "query", "cookie") or not isinstance(key, str) or not _is_token(key):
                raise Unusable(f"{label} does not say where the key goes")
            return Applied(required, "key", where, key)
        case "http":
            method = str(scheme.get("scheme", "")).lower()
            if method not in ("bearer", "basic"):
                raise Unusable(f"{label} is HTTP '{method[:40]}', which is not supported")
            return Applied(required, "bearer" if method == "bearer" else "basic")
        case "oauth2" | "openIdConnect":
            return Applied(required, "bearer")
        case kind:
            raise Unusable(f"{label} is of type '{str(kind)[:40]}', not supported")


def apply(applied: Applied, credential: Credential | None, url: str, request: Prepared) -> None:
    """Put *credential* into a request to *url*. Raises ToolError where it may not go there."""
    if credential is None:
        raise ToolError(f"There are no credentials for '{applied.provider}'.", "unauthorized")
    if credential.kind == "keypair":
        raise ToolError(f"The credentials of '{applied.provider}' sign requests, and are not sent.", "unauthorized")
    if credential.hosts:
        from ...net import Guard

        # Plain http to a host that is allowed is checked where the connection is made, too.
        Guard(hosts=credential.hosts, allow=credential.allow).check(url)
    elif credential.kind != "secret":
        raise ToolError(
            f"Nothing says where the credentials of '{applied.provider}' may be sent: its table in the catalogue has "
            "no 'hosts'.",
            "denied",
        )
    secret = credential.secret
    if credential.kind == "basic" or applied.kind == "basic":
        secret = base64.b64encode(secret.encode()).decode()
    if not (secret.isascii() and secret.isprintable()):
        raise ToolError(f"The credentials of '{applied.provider}' have characters that cannot be sent.", "unauthorized")
    if credential.kind != "secret":
        _set(request.headers, credential.header, credential.header_value)
    elif applied.where == "query":
        name = quote(applied.name, safe="")
        request.query = [*(member for member in request.query if member[0] != name), (name, quote(secret, safe=""))]
    elif applied.where == "cookie":
        value = quote(secret, safe="!#$&'()*+/:<=>?@[]^_`{|}~-.")
        request.cookies = [*(cookie for cookie in request.cookies if cookie[0] != applied.name), (applied.name, value)]
    else:
        prefix = {"key": "", "bearer": "Bearer ", "basic": "Basic "}[applied.kind]
        _set(request.headers, applied.name, prefix + secret)


def _set(headers: dict[str, str], name: str, value: str) -> None:
    """Put a header in the place of one of that name, which an argument may have given."""
    for same_name in [same_name for same_name in headers if same_name.lower() == name.lower()]:
        del headers[same_name]
    headers[name] = value


def _known_provider(scheme: Mapping[str, Any], server: str, scopes: tuple[str, ...]) -> ToolAuth | None:
    """Return the provider of the catalogue whose endpoints *scheme* names, if *server* is one of its hosts."""
    try:
        from ...auth.catalogue import builtin_catalogue
        from ...net import Guard
    except (ImportError, SetupError):
        return None
    flows = map(mapping, mapping(scheme.get("flows")).values())
    urls = {flow.get(key) for flow in flows for key in ("tokenUrl", "authorizationUrl")} - {None}
    for provider, table in builtin_catalogue().items():
        oauth2 = table.oauth2
        if oauth2 is None or not urls & {oauth2.token_url, oauth2.authorize_url}:
            continue
        hosts = [host for host in table.hosts if "{" not in host]
        try:
            Guard(hosts=hosts).check(server)
        except ToolError:
            continue
        return ToolAuth(provider, "oauth2", scopes if oauth2.scoped else ())
    return None


def _host(server: str) -> str:
    parts = urlsplit(server)
    host = parts.hostname or ""
    usual = {"https": 443, "http": 80}.get(parts.scheme)
    return host if parts.port in (None, usual) else f"{host}:{parts.port}"


def _is_token(text: str) -> bool:
    if text.lower() in ("host", "connection", "content-length", "transfer-encoding"):
        return False
    return text.isascii() and text.isprintable() and not {*' ,;="\\/()<>@[]{}'} & {*text}
