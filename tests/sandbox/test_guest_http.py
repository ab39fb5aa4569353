"""Requests of guests, as the worker sends them. tests/tools/ has those of real guests."""

import asyncio
import json
import socket
from typing import Any

import pytest

from toolcrib.sandbox.guest_http import GuestHttp, RequestRefused


async def refusal(hosts: list[str], request: Any, **options: Any) -> str:
    http = GuestHttp(hosts, options.get("private_hosts", []))
    try:
        with pytest.raises(RequestRefused) as raised:
            await asyncio.to_thread(http.fetch, request if isinstance(request, str) else json.dumps(request))
    finally:
        await http.aclose()
    return str(raised.value)


@pytest.mark.parametrize("address", ["169.254.169.254", "127.0.0.1", "10.0.0.1", "::1", "fe80::1", "::ffff:10.0.0.1"])
async def test_a_name_that_leads_to_an_address_that_is_not_public_is_refused(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    answer = [(family, socket.SOCK_STREAM, 6, "", (address, 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer)  # a name server of the attacker's
    found = await refusal(["rebound.example.com"], {"url": "https://rebound.example.com/"})
    assert found.startswith("'rebound.example.com' may not be reached: it does not lead to a public address.")


@pytest.mark.parametrize(
    "request_",
    [
        "",
        "[]",
        "null",
        "7",
        "{}",
        '{"url": 1, "headers": 3}',
        '{"url": "x", "headers": [["a"]]}',
        '{"url": "x", "body": "~"}',
        '{"url": "x", "timeout_s": "soon"}',
        "[" * 100_000,
    ],
)
async def test_a_request_that_is_not_as_it_has_to_be_is_refused(request_: str) -> None:
    expected = "The request is not as it has to be: a JSON object with a 'url'."
    assert await refusal(["example.com"], request_) == expected


async def test_a_request_that_is_too_large_is_not_sent() -> None:
    for body in ("A" * 12 * 1024**2, "A" * 17 * 1024**2):
        request = {"url": "https://example.com/", "method": "POST", "body": body}
        assert await refusal(["example.com"], request) == "The request has more than 8388608 bytes."


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), 1e-9])
async def test_no_time_is_time_that_is_over(timeout_s: float) -> None:
    request = {"url": "https://localhost:1/", "timeout_s": timeout_s}
    assert "did not answer within" in await refusal(["localhost:1"], request, private_hosts=["localhost"])
