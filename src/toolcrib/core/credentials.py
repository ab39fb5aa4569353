"""What a broker gives to a call that needs credentials."""

from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Credential:
    """What a tool authenticates with at one provider. `secret` stays out of the repr, and is redacted everywhere else.

    `provider` is the name of the provider, or of the `Secret`. `kind` is how it is used: `bearer` (RFC 6750), `key`
    (any other header), `basic` (RFC 7617; the secret is `user:password`), `keypair` (`key:secret`, with which the tool
    signs by itself) or `secret`. `detail` is what the provider said beside a token, such as Salesforce's
    `instance_url`. *hosts* are where `Context.http` sends it, in *header*, after *prefix*; nowhere without them. Those
    with a private address must be in *allow* too. *refused* is to be called where the provider does not accept it.
    """

    provider: str
    secret: str = field(repr=False)
    kind: str = "bearer"
    scopes: Sequence[str] = ()
    expires_at: datetime | None = None
    detail: Mapping[str, str] = field(default_factory=dict[str, str])
    hosts: Sequence[str] = ()
    allow: Sequence[str] = ()
    header: str = "Authorization"
    prefix: str = "Bearer "
    refused: Callable[[], Awaitable[None]] | None = field(default=None, repr=False, compare=False)

    @property
    def header_value(self) -> str:
        """What is sent in `header`."""
        return self.prefix + (b64encode(self.secret.encode()).decode() if self.kind == "basic" else self.secret)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts in it that are redacted. A user name alone is not one."""
        if self.kind not in ("basic", "keypair"):
            return (self.secret,)
        parts = self.secret.partition(":")
        return (self.secret, parts[2]) if self.kind == "basic" else (self.secret, parts[0], parts[2])
