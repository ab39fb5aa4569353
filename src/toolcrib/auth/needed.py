"""What a tool requires, by its provider's table: whose grant that is, its scopes, and the credential of a grant."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ..core import Caller, Credential, ToolcribError
from .catalogue import Basic, Handler, HandlerName, Key, KeyPair, OAuth2, Provider, filled
from .grant import Grant, Owner

OPERATOR = ""
"""The principal of what the operator gave for all callers. No caller has it."""


@dataclass(frozen=True, slots=True)
class Needed:
    """One requirement, resolved: *provider*, the *handler* of it, and the scopes that are asked for.

    *is_of_program* says that the token is the program's own, and no person is asked for it.
    """

    provider: str
    handler_name: HandlerName
    entry: Provider
    handler: Handler
    scopes: tuple[str, ...]
    is_of_program: bool = False

    def owner(self, caller: Caller) -> Owner:
        if self.is_of_program:
            return Owner(OPERATOR, "default", self.provider, self.handler_name)
        return Owner.of(caller, self.provider, self.handler_name)

    def fits(self, grant: Grant) -> bool:
        """Return whether *grant* was given where this one would be.

        A server may have changed who gives access to it.
        """
        handler = self.handler
        if not isinstance(handler, OAuth2) or handler.resource is None:
            return True
        return grant.detail.get("issuer") == handler.issuer

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
