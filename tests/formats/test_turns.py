"""Turns of a conversation as JSON data, and back."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toolcrib import Call, File, Image, Pending, Result, Text, ToolError
from toolcrib.core import Audio, Data, Repair
from toolcrib.formats import Reply, Results, Turn, Usage, User
from toolcrib.formats.turns import turn_from_dict, turn_to_dict

CONTENT = (
    Text("words ä"),
    Data('{"a":[1,null]}'),
    Image(b"\x89PNG\x00\xff", "image/png"),
    Audio(b"\x00\x01", "audio/mpeg"),
    File(b"\xff\xfe", "application/pdf", "plan.pdf"),
    File(b"", "application/octet-stream"),
)
START = datetime(2026, 11, 2, 8, 30, 0, 250_000, tzinfo=UTC)
END = START + timedelta(seconds=1.25)
PENDING = Pending(
    "p1", "approval", "May it?", "d" * 64, "rm", "alice", "t", END, '{"path": "x"}', "key", "https://a", {"a": 1}, True
)


def through_json(turn: Turn) -> Turn:
    return turn_from_dict(json.loads(json.dumps(turn_to_dict(turn))))


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
                    Result(None, CONTENT, None, (Repair("/a", "string", "integer"),), START, END, "c1", "add"),
                    Result(None, (Text("Wait."),), None, (), START, END, "c2", "rm", PENDING, {"handle": "h"}),
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
    restored = through_json(
        Results((Result(object(), (Text("3"),), call_id="c", tool="t", metadata={"a": 1, "b": {1}}),))
    )
    assert restored == Results((Result(None, (Text("3"),), call_id="c", tool="t", metadata={"a": 1}),))


def test_bytes_of_arguments_are_kept_as_text() -> None:
    assert through_json(Reply(calls=(Call("add", b'{"a": 1}', "c1"),))) == Reply(calls=(Call("add", '{"a": 1}', "c1"),))


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ([], "turn: "),
        ({}, "turn: .*'kind'"),
        ({"kind": "usr"}, "turn: .*'usr'.* expected tags: 'user', 'reply', 'results'"),
        ({"kind": "user"}, r"turn\.user\.content: Field required"),
        (
            {"kind": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "data": "?"}]},
            r"turn\.user\.content\[1\]: Content of type 'image': 'data' is not valid base64",
        ),
        ({"kind": "reply", "text": "", "calls": [], "stop": "never", "usage": {}}, r"turn\.reply\.stop: "),
        (
            {"kind": "reply", "text": "", "calls": [{"tool": "a", "id": "b", "arguments": 3}], "stop": "end"},
            r"turn\.reply\.calls\[0\]\.arguments",
        ),
    ],
)
def test_anything_else_is_refused_with_its_place(data: Any, place: str) -> None:
    with pytest.raises(ValueError, match=f"^{place}"):
        turn_from_dict(data)


def test_an_unknown_code_of_an_error_is_refused_with_its_place() -> None:
    data = turn_to_dict(Results((Result(None, (), ToolError("no"), call_id="c", tool="t"),)))
    data["results"][0]["error"]["code"] = "broken"
    with pytest.raises(ValueError, match=r"^turn\.results\.results\[0\]\.error: 'broken' is not an error code"):
        turn_from_dict(data)
