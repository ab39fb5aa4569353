"""One connection of MCP as messages, over a pipe or in a session of HTTP. No I/O, no clock and no task here.

| state | what comes | what goes |
|---|---|---|
| new | a request with an envelope (2026-07-28), but `initialize` | the state is stateless |
| new | any other request | the state is greeting |
| greeting, open | `ping` | its answer |
| greeting, open | `initialize` | a `Request`; by its `answer`, a result, the state is open |
| greeting | another request | an error |
| open | a request of its version | a `Request`, to be answered once, by `answer` |
| open, stateless | a request with the envelope of the other era | an error |
| stateless | a request with an envelope | a `Request` |
| any | `notifications/cancelled` of an open request | `Cancelled`: it has no answer any more |
| open | `notifications/initialized` | `Initialized`: from now on the client is notified of changes |
| open | the answer to what `ask` wrote | `Reply`; `Stray` to what this connection has not asked |
| any | a request whose id is open, and what is no message | an error |
| any | anything else | nothing |

The ids of requests are the client's, and those of what the server asks its own: the two never meet.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import mcp_types as wire
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp_types import methods
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS

from ..wire import to_bytes
from . import core
from .core import Request
from .messages import Refusal


@dataclass(frozen=True, slots=True)
class Cancelled:
    id: wire.RequestId


@dataclass(frozen=True, slots=True)
class Initialized:
    pass


@dataclass(frozen=True, slots=True)
class Reply:
    id: int
    answer: Mapping[str, Any] | wire.ErrorData


@dataclass(frozen=True, slots=True)
class Stray:
    pass


Event = Request | Cancelled | Initialized | Reply | Stray


@dataclass(slots=True)
class Session:
    """The state of one connection."""

    state: Literal["new", "greeting", "open", "stateless"] = "new"
    version: str = LATEST_HANDSHAKE_VERSION
    capabilities: wire.ClientCapabilities = field(default_factory=lambda: capabilities_of({}))
    requests: dict[wire.RequestId, Request] = field(default_factory=dict[wire.RequestId, Request])
    """Those that have no answer yet."""
    last_number: int = 0
    """The last one of what is sent: of questions, and of events over HTTP."""
    _asked: frozenset[int] = frozenset()
    _first_number: int = field(init=False)

    def __post_init__(self) -> None:
        self._first_number = self.last_number + 1

    def next_number(self) -> int:
        self.last_number += 1
        return self.last_number

    # What comes

    def receive(self, message: Any) -> Event | Refusal | bytes | None:
        """Return what *message* means, or the answer to write at once; None where there is nothing to do."""
        if isinstance(message, dict) and isinstance(params := message.get("params") or {}, dict):
            match message:
                case {"jsonrpc": "2.0", "id": request_id, "method": str() as method}:
                    if type(request_id) in (str, int):
                        return self._request(request_id, method, params)
                case {"jsonrpc": "2.0", "method": str() as method}:
                    return self._notice(method, params)
                case {"jsonrpc": "2.0", "id": request_id, "result": dict() as result}:
                    return self._reply(request_id, result)
                case {"jsonrpc": "2.0", "id": request_id, "error": {"code": int() as code, "message": str() as text}}:
                    data = message["error"].get("data")
                    return self._reply(request_id, wire.ErrorData(code=code, message=text, data=data))
                case _:
                    pass
        return Refusal(wire.INVALID_REQUEST, _NO_MESSAGE)

    def _request(self, request_id: wire.RequestId, method: str, params: Mapping[str, Any]) -> Request | Refusal | bytes:
        meta = params.get("_meta")
        is_enveloped = isinstance(meta, dict) and wire.PROTOCOL_VERSION_META_KEY in meta and method != "initialize"
        if self.state == "new":
            self.state = "stateless" if is_enveloped else "greeting"
        if request_id in self.requests:
            return _refused(request_id, wire.INVALID_REQUEST, "A request with this id has not been answered yet.")
        if self.state == "stateless":
            request = _stateless(request_id, method, params)
        elif is_enveloped:
            return _refused(request_id, wire.INVALID_REQUEST, _OTHER_ERA)
        elif method == "ping":
            return core.result(request_id, {})
        else:
            request = self._of_older_era(request_id, method, params)
        if isinstance(request, Request):
            self.requests[request_id] = request
        return request

    def _of_older_era(
        self, request_id: wire.RequestId, method: str, params: Mapping[str, Any]
    ) -> Request | Refusal | bytes:
        if method == "initialize":
            wanted = params.get("protocolVersion")
            version = wanted if wanted in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION
            return Request(request_id, method, params, version, None)
        if (method, self.version) not in methods.CLIENT_REQUESTS:
            return _refused(request_id, wire.METHOD_NOT_FOUND, "Method not found", method)
        if self.state != "open":
            return _refused(request_id, wire.INVALID_PARAMS, "Invalid request parameters", "")
        return Request(request_id, method, params, self.version, self.capabilities)

    def _notice(self, method: str, params: Mapping[str, Any]) -> Event | None:
        match method, params:
            case "notifications/cancelled", {"requestId": str() | int() as request_id} if request_id in self.requests:
                del self.requests[request_id]
                return Cancelled(request_id)
            case "notifications/initialized", _ if self.state == "open":
                return Initialized()
            case _:
                return None

    def _reply(self, request_id: object, answer: Mapping[str, Any] | wire.ErrorData) -> Reply | Stray | None:
        if type(request_id) is not int or not self._first_number <= request_id <= self.last_number:
            return Stray()
        if request_id not in self._asked:
            return None  # it comes too late
        self._asked -= {request_id}
        return Reply(request_id, answer)

    # What goes

    def answer(self, request: Request, answer: Mapping[str, Any] | wire.ErrorData) -> bytes | None:
        """Return the *answer* to a request as it is sent; None for one that was cancelled, which has none."""
        if self.requests.get(request.id) is not request:
            return None
        del self.requests[request.id]
        if isinstance(answer, wire.ErrorData):
            return core.error(request.id, answer)
        if request.method == "initialize":
            self.state, self.version = "open", request.version
            self.capabilities = capabilities_of(request.params["capabilities"])
        return core.result(request.id, answer)

    def ask(self, method: str, params: Mapping[str, Any] | None) -> tuple[int, bytes]:
        """Return the id of a request to the client, and the message."""
        own_id = self.next_number()
        self._asked |= {own_id}
        message = {"jsonrpc": "2.0", "id": own_id, "method": method, **({"params": params} if params else {})}
        return own_id, to_bytes(message)

    def give_up(self, request_id: int, reason: str) -> bytes | None:
        """Return the notice that the answer to what was asked is not waited for any more; None where it is there."""
        if request_id not in self._asked:
            return None
        self._asked -= {request_id}
        return core.notification("notifications/cancelled", {"requestId": request_id, "reason": reason})


def capabilities_of(data: Mapping[str, Any]) -> wire.ClientCapabilities:
    """Return the capabilities in *data*, but for experimental ones: a few hundred bytes, shared by all who have
    the same. More than 1,000 bytes count as none.
    """
    text = to_bytes({name: value for name, value in data.items() if name != "experimental"})
    return _capabilities(text if len(text) <= _MAX_CAPABILITIES_BYTES else b"{}")


@lru_cache(maxsize=64)
def _capabilities(text: bytes) -> wire.ClientCapabilities:
    return wire.ClientCapabilities.model_validate_json(text, by_name=False)


def _stateless(request_id: wire.RequestId, method: str, params: Mapping[str, Any]) -> Request | Refusal | bytes:
    if method == "initialize":
        data = {"supported": [*MODERN_PROTOCOL_VERSIONS]}
        if isinstance(requested := params.get("protocolVersion"), str):
            data["requested"] = requested  # type: ignore[assignment]
        return _refused(request_id, wire.UNSUPPORTED_PROTOCOL_VERSION, _NO_HANDSHAKE, data)
    route = classify_inbound_request({"method": method, "params": params})
    if isinstance(route, InboundLadderRejection):
        return _refused(request_id, route.code, route.message, route.data)
    return Request(request_id, method, params, route.protocol_version, route.client_capabilities)


def _refused(request_id: wire.RequestId, code: int, message: str, data: Any = None) -> Refusal:
    return Refusal(code, message, data, request_id)


_MAX_CAPABILITIES_BYTES = 1000
_NO_MESSAGE = "This line is not a JSON-RPC 2.0 message."
_OTHER_ERA = (
    "This connection has begun with a handshake. Requests that carry their version in _meta need one of their own."
)
_NO_HANDSHAKE = "This connection has begun without a handshake, and needs none: each request carries its version."
