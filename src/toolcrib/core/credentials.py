"""What a broker gives to a call that needs credentials."""

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Credential:
    """What a tool authenticates with at one provider. `secret` stays out of the repr, and is redacted everywhere else.

    `kind` is how it is used: `bearer` (RFC 6750), or another scheme that the provider's entry names.
    """

    provider: str
    secret: str = field(repr=False)
    kind: str = "bearer"
    scopes: tuple[str, ...] = ()
    expires_at: datetime | None = None
