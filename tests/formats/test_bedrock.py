"""Bedrock Converse: tools, choices, calls, results and conversations in its words."""

from typing import Any

import pytest

from toolcrib import Call, File, Image, SetupError, Text, ToolError
from toolcrib.core import Audio, Data
from toolcrib.formats import Reply, Results, TextDelta, Usage, User, bedrock

from .examples import SCHEMA, SPECS, ended


def answer(*content: dict[str, Any], stop: str = "end_turn") -> dict[str, Any]:
    usage = {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}
    return {"output": {"message": {"role": "assistant", "content": [*content]}}, "stopReason": stop, "usage": usage}


def use(call_id: str, name: str = "double", arguments: Any = None) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": call_id, "name": name, "input": {"n": 1} if arguments is None else arguments}}


def test_tools_are_written_under_names_that_bedrock_takes() -> None:
    double, renamed, exact = (tool["toolSpec"] for tool in bedrock.tools(SPECS))
    assert double == {"name": "double", "description": "Doubles.", "inputSchema": {"json": SCHEMA}}
    assert renamed == {"name": "files_read_all", "inputSchema": {"json": SCHEMA}}
    assert exact == {"name": "exact", "description": "Exact.", "inputSchema": {"json": SCHEMA}, "strict": True}
    assert bedrock.losses(SPECS) == {}


@pytest.mark.parametrize(
    ("choice", "output"),
    [
        ("auto", {}),
        ("any", {"toolChoice": {"any": {}}}),
        ("files/read all", {"toolChoice": {"tool": {"name": "files_read_all"}}}),
    ],
)
def test_every_choice_that_converse_knows_has_its_words(choice: str, output: dict[str, Any]) -> None:
    assert bedrock.tool_choice(choice, SPECS) == output
    assert bedrock.tool_choice(choice, SPECS, parallel=False) == output


def test_a_choice_that_cannot_be_written_names_the_way_out() -> None:
    with pytest.raises(SetupError, match=r"Leave 'toolConfig' out of the request.*without_tools"):
        bedrock.tool_choice("none", SPECS)


def test_without_tools_calls_and_results_are_words() -> None:
    asked = Reply("", (Call("double", {"n": 1}, "a"), Call("double", {"n": 2}, "b")))
    failed = ended("b", Text("No."), error=ToolError("No."))
    output = bedrock.conversation([User((Text("?"),)), asked, Results((ended("a", Data('{"n":2}')), failed))], SPECS)
    assert bedrock.without_tools(output["messages"]) == [
        {"role": "user", "content": [{"text": "?"}]},
        {
            "role": "assistant",
            "content": [
                {"text": '[I called the tool double with {"n": 1}]'},
                {"text": '[I called the tool double with {"n": 2}]'},
            ],
        },
        {
            "role": "user",
            "content": [
                {"text": "[The tool answered:]"},
                {"text": '{"n": 2}'},
                {"text": "[The tool failed:]"},
                {"text": "No."},
            ],
        },
    ]


def test_calls_come_under_the_tools_own_names() -> None:
    whole = answer({"text": "Now."}, use("a"), use("b", "files_read_all"), stop="tool_use")
    assert bedrock.reply(whole, SPECS) == Reply(
        "Now.",
        (Call("double", {"n": 1}, "a"), Call("files/read all", {"n": 1}, "b")),
        "calls",
        Usage(1, 2),
        whole["output"]["message"],
    )


@pytest.mark.parametrize("arguments", ["{", [1], 7])
def test_arguments_that_are_no_object_are_kept_as_text_and_can_still_be_sent_back(arguments: Any) -> None:
    reply = bedrock.reply(answer(use("a", arguments=arguments), stop="tool_use"), SPECS)
    assert isinstance(reply.calls[0].arguments, str)
    assert reply.native["content"][0]["toolUse"]["input"] == {"INVALID_JSON": arguments}


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "end"),
        ("tool_use", "calls"),
        ("max_tokens", "length"),
        ("guardrail_intervened", "refused"),
        ("malformed_tool_use", "malformed"),
        ("malformed_model_output", "malformed"),
        ("something_new", "other"),
    ],
)
def test_why_it_stopped(reason: str, stop: str) -> None:
    assert bedrock.reply(answer(stop=reason)).stop == stop


def delta(index: int, **data: Any) -> dict[str, Any]:
    return {"contentBlockDelta": {"contentBlockIndex": index, "delta": data}}


def started(index: int, call_id: str, name: str = "double") -> dict[str, Any]:
    start = {"toolUse": {"toolUseId": call_id, "name": name}}
    return {"contentBlockStart": {"contentBlockIndex": index, "start": start}}


ENDED = [
    {"messageStop": {"stopReason": "tool_use"}},
    {"metadata": {"usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}}},
]


def test_pieces_are_put_together_and_reasoning_goes_back_as_it_came() -> None:
    pieces = [
        {"messageStart": {"role": "assistant"}},
        delta(0, reasoningContent={"text": "Hm, "}),
        delta(0, reasoningContent={"text": "well."}),
        delta(0, reasoningContent={"signature": "s+/="}),
        {"contentBlockStop": {"contentBlockIndex": 0}},
        delta(1, reasoningContent={"redactedContent": b"\xff\xfe"}),
        delta(1, reasoningContent={"redactedContent": b"\xfd"}),
        delta(2, text="I "),
        delta(2, text="double."),
        started(3, "a"),
        started(4, "b"),
        delta(3, toolUse={"input": '{"n"'}),
        delta(4, toolUse={"input": ""}),
        delta(3, toolUse={"input": ": 1}"}),
        *ENDED,
    ]
    stream = bedrock.Stream(SPECS)
    assert [output for piece in pieces for output in stream.add(piece)] == [TextDelta("I "), TextDelta("double.")]
    reply = stream.reply()
    thought = {"reasoningContent": {"reasoningText": {"text": "Hm, well.", "signature": "s+/="}}}
    calls = [use("a"), use("b", arguments={})]
    assert reply == Reply(
        "I double.",
        (Call("double", '{"n": 1}', "a"), Call("double", "{}", "b")),
        "calls",
        Usage(1, 2),
        {
            "role": "assistant",
            # JSON data, in which bytes are base64 ...
            "content": [thought, {"reasoningContent": {"redactedContent": "//79"}}, {"text": "I double."}, *calls],
        },
    )
    assert bedrock.reply({"stream": iter(pieces)}, SPECS) == reply
    output = bedrock.conversation([User((Text("?"),)), reply, Results((ended("a"), ended("b")))], SPECS)
    # ... and bytes again for boto3.
    hidden = {"reasoningContent": {"redactedContent": b"\xff\xfe\xfd"}}
    assert output["messages"][1]["content"] == [thought, hidden, {"text": "I double."}, *calls]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (answer({"text": 7}), r"content\[0\]\) is malformed: 'text' must be text"),
        (answer({"toolUse": {"name": "a", "input": {}}}), "'toolUseId' must be text, and it is missing"),
        ([delta(0, toolUse={"input": "{"})], "of a call that was never started is malformed"),
        ([{"contentBlockDelta": {"delta": {}}}], "'contentBlockIndex' must be an integer, and it is missing"),
        ([{"throttlingException": {"message": "Busy"}}], "broke off its answer: throttlingException: Busy"),
    ],
)
def test_a_broken_answer_is_reported_with_its_place(broken: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bedrock.reply(broken)


def test_results_of_one_turn_go_in_one_message_with_their_status() -> None:
    results = [
        ended("a", Text("Look:"), Image(b"\x01", "image/jpeg"), Data('{"n":1}'), Data("[1]")),
        ended("b", File(b"%PDF", "application/pdf", "a_b.pdf"), File(b"x", "text/x-python", "a_b.pdf"), Audio(b"\x01")),
        ended("c"),
        ended("d|1", Text("No."), Image(b"\x01"), error=ToolError("No.")),
    ]
    (message,) = bedrock.messages(results)
    *output, last = [block["toolResult"] for block in message["content"]]
    assert output == [
        {
            "toolUseId": "a",
            "content": [
                {"text": "Look:"},
                {"image": {"format": "jpeg", "source": {"bytes": b"\x01"}}},
                {"json": {"n": 1}},
                {"text": "[1]"},
            ],
            "status": "success",
        },
        {
            "toolUseId": "b",
            "content": [
                # Names that Bedrock takes, and no name twice.
                {"document": {"format": "pdf", "name": "a b pdf", "source": {"bytes": b"%PDF"}}},
                {"document": {"format": "txt", "name": "a b pdf (2)", "source": {"bytes": b"x"}}},
                {"text": "[audio: audio/wav, 1 bytes]"},
            ],
            "status": "success",
        },
        {"toolUseId": "c", "content": [{"text": "(no output)"}], "status": "success"},
    ]
    assert (last["content"], last["status"]) == ([{"text": "No.\n[image: image/png, 1 bytes]"}], "error")
    assert last["toolUseId"].startswith("call_")  # another provider's id, in a form that Bedrock takes
    assert bedrock.messages([]) == []


def test_what_a_person_shows_is_sent_as_it_is_or_in_words() -> None:
    pdf = File(b"%PDF", "application/pdf")
    turns = [User((pdf,)), Reply("Well."), User((Text(" "), Audio(b"\x01", "audio/mpeg"), File(b"\x00")))]
    document = {"document": {"format": "pdf", "name": "document", "source": {"bytes": b"%PDF"}}}
    assert bedrock.conversation(turns, instructions="Be short.") == {
        "system": [{"text": "Be short."}],
        "messages": [
            # A document needs words beside it.
            {"role": "user", "content": [{"text": "[file: application/pdf, 4 bytes]"}, document]},
            {"role": "assistant", "content": [{"text": "Well."}]},
            {
                "role": "user",
                "content": [
                    {"audio": {"format": "mp3", "source": {"bytes": b"\x01"}}},
                    {"text": "[file: application/octet-stream, 1 bytes]"},
                ],
            },
        ],
    }
