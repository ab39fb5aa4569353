"""Turns of a conversation as JSON data, and back."""

import json
from typing import Any

import pytest

from toolcrib import Audio, Call, Data, File, Image, Pending, Repair, Result, Text, ToolError
from toolcrib.formats import Reply, Results, Turn, Usage, User
from toolcrib.formats.turns import from_data, to_data

CONTENT = (
    Text("words ä"),
    Data('{"a": [1, null]}'),
    Image(b"\x89PNG\x00\xff", "image/png"),
    Audio(b"\x00\x01", "audio/mpeg"),
    File(b"\xff\xfe", "application/pdf", "plan.pdf"),
    File(b"", "application/octet-stream"),
)
PENDING = Pending(
    "p1", "approval", "May it?", "d" * 64, "rm", "alice", "t", 12.5, '{"path": "x"}', "key", "https://a", {"a": 1}, True
)


def through_json(turn: Turn) -> Turn:
    return from_data(json.loads(json.dumps(to_data(turn))))


@pytest.mark.parametrize(
    "turn",
    [
        pytest.param(User(CONTENT), id="a user's, with every kind of content"),
        pytest.param(User(()), id="a user's without content"),
        pytest.param(Reply(), id="an empty reply"),
        pytest.param(
            Reply(
                "thinking",
                (Call("add", {"a": 1}, "c1"), Call("add", '{"a": ', "c2"), Call("now", None, "c3")),
                "calls",
                Usage(10, 5, 3),
                [{"type": "reasoning", "encrypted_content": "x"}],
            ),
            id="a reply with calls",
        ),
        pytest.param(
            Results(
                (
                    Result(None, CONTENT, None, (Repair("/a", "string", "integer"),), 1.25, 2.5, "c1", "add"),
                    Result(None, (Text("Wait."),), None, (), 1.0, 2.0, "c2", "rm", PENDING, {"handle": "h"}),
                )
            ),
            id="results",
        ),
    ],
)
def test_a_turn_comes_back_from_json_as_it_was(turn: Turn) -> None:
    assert through_json(turn) == turn


def test_an_error_comes_back_with_its_code_and_whether_to_try_again() -> None:
    error = ToolError("Not now.", "unavailable", retry="never", details={"until": "noon"})
    turn = through_json(Results((Result(None, (Text("Not now."),), error, call_id="c1", tool="add"),)))
    assert isinstance(turn, Results)
    [result] = turn.results
    assert (result.status, result.text) == ("error", "Not now.")
    assert result.error is not None
    assert result.error.to_dict() == error.to_dict()


def test_the_programs_own_value_is_not_kept_and_neither_is_what_is_no_json() -> None:
    kept = through_json(Results((Result(object(), (Text("3"),), call_id="c", tool="t", metadata={"a": 1, "b": {1}}),)))
    assert kept == Results((Result(None, (Text("3"),), call_id="c", tool="t", metadata={"a": 1}),))


def test_bytes_of_arguments_are_kept_as_text() -> None:
    assert through_json(Reply(calls=(Call("add", b'{"a": 1}', "c1"),))) == Reply(calls=(Call("add", '{"a": 1}', "c1"),))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "turn: an object belongs here, and a value of kind list is here."),
        ({}, "turn.kind: text belongs here, and nothing is here."),
        ({"kind": "usr"}, "turn.kind: 'usr' is no kind of turn. The kinds are: user, reply, results."),
        ({"kind": "user"}, "turn.content: a list belongs here, and nothing is here."),
        (
            {"kind": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "base64": "?"}]},
            "turn.content[1].base64: this is no base64.",
        ),
        (
            {"kind": "user", "content": [{"type": "image", "media_type": "image/png"}]},
            "turn.content[0].base64: text belongs here, and nothing is here.",
        ),
        (
            {"kind": "user", "content": [{"type": "video"}]},
            "turn.content[0].type: 'video' is no kind of content. The kinds are: text, data, image, audio, file.",
        ),
        (
            {"kind": "reply", "text": "", "calls": [], "stop": "never", "usage": {}},
            "turn.stop: 'never' is not one of: end, calls, length, refused, other.",
        ),
        (
            {
                "kind": "reply",
                "text": "",
                "calls": [{"tool": "a", "id": "b", "arguments": 3}],
                "stop": "end",
                "usage": {},
            },
            "turn.calls[0].arguments: text or an object belongs here, and a value of kind int is here.",
        ),
        (
            {"kind": "reply", "text": "", "calls": [], "stop": "end", "usage": {"input": True}},
            "turn.usage.input: a whole number belongs here, and a value of kind bool is here.",
        ),
    ],
)
def test_anything_else_is_refused_with_its_place(data: Any, said: str) -> None:
    with pytest.raises(ValueError) as raised:
        from_data(data)
    assert str(raised.value) == said


def test_an_unknown_code_of_an_error_is_refused_with_its_place() -> None:
    data = to_data(Results((Result(None, (), ToolError("no"), call_id="c", tool="t"),)))
    data["results"][0]["error"]["code"] = "broken"
    with pytest.raises(
        ValueError, match=r"^turn\.results\[0\]\.error\.code: 'broken' is no error code\. The codes are: "
    ):
        from_data(data)
