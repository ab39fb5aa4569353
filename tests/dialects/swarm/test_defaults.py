"""The defaults."""

import inspect

from toolcrib.dialects.swarm import IAgentTool, execute_tools

ECHO = {"name": "echo", "description": "Echo.", "parameters": {"type": "object", "properties": {}}}


def test_a_turn_has_a_minute_for_each_call_no_secrets_and_errors_without_their_text() -> None:
    parameters = inspect.signature(execute_tools).parameters.values()
    assert {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty} == {
        "call_reason": "",
        "max_tool_calls": None,
        "abort": None,
        "timeout_s": 60,
        "secrets": (),
        "show_errors": False,
    }


async def test_the_text_of_an_error_is_shown_only_with_show_errors() -> None:
    def fails(dto: object) -> str:
        raise ValueError("the text")

    tool = IAgentTool(tool_name="echo-tool", function=ECHO, call=fails)
    calls = [{"id": "c1", "type": "function", "function": {"name": "echo", "arguments": {}}}]
    shown = [
        (await execute_tools("c", "a", calls, [tool], **more)).errors["c1"].message  # type: ignore[arg-type]
        for more in ({}, {"show_errors": True})
    ]
    assert ["the text" in message for message in shown] == [False, True]
