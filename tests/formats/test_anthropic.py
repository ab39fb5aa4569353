"""Anthropic Messages: tools, choices, calls, results and conversations in its words."""

from typing import Any

import pytest

from toolcrib import Call, File, Image, Text, ToolError
from toolcrib.core import Audio, Data
from toolcrib.formats import Reply, Results, TextDelta, Usage, User, anthropic

from .examples import SCHEMA, SPECS, ended


def message(*content: dict[str, Any], stop: str = "end_turn") -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 2}
    return {"type": "message", "role": "assistant", "content": [*content], "stop_reason": stop, "usage": usage}


def use(call_id: str, name: str = "double", n: int = 1) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"n": n}}


def test_tools_are_written_under_names_that_anthropic_takes() -> None:
    double, renamed, exact = anthropic.tools(SPECS)
    assert double == {"name": "double", "description": "Doubles.", "input_schema": SCHEMA}
    assert renamed == {"name": "files_read_all", "input_schema": SCHEMA}
    assert exact == {"name": "exact", "description": "Exact.", "input_schema": SCHEMA, "strict": True}
    assert anthropic.losses(SPECS) == {}
    assert [tool.get("strict") for tool in anthropic.tools(SPECS, strict=False)] == [None, None, None]


@pytest.mark.parametrize(
    ("choice", "parallel", "output"),
    [
        ("auto", True, {}),
        ("auto", False, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
        ("any", True, {"tool_choice": {"type": "any"}}),
        ("any", False, {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}}),
        ("none", True, {"tool_choice": {"type": "none"}}),
        ("none", False, {"tool_choice": {"type": "none"}}),
        ("files/read all", True, {"tool_choice": {"type": "tool", "name": "files_read_all"}}),
    ],
)
def test_every_choice_has_its_words(choice: str, parallel: bool, output: dict[str, Any]) -> None:
    assert anthropic.tool_choice(choice, SPECS, parallel=parallel) == output


def test_calls_come_under_the_tools_own_names_from_dictionaries_and_from_the_sdks_objects() -> None:
    from anthropic.types import Message  # takes seconds: not of every process that collects tests

    whole = message({"type": "text", "text": "Now."}, use("t1", n=1), use("t2", "files_read_all", 2), stop="tool_use")
    calls = [Call("double", {"n": 1}, "t1"), Call("files/read all", {"n": 2}, "t2")]
    assert anthropic.calls(whole, SPECS) == calls
    assert anthropic.calls(Message.model_validate({"id": "m", "model": "x", **whole}), SPECS) == calls


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("tool_use", "calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refused"),
        ("pause_turn", "paused"),
        ("compaction", "paused"),
        ("something new", "other"),
    ],
)
def test_why_it_stopped(reason: str, stop: str) -> None:
    assert anthropic.reply(message(stop=reason)).stop == stop


def test_work_of_anthropics_own_tools_is_kept_to_be_sent_back_and_is_no_call() -> None:
    blocks = (
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
        {"type": "text", "text": "Found ", "citations": [{"type": "web_search_result_location", "url": "u"}]},
        {"type": "text", "text": "it."},
    )
    reply = anthropic.reply(message(*blocks))
    assert (reply.text, reply.calls) == ("Found it.", ())
    assert anthropic.conversation([User((Text("?"),)), reply])["messages"][1]["content"] == [*blocks]


def events(*pieces: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": kind, **data} for kind, data in pieces]


STARTED = ("message_start", {"message": message(stop="")})
ENDED = (("message_delta", {"delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}), ("message_stop", {}))


def streamed(*texts: str, index: int = 0) -> list[tuple[str, dict[str, Any]]]:
    deltas = [{"type": "input_json_delta", "partial_json": text} for text in texts]
    return [
        ("content_block_start", {"index": index, "content_block": {**use(f"t{index}"), "input": {}}}),
        *(("content_block_delta", {"index": index, "delta": delta}) for delta in deltas),
        ("content_block_stop", {"index": index}),
    ]


def test_calls_in_pieces_are_put_together_also_when_they_are_mixed() -> None:
    first, second = streamed('{"n"', ": 1}"), streamed('{"n": ', "2}", index=1)
    mixed = [pair for both in zip(first, second, strict=True) for pair in both]
    reply = anthropic.reply(events(STARTED, *mixed, *ENDED), SPECS)
    assert reply.calls == (Call("double", '{"n": 1}', "t0"), Call("double", '{"n": 2}', "t1"))
    assert reply.native["content"] == [use("t0", n=1), use("t1", n=2)]
    assert reply.usage == Usage(1, 9)


def test_a_call_without_arguments_has_none() -> None:
    reply = anthropic.reply(events(STARTED, *streamed(), *ENDED))
    assert reply.calls == (Call("double", {}, "t0"),)


def test_arguments_that_break_off_stay_the_text_they_are_and_can_still_be_sent_back() -> None:
    reply = anthropic.reply(events(STARTED, *streamed('{"n": 1'), *ENDED), SPECS)
    assert reply.calls == (Call("double", '{"n": 1', "t0"),)
    assert reply.native["content"][0]["input"] == {"INVALID_JSON": '{"n": 1'}


def test_citations_and_kinds_of_pieces_that_are_not_known_yet_are_kept() -> None:
    pieces = [
        {"type": "citations_delta", "citation": {"cited_text": "a"}},
        {"type": "text_delta", "text": "A"},
        {"type": "citations_delta", "citation": {"cited_text": "b"}},
        {"type": "later_delta", "mood": "good"},
    ]
    stream = anthropic.Stream()
    written = [
        output
        for event in events(
            STARTED,
            ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
            *(("content_block_delta", {"index": 0, "delta": piece}) for piece in pieces),
            ("some_event_of_tomorrow", {}),
            *ENDED,
        )
        for output in stream.add(event)
    ]
    assert written == [TextDelta("A")]
    block = {"type": "text", "text": "A", "citations": [{"cited_text": "a"}, {"cited_text": "b"}], "mood": "good"}
    assert stream.reply().native["content"] == [block]


BROKEN: list[tuple[Any, str]] = [
    ({}, "'content' must be a list, and it is missing"),
    (message({"type": "text"}), r"content\[0\]\) is malformed: 'text' must be text, and it is missing"),
    ([{"type": "message_start"}], "message_start is malformed: 'message' must be an object, and it is missing"),
    (events(*ENDED), "message_delta came before 'message_start'"),
    (events(STARTED, *streamed("x")[1:]), "block 0 was never started"),
    (
        events(("error", {"error": {"type": "overloaded_error", "message": "Busy"}})),
        "broke off .*: overloaded_error: Busy",
    ),
]


@pytest.mark.parametrize(("answer", "message"), BROKEN)
def test_a_broken_answer_is_reported_with_its_place(answer: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        anthropic.reply(answer)


def test_results_of_one_turn_go_in_one_message_with_pictures_documents_and_a_flag_for_errors() -> None:
    pdf, note = File(b"%PDF", "application/pdf", "a.pdf"), File("Hé".encode(), "text/plain; charset=utf-8", "n.txt")
    results = [
        ended("t1", Text("Look:"), Image(b"\x01", "image/png"), Data('{"n":1}')),
        ended("t2", pdf, note, File(b"\xff", "text/plain"), Audio(b"\x01\x02")),
        ended("t3"),
        ended("t4", Text("No such file."), Image(b"\x01"), error=ToolError("No such file.")),
    ]
    source = {"type": "base64", "media_type": "image/png", "data": "AQ=="}
    document = {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}
    plain = {"type": "text", "media_type": "text/plain", "data": "Hé"}
    assert anthropic.messages(results) == [
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [
                        {"type": "text", "text": "Look:"},
                        {"type": "image", "source": source},
                        {"type": "text", "text": '{"n":1}'},
                    ],
                },
                {
                    "type": "tool_result",
                    "tool_use_id": "t2",
                    "content": [
                        {"type": "document", "source": document, "title": "a.pdf"},
                        {"type": "document", "source": plain, "title": "n.txt"},
                        {"type": "text", "text": "[file: text/plain, 1 bytes]"},
                        {"type": "text", "text": "[audio: audio/wav, 2 bytes]"},
                    ],
                },
                {"type": "tool_result", "tool_use_id": "t3"},
                {
                    "type": "tool_result",
                    "tool_use_id": "t4",
                    # Of an error, Anthropic takes words only.
                    "content": [{"type": "text", "text": "No such file.\n[image: image/png, 1 bytes]"}],
                    "is_error": True,
                },
            ],
        }
    ]
    assert anthropic.messages([]) == []


def test_a_conversation_pairs_results_with_calls_in_their_order_and_goes_on_in_the_same_message() -> None:
    reply = anthropic.reply(message(use("t1"), use("t2"), stop="tool_use"), SPECS)
    turns = [
        User((Text("Go."), Text(""))),
        reply,
        Results((ended("t2", Text("2")), ended("t1", Text("1")))),
        Reply(),  # an empty answer: it cannot be sent
        User((Text("And?"),)),
    ]
    one = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "1"}]}
    two = {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "2"}]}
    expected = {
        "system": "Be short.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Go."}]},
            {"role": "assistant", "content": [use("t1"), use("t2")]},
            {"role": "user", "content": [one, two, {"type": "text", "text": "And?"}]},
        ],
    }
    assert anthropic.conversation(turns, SPECS, instructions="Be short.") == expected
    assert anthropic.conversation(turns, SPECS, instructions="Be short.") == expected  # nothing was written into


def test_a_reply_of_another_provider_is_written_again_with_ids_that_anthropic_takes() -> None:
    foreign = Reply("Hm.", (Call("files/read all", '{"n": 1}', "call|1"), Call("double", "{", "c2")), native={"a": 1})
    turns = [User((Text("Go."),)), foreign, Results((ended("call|1", Text("1")), ended("c2")))]
    output = anthropic.conversation(turns, SPECS)["messages"]
    assert output[1]["content"][0] == {"type": "text", "text": "Hm."}
    first, second = output[1]["content"][1:]
    assert (first["name"], first["input"], second["input"]) == ("files_read_all", {"n": 1}, {"INVALID_JSON": "{"})
    assert first["id"] == output[2]["content"][0]["tool_use_id"]
    assert first["id"].replace("_", "").isalnum()
