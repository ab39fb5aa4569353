"""OpenAI Responses: tools, calls and results in its words."""

import json
from typing import Any

import pytest

from toolcrib import Call, File, Image, Text, ToolError, formats
from toolcrib.core import Audio, Data
from toolcrib.formats import Reply, Results, TextDelta, Turn, Usage, User

from .examples import ADD, PIXEL, PIXEL_IN_BASE64, added, shown
from .examples import ADD_AND_LIST as SPECS

format = formats.openai_responses

THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "xyz"}


def tool_call(
    call_id: str = "c1", name: str = "add", arguments: Any = '{"a": 1, "b": 2}', **more: Any
) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def made(text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": content, **more}


def answer(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": "completed", "output": list(output), **more}


def test_a_name_that_openai_refuses_is_sent_as_another_and_comes_back_as_it_was() -> None:
    assert format.tools(SPECS) == [
        {"type": "function", "name": "add", "description": "Add two numbers.", "parameters": ADD, "strict": False},
        {"type": "function", "name": "files_list", "parameters": SPECS[1].input_schema, "strict": False},
    ]
    assert format.tool_choice("files.list", SPECS) == {"tool_choice": {"type": "function", "name": "files_list"}}
    assert [call.tool for call in format.calls(answer(tool_call(name="files_list")), SPECS)] == ["files.list"]


@pytest.mark.parametrize(
    ("choice", "parallel", "parameters"),
    [
        ("auto", True, {}),
        ("auto", False, {"parallel_tool_calls": False}),
        ("any", True, {"tool_choice": "required"}),
        ("none", False, {"tool_choice": "none", "parallel_tool_calls": False}),
        ("add", True, {"tool_choice": {"type": "function", "name": "add"}}),
    ],
)
def test_a_choice_is_written_in_openais_terms(choice: str, parallel: bool, parameters: dict[str, Any]) -> None:
    assert format.tool_choice(choice, SPECS, parallel=parallel) == parameters


REFUSED = {"type": "message", "content": [{"type": "refusal", "refusal": "I may not."}]}
ANSWERS = {
    "text": (answer(made("Hel"), made("lo.")), Reply("Hello.")),
    "nothing": (answer(), Reply()),
    "a refusal": (answer(REFUSED), Reply("I may not.", stop="refused")),
    "too long": (
        answer(made("He"), status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
        Reply("He", stop="length"),
    ),
    "filtered": (answer(status="incomplete", incomplete_details={"reason": "content_filter"}), Reply(stop="refused")),
    "a reason nobody knows": (answer(status="incomplete", incomplete_details=None), Reply(stop="other")),
    "tokens": (
        answer(usage={"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 8}}),
        Reply(usage=Usage(9, 2, 8)),
    ),
    "calls": (
        answer(THOUGHT, tool_call(), tool_call("c2", arguments=""), tool_call("c3", arguments='{"a')),
        Reply(
            calls=(Call("add", '{"a": 1, "b": 2}', "c1"), Call("add", {}, "c2"), Call("add", '{"a', "c3")), stop="calls"
        ),
    ),
    "tools of other kinds": (
        answer({"type": "web_search_call", "id": "ws"}, {"type": "custom_tool_call", "call_id": "z", "input": "x"}),
        Reply(native=[{"type": "web_search_call", "id": "ws"}]),
    ),
}


@pytest.mark.parametrize(("whole", "expect"), ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.parametrize("sdk", [False, True], ids=["data", "the SDK's object"])
def test_a_whole_answer_is_read(whole: dict[str, Any], expect: Reply, sdk: bool) -> None:
    from openai.types.responses import Response

    got = format.reply(Response.construct(**whole) if sdk else whole, SPECS)
    assert expect.native in (None, got.native)
    assert (got.text, got.calls, got.stop, got.usage) == (expect.text, expect.calls, expect.stop, expect.usage)


@pytest.mark.parametrize(
    ("whole", "made"),
    [
        ("<html>", "OpenAI's response must be an object"),
        ({}, "'output' is missing. Is this a Responses address?"),
        (answer(tool_call(name=None)), "(output[0]) is malformed: 'name' must be text, and it is null."),  # type: ignore[arg-type]
        (answer({"type": "message", "content": "x"}), "(output[0]) is malformed: 'content' must be a list"),
        (
            answer(status="failed", error={"code": "server_error", "message": "Sorry."}),
            "OpenAI broke off its answer: server_error: Sorry.",
        ),
        (answer(status="queued"), "has not ended: its status is 'queued'"),
    ],
)
def test_a_broken_answer_is_an_error_with_its_place(whole: Any, made: str) -> None:
    with pytest.raises(ValueError) as raised:
        format.calls(whole, SPECS)
    assert made in str(raised.value)


ENDED = {"type": "response.completed", "response": answer(usage={"input_tokens": 7, "output_tokens": 3})}
PIECES: list[dict[str, Any]] = [
    {"type": "response.created", "response": answer(status="in_progress")},
    {"type": "response.output_item.done", "output_index": 0, "item": THOUGHT},
    {"type": "response.output_text.delta", "output_index": 1, "delta": "I "},
    {"type": "response.output_text.delta", "output_index": 1, "delta": "add."},
    {"type": "response.output_item.done", "output_index": 1, "item": made("I add.")},
    {"type": "response.output_item.added", "output_index": 2, "item": tool_call("c1", arguments="")},
    {"type": "response.output_item.added", "output_index": 3, "item": tool_call("c2", arguments="")},
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"a": 1, '},
    {"type": "response.function_call_arguments.delta", "output_index": 3, "delta": '{"a": 3}'},
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '"b": 2}'},
    {"type": "response.something_new", "what": 1},
]


def test_a_live_stream_gives_its_words_at_once_and_the_whole_at_its_end() -> None:
    stream = format.Stream(SPECS)
    written = [stream.add(piece) for piece in [*PIECES, ENDED]]
    assert [words for words in written if words] == [[TextDelta("I ")], [TextDelta("add.")]]
    got = stream.reply()
    assert got == Reply(
        "I add.",
        (Call("add", '{"a": 1, "b": 2}', "c1"), Call("add", '{"a": 3}', "c2")),
        "calls",
        Usage(7, 3),
        [THOUGHT, made("I add."), tool_call("c1"), tool_call("c2", arguments='{"a": 3}')],
    )


def test_items_that_are_repeated_at_the_end_count() -> None:
    ended = {"type": "response.completed", "response": answer(tool_call("c9"))}
    assert [shown(call) for call in format.calls([*PIECES, ended], SPECS)] == [("c9", "add", '{"a": 1, "b": 2}')]


@pytest.mark.parametrize(
    ("last", "got"),
    [
        ([], "OpenAI's stream ended in the middle, before 'response.completed'."),
        ([{"type": "error", "code": "server_error", "message": "Sorry."}], "server_error: Sorry."),
        (
            [{"type": "response.failed", "response": answer(status="failed", error={"code": "x", "message": "No."})}],
            "x: No.",
        ),
        ([{"type": "response.output_item.done", "item": {}}], "'output_index' must be an integer, and it is missing"),
    ],
)
def test_a_stream_that_did_not_end_well_is_no_reply(last: list[Any], got: str) -> None:
    with pytest.raises(ValueError) as raised:
        format.calls([*PIECES, *last], SPECS)
    assert got in str(raised.value)


def test_results_are_items_with_text_images_and_files() -> None:
    wrong = ToolError("No.", "failed")
    results = [
        added("c1", Text("3")),
        added("c2", Text("No."), error=wrong),
        added("c3", Text("A chart:"), Image(PIXEL), Image(b"II*", "image/tiff"), Audio(b"RIFF")),
        added(
            "c4", File(b"a,b\n", "text/csv"), File(b"%PDF", "application/pdf", "p.pdf"), File(b"\0", "application/zip")
        ),
        added("c5", Image(PIXEL), error=wrong),
    ]
    pixel = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL_IN_BASE64}", "detail": "auto"}
    outputs = [
        "3",
        "Error (failed): No.",
        [
            {"type": "input_text", "text": "A chart:"},
            pixel,
            {"type": "input_text", "text": "[image: image/tiff, 3 bytes]"},
            {"type": "input_text", "text": "[audio: audio/wav, 4 bytes]"},
        ],
        [
            {"type": "input_file", "filename": "file.csv", "file_data": "data:text/csv;base64,YSxiCg=="},
            {"type": "input_file", "filename": "p.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
            {"type": "input_text", "text": "[file: application/zip, 1 bytes]"},
        ],
        [{"type": "input_text", "text": "Error (failed):"}, pixel],
    ]
    assert format.messages(results) == [
        {"type": "function_call_output", "call_id": f"c{number}", "output": output}
        for number, output in enumerate(outputs, 1)
    ]


def test_a_conversation_is_written_whole_with_the_models_own_items_as_they_came() -> None:
    native = [THOUGHT, made("I add."), tool_call()]
    turns: list[Turn] = [
        User((Text("Add 1 and 2."),)),
        Reply("I add.", (Call("add", '{"a": 1, "b": 2}', "c1"),), "calls", Usage(), native),
        Results((added("c1", Text("3")),)),
        Reply("3.", (Call("add", {"a": 3}, "c2"), Call("add", '{"a', "c3")), "calls"),
        Results((added("c3", Text("Broken.")), added("c2", Text("No.")))),
        Reply("Done."),
        User((Text("See:"), Image(PIXEL), Audio(b"RIFF"), Data("[1]"))),
    ]
    assert format.conversation(turns, SPECS, instructions="Be exact.") == {
        "instructions": "Be exact.",
        "input": [
            {"role": "user", "content": "Add 1 and 2."},
            *native,
            {"type": "function_call_output", "call_id": "c1", "output": "3"},
            {"role": "assistant", "content": "3."},
            tool_call("c2", arguments='{"a": 3}'),
            tool_call("c3", arguments='{"INVALID_JSON": "{\\"a"}'),
            {"type": "function_call_output", "call_id": "c2", "output": "No."},
            {"type": "function_call_output", "call_id": "c3", "output": "Broken."},
            {"role": "assistant", "content": "Done."},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "See:"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL_IN_BASE64}", "detail": "auto"},
                    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
                    {"type": "input_text", "text": "[1]"},
                ],
            },
        ],
    }


def test_items_that_openai_did_not_keep_are_sent_back_without_their_ids() -> None:
    forgotten = {"type": "reasoning", "id": "rs_2", "summary": []}
    got = format.reply(answer(THOUGHT, forgotten, made("Hi."), tool_call(id="fc_1"), store=False))
    assert got.native == [THOUGHT, {name: value for name, value in made("Hi.").items() if name != "id"}, tool_call()]


def test_a_call_of_several_is_those_calls_as_items_without_its_id() -> None:
    uses = [
        {"recipient_name": "functions.add", "parameters": {"a": 1, "b": 2}},
        {"recipient_name": "functions.files_list", "parameters": {}},
    ]
    written = tool_call("c1", "multi_tool_use.parallel", json.dumps({"tool_uses": uses}), id="fc_1")
    reply = format.reply(answer(written, tool_call("c2", "functions.add")), SPECS)
    second = reply.calls[1].id
    assert [(call.id, call.tool) for call in reply.calls] == [("c1", "add"), (second, "files.list"), ("c2", "add")]
    assert reply.native == [
        tool_call("c1", "add", '{"a": 1, "b": 2}'),
        tool_call(second, "files_list", "{}"),
        tool_call("c2", "add"),
    ]


def test_what_an_answer_says_as_null_is_not_sent_back() -> None:
    # The API refuses a null status in a request, and gives it in answers.
    assert format.reply(answer({**THOUGHT, "status": None})).native == [THOUGHT]
