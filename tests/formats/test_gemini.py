"""Gemini: tools, choices, calls, results and conversations in its words."""

from typing import Any

import pytest

from toolcrib import Call, File, Image, Text, ToolError, ToolSpec
from toolcrib.core import Audio, Data
from toolcrib.formats import Reply, Results, TextDelta, Usage, User, gemini

from . import examples
from .examples import SCHEMA, ended

SPECS = [
    *examples.SPECS[:2],
    ToolSpec("now", "Tells the time.", {"type": "object", "properties": {}, "additionalProperties": False}),
]


def answer(*parts: dict[str, Any], stop: str | None = "STOP", **more: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": [*parts]}, **({"finishReason": stop} if stop else {})}
    return {"candidates": [candidate], **more}


def use(name: str = "double", n: int = 1, **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {"n": n}, **more}}


def test_tools_are_one_tool_of_functions_under_names_that_gemini_takes() -> None:
    assert gemini.tools(SPECS) == [
        {
            "functionDeclarations": [
                {"name": "double", "description": "Doubles.", "parametersJsonSchema": SCHEMA},
                {"name": "files_read_all", "description": "", "parametersJsonSchema": SCHEMA},
                {"name": "now", "description": "Tells the time."},
            ]
        }
    ]
    assert gemini.losses(SPECS) == {}
    assert gemini.tools([]) == []


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        ("any", {"mode": "ANY"}),
        ("none", {"mode": "NONE"}),
        ("files/read all", {"mode": "ANY", "allowedFunctionNames": ["files_read_all"]}),
    ],
)
def test_every_choice_has_its_words(choice: str, config: dict[str, Any]) -> None:
    assert gemini.tool_choice(choice, SPECS) == {"toolConfig": {"functionCallingConfig": config}}
    assert gemini.tool_choice("auto", SPECS, parallel=False) == {}  # Gemini knows no word for that


def test_calls_come_under_the_tools_own_names_from_dictionaries_and_from_the_sdks_objects() -> None:
    from google.genai.types import GenerateContentResponse

    whole = answer({"text": "Now."}, use(id="a"), {**use("files_read_all", 2, id="b"), "thoughtSignature": "AA-_"})
    calls = [Call("double", {"n": 1}, "a"), Call("files/read all", {"n": 2}, "b")]
    assert gemini.calls(whole, SPECS) == calls
    theirs = GenerateContentResponse.model_validate(whole)
    assert gemini.calls(theirs, SPECS) == calls
    assert gemini.reply(theirs, SPECS).native == gemini.reply(whole, SPECS).native


def test_calls_without_ids_are_given_ones_that_are_never_sent_back() -> None:
    reply = gemini.reply(answer(use(n=1), use(n=2), {"functionCall": {"name": "now"}}, responseId="r1"), SPECS)
    assert reply.calls == (
        Call("double", {"n": 1}, "toolcrib:r1:0"),
        Call("double", {"n": 2}, "toolcrib:r1:1"),
        Call("now", {}, "toolcrib:r1:2"),
    )
    assert reply.stop == "calls"
    results = [ended(call.id, Text(str(number)), tool=call.tool) for number, call in enumerate(reply.calls)]
    output = gemini.conversation([User((Text("?"),)), reply, Results((results[2], results[0], results[1]))], SPECS)
    assert output["contents"][1:] == [
        {"role": "model", "parts": [use(n=1), use(n=2), {"functionCall": {"name": "now"}}]},
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "double", "response": {"output": "0"}}},
                {"functionResponse": {"name": "double", "response": {"output": "1"}}},
                {"functionResponse": {"name": "now", "response": {"output": "2"}}},
            ],
        },
    ]
    nameless = [gemini.calls(answer(use()))[0].id for _ in range(2)]
    assert nameless[0] != nameless[1]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("STOP", "end"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "refused"),
        ("PROHIBITED_CONTENT", "refused"),
        ("MALFORMED_FUNCTION_CALL", "malformed"),
        ("SOMETHING_NEW", "other"),
    ],
)
def test_why_it_stopped(reason: str, stop: str) -> None:
    assert gemini.reply(answer(stop=reason)).stop == stop


def test_a_call_that_gemini_could_not_read_has_its_message_as_the_reason() -> None:
    parts = [{"text": "So"}, {"functionCall": {"name": "double", "args": {"n": 1}}}]
    candidate = {"content": {"parts": parts}, "finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "print(1)"}
    reply = gemini.reply([{"candidates": [candidate]}])
    assert reply == Reply("So", (), "malformed", Usage(), None, "MALFORMED_FUNCTION_CALL: print(1)")


def test_a_question_that_is_refused_has_no_candidate() -> None:
    refused = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}}
    assert gemini.reply(refused) == Reply("", (), "refused", Usage(3), {"role": "model", "parts": []})


def test_pieces_are_put_together_and_signatures_stay_where_they_came() -> None:
    pieces = [
        answer({"text": "Hm, ", "thought": True}, stop=None, responseId="r1"),
        answer({"text": "well.", "thought": True}, stop=None),
        answer({"text": "I "}, stop=None),
        answer({"text": "double."}, use(n=1), stop=None),
        answer({**use(n=2), "thoughtSignature": "AA-_"}, stop=None, usageMetadata={"promptTokenCount": 1}),
        answer(
            {"text": "", "thoughtSignature": "BB-_"}, usageMetadata={"promptTokenCount": 2, "thoughtsTokenCount": 3}
        ),
    ]
    stream = gemini.Stream(SPECS)
    assert [output for piece in pieces for output in stream.add(piece)] == [TextDelta("I "), TextDelta("double.")]
    assert stream.reply() == Reply(
        "I double.",
        (Call("double", {"n": 1}, "toolcrib:r1:0"), Call("double", {"n": 2}, "toolcrib:r1:1")),
        "calls",
        Usage(2, 3, reasoning=3),
        {
            "role": "model",
            "parts": [
                {"text": "Hm, well.", "thought": True},
                {"text": "I double."},
                use(n=1),
                {**use(n=2), "thoughtSignature": "AA-_"},
                {"text": "", "thoughtSignature": "BB-_"},
            ],
        },
    )
    assert pieces[2] == answer({"text": "I "}, stop=None)  # nothing was written into what came
    assert gemini.reply(pieces, SPECS) == stream.reply()


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (answer({"functionCall": {}}), r"parts\[0\].functionCall is malformed: 'name' must be text, and it is missing"),
        (answer({"functionCall": {"name": "a", "args": "{}"}}), "'args' must be an object, and it is text"),
        (answer({"functionCall": {"name": "a", "willContinue": True}}), "Ask without 'streamFunctionCallArguments'"),
        ({"error": {"status": "UNAVAILABLE", "message": "Busy"}}, "broke off its answer: UNAVAILABLE: Busy"),
    ],
)
def test_a_broken_answer_is_reported_with_its_place(broken: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gemini.reply(broken)


def test_results_of_one_turn_go_in_one_content_and_errors_in_words() -> None:
    results = [
        ended("a", Data('{"n":1}')),
        ended("b", Data("NaN"), tool="files/read all"),
        ended("c", Text("See"), Image(b"\x01"), Audio(b"\x01"), File(b"%PDF", "application/pdf")),
        ended("d", Text("No such file."), error=ToolError("No such file.")),
        ended("e|1"),
    ]
    (content,) = gemini.messages(results, SPECS)
    assert content["role"] == "user"
    *output, last = [part["functionResponse"] for part in content["parts"]]
    assert output == [
        {"id": "a", "name": "double", "response": {"output": {"n": 1}}},
        {"id": "b", "name": "files_read_all", "response": {"output": "NaN"}},
        {
            "id": "c",
            "name": "double",
            "response": {
                "output": "See\n[image: image/png, 1 bytes]\n[audio: audio/wav, 1 bytes]\n"
                "[file: application/pdf, 4 bytes]"
            },
            "parts": [
                {"inlineData": {"mimeType": "image/png", "data": "AQ=="}},
                {"inlineData": {"mimeType": "application/pdf", "data": "JVBERg=="}},
            ],
        },
        {"id": "d", "name": "double", "response": {"error": "No such file."}},
    ]
    assert last["response"] == {"output": ""}
    assert last["id"].startswith("call_")  # another provider's id, in a form that Gemini takes
    assert gemini.messages([]) == []


def test_what_a_person_shows_is_sent_as_it_is_or_in_words() -> None:
    shown = (Text("Look:"), Image(b"\x01", "image/webp"), File(b"a,b", "text/csv", "t.csv"), File(b"\x00", "font/ttf"))
    assert gemini.conversation([User(shown)], instructions="Be short.") == {
        "systemInstruction": {"parts": [{"text": "Be short."}]},
        "contents": [
            {
                "role": "user",
                "parts": [
                    {"text": "Look:"},
                    {"inlineData": {"mimeType": "image/webp", "data": "AQ=="}},
                    {"text": "[file t.csv: text/csv, 3 bytes]"},
                    {"text": "a,b"},
                    {"text": "[file: font/ttf, 1 bytes]"},
                ],
            }
        ],
    }


def test_a_reply_of_another_provider_is_written_again_with_the_mark_that_stands_for_no_signature() -> None:
    foreign = Reply("Hm.", (Call("double", '{"n": 1}', "t1"), Call("files/read all", {}, "t2")), native={"a": 1})
    turns = [User((Text("Go."),)), foreign, Results((ended("t1", Text("1")), ended("t2", tool="files/read all")))]
    assert gemini.conversation(turns, SPECS)["contents"][1]["parts"] == [
        {"text": "Hm."},
        {**use(id="t1"), "thoughtSignature": "skip_thought_signature_validator"},
        {"functionCall": {"id": "t2", "name": "files_read_all", "args": {}}},
    ]
