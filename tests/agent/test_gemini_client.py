"""Models of Google, through its real SDK, against a server that speaks generateContent."""

from typing import Any

import pytest

from toolcrib import Call, Image, Result, Text
from toolcrib.agent import ModelError, Request
from toolcrib.agent.gemini import GeminiModel
from toolcrib.formats import Reply, Results, Usage

from .wire import ADD, QUESTION, answer, refusal, wire

KEY = "AIza-a-very-secret-key"
CALL = {"functionCall": {"name": "add", "args": {"a": 2, "b": 3}, "id": "c1"}, "thoughtSignature": "AA-_Zm9v"}
THOUGHT = {"text": "I should add.", "thought": True}
COUNTS = {"promptTokenCount": 10, "candidatesTokenCount": 4, "thoughtsTokenCount": 3, "cachedContentTokenCount": 5}


def output(*parts: dict[str, Any], stop: str | None = None, **more: Any) -> dict[str, Any]:
    candidate = {
        "content": {"role": "model", "parts": [*parts]},
        "index": 0,
        **({"finishReason": stop} if stop else {}),
    }
    return {"candidates": [candidate], "responseId": "r1", "modelVersion": "gemini-x", **more}


WHOLE = output(THOUGHT, {"text": "I add."}, CALL, stop="STOP", usageMetadata=COUNTS)
REPLY = Reply(
    "I add.",
    (Call("add", {"a": 2, "b": 3}, "c1"),),
    "calls",
    Usage(10, 7, 5, reasoning=3),
    {"role": "model", "parts": [THOUGHT, {"text": "I add."}, CALL]},
)
PIECES = (
    output({"text": "I should ", "thought": True}),
    output({"text": "add.", "thought": True}),
    output({"text": "I "}),
    output({"text": "add."}),
    output(CALL),
    output({"text": ""}, stop="STOP", usageMetadata=COUNTS),
)


def model(url: str, **options: Any) -> GeminiModel:
    return GeminiModel("gemini-x", api_key=KEY, base_url=url, max_retries=0, **options)


async def test_a_whole_reply_and_what_was_asked_for_it() -> None:
    with wire(answer(WHOLE)) as provider:
        assert await model(provider.url, options={"temperature": 0}).reply(QUESTION) == REPLY
        (asked,) = provider.requests
    assert (asked.path, asked.headers["x-goog-api-key"]) == ("/v1/models/gemini-x:generateContent", KEY)
    assert asked.body == {
        "contents": [{"role": "user", "parts": [{"text": "2 and 3?"}]}],
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "add", "description": "Add two numbers.", "parameters_json_schema": dict(ADD.input_schema)}
                ]
            }
        ],
        "generationConfig": {"temperature": 0},
    }


async def test_the_next_turn_sends_signatures_back_as_they_came_and_the_results() -> None:
    picture = Image(b"\xff\xfe\xfd", "image/png")
    done = Result(5, (Text("5"), picture), call_id="c1", tool="add")
    turns = [*QUESTION.turns, REPLY, Results((done,))]
    with wire(answer(output({"text": "5."}, stop="STOP"))) as provider:
        reply = await model(provider.url).reply(Request(turns, instructions="Be short.", specs=[ADD], choice="add"))
        body = provider.requests[0].body
    assert (reply.text, reply.stop, reply.calls) == ("5.", "end", ())
    assert body["systemInstruction"]["parts"] == [{"text": "Be short."}]
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["add"]}}
    response = {
        "id": "c1",
        "name": "add",
        "response": {"output": "5\n[image: image/png, 3 bytes]"},
        # So the SDK writes it: base64 in its form for URLs, and names that Google takes beside "inlineData".
        "parts": [{"inline_data": {"mime_type": "image/png", "data": "__79"}}],
    }
    assert body["contents"][1:] == [
        {"role": "model", "parts": [THOUGHT, {"text": "I add."}, CALL]},
        {"role": "user", "parts": [{"functionResponse": response}]},
    ]


async def test_a_wrong_key_is_reported_as_such_though_google_calls_it_a_wrong_request() -> None:
    reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    body = {"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT", "details": [reason]}}
    with wire(refusal(400, body)) as provider, pytest.raises(ModelError) as caught:
        await model(provider.url).reply(QUESTION)
    assert caught.value.problem == "unauthorized"


async def test_without_a_key_the_way_to_one_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ModelError, match=r"Set GEMINI_API_KEY\.\nOr pass api_key\.") as caught:
        await GeminiModel("gemini-x").reply(QUESTION)
    assert caught.value.problem == "unauthorized"
