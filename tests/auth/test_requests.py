"""What is sent to a provider for each step of OAuth, and the bounds of what its answers may say."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from toolcrib.auth import FlowError, Grant

from .conftest import NOON, TOKEN, Server, as_json
from .test_hostile import exchanged, flow

DEVICE = {"device_code": "a-device-code", "user_code": "ABCD-EFGH", "verification_uri": "https://idp.example/device"}


@pytest.mark.parametrize(
    ("answer", "url"),
    [
        ({}, DEVICE["verification_uri"]),
        ({"verification_uri_complete": "https://idp.example/device?code=1"}, "https://idp.example/device?code=1"),
        ({"verification_uri": None, "verification_url": "https://idp.example/2"}, "https://idp.example/2"),
        ({"verification_uri": None}, None),
        ({"device_code": None}, None),
        ({"user_code": ""}, None),
        ({"verification_uri": "http://idp.example/device"}, None),
    ],
)
async def test_a_code_for_another_device_has_an_address_that_a_person_can_trust(
    server: Server, answer: dict[str, Any], url: str | None
) -> None:
    server.answers["/device"] = as_json({**DEVICE, **answer})
    if url is not None:
        assert (await flow(server).start_device([])).verification_url == url
        assert "scope" not in server.sent("/device")[0]
        return
    with pytest.raises(FlowError) as raised:
        await flow(server).start_device([])
    assert raised.value.error == "malformed"


async def test_what_an_answer_leaves_out_is_as_the_table_says(server: Server) -> None:
    lasting = {**TOKEN, "refresh_token": "a-refresh-token", "place": "x" * 2000, "longer": "x" * 2001}
    made = replace(flow(server, lifetime_s=60, keep=["place", "longer"]), clock=lambda: NOON)
    server.answers["/token"] = as_json(lasting)
    grant = await exchanged(made)
    assert (grant.expires_at, grant.detail) == (NOON + timedelta(seconds=60), {"place": "x" * 2000})
    server.answers["/token"] = as_json(TOKEN)  # a token that nobody can refresh is not given up early
    assert (await exchanged(made)).expires_at is None
    again = await made.refresh(grant)
    assert (again.refresh_token, again.detail) == ("a-refresh-token", grant.detail)
    server.answers["/token"] = as_json({**TOKEN, "expires_in": 999_999_999})
    assert (await exchanged(made)).expires_at == NOON + timedelta(seconds=999_999_999)
    with pytest.raises(FlowError, match="gave no refresh token") as raised:
        await made.refresh(Grant("the-access-token"))
    assert raised.value.refused
    server.answers["/token"] = as_json({**lasting, "token_type": "mac"})
    odd = await exchanged(flow(server, token_types=[], refresh="none", offline_scope="offline"))
    assert (odd.refresh_token, odd.scopes) == (None, ("read",))
    assert (await exchanged(flow(server, token_types=["mac"], offline_scope="offline"))).scopes == ("read", "offline")
