"""Answers of a strange shape, whole and streamed: read, or refused with a ValueError. What is read can be sent back.

Every place of a good answer is given every strange value, one after the other.
"""

import json
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from toolcrib import Text
from toolcrib.formats import (
    IncompleteReply,
    Reply,
    Results,
    Turn,
    User,
    anthropic,
    bedrock,
    gemini,
    openai,
    openai_responses,
)
from toolcrib.formats.turns import turn_from_dict, turn_to_dict

from .examples import SPEC, answered

FORMATS: dict[str, Any] = {
    "openai": openai,
    "responses": openai_responses,
    "anthropic": anthropic,
    "gemini": gemini,
    "bedrock": bedrock,
}


def deep(levels: int) -> dict[str, Any]:
    return {"a": deep(levels - 1)} if levels else {}


LEFT_OUT = object()
STRANGE = [
    *(LEFT_OUT, None, "", "x", "\ud800", 0, -1, 1.5, 10**400, float("nan"), float("inf"), True, b"\xff", object()),
    *([], [1], [None], [[]], [{}], {}, {"a": 1}, {1: 2}, {"type": {}}, [{"type": ["l"]}], deep(400)),
]
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
WHOLE: dict[str, Any] = {
    "openai": {
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {"role": "assistant", "content": "hi", "refusal": None, "tool_calls": [CALL]},
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}},
    },
    "responses": {
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "store": False,
        "output": [
            {"type": "reasoning", "id": "r", "encrypted_content": "x", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
        ],
        "usage": {"input_tokens": 1, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 1}},
    },
    "anthropic": {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
            {"type": "text", "text": "hi"},
            {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
        ],
        "stop_reason": "tool_use",
        "usage": {
            "input_tokens": 1,
            "output_tokens": 2,
            "cache_read_input_tokens": 1,
            "iterations": [{"type": "compaction", "input_tokens": 1}],
        },
    },
    "gemini": {
        "responseId": "r",
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [
                        {"text": "t", "thought": True},
                        {"text": "hi"},
                        {"functionCall": {"name": "add", "args": {"a": 1}, "id": "c1"}, "thoughtSignature": "eA=="},
                    ],
                },
                "finishReason": "STOP",
                "finishMessage": "m",
            }
        ],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2},
    },
    "bedrock": {
        "output": {
            "message": {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "t", "signature": "s"}}},
                    {"text": "hi"},
                    {"toolUse": {"toolUseId": "s1", "name": "find", "input": {}, "type": "server_tool_use"}},
                    {"toolResult": {"toolUseId": "s1", "content": [{"text": "r"}], "type": "t"}},
                    {"citationsContent": {"content": [{"text": "c"}], "citations": [{"title": "t"}]}},
                    {"reasoningContent": {"redactedContent": "eA=="}},
                    {"toolUse": {"toolUseId": "c1", "name": "add", "input": {"a": 1}}},
                ],
            }
        },
        "stopReason": "tool_use",
        "usage": {"inputTokens": 1, "outputTokens": 2},
    },
}


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


STREAMED: dict[str, list[Any]] = {
    "openai": [
        chunk({"role": "assistant", "content": "<think>x</think>h"}),
        chunk({"content": [{"type": "text", "text": "i"}]}),
        chunk({"tool_calls": [{"index": 0, **CALL, "function": {"name": "add", "arguments": ""}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a": 1}'}}]}),
        chunk({}, "tool_calls"),
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
    ],
    "responses": [
        {"type": "response.output_text.delta", "delta": "hi"},
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]},
        },
        {
            "type": "response.output_item.added",
            "output_index": 1,
            "item": {"type": "function_call", "call_id": "c1", "name": "add", "arguments": ""},
        },
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"a": 1}'},
        {"type": "response.function_call_arguments.done", "output_index": 1, "arguments": '{"a": 1}'},
        {"type": "response.completed", "response": {"status": "completed", "output": []}},
    ],
    "anthropic": [
        {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "c1", "name": "add", "input": {}},
        },
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"a": 1}'}},
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
        },
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"title": "t"}}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ],
    "gemini": [
        {"responseId": "r", "candidates": [{"content": {"role": "model", "parts": [{"text": "h"}]}}]},
        {"candidates": [{"content": {"parts": [{"text": "i"}]}}]},
        {
            "candidates": [
                {"content": {"parts": [{"functionCall": {"name": "add", "args": {"a": 1}}}]}, "finishReason": "STOP"}
            ]
        },
    ],
    "bedrock": [
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "x"}}}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"redactedContent": b"x"}}}},
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"text": "hi"}}},
        {"contentBlockStart": {"contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "c1", "name": "add"}}}},
        {"contentBlockDelta": {"contentBlockIndex": 2, "delta": {"toolUse": {"input": '{"a": 1}'}}}},
        {
            "contentBlockStart": {
                "contentBlockIndex": 3,
                "start": {"toolUse": {"toolUseId": "s1", "name": "find", "type": "server_tool_use"}},
            }
        },
        {"contentBlockDelta": {"contentBlockIndex": 3, "delta": {"toolUse": {"input": "{}"}}}},
        {"contentBlockStart": {"contentBlockIndex": 4, "start": {"toolResult": {"toolUseId": "s1", "type": "t"}}}},
        {"contentBlockDelta": {"contentBlockIndex": 4, "delta": {"toolResult": [{"text": "r"}]}}},
        {"contentBlockDelta": {"contentBlockIndex": 4, "delta": {"toolResult": [{"text": "s"}, {"json": {}}]}}},
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"citation": {"title": "t"}}}},
        {"contentBlockStart": {"contentBlockIndex": 5, "start": {"image": {"format": "png"}}}},
        {"contentBlockDelta": {"contentBlockIndex": 5, "delta": {"image": {"source": {"bytes": b"x"}}}}},
        {"messageStop": {"stopReason": "tool_use"}},
        {"metadata": {"usage": {"inputTokens": 1, "outputTokens": 2}}},
    ],
}


def strange(data: Any) -> Iterator[Any]:
    """*data* with each strange value in each of its places, one after the other."""
    for key in [*data] if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        for value in (*STRANGE, *strange(data[key])):
            changed = copy(data)
            if value is LEFT_OUT:
                del changed[key]
            else:
                changed[key] = value
            yield changed


def conversation(reply: Reply) -> list[Turn]:
    return [User((Text("Add."),)), reply, *([Results(answered(*reply.calls))] if reply.calls else [])]


@pytest.mark.parametrize("output", [WHOLE, STREAMED], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", FORMATS)
def test_an_answer_of_a_strange_shape_is_read_or_refused_with_a_value_error(name: str, output: dict[str, Any]) -> None:
    form = FORMATS[name]
    good = form.reply(output[name], [SPEC])
    assert (good.text.startswith("hi"), [call.tool for call in good.calls], good.stop) == (True, ["add"], "calls")
    read, seen = 0, set[bytes]()
    for answer in strange(output[name]):
        try:
            reply = form.reply(answer, [SPEC])
        except UnicodeError:
            raise  # one of Python's own, and no word for a shape
        except ValueError as error:
            assert str(error)
            continue
        read += 1
        # It can be kept, also as UTF-8, and be sent to every provider.
        stored = json.dumps(turn_to_dict(reply), ensure_ascii=False, allow_nan=False).encode()
        if stored in seen:
            continue
        seen.add(stored)
        assert turn_from_dict(json.loads(stored)) == reply
        if len({call.id for call in reply.calls} - {""}) == len(reply.calls):
            for other in FORMATS.values():
                other.conversation(conversation(reply), [SPEC])
    assert read > 20


@pytest.mark.parametrize("name", FORMATS)
def test_a_name_that_no_provider_takes_is_sent_back_as_one_that_it_takes(name: str) -> None:
    made_up = "add\n numbers!"
    text = json.dumps(WHOLE[name]).replace('"add"', json.dumps(made_up))
    reply = FORMATS[name].reply(json.loads(text), [SPEC])
    assert [call.tool for call in reply.calls] == [made_up]
    sent = json.dumps(FORMATS[name].conversation(conversation(reply), [SPEC]), default=repr)
    assert "numbers!" not in sent
    assert '"add__numbers_"' in sent


@pytest.mark.parametrize("name", FORMATS)
def test_the_message_of_another_provider_or_of_other_calls_is_written_again(name: str) -> None:
    form = FORMATS[name]
    for other in FORMATS:
        reply = FORMATS[other].reply(WHOLE[other], [SPEC])
        if other == name:
            reply = replace(reply, calls=tuple(replace(call, id="c9") for call in reply.calls))
        again = form.conversation(conversation(replace(reply, native=None)), [SPEC])
        assert form.conversation(conversation(reply), [SPEC]) == again


LAST = {"openai": 4, "responses": 5, "anthropic": 9, "gemini": 2, "bedrock": 13}


@pytest.mark.parametrize(("name", "last"), LAST.items())
def test_a_stream_that_ends_before_its_reason_is_reported(name: str, last: int) -> None:
    for upto in range(last + 1):
        with pytest.raises(IncompleteReply, match="ended in the middle"):
            FORMATS[name].reply(STREAMED[name][:upto], [SPEC])
    assert FORMATS[name].reply(STREAMED[name][: last + 1], [SPEC]).stop == "calls"


@pytest.mark.parametrize("name", FORMATS)
def test_calls_that_have_one_id_are_distinguished(name: str) -> None:
    twice = json.loads(json.dumps(WHOLE[name]))
    calls = {
        "openai": lambda: twice["choices"][0]["message"]["tool_calls"],
        "responses": lambda: twice["output"],
        "anthropic": lambda: twice["content"],
        "gemini": lambda: twice["candidates"][0]["content"]["parts"],
        "bedrock": lambda: twice["output"]["message"]["content"],
    }[name]()
    calls.append(json.loads(json.dumps(calls[-1])))
    reply = FORMATS[name].reply(twice, [SPEC])
    first, second = (call.id for call in reply.calls)
    assert (first, second != "c1") == ("c1", True)
    sent = json.dumps(FORMATS[name].conversation(conversation(reply), [SPEC]), default=repr)
    assert (sent.count('"c1"'), sent.count(f'"{second}"')) == (2, 2)


def test_letters_that_are_streamed_in_halves_come_together() -> None:
    pieces = [chunk({"content": "\ud83d"}), chunk({"content": "\ude00 \ud83d"}), chunk({}, "stop")]
    stream = openai.Stream()
    words = [written.text for piece in pieces for written in stream.add(piece)]
    assert "".join(words).encode()  # whoever prints them can
    assert stream.reply().text == "😀 �"


@pytest.mark.parametrize("name", ["anthropic", "gemini", "bedrock"])
def test_numbers_that_json_has_not_are_sent_back_as_text(name: str) -> None:
    answer = json.loads(json.dumps(WHOLE[name]).replace('{"a": 1}', '{"a": NaN, "b": 1e999}'))
    (call,) = FORMATS[name].reply(answer, [SPEC]).calls
    assert call.arguments == {"a": "NaN", "b": "Infinity"}
