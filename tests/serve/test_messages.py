"""Messages before they are parsed: in pieces, at the limit, and with numbers of many digits."""

import json
from decimal import Decimal
from typing import Any

import mcp_types as wire
import pytest
from starlette.types import ASGIApp

from toolcrib import Crib, tool
from toolcrib.serve import server
from toolcrib.serve.protocol.messages import ExactParams, Refusal, read, read_soon
from toolcrib.workbench import Rule, Rules

from .test_protocol import ENVELOPE, ask, body


def call(arguments: str, **parts: Any) -> bytes:
    params = json.dumps({"name": "pay", "arguments": 7, **parts}).replace("7", arguments, 1)
    return f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}}}'.encode()


LONG = '{"amount": 98765432109876543.21}'


def test_only_a_call_with_numbers_that_no_float_holds_has_its_arguments_as_text() -> None:
    params = read(call(LONG, _meta={"progressToken": 1}))["params"]
    assert json.loads(params.text, parse_float=str) == {"amount": "98765432109876543.21"}
    assert params["_meta"] == {"progressToken": 1}
    for other in (
        call('{"amount": 1.5}'),
        call('{"amount": 98765432109876543210}'),
        call('{"text": "1234567890123456"}'),
        call('{"text": "\\ud800123", "amount": 98765432109876543.21}'),  # which the check of the call refuses
        call(LONG).replace(b"tools/call", b"tools/list"),
        b'{"method": "tools/call", "params": 12345678901234567}',
        b"[12345678901234567]",
    ):
        message = read(other)
        assert message == json.loads(other)
        assert not isinstance(message, dict) or not isinstance(message["params"], ExactParams)


@pytest.mark.parametrize(
    "text", [b"12345678901234567.5 and no JSON", b"", b"\0{}", b"\xff", "{}".encode("utf-16"), b"[" * 100_000]
)
def test_what_is_no_json_in_utf_8_is_refused(text: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        read(text)
    assert (caught.value.error.code, caught.value.request_id) == (wire.PARSE_ERROR, None)


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"], ids=["plain", "with a mark"])
@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ('{"a": 1, "b": 2, "a": 3}', "a"),
        ('{"a": 1, "\\u0061": 3}', "a"),
        ('{"a": 1}, "name": "drop"', "name"),
        ('{"a": [{"c": {"d": 1, "d": "' + "x" * 100_000 + '"}}]}', "d"),
    ],
    ids=["plain", "escaped", "of the call", "deep and long"],
)
async def test_a_name_that_stands_twice_is_refused_however_it_is_written(
    arguments: str, name: str, start: bytes
) -> None:
    with pytest.raises(Refusal) as caught:
        await read_soon(start + call(arguments))
    assert (caught.value.error.code, caught.value.request_id) == (wire.INVALID_REQUEST, 1)
    assert f"the name '{name}' appears twice in an object, at line 1 column" in caught.value.error.message


@pytest.mark.parametrize(
    ("start", "found"),
    [
        ('"id": 7', 7),
        ('"id": "x"', "x"),
        *((start, None) for start in ('"id": true', '"id": null', '"id": 1.5', '"a": 1')),
    ],
)
def test_a_message_that_is_refused_is_answered_under_its_id(start: str, found: Any) -> None:
    with pytest.raises(Refusal) as caught:
        read(f'{{{start}, "b": 1, "b": 2}}'.encode())
    assert (caught.value.request_id, caught.value.error.code) == (found, wire.INVALID_REQUEST)
    assert caught.value.error.message == (
        "This message cannot be read with certainty: the name 'b' appears twice in an object, "
        f"at line 1 column {len(start) + 16}."
    )


async def test_the_digits_of_a_call_last_until_a_person_has_approved_it() -> None:
    paid: list[Decimal] = []

    @tool(destructive=True)
    async def pay(amount: Decimal) -> str:
        paid.append(amount)
        return "paid"

    capabilities = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}

    async def answer(app: ASGIApp, **params: Any) -> Any:
        sent = call(LONG, _meta={**ENVELOPE, **capabilities}, **params)
        return json.loads(body(await ask(app, sent, mcp_method="tools/call", mcp_name="pay")))["result"]

    async with Crib([pay], policy=Rules([Rule(hint="destructive", do="ask")])) as crib:
        mcp_server = server(crib)
        app = mcp_server.stateless(mcp_server.sessions())
        async with mcp_server.handlers.running():
            asked = await answer(app)
            [name] = asked["inputRequests"]
            accepted = {name: {"action": "accept", "content": {"approve": True}}}
            result = await answer(app, requestState=asked["requestState"], inputResponses=accepted)
    assert (result["content"][0]["text"], paid) == ("paid", [Decimal("98765432109876543.21")])
