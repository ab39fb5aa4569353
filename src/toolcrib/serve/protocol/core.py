"""MCP of 2026-07-28 as messages: one request in, notifications and one answer out. No I/O, no clock and no task here.

| what comes | what goes |
|---|---|
| a request of a method of this revision | `notification` any number of times, then `result` or `error`, once |
| a notification | nothing: this revision has none that a server of single requests could act on |
| anything else | `Refusal`, whose status is `status_of` its code |

Each request carries the version and the capabilities of its client (`_meta`), and stands alone: there is no state but
a request that is open. Over HTTP its headers have to say the same as its body. Older revisions, which have a handshake,
are in `session`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import mcp_types as wire
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_NAME_HEADER,
    InboundLadderRejection,
    classify_inbound_request,
    decode_header_value,
    find_duplicated_routing_header,
    unsupported_protocol_version_rejection,
    validate_mcp_param_headers,
)
from mcp_types import methods
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from ..wire import to_bytes
from .messages import ExactParams, Refusal

MODERN = frozenset(MODERN_PROTOCOL_VERSIONS)
TASK_METHODS = frozenset(("tasks/get", "tasks/update", "tasks/cancel"))
"""Those of the extension for tasks, which is of this revision, and in no table of the SDK."""
VERSION = "mcp-protocol-version"
LISTEN = "subscriptions/listen"
_OWN_SHAPE = frozenset(("tools/call", "tools/list", *TASK_METHODS))
"""Methods whose results are written here as this server makes them; others may pass on what a server behind it has."""
_NEWER = frozenset(("resultType", "ttlMs", "cacheScope"))
"""The members of these results that 2025-11-25 does not have: all others it has, too."""
_BODY = "Body must be a single JSON-RPC request or notification object"


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose envelope is in order. Its *params* are checked when it is answered."""

    id: wire.RequestId
    method: str
    params: Mapping[str, Any]
    version: str
    capabilities: Any

    @property
    def progress_token(self) -> wire.ProgressToken | None:
        meta = self.params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        return token if type(token) in (str, int) else None


class Client:
    """The client of one request, as handlers see it: what it is capable of, and what it is sent before the answer.

    *connection* is that of a client of the older era, which can be asked; None in the stateless era.
    """

    def __init__(self, request: Request, notify: Callable[[bytes], Any], connection: Any = None) -> None:
        self._request = request
        self._notify = notify
        self._connection = connection

    @property
    def can_send_request(self) -> bool:
        return self._connection is not None and self._connection.can_ask

    @cached_property
    def client_capabilities(self) -> wire.ClientCapabilities | None:
        if isinstance(self._request.capabilities, wire.ClientCapabilities):
            return self._request.capabilities
        try:
            return wire.ClientCapabilities.model_validate(self._request.capabilities, by_name=False)
        except ValidationError:
            return None

    async def send_notification(self, notice: BaseModel, related_request_id: object = None) -> None:
        await self._notify(notice_of(notice))

    async def send_request(self, question: Any, result: type[BaseModel], timeout_s: float) -> Any:
        """Return the client's answer to *question*. Raises MCPError, and ValidationError."""
        return result.model_validate(await self._connection.ask(question, timeout_s, self._notify), by_name=False)

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        token = self._request.progress_token
        if token is not None:
            params = {"progressToken": token, "progress": progress, "total": total, "message": message}
            fields = {name: value for name, value in params.items() if value is not None}
            await self._notify(notification("notifications/progress", fields))


@dataclass(slots=True)
class Exchange:
    """A request while it is answered, as handlers see it. Has the names that the SDK's `ServerRequestContext` has."""

    method: str
    params: Mapping[str, Any]
    request_id: wire.RequestId
    protocol_version: str
    meta: Mapping[str, Any]
    session: Client
    request: Any
    connection: Any = None
    lifespan_context: Any = None
    close_sse_stream: Callable[[], Any] | None = None
    exact_arguments: str | None = None
    """Those of a call, as text, where floats do not hold all digits of its numbers."""

    @classmethod
    def of(cls, request: Request, notify: Callable[[bytes], Any], http: Any, connection: Any = None) -> "Exchange":
        meta = request.params.get("_meta")
        meta = {**(meta if isinstance(meta, dict) else {}), "progress_token": request.progress_token}
        client = Client(request, notify, connection)
        params = request.params
        exact = params.text if isinstance(params, ExactParams) else None
        return cls(
            request.method, params, request.id, request.version, meta, client, http, connection, exact_arguments=exact
        )


# What comes


def read_request(message: Any, headers: Mapping[str, str], pairs: list[tuple[str, str]]) -> Request | None:
    """Return the request that *message* is; None for a notification. *pairs* are the *headers* as they came.

    Raises Refusal.
    """
    _require_request(message)
    if "id" not in message:
        _refuse(unsupported_protocol_version_rejection(headers.get(VERSION, "")), None)
        return None
    request_id = message["id"]
    if (twice := find_duplicated_routing_header(pairs)) is not None:
        raise Refusal(wire.HEADER_MISMATCH, f"{twice} header appears more than once", request_id=request_id)
    route = classify_inbound_request(message, headers=headers)
    if isinstance(route, InboundLadderRejection):
        _refuse(route, request_id)
    assert not isinstance(route, InboundLadderRejection)
    task_id = message["params"].get("taskId")
    if message["method"] in TASK_METHODS and decode_header_value(headers.get(MCP_NAME_HEADER)) != task_id:
        reason = f"{MCP_NAME_HEADER} header does not match the request body's 'taskId' parameter"
        raise Refusal(wire.HEADER_MISMATCH, reason, request_id=request_id)
    return Request(request_id, message["method"], message["params"], route.protocol_version, route.client_capabilities)


def require_param_headers(request: Request, input_schema: Mapping[str, Any], headers: Mapping[str, str]) -> None:
    """Raise Refusal where a header `Mcp-Param-*` says something else than the argument that it is of."""
    arguments = request.params.get("arguments") or {}
    if isinstance(arguments, dict):
        _refuse(validate_mcp_param_headers(input_schema, arguments, headers), request.id)


def params_of(request: Exchange, model: type[BaseModel]) -> Any:
    """Return the params of *request* as *model*. Raises MCPError for an unknown method, and ValidationError."""
    if request.method not in TASK_METHODS or request.protocol_version not in MODERN:
        try:
            methods.validate_client_request(request.method, request.protocol_version, request.params)
        except KeyError:
            raise unknown_method(request.method) from None
    return model.model_validate(request.params, by_name=False)


def unknown_method(method: str) -> MCPError:
    return MCPError(wire.METHOD_NOT_FOUND, "Method not found", method)


def is_handshake(version: str) -> bool:
    """Return whether *version*, as a header names it, is of the older era; an empty one is, too."""
    return not version or version in HANDSHAKE_PROTOCOL_VERSIONS


def _require_request(message: Any) -> None:
    """Raise Refusal unless *message* is a request or a notification."""
    is_object = isinstance(message, dict) and isinstance(message.get("params", {}), dict | None)
    if not is_object or message.get("jsonrpc") != "2.0" or not isinstance(message.get("method"), str):
        raise Refusal(wire.INVALID_REQUEST, _BODY)
    if type(message.get("id", 0)) not in (str, int):
        raise Refusal(wire.INVALID_REQUEST, _BODY)


def _refuse(rejection: InboundLadderRejection | None, request_id: wire.RequestId | None) -> None:
    if rejection is not None:
        raise Refusal(rejection.code, rejection.message, rejection.data, request_id)


# What goes


class Encoded(list[Any]):
    """A list with its JSON, written once for as many answers as it is in."""

    def __init__(self, items: Iterable[Any]) -> None:
        super().__init__(items)
        self.json = to_bytes(self)


def shaped(method: str, version: str, answer: Any, server_info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a request as its *version* has it, of what a handler returned. Raises ValidationError."""
    is_model = isinstance(answer, BaseModel)
    data: dict[str, Any] = answer.model_dump(by_alias=True, mode="json", exclude_none=True) if is_model else {**answer}
    is_own = not is_model and method in _OWN_SHAPE
    if version == LATEST_HANDSHAKE_VERSION and is_own:
        for name in _NEWER:
            data.pop(name, None)
        return data
    if not is_own or version not in MODERN:
        data = methods.serialize_server_result(method, version, data)
    if version not in MODERN:
        return data
    data.setdefault("resultType", "complete")
    data["_meta"] = {**(data.get("_meta") or {}), wire.SERVER_INFO_META_KEY: server_info}
    return data


def result(request_id: wire.RequestId, data: Mapping[str, Any]) -> bytes:
    """Return the answer with the result *data*."""
    lists = [b"%b:%b" % (to_json(name), value.json) for name, value in data.items() if type(value) is Encoded]
    others = {name: value for name, value in data.items() if type(value) is not Encoded} if lists else data
    members = b",".join([*lists, to_bytes(others)[1:-1]] if others else lists)
    return b'{"jsonrpc":"2.0","id":%b,"result":{%b}}' % (to_bytes(request_id), members)


def error(request_id: wire.RequestId | None, data: wire.ErrorData) -> bytes:
    fields = data.model_dump(mode="json", by_alias=True, exclude_none=True)
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (to_bytes(request_id), to_bytes(fields))


def notification(method: str, params: Mapping[str, Any] | None) -> bytes:
    return to_bytes({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})


def notice_of(model: BaseModel) -> bytes:
    data = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return notification(data["method"], data.get("params"))


def status_of(code: int) -> int:
    """Return the HTTP status of an answer that is the error *code*."""
    return ERROR_CODE_HTTP_STATUS.get(code, 200)


def error_of(failure: Exception) -> wire.ErrorData | None:
    """Return the error that a handler ended with; None for one that a client must not read."""
    match failure:
        case MCPError(error=data):
            return data
        case ValidationError():
            return wire.ErrorData(code=wire.INVALID_PARAMS, message="Invalid request parameters", data="")
        case _:
            return None
