"""The defaults."""

import inspect

import pytest

from toolcrib.dialects.swarm import IAgentTool, execute_tools
from toolcrib.dialects.swarm.interfaces import ToolEvent
from toolcrib.dialects.swarm.tool import AgentTool

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


def test_a_subclass_may_ask_the_base_which_accepts_everything_for_everybody() -> None:
    class Echo(IAgentTool):
        tool_name = "echo-of-a-class"
        function = ECHO

        def call(self, dto: object) -> str:
            return super().call(dto)  # type: ignore[arg-type, no-any-return]

    echo = Echo()
    assert IAgentTool.validate(echo, {"params": {}}) is True  # type: ignore[arg-type]
    assert IAgentTool.is_available(echo, "client", "agent", "echo-of-a-class") is True
    with pytest.raises(NotImplementedError):
        echo.call({})


def test_a_tool_that_was_read_has_no_checks_of_its_own_and_our_spelling() -> None:
    tool = AgentTool(tool_name="echo-tool", function=ECHO, call=print, callbacks={})
    assert (tool.validate, tool.is_available, tool.doc_note, tool.is_camel) == (None, None, None, False)
    assert ToolEvent("on_validate", "c1", "echo").detail == ""
