"""The `requestState` of calls that wait, sealed. Imported with the first one: the SDK's part needs its whole server."""

import base64
import binascii
from typing import Any

from mcp.server.request_state import InvalidRequestState, RequestStateBoundary, RequestStateSecurity

from ...core import StoreError
from ...workbench import Crib

_BINDING = "mcp request state"


def sealing(crib: Crib, name: str) -> RequestStateBoundary:
    """Return the middleware that seals `requestState` on its way out and opens it on its way in.

    With the keys of the crib's store, where there is one: then any process of the server can go on with a call.
    """
    store, ttl = crib.database, float(crib.options["pending_timeout_s"])
    if store is None:
        security = RequestStateSecurity.ephemeral(ttl=ttl)
    else:
        security = RequestStateSecurity(codec=_StoreCodec(store), ttl=ttl, bind_principal=None)
    return RequestStateBoundary(security, default_audience=name)


class _StoreCodec:
    def __init__(self, store: Any) -> None:
        self._store = store

    def seal(self, payload: bytes) -> str:
        return base64.urlsafe_b64encode(self._store.keys.seal(payload, _BINDING)).decode()

    def unseal(self, token: str) -> bytes:
        try:
            plain: bytes = self._store.keys.unseal(base64.b64decode(token, altchars=b"-_", validate=True), _BINDING)
        except (StoreError, binascii.Error, ValueError) as error:
            raise InvalidRequestState(type(error).__name__) from None
        return plain
