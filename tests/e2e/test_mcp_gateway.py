"""A crib in front of another MCP server: what that one offers and asks goes through, in both eras."""

from typing import Any

import mcp_types as wire
import pytest
from mcp import Client

from toolcrib import Crib
from toolcrib.serve import server

pytestmark = pytest.mark.full


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_question_of_an_upstream_server_reaches_the_client_and_its_answer_the_server(
    mcp_url: str, mode: str
) -> None:
    asked: list[str] = []

    async def person(_: object, params: Any) -> wire.ElicitResult:
        asked.append(params.message)
        return wire.ElicitResult(action="accept", content={"username": "ada", "email": "ada@example.org"})

    async with (
        Crib([f"mcp:{mcp_url}"]) as crib,
        Client(server(crib), mode=mode, elicitation_callback=person) as client,
    ):
        assert "test_elicitation" in [listed.name for listed in (await client.list_tools()).tools]
        result = await client.call_tool("test_elicitation", {"message": "Who are you?"})
        assert "ada@example.org" in str(result.content)
        assert ["Who are you?" in message for message in asked] == [True]
        assert (await client.call_tool("test_error_handling")).is_error
        read = (await client.read_resource("test://template/7/data")).contents[0]
        assert isinstance(read, wire.TextResourceContents)
        assert '"id": "7"' in read.text
        filled = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        assert "arg1='a', arg2='b'" in str(filled.messages[0].content)
