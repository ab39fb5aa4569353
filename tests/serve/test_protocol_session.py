"""One connection, message by message, and with whatever comes."""

import json
import random
from collections.abc import Iterator
from typing import Any

import mcp_types as wire
import pytest

from toolcrib.serve.protocol.core import Request, error
from toolcrib.serve.protocol.messages import Refusal, read
from toolcrib.serve.protocol.session import Cancelled, Reply, Session

HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "c", "version": "1"},
}
ENVELOPE = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


def sent(method: str, request_id: Any = None, **params: Any) -> bytes:
    return json.dumps(
        {"jsonrpc": "2.0", **({} if request_id is None else {"id": request_id}), "method": method, "params": params}
    ).encode()


def received(session: Session, message: bytes) -> Any:
    try:
        return session.receive(read(message))
    except Refusal as refusal:
        return refusal


def asked(session: Session, message: bytes) -> Request:
    request = received(session, message)
    assert isinstance(request, Request)
    return request


def opened() -> Session:
    session = Session()
    handshake = asked(session, sent("initialize", 0, **HELLO))
    assert (handshake.version, session.state) == ("2025-06-18", "greeting")
    session.answer(handshake, {"protocolVersion": handshake.version})
    assert (session.state, session.capabilities.elicitation is None) == ("open", False)
    return session


def code(answer: object) -> int:
    if isinstance(answer, Refusal):
        answer = error(answer.request_id, answer.error)
    return int(json.loads(answer)["error"]["code"])


def test_a_request_is_answered_once_and_a_cancelled_one_never() -> None:
    session = opened()
    first = asked(session, sent("tools/list", 1))
    assert (first.method, first.version, first.params) == ("tools/list", "2025-06-18", {})
    assert code(received(session, sent("tools/list", 1))) == wire.INVALID_REQUEST
    assert json.loads(session.answer(first, {"tools": []}) or b"")["result"] == {"tools": []}
    assert session.answer(first, {}) is None
    second = asked(session, sent("tools/call", "a", name="x"))
    assert received(session, sent("notifications/cancelled", requestId="b")) is None
    assert received(session, sent("notifications/cancelled", requestId="a")) == Cancelled("a")
    assert received(session, sent("notifications/cancelled", requestId="a")) is None
    third = asked(session, sent("tools/call", "a", name="x"))  # its id is free again
    assert session.answer(second, {}) is None
    assert session.answer(third, {}) is not None


def test_what_the_server_asks_is_answered_by_its_own_id_and_once() -> None:
    session = opened()
    own_id, message = session.ask("roots/list", None)
    assert json.loads(message) == {"jsonrpc": "2.0", "id": own_id, "method": "roots/list"}
    reply = json.dumps({"jsonrpc": "2.0", "id": own_id, "result": {"roots": []}}).encode()
    assert (received(session, reply), received(session, reply)) == (Reply(own_id, {"roots": []}), None)
    assert session.give_up(own_id, "late") is None
    own_id, _ = session.ask("roots/list", None)
    error = {"code": -1, "message": "no", "data": 7}
    assert received(session, json.dumps({"jsonrpc": "2.0", "id": own_id, "error": error}).encode()) == Reply(
        own_id, wire.ErrorData(code=-1, message="no", data=7)
    )
    own_id, _ = session.ask("roots/list", None)
    assert b"late" in (session.give_up(own_id, "late") or b"")
    assert received(session, json.dumps({"jsonrpc": "2.0", "id": own_id, "result": {}}).encode()) is None


def test_the_first_request_decides_the_era_and_the_other_is_refused() -> None:
    session = Session()
    assert received(session, sent("notifications/cancelled", requestId=1)) is None
    request = asked(session, sent("tools/list", 1, _meta=ENVELOPE))
    assert (request.version, session.state) == ("2026-07-28", "stateless")
    refused = received(session, sent("initialize", 2, **HELLO))
    assert refused.error.code == -32022
    assert refused.error.data == {"supported": ["2026-07-28"], "requested": "2025-06-18"}
    assert code(received(session, sent("tools/list", 2))) == wire.INVALID_PARAMS
    assert received(session, sent("notifications/cancelled", requestId=1)) == Cancelled(1)
    assert code(received(opened(), sent("tools/list", 1, _meta=ENVELOPE))) == wire.INVALID_REQUEST


@pytest.mark.parametrize(
    "text", ["[]", "7", *(f'{{"jsonrpc":"2.0","id":{id},"method":"x"}}' for id in ("null", "true", "1.0", "[1]", "{}"))]
)
def test_what_is_no_message_is_refused(text: str) -> None:
    assert code(received(opened(), text.encode())) == wire.INVALID_REQUEST


# Whatever comes

PIECES = (
    *("initialize", "ping", "tools/list", "tools/call", "server/discover", "x", "notifications/cancelled"),
    *("notifications/initialized", "notifications/progress", "subscriptions/listen", "logging/setLevel"),
)


def values(dice: random.Random, depth: int = 0) -> Any:
    kinds: list[Any] = [None, True, 0, 1, -7, 1.5, 10**30, "", "1", "x\ud800", HELLO, ENVELOPE]
    if depth < 2:
        name = dice.choice(["_meta", "requestId", "name", "a"])
        kinds += [[values(dice, depth + 1)], {name: values(dice, depth + 1)}]
    return dice.choice(kinds)


def messages(dice: random.Random, count: int) -> Iterator[bytes]:
    """Messages that are right, nearly right, cut, joined, and no messages at all."""
    for _ in range(count):
        message: dict[str, Any] = {"jsonrpc": dice.choice(["2.0"] * 9 + ["1.0", 2])}
        if dice.random() < 0.7:
            message["id"] = dice.choice([0, 1, 2, "1", "a", values(dice)])
        if dice.random() < 0.8:
            message["method"] = dice.choice([*PIECES, values(dice)])
        for name in ("params", "result", "error"):
            if dice.random() < (0.7 if name == "params" else 0.15):
                message[name] = dice.choice([HELLO, {"requestId": 1}, {"_meta": ENVELOPE}, values(dice)])
        data = json.dumps(message).encode()
        match dice.randrange(12):
            case 0:
                data = data[: dice.randrange(len(data))]
            case 1:
                data = bytes(byte ^ (dice.random() < 0.05) * dice.randrange(256) for byte in data)
            case 2:
                data = dice.randbytes(dice.randrange(40))
            case 3:
                data += data
            case _:
                pass
        yield data


def play(seed: int, count: int) -> None:
    """Answer whatever comes, and check what holds for all of it."""
    dice, session = random.Random(seed), Session()
    open_ones: list[Request] = []
    answered: set[int] = set()
    for message in messages(dice, count):
        before = session.state
        event = received(session, message)
        # The eras never change into one another.
        assert before in ("new", session.state) or {before, session.state} == {"greeting", "open"}
        if isinstance(event, Refusal):
            assert code(event) < 0
        elif isinstance(event, bytes):
            assert json.loads(event)["result"] == {}
        elif isinstance(event, Request):
            open_ones.append(event)
            assert session.requests[event.id] is event
        elif isinstance(event, Cancelled):
            assert event.id not in session.requests
        elif isinstance(event, Reply):
            assert event.id in answered
            answered.discard(event.id)
        if dice.random() < 0.1:
            answered.add(session.ask("roots/list", None)[0])
        if open_ones and dice.random() < 0.5:
            request = open_ones.pop(dice.randrange(len(open_ones)))
            is_open = session.requests.get(request.id) is request
            is_valid = "capabilities" in request.params
            result = {"x": 1} if request.method != "initialize" or is_valid else wire.ErrorData(code=-1, message="no")
            answer = session.answer(request, result)
            assert (answer is not None) == is_open
            if answer is not None:
                half = str(request.id).encode(errors="replace").decode()  # of a character, which UTF-8 cannot have
                assert str(json.loads(answer)["id"]) == half


@pytest.mark.parametrize("seed", range(20))
def test_any_bytes_in_any_order_are_answered_or_passed_over(seed: int) -> None:
    play(seed, 300)


@pytest.mark.nightly
def test_any_bytes_in_any_order_for_long() -> None:
    for seed in range(1000, 3000):
        play(seed, 500)
