"""A client that sends one credential, and where it may be sent."""

from collections.abc import Generator

import httpx2

from ..core import Credential, SetupError
from .client import client


def authorized(credential: Credential) -> httpx2.AsyncClient:
    """Return a guarded client that sends *credential* to its hosts, and refuses every other host.

    Raises SetupError for a credential that is not sent in a header, or whose provider has no hosts.
    """
    if credential.kind in ("keypair", "secret") or not credential.hosts:
        raise SetupError(
            f"Nothing says where and how the credentials of '{credential.provider}' are sent. Use the secret itself: "
            f"ctx.credentials['{credential.provider}'].secret"
        )
    return client(hosts=credential.hosts, allow=credential.allow, auth=_Header(credential))


class _Header(httpx2.Auth):
    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers[self._credential.header] = self._credential.header_value
        yield request
