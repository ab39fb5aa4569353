"""How the formats are reached, and what they load."""

import json
import subprocess
import sys
from typing import Any

import pytest

from toolcrib import Call, Result, SetupError, Tool, ToolSpec, formats


def run(code: str) -> list[object]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_formats_come_when_they_are_first_asked_for_and_load_no_providers_package() -> None:
    assert run(
        """
import json, sys, toolcrib
loaded = lambda *names: print(json.dumps([name for name in names if name in sys.modules]))
loaded("toolcrib.formats")
tools = toolcrib.formats.openai.tools
loaded("toolcrib.formats", "toolcrib.formats.openai", "toolcrib.formats.anthropic", "openai", "mcp")
toolcrib.formats.openai_responses, toolcrib.formats.anthropic, toolcrib.formats.gemini, toolcrib.formats.bedrock
toolcrib.formats.mcp
loaded("openai", "anthropic", "google.genai", "boto3", "mcp", "httpx", "httpx2")
"""
    ) == [[], ["toolcrib.formats", "toolcrib.formats.openai"], []]


def test_what_was_asked_of_all_tools_as_strict_is_lifted_where_it_is_written_again() -> None:
    async def add(a: int, b: int = 1) -> int:
        return a + b

    specs = [Tool(add).spec]
    message = {"role": "assistant", "tool_calls": [_asked("add", '{"a": 1, "b": null}')]}
    answer = {"choices": [{"message": message, "finish_reason": "tool_calls"}]}

    assert formats.openai.tools(specs, strict=True)[0]["function"]["parameters"]["required"] == ["a", "b"]
    (strictly,) = formats.openai.calls(answer, specs, strict=True)
    assert strictly.arguments == {"a": 1}
    (as_the_spec_says,) = formats.openai.calls(answer, specs)
    assert as_the_spec_says.arguments == '{"a": 1, "b": null}'


def _asked(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


FORMATS = pytest.mark.parametrize("name", ["openai", "openai_responses", "anthropic", "gemini", "bedrock"])


@FORMATS
def test_a_choice_of_no_tool_names_the_nearest_and_calls_without_results_are_refused(name: str) -> None:
    form, specs = getattr(formats, name), [Tool(lambda: 1, name="double").spec]
    with pytest.raises(SetupError, match=r"The tool choice 'duoble' .* Did you mean 'double'"):
        form.tool_choice("duoble", specs)
    with pytest.raises(ValueError, match="The calls t1 have no results: the conversation ends"):
        form.conversation([formats.Reply("", (Call("double", {}, "t1"),))], specs)
    with pytest.raises(ValueError, match=r"results\[0\] \('double'\) has no call_id"):
        form.messages([Result(2, (), tool="double")])


def test_a_format_that_nobody_has_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'opnai'"):
        _ = formats.opnai  # type: ignore[attr-defined]
    assert {"openai", "mcp", "Reply"} <= set(dir(formats))


@FORMATS
def test_what_is_no_turn_is_refused_and_never_left_out(name: str) -> None:
    with pytest.raises(ValueError, match=r"User, Reply and Results .*, not of a dict"):
        getattr(formats, name).conversation([{"role": "user", "content": "x"}])


def test_what_strict_mode_cannot_say_of_the_items_of_a_list_is_written_once() -> None:
    def pair(t: tuple[int, str] = (1, "a")) -> str:
        return t[1]

    output = formats.openai.losses([Tool(pair, strict=True).spec])["pair"]
    assert [(loss.path, loss.keyword) for loss in output] == [("/properties/t", "strict")]


def test_a_model_can_be_told_to_call_one_of_several_tools() -> None:
    """Also by names that the provider does not take; one alone, or twice, is the choice of that tool."""
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    specs = [ToolSpec(name, "", schema) for name in ("add", "files/read", "wipe")]
    names = ["add", "files_read"]
    several: dict[Any, Any] = {
        formats.openai: {
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": name}} for name in names],
                },
            }
        },
        formats.openai_responses: {
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": name} for name in names],
            }
        },
        formats.gemini: {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": names}}},
    }
    for form, parameters in several.items():
        assert form.tool_choice(["add", "files/read"], specs) == parameters
    for each in (*several, formats.anthropic, formats.bedrock):
        assert each.tool_choice(("add", "add"), specs) == each.tool_choice("add", specs)
        for wrong, reason in ((["add", "ad"], "Did you mean 'add'"), ([], "no tool")):
            with pytest.raises(SetupError, match=reason):
                each.tool_choice(wrong, specs)
    for each in (formats.anthropic, formats.bedrock):
        with pytest.raises(SetupError, match="Send it only these"):
            each.tool_choice(["add", "wipe"], specs)
