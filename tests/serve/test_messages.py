"""Messages before they are parsed: in pieces, at the limit, and with numbers of many digits."""

import json
from typing import Any

import pytest

from toolcrib.serve.mcp import messages as module
from toolcrib.serve.mcp.messages import exact, read_now
from toolcrib.serve.protocol import reply
from toolcrib.serve.protocol.reply import read_post


def call(arguments: str, **parts: Any) -> bytes:
    params = json.dumps({"name": "pay", "arguments": 7, **parts}).replace("7", arguments, 1)
    return f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}}}'.encode()


LONG = '{"amount": 98765432109876543.21}'


def beside(message: bytes) -> Any:
    """The arguments that travel as text beside a call."""
    meta = json.loads(message)["params"]["_meta"]
    return {name: value for name, value in meta.items() if name.startswith("toolcrib/arguments-")}


def test_only_a_call_with_numbers_that_no_float_holds_has_its_arguments_beside_it() -> None:
    [text] = beside(exact(call(LONG, _meta={"progressToken": 1}))).values()
    assert json.loads(text, parse_float=str) == {"amount": "98765432109876543.21"}
    assert json.loads(exact(call(LONG, _meta={"progressToken": 1})))["params"]["_meta"]["progressToken"] == 1
    for same in (
        call('{"amount": 1.5}'),
        call('{"text": "1234567890123456"}'),
        call(LONG).replace(b"tools/call", b"tools/list"),
        b'{"method": "tools/call", "params": 12345678901234567}',
        b"[12345678901234567]",
        b"12345678901234567.5 and no JSON",
    ):
        assert exact(same) is same


def test_a_call_that_its_arguments_would_make_too_long_is_passed_on_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = call(LONG)
    made = exact(sent)
    monkeypatch.setattr(module, "LIMIT_BYTES", len(made))
    assert exact(sent) == made
    monkeypatch.setattr(module, "LIMIT_BYTES", len(made) - 1)
    assert exact(sent) is sent


@pytest.mark.parametrize(
    ("start", "found"),
    [
        ('"id": 7', 7),
        ('"id": "x"', "x"),
        ('"id": true', None),
        ('"id": null', None),
        ('"id": 1.5', None),
        ('"a": 1', None),
    ],
)
def test_a_message_that_is_refused_is_answered_under_its_id(start: str, found: Any) -> None:
    _, text = read_now(f'{{{start}, "b": 1, "b": 2}}'.encode())
    assert text is not None
    answer = json.loads(text)
    assert answer["id"] == found
    assert answer["error"]["message"] == (
        "This message cannot be read with certainty: the name 'b' appears twice in an object, "
        f"at line 1 column {len(start) + 16}."
    )


async def test_a_message_in_pieces_is_read_whole_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = b'{"id": 1, "a": 1, "a": 2}'
    once = b'{"id": 1, "a": 1, "b": 2}'
    monkeypatch.setattr(reply, "LIMIT_BYTES", len(twice))

    async def passed(*pieces: bytes, leaves: bool = False, **headers: str) -> tuple[bytes | None, list[Any]]:
        """What is read, and the statuses of what is answered in its place."""
        left = [{"type": "http.request", "body": each, "more_body": True} for each in pieces]
        left.append(
            {"type": "http.disconnect"} if leaves else {"type": "http.request", "body": b"", "more_body": False}
        )
        answered: list[Any] = []

        async def receive() -> Any:
            return left.pop(0)

        async def send(message: Any) -> None:
            answered.append(message)

        pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": "POST", "headers": pairs}
        body = await read_post(scope, receive, send)
        return body, [message["status"] for message in answered if "status" in message]

    for pieces in [(twice,), (twice[:5], twice[5:]), (twice, b"")]:
        assert await passed(*pieces) == (None, [400])
    for pieces in [(once,), (once[:5], once[5:]), (once, b"")]:
        assert await passed(*pieces) == (once, [])
    assert await passed(once, b" ") == (None, [413])
    assert await passed(once, content_length="26") == (None, [413])
    assert await passed(once[:5], leaves=True) == (None, [])
