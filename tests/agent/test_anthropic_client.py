"""Models of Anthropic, through its real SDK, against a server that speaks Messages."""

from typing import Any

import pytest

from toolcrib import Call, Result, Text
from toolcrib.agent import ModelError, Request
from toolcrib.agent.anthropic import AnthropicModel
from toolcrib.formats import Reply, Results, Usage

from .wire import ADD, QUESTION, answer, wire

KEY = "sk-ant-a-very-secret-key"
THOUGHT = {"type": "thinking", "thinking": "Let me add.", "signature": "EqQB+/=="}
USE = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 2, "b": 3}}
WHOLE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [THOUGHT, {"type": "text", "text": "I add."}, USE],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 7},
}
REPLY = Reply(
    "I add.",
    (Call("add", {"a": 2, "b": 3}, "toolu_1"),),
    "calls",
    Usage(17, 7, 5, 2),
    {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "I add."}, USE]},
)


def piece(kind: str, **data: Any) -> tuple[str, dict[str, Any]]:
    return kind, {"type": kind, **data}


START = piece("message_start", message={**WHOLE, "content": [], "stop_reason": None})
PIECES = (
    START,
    piece("content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""}),
    piece("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "Let me "}),
    piece("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "add."}),
    piece("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "EqQB+/=="}),
    piece("content_block_stop", index=0),
    piece("ping"),
    piece("content_block_start", index=1, content_block={"type": "text", "text": ""}),
    piece("content_block_delta", index=1, delta={"type": "text_delta", "text": "I "}),
    piece("content_block_delta", index=1, delta={"type": "text_delta", "text": "add."}),
    piece("content_block_stop", index=1),
    piece("content_block_start", index=2, content_block={**USE, "input": {}}),
    piece("content_block_delta", index=2, delta={"type": "input_json_delta", "partial_json": '{"a": 2,'}),
    piece("content_block_delta", index=2, delta={"type": "input_json_delta", "partial_json": ' "b": 3}'}),
    piece("content_block_stop", index=2),
    piece("message_delta", delta={"stop_reason": "tool_use", "stop_sequence": None}, usage={"output_tokens": 7}),
    piece("message_stop"),
)


def model(url: str, **options: Any) -> AnthropicModel:
    return AnthropicModel("claude-x", api_key=KEY, base_url=url, max_retries=0, **options)


async def test_a_whole_reply_and_what_was_asked_for_it() -> None:
    with wire(answer(WHOLE)) as provider:
        claude = model(provider.url, max_tokens=100, options={"temperature": 0})
        assert await claude.reply(QUESTION) == REPLY
        (asked,) = provider.requests
    assert (asked.method, asked.path, asked.headers["authorization"]) == ("POST", "/v1/messages", f"Bearer {KEY}")
    assert asked.body == {
        "model": "claude-x",
        "max_tokens": 100,
        "temperature": 0,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "2 and 3?"}]}],
        "tools": [{"name": "add", "description": "Add two numbers.", "input_schema": dict(ADD.input_schema)}],
    }


async def test_the_next_turn_sends_thinking_back_as_it_came_and_the_results() -> None:
    done = Result(5, (Text("5"),), call_id="toolu_1", tool="add")
    turns = [*QUESTION.turns, REPLY, Results((done,))]
    with wire(answer({**WHOLE, "content": [{"type": "text", "text": "5."}], "stop_reason": "end_turn"})) as provider:
        output = await model(provider.url).reply(
            Request(turns, instructions="Be short.", specs=[ADD], choice="any", parallel=False)
        )
        body = provider.requests[0].body
    assert (output.text, output.stop, output.calls) == ("5.", "end", ())
    assert body["system"] == "Be short."
    assert body["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    assert body["messages"][1:] == [
        {"role": "assistant", "content": WHOLE["content"]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "5"}]}],
        },
    ]


async def test_what_is_no_answer_of_anthropics_is_reported() -> None:
    broken = r"content\[0\]\) is malformed: 'name' must be text, and it is missing"
    with (
        wire(answer({"content": [{"type": "tool_use"}]})) as provider,
        pytest.raises(ModelError, match=broken) as caught,
    ):
        await model(provider.url).reply(QUESTION)
    assert caught.value.problem == "failed"


async def test_without_a_key_the_way_to_one_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))  # with which the SDK looks for a file
    with pytest.raises(ModelError, match=r"Set ANTHROPIC_API_KEY\.\nOr pass api_key\.") as caught:
        await AnthropicModel("claude-x", base_url="http://127.0.0.1:9").reply(QUESTION)
    assert caught.value.problem == "unauthorized"
    monkeypatch.delenv("ANTHROPIC_CONFIG_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ModelError, match=r"Set ANTHROPIC_API_KEY\.\nOr pass api_key\.") as caught:
        await AnthropicModel("claude-x", base_url="http://127.0.0.1:9").reply(QUESTION)
    assert caught.value.problem == "unauthorized"
