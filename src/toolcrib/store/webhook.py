"""A receiver of what is announced of a store."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..core import SetupError

Topic = Literal["tasks", "pending"]
_URL = re.compile(r"https?://(?P<host>\[[\da-fA-F:.]+\]|[^\[\]/?#@:\s]+)(:\d+)?([/?#].*)?$")
_SECRET = re.compile(r"whsec_([A-Za-z0-9+/]{4}){8,21}([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


@dataclass(frozen=True, slots=True, repr=False)
class Webhook:
    """A receiver at *url*, and the *secret* that signs what it gets: `whsec_` and 24 to 64 bytes in base64.

    Where its host is a name, that must lead to public addresses, or be among *allow*, as `toolcrib.net.client` takes
    them. *base_url* is that of the HTTP API, for the addresses in messages. Raises SetupError.
    """

    url: str
    secret: str
    base_url: str | None = None
    allow: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not _URL.match(self.url):
            raise SetupError("The URL of a webhook begins with https:// and a host, without a user name.")
        if not _SECRET.fullmatch(self.secret):
            raise SetupError(
                "A webhook needs a secret that signs its messages: 'whsec_' and 24 to 64 bytes in base64, as from: "
                "echo whsec_$(openssl rand -base64 32)"
            )

    @property
    def host(self) -> str:
        return _URL.sub(lambda match: match["host"].strip("[]"), self.url)

    def __repr__(self) -> str:
        return f"<Webhook at {self.host}>"
