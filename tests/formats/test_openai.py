"""OpenAI Chat Completions, as OpenAI speaks it and as others do."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from toolcrib import Call, File, Image, Pending, Result, Text, ToolError, ToolSpec, formats
from toolcrib.core import Audio, Data
from toolcrib.core.result import EPOCH
from toolcrib.formats import Reply, Results, TextDelta, Turn, Usage, User

from .examples import ADD, PIXEL, PIXEL_IN_BASE64, added, shown
from .examples import ADD_AND_LIST as SPECS

format = formats.openai


def message(**made: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, **made}


def answer(finish: str | None = "tool_calls", usage: Any = None, **made: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": finish, "message": message(**made)}
    return {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}


def tool_call(id: str = "c1", name: str = "add", arguments: Any = '{"a": 1, "b": 2}', **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


# Tools and choices


def test_a_name_that_openai_refuses_is_sent_as_another_and_comes_back_as_it_was() -> None:
    [_, listed] = format.tools(SPECS)
    name = listed["function"]["name"]
    assert name == "files_list"
    assert format.tool_choice("files.list", SPECS) == {"tool_choice": {"type": "function", "function": {"name": name}}}
    assert [call.tool for call in format.calls(answer(tool_calls=[tool_call(name=name)]), SPECS)] == ["files.list"]
    turns = [Reply(calls=(Call("files.list", None, "c1"),)), Results((Result(3, (Text("3"),), call_id="c1"),))]
    [got, _] = format.conversation(turns, SPECS)["messages"]
    assert got["tool_calls"][0]["function"] == {"name": name, "arguments": "{}"}


@pytest.mark.parametrize(
    ("choice", "parallel", "parameters"),
    [
        ("auto", True, {}),
        ("auto", False, {"parallel_tool_calls": False}),
        ("any", True, {"tool_choice": "required"}),
        ("none", True, {"tool_choice": "none"}),
        (
            "add",
            False,
            {"tool_choice": {"type": "function", "function": {"name": "add"}}, "parallel_tool_calls": False},
        ),
    ],
)
def test_a_choice_is_written_in_openais_terms(choice: str, parallel: bool, parameters: dict[str, Any]) -> None:
    assert format.tool_choice(choice, SPECS, parallel=parallel) == parameters


def test_a_strict_tool_asks_for_every_argument_and_null_is_absent() -> None:
    schema = {**ADD, "required": ["a"]}
    [offered] = format.tools([ToolSpec("add", "Add.", schema, strict=True)])
    assert offered["function"] == {
        "name": "add",
        "description": "Add.",
        "parameters": {**ADD, "properties": {"a": {"type": "integer"}, "b": {"type": ["integer", "null"]}}},
        "strict": True,
    }
    whole = answer(tool_calls=[tool_call(arguments='{"a": 1, "b": null}')])
    assert [call.arguments for call in format.calls(whole, [ToolSpec("add", "Add.", schema, strict=True)])] == [
        {"a": 1}
    ]


def test_what_a_schema_loses_is_reported_by_tool() -> None:
    wide = {"type": "object", "properties": {"a": {"not": {"type": "string"}}}, "required": ["a"]}
    specs = [ToolSpec("add", "", ADD, strict=True), ToolSpec("wide", "", wide, strict=True)]
    lost = format.losses(specs)
    assert list(lost) == ["wide"]
    assert "strict" in {loss.keyword for loss in lost["wide"]}
    assert ["strict" in offered["function"] for offered in format.tools(specs)] == [True, False]


# Whole answers


ANSWERS = {
    "text": (answer("stop", content="Hello."), Reply("Hello.")),
    "nothing": (answer("stop", tool_calls=None), Reply()),
    "a refusal": (answer("stop", refusal="I may not."), Reply("I may not.", stop="refused")),
    "filtered": (answer("content_filter", content="He"), Reply("He", stop="refused")),
    "too long": (answer("length", content="He"), Reply("He", stop="length")),
    "a reason nobody knows": (answer("tired", content="He"), Reply("He", stop="other")),
    "no reason": (answer(None, content="He"), Reply("He")),
    "the reason of calls, without any": (answer("tool_calls", content="He"), Reply("He")),
    "an empty reason": (answer("", content="He"), Reply("He")),
    "a reason in capitals": (answer("STOP", content="He"), Reply("He")),
    "a reason of a gateway to Claude": (answer("max_tokens", content="He"), Reply("He", stop="length")),
    "a call that Gemini could not read": (
        answer("function_call_filter: MALFORMED_FUNCTION_CALL"),
        Reply("", stop="malformed"),
    ),
    "tokens": (
        answer(
            "stop",
            {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 8},
                "completion_tokens_details": {"reasoning_tokens": 1},
            },
            content="He",
        ),
        Reply("He", usage=Usage(9, 2, 8, reasoning=1)),
    ),
    "Mistral's parts": (
        answer("stop", content=[{"type": "thinking", "thinking": []}, {"type": "text", "text": "He"}]),
        Reply("He"),
    ),
}


@pytest.mark.parametrize(("whole", "expect"), ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.parametrize("sdk", [False, True], ids=["data", "the SDK's object"])
def test_a_whole_answer_is_read(whole: dict[str, Any], expect: Reply, sdk: bool) -> None:
    from openai.types.chat import ChatCompletion

    got = format.reply(ChatCompletion.construct(**whole) if sdk else whole)
    assert (got.text, got.calls, got.stop, got.usage) == (expect.text, expect.calls, expect.stop, expect.usage)


@pytest.mark.parametrize("sdk", [False, True], ids=["data", "the SDK's object"])
@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('{"a": 1, "b": 2}', '{"a": 1, "b": 2}'),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}),
        ('{"a": 1, "b', '{"a": 1, "b'),
        ("[1, 2]", "[1, 2]"),
        ("", {}),
        (" null ", {}),
        (None, {}),
        ({}, {}),
    ],
)
def test_arguments_are_read_however_they_are_written(written: Any, read: Any, sdk: bool) -> None:
    from openai.types.chat import ChatCompletion

    whole = answer(tool_calls=[tool_call(arguments=written)])
    [call] = format.calls(ChatCompletion.construct(**whole) if sdk else whole, SPECS)
    assert shown(call) == ("c1", "add", read)


def test_ids_that_are_missing_or_stand_twice_are_made_up_and_sent_back() -> None:
    got = format.reply(
        answer(tool_calls=[tool_call(""), tool_call("c1"), tool_call("c1"), {"function": {"name": "add"}}]), SPECS
    )
    ids = [call.id for call in got.calls]
    assert ids[1] == "c1"
    assert len(set(ids)) == 4
    assert all(len(id) == 9 and id.isalnum() for id in (ids[0], *ids[2:]))
    results = Results(tuple(Result(3, (Text("3"),), call_id=id, tool="add") for id in reversed(ids)))
    [made, *answered] = format.conversation([got, results], SPECS)["messages"]
    assert [call["id"] for call in made["tool_calls"]] == ids
    assert [got["tool_call_id"] for got in answered] == ids


def test_a_decorated_name_is_sent_back_as_the_name_that_was_offered() -> None:
    whole = answer(tool_calls=[tool_call(name="functions.add:0"), tool_call("c2", "files_list<|channel|>json", "{}")])
    reply = format.reply(whole, SPECS)
    assert [call.tool for call in reply.calls] == ["add", "files.list"]
    assert [call["function"]["name"] for call in reply.native["tool_calls"]] == ["add", "files_list"]


USES = [
    {"recipient_name": "functions.add", "parameters": {"a": 1, "b": 2}},
    {"recipient_name": "files_list", "parameters": {}},
]


def parallel(uses: Any, **more: Any) -> dict[str, Any]:
    return tool_call("c1", "multi_tool_use.parallel", json.dumps({"tool_uses": uses}), **more)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_call_of_several_is_those_calls_each_with_an_id_and_a_result(streamed: bool) -> None:
    written = [parallel(USES), tool_call("c2")]
    whole: Any = answer(tool_calls=written)
    if streamed:
        whole = [chunk("tool_calls", tool_calls=[{"index": n, **call} for n, call in enumerate(written)])]
    reply = format.reply(whole, SPECS)
    first, second, third = reply.calls
    assert [(call.tool, call.arguments) for call in reply.calls] == [
        ("add", {"a": 1, "b": 2}),
        ("files.list", {}),
        ("add", '{"a": 1, "b": 2}'),
    ]
    assert (first.id, third.id, len({first.id, second.id, third.id})) == ("c1", "c2", 3)

    sent = format.conversation([User((Text("Go"),)), reply, Results(tuple(map(done, reply.calls)))], SPECS)["messages"]
    assert sent[1] == reply.native
    assert sent[1]["tool_calls"] == [
        tool_call("c1", "add", '{"a": 1, "b": 2}'),
        tool_call(second.id, "files_list", "{}"),
        tool_call("c2"),
    ]
    assert [message["tool_call_id"] for message in sent[2:]] == ["c1", second.id, "c2"]


def done(call: Call) -> Result[Any]:
    return Result(None, (Text("done"),), call_id=call.id, tool=call.tool)


@pytest.mark.parametrize(
    "uses",
    [[], "add", [USES[0], "add"], [{"recipient_name": "functions.add", "parameters": "1"}], [{"parameters": {}}]],
)
def test_a_call_of_several_that_is_malformed_stays_one_call(uses: Any) -> None:
    [call] = format.calls(answer(tool_calls=[parallel(uses)]), SPECS)
    assert (call.tool, call.arguments) == ("multi_tool_use.parallel", json.dumps({"tool_uses": uses}))


def test_of_a_key_that_stands_twice_in_a_call_of_several_none_is_chosen() -> None:
    text = json.dumps({"tool_uses": USES}).replace('"a": 1', '"a": 1, "a": 9')
    [call] = format.calls(answer(tool_calls=[tool_call("c1", "multi_tool_use.parallel", text)]), SPECS)
    assert (call.tool, call.arguments) == ("multi_tool_use.parallel", text)


def test_a_tool_that_is_called_so_gets_its_call_whole() -> None:
    [call] = format.calls(answer(tool_calls=[parallel(USES)]), [*SPECS, ToolSpec("multi_tool_use.parallel", "", {})])
    assert call.tool == "multi_tool_use.parallel"


def test_a_stored_call_of_several_has_one_result_and_stays_one_call() -> None:
    stored = [message(tool_calls=[parallel(USES)]), {"role": "tool", "tool_call_id": "c1", "content": "3"}]
    [reply, results] = format.read_conversation(stored, SPECS).turns
    assert isinstance(reply, Reply) and isinstance(results, Results)
    assert [call.id for call in reply.calls] == [result.call_id for result in results.results] == ["c1"]


def test_tools_of_other_kinds_than_functions_are_passed_over() -> None:
    custom = {"id": "z", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    got = format.reply(
        answer(tool_calls=[custom, tool_call()], function_call={"name": "old", "arguments": "{}"}), SPECS
    )
    assert [shown(call) for call in got.calls] == [("c1", "add", '{"a": 1, "b": 2}')]
    assert got.native == message(tool_calls=[tool_call()])


BROKEN = [
    ("<html>", "OpenAI's answer must be an object"),
    ({}, "'choices' is empty or missing. Is this a Chat Completions address?"),
    ({"choices": {}}, "OpenAI's answer is malformed: 'choices' must be a list"),
    ({"choices": [{}]}, "OpenAI's answer (choices[0]) is malformed: 'message' must be an object, and it is missing."),
    (answer(tool_calls=[{"id": "c1"}]), "tool_calls[0] is malformed: 'function' must be an object, and it is missing."),
    (
        answer(tool_calls=[tool_call(name=None)]),  # type: ignore[arg-type]
        "tool_calls[0].function is malformed: 'name' must be text, and it is null.",
    ),
    (answer(tool_calls={"a": 1}), "'tool_calls' must be a list, and it is an object."),
    ({"error": {"message": "Overloaded", "code": 503}}, "OpenAI broke off its answer: 503: Overloaded"),
]


@pytest.mark.parametrize(("whole", "made"), BROKEN, ids=[made for _, made in BROKEN])
def test_a_broken_answer_is_an_error_with_its_place(whole: Any, made: str) -> None:
    with pytest.raises(ValueError) as raised:
        format.calls(whole, SPECS)
    assert made in str(raised.value)


# Streamed answers


def pieces(*calls: Sequence[dict[str, Any]], finish: str = "tool_calls") -> list[dict[str, Any]]:
    return [*(chunk(tool_calls=list(call)) for call in calls), chunk(finish)]


def piece(
    index: int | None = None, id: str | None = None, name: str | None = None, written: Any = None
) -> dict[str, Any]:
    made: dict[str, Any] = {"index": index, "id": id, "function": {"name": name, "arguments": written}}
    return {key: value for key, value in made.items() if value is not None}


STREAMS = {
    "OpenAI": pieces(
        [piece(0, "c1", "add", "")],
        [piece(0, written='{"a": 1,')],
        [piece(1, "c2", "add", "")],
        [piece(0, written='"b": 2}'), piece(1, written='{"a": 3, "b": 4}')],
    ),
    "whole calls without an index (Mistral)": pieces(
        [piece(None, "c1", "add", '{"a": 1,"b": 2}'), piece(None, "c2", "add", '{"a": 3, "b": 4}')], finish="stop"
    ),
    "all calls under one index (Gemini)": pieces(
        [piece(0, "c1", "add", '{"a": 1,"b": 2}')], [piece(0, "c2", "add", '{"a": 3, "b": 4}')]
    ),
    "a new id with each piece (vLLM)": pieces(
        [piece(0, "c1", "add", "")],
        [piece(0, "x1", written='{"a": 1,')],
        [piece(0, "x2", "add", '"b": 2}')],
        [piece(1, "c2", "add", '{"a": 3, "b": 4}')],
    ),
    "the name again with each piece": pieces(
        [piece(0, "c1", "add", '{"a": 1,')],
        [piece(0, "c1", "add", '"b": 2}')],
        [piece(1, "c2", "add", '{"a": 3, "b": 4}')],
    ),
    "neither index nor repeated id": pieces(
        [piece(None, "c1", "add", '{"a": 1,')],
        [piece(written='"b": 2}')],
        [piece(None, "c2", "add", '{"a": 3, "b": 4}')],
    ),
    "ids instead of indexes": pieces(
        [piece(None, "c1", "add", '{"a": 1,')],
        [piece(None, "c2", "add", '{"a": 3, "b": 4}')],
        [piece(None, "c1", written='"b": 2}')],
    ),
}


@pytest.mark.parametrize("chunks", STREAMS.values(), ids=STREAMS.keys())
@pytest.mark.parametrize("sdk", [False, True], ids=["data", "the SDK's objects"])
def test_calls_in_pieces_are_put_together(chunks: list[dict[str, Any]], sdk: bool) -> None:
    from openai.types.chat import ChatCompletionChunk

    got = format.reply((ChatCompletionChunk.construct(**one) if sdk else one for one in chunks), SPECS)
    assert [shown(call) for call in got.calls] == [("c1", "add", '{"a": 1,"b": 2}'), ("c2", "add", '{"a": 3, "b": 4}')]
    assert got.stop == "calls"


def test_arguments_that_come_as_objects_are_put_together_too() -> None:
    chunks = pieces([piece(0, "c1", "add", {"a": 1, "b": 2})], finish="stop")
    assert [shown(call) for call in format.calls(chunks, SPECS)] == [("c1", "add", '{"a": 1, "b": 2}')]


def test_calls_that_come_whole_with_neither_index_nor_id_are_apart() -> None:
    got = format.calls(pieces([piece(name="add", written='{"a": 1}')], [piece(name="add", written='{"a": 2}')]))
    assert [call.arguments for call in got] == ['{"a": 1}', '{"a": 2}']
    assert got[0].id != got[1].id


def test_a_live_stream_gives_its_words_at_once_and_the_whole_at_its_end() -> None:
    stream = format.Stream(SPECS)
    parts = [
        chunk(role="assistant", content="", reasoning_content="One and "),
        chunk(reasoning_content="two."),
        chunk(content="I "),
        chunk(content="add."),
        chunk(tool_calls=[piece(0, "c1", "add", '{"a": 1, "b": 2}')]),
        {**chunk(), "choices": [{"index": 1, "delta": {"content": "another"}, "finish_reason": "stop"}]},
        chunk("tool_calls"),
        chunk(content=""),
        {**chunk(), "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}},
        "[DONE]",
    ]
    assert [words for part in parts if (words := stream.add(part))] == [[TextDelta("I ")], [TextDelta("add.")]]
    got = stream.reply()
    assert (got.text, got.stop, got.usage) == ("I add.", "calls", Usage(7, 3))
    assert got.native == message(content="I add.", reasoning_content="One and two.", tool_calls=[tool_call()])


# Results and conversations


def test_results_are_messages_in_order_and_errors_are_words() -> None:
    pending = Pending("p", "approval", "May it?", "d", "rm", "local", "default", EPOCH)
    results = [
        added("c1", Text("3")),
        added("c2", Text("No 'c'."), error=ToolError("No 'c'.", "invalid_arguments")),
        Result(None, (Text("It waits for an approval."),), call_id="c3", tool="rm", pending=pending),
        added("c4", Data('{"a": 1}'), Text("and more")),
        added("c5"),
    ]
    assert format.messages(results) == [
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
        {"role": "tool", "tool_call_id": "c2", "content": "Error (invalid_arguments): No 'c'."},
        {"role": "tool", "tool_call_id": "c3", "content": "It waits for an approval."},
        {"role": "tool", "tool_call_id": "c4", "content": '{"a": 1}\nand more'},
        {"role": "tool", "tool_call_id": "c5", "content": ""},
    ]


def test_images_and_pdfs_follow_all_results_of_the_turn() -> None:
    results = [
        added("c1", Text("A chart:"), Image(PIXEL)),
        added("c2", File(b"%PDF", "application/pdf", "plan.pdf")),
        added("c3", File(b"a,b\n", "text/csv", "t.csv"), Audio(b"RIFF"), Image(b"II*", "image/tiff")),
    ]
    assert format.messages(results) == [
        {"role": "tool", "tool_call_id": "c1", "content": "A chart:\n[image: image/png, 10 bytes]"},
        {"role": "tool", "tool_call_id": "c2", "content": "[file plan.pdf: application/pdf, 4 bytes]"},
        {
            "role": "tool",
            "tool_call_id": "c3",
            "content": "[file t.csv: text/csv, 4 bytes]\na,b\n\n"
            "[audio: audio/wav, 4 bytes]\n[image: image/tiff, 3 bytes]",
        },
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "From the result of 'add' (c1):"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL_IN_BASE64}"}},
                {"type": "text", "text": "From the result of 'add' (c2):"},
                {"type": "file", "file": {"filename": "plan.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
            ],
        },
    ]


def test_a_conversation_is_written_whole() -> None:
    native = message(content="I add.", reasoning_content="Hm.", tool_calls=[tool_call()])
    turns: list[Turn] = [
        User((Text("Add 1 and 2,"), Text("please."))),
        Reply("I add.", (Call("add", {"a": 1, "b": 2}, "c1"),), "calls", Usage(), native),
        Results((added("c1", Text("3")),)),
        Reply("3.", (Call("add", {"a": 3, "b": 0}, "c2"), Call("add", '{"a": ', "c3")), "calls"),
        Results((added("c3", Text("Broken.")), added("c2", Text("3")))),
        Reply("Done."),
        User((Text("See:"), Image(PIXEL, "image/webp"), Audio(b"RIFF", "audio/mpeg"), Data("[1]"))),
    ]
    assert format.conversation(turns, SPECS, instructions="Be exact.") == {
        "messages": [
            {"role": "system", "content": "Be exact."},
            {"role": "user", "content": "Add 1 and 2,\nplease."},
            native,
            {"role": "tool", "tool_call_id": "c1", "content": "3"},
            message(
                content="3.",
                tool_calls=[
                    tool_call("c2", arguments='{"a": 3, "b": 0}'),
                    tool_call("c3", arguments='{"INVALID_JSON": "{\\"a\\": "}'),
                ],
            ),
            {"role": "tool", "tool_call_id": "c2", "content": "3"},
            {"role": "tool", "tool_call_id": "c3", "content": "Broken."},
            {"role": "assistant", "content": "Done."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "See:"},
                    {"type": "image_url", "image_url": {"url": f"data:image/webp;base64,{PIXEL_IN_BASE64}"}},
                    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "mp3"}},
                    {"type": "text", "text": "[1]"},
                ],
            },
        ]
    }


def test_what_a_model_wrote_is_sent_back_as_json_that_every_server_reads() -> None:
    got = format.reply(
        answer(
            tool_calls=[
                tool_call("c1", arguments='{"a": '),
                tool_call("c2", arguments=""),
                tool_call("c3", arguments={"a": 1}),
            ],
            annotations=[],
            audio={"id": "sound", "data": "x", "transcript": "y"},
        )
    )
    assert got.native == message(
        audio={"id": "sound"},
        tool_calls=[
            tool_call("c1", arguments='{"INVALID_JSON": "{\\"a\\": "}'),
            tool_call("c2", arguments="{}"),
            tool_call("c3", arguments='{"a": 1}'),
        ],
    )


@pytest.mark.parametrize(
    ("turns", "made"),
    [
        ([Reply(calls=(Call("add", None, "c1"),)), User(())], "The calls c1 have no results: turns[1] comes first."),
        ([Reply(calls=(Call("add", None, "c1"),)), Results((added("c2"),))], "turns[1]: "),
        ([Reply(calls=(Call("add", None, "c1"),)), Results((added("c1"), added("c1")))], "turns[1]: "),
        ([User((Text("x"),)), Results((added("c1"),))], "turns[1]: "),
    ],
)
def test_calls_and_results_that_do_not_pair_are_refused(turns: list[Turn], made: str) -> None:
    with pytest.raises(ValueError) as raised:
        format.conversation(turns)
    assert str(raised.value).startswith(made)
