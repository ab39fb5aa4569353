"""Grants: what a person has granted at a provider, as values and as JSON in the vault."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from ..core import Caller, SetupError, StoreError
from ..machinery import MIN_SECRET_CHARS


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose row it is: a principal's *profile*, and of which *provider*, by which *handler*.

    What is for all callers (the operator's secrets) has no principal.
    """

    principal: str
    profile: str
    provider: str
    handler: str

    @classmethod
    def of(cls, caller: Caller, provider: str, handler: str) -> "Owner":
        return cls(caller.principal, caller.profile, provider, handler)

    @property
    def binding(self) -> tuple[str, str, str, str]:
        """What its envelope is bound to."""
        return (self.principal, self.profile, self.provider, self.handler)


@dataclass(frozen=True, slots=True)
class Grant:
    """A token and what belongs to it; for other handlers than `oauth2`, *access_token* is the secret.

    *scopes* are those that were granted. *detail* is what the provider said beside it, and its table keeps.
    *spending_since* is when a process began to send the refresh token, and has stored no outcome since. Raises
    SetupError for a moment without a timezone, and for scopes that are not a list of texts.
    """

    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    scopes: Sequence[str] = ()
    expires_at: datetime | None = None
    detail: Mapping[str, str] = field(default_factory=dict[str, str])
    spending_since: datetime | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        ends: Any = self.expires_at
        if ends is not None and not (isinstance(ends, datetime) and ends.utcoffset() is not None):
            raise SetupError("'expires_at' of a grant is a datetime with a timezone, or None.")
        scopes: Any = self.scopes
        if (
            isinstance(scopes, str)
            or not isinstance(scopes, Sequence)
            or not all(isinstance(scope, str) for scope in scopes)
        ):
            raise SetupError("'scopes' of a grant is a list of texts.")
        object.__setattr__(self, "scopes", tuple(scopes))  # equal to what a database gives back

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts in it that stay secret."""
        return tuple(secret for secret in (self.access_token, self.refresh_token) if secret)

    def require_usable(self, handler: str) -> None:
        """Raise SetupError for a secret that would be found in ordinary words, or that *handler* could not send."""
        for secret in self.secrets:
            if len(secret.strip()) < MIN_SECRET_CHARS:
                raise SetupError(
                    f"A secret has at least {MIN_SECRET_CHARS} characters: a shorter one could not be redacted."
                )
            if any("\ud800" <= character <= "\udfff" for character in secret):
                raise SetupError("A secret is text that can be written as UTF-8.")
            if handler == "token" and not (secret.isascii() and secret.isprintable()):
                raise SetupError("A key is sent in a header: it has printable ASCII characters, and no line breaks.")

    def to_bytes(self) -> bytes:
        return _JSON.dump_json(self)

    @classmethod
    def from_bytes(cls, written: bytes) -> "Grant":
        """Return the grant that `to_bytes` wrote. Raises StoreError for anything else."""
        try:
            return _JSON.validate_json(written, strict=True)
        except (ValueError, SetupError):
            raise StoreError("A stored grant is damaged. Revoke it, and log in again.") from None


_JSON = TypeAdapter(Grant)


def grant_data(owner: Owner, grant: Grant | None) -> dict[str, Any]:
    """Return a grant as JSON data, without its secrets; None is one that does not open."""
    return {
        "provider": owner.provider,
        "handler": owner.handler,
        "profile": owner.profile,
        "scopes": [] if grant is None else list(grant.scopes),
        "expires_at": grant and grant.expires_at and grant.expires_at.isoformat(),
        "refreshed": grant is not None and grant.refresh_token is not None,
    }
