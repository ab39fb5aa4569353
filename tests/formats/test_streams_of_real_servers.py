"""Streams as providers and gateways send them beyond their own documentation, read beside the providers' own SDKs."""

import json
import time
from functools import cache
from typing import Any

import pytest

from toolcrib import Call, Text
from toolcrib.formats import Reply, Results, Turn, Usage, User, anthropic, bedrock, gemini, openai, openai_responses
from toolcrib.formats.turns import turn_from_dict, turn_to_dict

from .examples import SPEC, answered

QUESTION = User((Text("?"),))


def sent(form: Any, reply: Reply) -> Any:
    """The model's message, as it is sent again."""
    turns: list[Turn] = [QUESTION, reply, *([Results(answered(*reply.calls))] if reply.calls else [])]
    return form.conversation(turns, [SPEC])["messages"][1]


# Anthropic


def started(**usage: int) -> dict[str, Any]:
    message = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": [], "stop_reason": None}
    return {"type": "message_start", "message": {**message, "usage": {"input_tokens": 1, "output_tokens": 1, **usage}}}


def block(index: int, begin: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": begin},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def written(*pieces: str) -> list[dict[str, Any]]:
    return [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


def ended(reason: str, **usage: Any) -> list[dict[str, Any]]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9, **usage}}, {"type": "message_stop"}]


def by_the_sdk(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content that Anthropic's own SDK reads."""
    from anthropic.lib.streaming._messages import accumulate_event
    from anthropic.types import Message

    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for event in events:
        snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=buffers)  # type: ignore[arg-type]
    assert isinstance(snapshot, Message)
    return [part.model_dump(mode="json", exclude_unset=True) for part in snapshot.content]


def test_the_input_of_anthropics_own_tools_is_kept_and_sent_again() -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    add = {"type": "tool_use", "id": "t1", "name": "add", "input": {}}
    events = [
        started(),
        *block(0, search, *written("", '{"que', 'ry": "toolcrib"}')),
        *block(1, found),
        *block(2, add, *written('{"a"', ": 1}")),
        *ended("tool_use"),
    ]
    reply = anthropic.reply(events, [SPEC])
    assert reply.calls == (Call("add", '{"a": 1}', "t1"),)
    assert sent(anthropic, reply)["content"] == by_the_sdk(events)
    assert by_the_sdk(events)[0]["input"] == {"query": "toolcrib"}


def test_the_input_of_a_remote_mcp_tool_is_kept_too() -> None:
    use = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "echo", "server_name": "s", "input": {}}
    reply = anthropic.reply([started(), *block(0, use, *written('{"n": ', "1}")), *ended("end_turn")])
    assert (reply.calls, reply.native["content"]) == ((), [{**use, "input": {"n": 1}}])


def test_a_message_that_starts_again_discards_what_came_before() -> None:
    add = {"type": "tool_use", "id": "t1", "name": "add", "input": {}}
    begun = [started(input_tokens=5), *block(0, add, *written('{"a": 1}')), *block(1, {"type": "text", "text": "no"})]
    again = [started(), *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Yes."})]
    for first in (begun, [*begun, *ended("tool_use")]):
        reply = anthropic.reply([*first, *again, *ended("end_turn")], [SPEC])
        assert (reply.text, reply.calls, reply.stop, reply.usage) == ("Yes.", (), "end", Usage(1, 9))
        assert reply.native["content"] == [{"type": "text", "text": "Yes."}]
        with pytest.raises(ValueError, match="ended in the middle"):
            anthropic.reply([*first, *again])


@pytest.mark.parametrize("streamed", [False, True])
def test_what_a_compaction_took_is_counted(streamed: bool) -> None:
    counts = {"cache_creation_input_tokens": 7, "cache_read_input_tokens": 20, "output_tokens": 30}
    iterations = [
        {"type": "compaction", "input_tokens": 100, **counts},
        {"type": "message", "input_tokens": 1, "output_tokens": 9},
        "strange",
    ]
    summary = {"type": "compaction", "content": "Before: ...", "encrypted_content": "xyz"}
    events = [started(), *block(0, summary), *ended("compaction", iterations=iterations)]
    usage = {"input_tokens": 1, "output_tokens": 9, "iterations": iterations}
    whole = {"role": "assistant", "content": [summary], "stop_reason": "compaction", "usage": usage}
    reply = anthropic.reply(events if streamed else whole)
    assert (reply.stop, reply.usage) == ("paused", Usage(1 + 100 + 7 + 20, 9 + 30, 20, 7))
    assert sent(anthropic, reply)["content"] == [summary]


# Bedrock


@cache
def converse_shape() -> Any:
    import botocore.session

    model = botocore.session.get_session().get_service_model("bedrock-runtime")
    return model.operation_model("Converse").input_shape


def delta(index: int, **data: Any) -> dict[str, Any]:
    return {"contentBlockDelta": {"contentBlockIndex": index, "delta": data}}


def start(index: int, **data: Any) -> dict[str, Any]:
    return {"contentBlockStart": {"contentBlockIndex": index, "start": data}}


def test_what_bedrocks_own_tools_did_and_cited_is_kept_and_sent_again() -> None:
    place = {"web": {"url": "https://example.com", "domain": "example.com"}}
    cited = {"title": "Example", "sourceContent": [{"text": "3"}], "location": place}
    reply = bedrock.reply(
        [
            {"messageStart": {"role": "assistant"}},
            start(0, toolUse={"toolUseId": "s1", "name": "nova_grounding", "type": "server_tool_use"}),
            delta(0, toolUse={"input": '{"bytes": '}),
            delta(0, toolUse={"input": '"aGk="}'}),
            start(1, toolResult={"toolUseId": "s1", "type": "nova_grounding_result", "status": "success"}),
            delta(1, toolResult=[{"text": "It "}]),
            delta(1, toolResult=[{"text": "is 3."}, {"json": {"bytes": "aGk="}}]),
            delta(2, text="It is "),
            delta(2, citation=cited),
            delta(2, text="3."),
            delta(3, reasoningContent={"redactedContent": b"\xff"}),
            start(4, image={"format": "png"}),
            delta(4, image={"source": {"bytes": b"\x89PNG"}}),
            delta(5, later={"kind": "of tomorrow"}),
            {"messageStop": {"stopReason": "end_turn"}},
        ]
    )
    assert (reply.text, reply.calls, reply.stop) == ("It is 3.", (), "end")
    stored = turn_from_dict(json.loads(json.dumps(turn_to_dict(reply))))
    assert isinstance(stored, Reply)
    request = bedrock.conversation([QUESTION, stored])
    assert request["messages"][1]["content"] == [
        {
            "toolUse": {
                "toolUseId": "s1",
                "name": "nova_grounding",
                "type": "server_tool_use",
                "input": {"bytes": "aGk="},
            }
        },
        {
            "toolResult": {
                "toolUseId": "s1",
                "type": "nova_grounding_result",
                "status": "success",
                "content": [{"text": "It is 3."}, {"json": {"bytes": "aGk="}}],
            }
        },
        {"citationsContent": {"content": [{"text": "It is 3."}], "citations": [cited]}},
        {"reasoningContent": {"redactedContent": b"\xff"}},
        {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}},
    ]
    from botocore.validate import ParamValidator

    # As boto3 checks a request before it sends it.
    report = ParamValidator().validate({"modelId": "m", **request}, converse_shape())
    assert not report.has_errors(), report.generate_report()


def test_a_message_of_bedrock_that_starts_again_discards_what_came_before() -> None:
    again = [
        {"messageStart": {"role": "assistant"}},
        delta(0, text="Yes."),
        {"messageStop": {"stopReason": "end_turn"}},
    ]
    reply = bedrock.reply([start(0, toolUse={"toolUseId": "a", "name": "add"}), delta(1, text="No."), *again], [SPEC])
    assert (reply.text, reply.calls, reply.native["content"]) == ("Yes.", (), [{"text": "Yes."}])


# Chat Completions and Responses


def chunk(finish: str | None = None, **data: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": data, "finish_reason": finish}]}


ADD = {"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


def test_a_stream_that_ends_with_done_and_no_reason_is_whole() -> None:
    reply = openai.reply([chunk(content="It is "), chunk(content="3."), "[DONE]"])
    assert (reply.text, reply.stop) == ("It is 3.", "end")
    reply = openai.reply([chunk(tool_calls=[ADD]), "[DONE]"], [SPEC])
    assert (reply.calls, reply.stop) == ((Call("add", '{"a": 1}', "c1"),), "calls")
    with pytest.raises(ValueError, match="ended in the middle"):
        openai.reply([chunk(tool_calls=[ADD])])


@pytest.mark.parametrize("message", [{}, {"message": None}, {"message": {"role": "assistant", "content": None}}])
def test_a_filtered_answer_without_a_message_is_refused(message: dict[str, Any]) -> None:
    choice = {"index": 0, "finish_reason": "content_filter", "content_filter_results": {}, **message}
    reply = openai.reply({"choices": [choice], "usage": {"prompt_tokens": 3}})
    assert (reply.text, reply.stop, reply.usage) == ("", "refused", Usage(3))
    reply = openai.reply([{"choices": [choice]}])
    assert (reply.text, reply.stop) == ("", "refused")


THOUGHTS = {
    "<think>Hm.</think>It is 3.": "It is 3.",
    "\n<think>\nHm: </thin, <think>.\n</think>\n\nIt is 3. <think>No.</think>": "It is 3. <think>No.</think>",
    "<think>Hm": "",
    "<think></think>": "",
    "<thinking>It</thinking> is 3.": "<thinking>It</thinking> is 3.",
    "It is <think>3</think>.": "It is <think>3</think>.",
    " <thi": " <thi",
    "\n\n": "\n\n",
    " It": " It",
    "": "",
}


@pytest.mark.parametrize(("content", "text"), THOUGHTS.items())
def test_thoughts_at_the_beginning_of_a_content_are_no_text_however_they_are_cut(content: str, text: str) -> None:
    whole = {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": content}}]}
    assert openai.reply(whole).text == text
    cuts = [(a, b) for a in range(len(content) + 1) for b in range(a, len(content) + 1)]
    for first, second in cuts:
        pieces = [content[:first], content[first:second], content[second:]]
        stream = openai.Stream()
        seen = [out for piece in pieces for out in stream.add(chunk(content=piece))]
        seen += stream.add(chunk("stop"))
        reply = stream.reply()
        assert (reply.text, "".join(out.text for out in seen)) == (text, text)
        assert reply.native["content"] == content  # the server gets back what it wrote


def test_a_blank_space_without_end_is_text_and_not_held_back() -> None:
    stream = openai.Stream()
    assert sum(len(out.text) for _ in range(500) for out in stream.add(chunk(content=" "))) > 300


FAILED = {
    "message": "Failed to call a function. Please adjust your prompt.",
    "type": "invalid_request_error",
    "code": "tool_use_failed",
    "failed_generation": '<function=add>{"a": one}</function>',
}


@pytest.mark.parametrize("streamed", [False, True])
def test_a_call_that_groq_could_not_read_is_a_malformed_reply(streamed: bool) -> None:
    reply = openai.reply([chunk(tool_calls=[ADD]), {"error": FAILED}] if streamed else {"error": FAILED}, [SPEC])
    assert (reply.calls, reply.stop, reply.native) == ((), "malformed", None)
    assert reply.reason == (
        'tool_use_failed: Failed to call a function. Please adjust your prompt. <function=add>{"a": one}</function>'
    )
    with pytest.raises(ValueError, match="broke off its answer: rate_limit"):
        openai.reply([{"error": {"message": "Slow down.", "code": "rate_limit"}}])


def test_done_as_a_chunk_of_responses_is_passed_over_and_a_response_that_starts_again_begins_anew() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"}
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}
    events: list[Any] = [
        {"type": "response.created", "response": {}},
        {"type": "response.output_item.done", "output_index": 0, "item": message},
        {"type": "response.output_item.done", "output_index": 1, "item": call},
        {"type": "response.created", "response": {}},
        {"type": "response.output_item.done", "output_index": 0, "item": message},
        {"type": "response.completed", "response": {"status": "completed", "output": []}},
        "[DONE]",
    ]
    reply = openai_responses.reply(events, [SPEC])
    assert (reply.text, reply.calls) == ("Yes.", ())
    with pytest.raises(ValueError, match="ended in the middle"):
        openai_responses.reply([*events[:-2], "[DONE]"])


# A text in very many pieces


BIG = "x" * 20_000_000
MANY: dict[str, tuple[Any, list[Any], Any, list[Any]]] = {
    "openai arguments": (
        openai,
        [chunk(tool_calls=[{**ADD, "function": {"name": "add", "arguments": BIG}}])],
        chunk(tool_calls=[{"index": 0, "id": "new", "function": {"name": "add", "arguments": "y"}}]),
        [chunk("tool_calls")],
    ),
    "responses arguments": (
        openai_responses,
        [
            {
                "type": "response.output_item.added",
                "output_index": 0,
                "item": {"type": "function_call", "call_id": "c1", "name": "add", "arguments": BIG},
            }
        ],
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "y"},
        [{"type": "response.completed", "response": {"status": "completed", "output": []}}],
    ),
    "anthropic arguments": (
        anthropic,
        [started(), *block(0, {"type": "tool_use", "id": "a", "name": "add", "input": {}}, *written(BIG))[:2]],
        block(0, {}, *written("y"))[1],
        ended("tool_use"),
    ),
    "gemini text": (
        gemini,
        [{"candidates": [{"content": {"parts": [{"text": BIG}]}}]}],
        {"candidates": [{"content": {"parts": [{"text": "y"}]}}]},
        [{"candidates": [{"finishReason": "STOP"}]}],
    ),
    "bedrock arguments": (
        bedrock,
        [start(0, toolUse={"toolUseId": "a", "name": "add"}), delta(0, toolUse={"input": BIG})],
        delta(0, toolUse={"input": "y"}),
        [{"messageStop": {"stopReason": "tool_use"}}],
    ),
}


@pytest.mark.parametrize("name", MANY)
def test_many_pieces_after_a_long_text_cost_no_copy_of_it(name: str) -> None:
    form, begin, piece, end = MANY[name]
    stream = form.Stream([SPEC])
    began = time.perf_counter()
    for event in (*begin, *(piece for _ in range(25_000)), *end):
        stream.add(event)
    reply = stream.reply()
    assert time.perf_counter() - began < 30  # it takes 0.1 s, and where each piece copies what came before minutes
    text = reply.calls[0].arguments if reply.calls else reply.text
    assert isinstance(text, str)
    assert (len(text), text[-25_000:]) == (len(BIG) + 25_000, "y" * 25_000)
