"""The older era over HTTP, as this server answers it: as the SDK would, in a session and without one."""

import json
from collections.abc import Mapping
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from toolcrib import Crib

from .sdk_server import both
from .serving import add
from .test_protocol import ask, body, status
from .test_protocol_pipe import OLDER
from .test_protocol_session import ENVELOPE, HELLO, sent

HERE = {"mcp_protocol_version": "2025-11-25", "mcp_method": None, "mcp_name": None}
NOT_HERE = [message for message in OLDER if b'"before"' in message or b'"result"' in message]
ODD: dict[str, tuple[bytes, dict[str, Any]]] = {
    "half of a message": (b'{"jsonrpc": "2.0", ', {}),
    "nothing": (b"", {}),
    "a list of facts": (sent("tools/list", 1, _meta=[7]), {}),
    "a call without facts": (sent("tools/call", 1, name="add", arguments={"a": 1, "b": 2}, _meta=7), {}),
    "a batch": (b"[" + sent("tools/list", 1) + b"]", {}),
    "no JSON-RPC": (b'{"jsonrpc": "1.0", "id": 1, "method": "tools/list"}', {}),
    "a method that is a number": (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', {}),
    "a notice that nobody knows": (sent("notifications/odd"), {}),
    "no version": (sent("tools/list", 1), {"mcp_protocol_version": None}),
    "another version of the era": (sent("tools/list", 1), {"mcp_protocol_version": "2024-11-05"}),
    "who takes JSON alone": (sent("tools/list", 1), {"accept": "application/json"}),
    "who takes all": (sent("tools/list", 1), {"accept": "*/*"}),
    "a form": (sent("tools/list", 1), {"content_type": "text/plain"}),
    "a kind with a charset": (sent("tools/list", 1), {"content_type": "application/json; charset=utf-8"}),
    "what is too large": (b" " * (4 * 1024**2 + 1), {}),
    "what says it is too large": (sent("tools/list", 1), {"content_length": str(4 * 1024**2 + 1)}),
    "a session that is not there": (sent("tools/list", 1), {"mcp_session_id": "x"}),
    "no session": (sent("tools/list", 1), {"mcp_session_id": None}),
    "no session, and no message": (b"{", {"mcp_session_id": None}),
    "a PUT": (b"", {"method": "PUT"}),
    "a GET that takes no stream": (b"", {"method": "GET", "accept": "application/json"}),
    "a GET without a session": (b"", {"method": "GET", "mcp_session_id": None}),
    "a GET of a session that is not there": (b"", {"method": "GET", "mcp_session_id": "x"}),
    "a DELETE without a session": (b"", {"method": "DELETE", "mcp_session_id": None}),
    "a DELETE": (b"", {"method": "DELETE"}),
    "a call after it": (sent("tools/list", 1), {}),
}


def told(answer: list[Any]) -> tuple[int, Any]:
    """The status, and the last message, whether it came alone or on a stream."""
    text = body(answer).decode()
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith(("data: {", "{"))]
    message = json.loads(lines[-1]) if lines else None
    if status(answer) >= 400:
        message = None  # each in their own words
    return status(answer), message


def headers_of(answer: list[Any]) -> Mapping[bytes, bytes]:
    return dict(answer[0]["headers"])


async def test_whatever_comes_in_a_session_is_answered_as_the_sdk_answers_it() -> None:
    async with Crib([add]) as crib:
        own, theirs = both(crib)
        older, sdk = own.sessions(), StreamableHTTPSessionManager(theirs)
        async with own.handlers.running(), older.run(), sdk.run():
            sessions: list[Any] = []
            for app in (older, sdk.handle_request):
                hello = await ask(app, sent("initialize", 0, **HELLO), **HERE)
                sessions.append((app, headers_of(hello)[b"mcp-session-id"].decode()))
            requests = [(message.decode(), (message, {})) for message in OLDER if message not in NOT_HERE]
            for what, (message, options) in [*requests, *ODD.items()]:
                answers = [
                    told(await ask(app, message, **{**HERE, "mcp_session_id": session, **options}))
                    for app, session in sessions
                ]
                assert answers[0] == answers[1], what


async def test_a_request_of_the_other_era_is_refused_in_a_session() -> None:
    async with Crib([add]) as crib:
        own, _ = both(crib)
        older = own.sessions()
        async with own.handlers.running(), older.run():
            hello = await ask(older, sent("initialize", 0, **HELLO), **HERE)
            session = headers_of(hello)[b"mcp-session-id"].decode()
            answer = await ask(older, sent("tools/list", 1, _meta=ENVELOPE), **{**HERE, "mcp_session_id": session})
            assert (status(answer), json.loads(body(answer))["error"]["code"]) == (400, -32600)
            # A handshake that fails leaves no session.
            failed = await ask(older, sent("initialize", 0, protocolVersion=7), **HERE)
            assert (b"mcp-session-id" in headers_of(failed), len(older._sessions)) == (False, 1)
