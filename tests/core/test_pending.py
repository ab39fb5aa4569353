"""What calls wait for, and answers, as data."""

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from toolcrib import Approve, Deny, Input, Pending, ToolAuth, ToolError, ToolSpec
from toolcrib.core import AnswerError, Hints, Secret
from toolcrib.machinery import answer_from


def test_a_pending_as_data_has_no_empty_members() -> None:
    now = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    pending = Pending("p1", "input", "How many?", "d1", "book", "alice", "t1", now, schema={"type": "integer"})
    assert pending.to_dict() == {
        "id": "p1",
        "kind": "input",
        "message": "How many?",
        "digest": "d1",
        "tool": "book",
        "principal": "alice",
        "thread": "t1",
        "expires_at": "2030-01-02T03:04:05+00:00",
        "arguments": "{}",
        "schema": {"type": "integer"},
    }
    bare = Pending("p1", "approval", "May it?", "d1", "book", "alice", "t1", now, others_only=True)
    assert (bare.to_dict()["others_only"], "schema" in bare.to_dict()) == (True, False)


@pytest.mark.parametrize("answer", [Approve(), Deny(), Deny("why"), Input(None), Input({"a": [1]})])
def test_an_answer_is_the_same_after_a_way_through_data(answer: Any) -> None:
    assert answer_from(answer) is answer
    assert answer_from(answer.to_dict()) == answer


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ({"kind": "x" * 50}, f"{'x' * 40!r} is not a kind of answer. The kinds are: approve, deny, input."),
        ({"kind": "approve", "reason": ""}, "This one is a dict."),
        ({"kind": "approve", "until": "noon"}, "'until' is 'conversation', or a time as in 2026-01-31"),
        ({"kind": "deny", "reason": 1}, "This one is a dict."),
        ({"kind": "deny", "why": "no"}, "This one is a dict."),
        ({"kind": "input"}, "This one is a dict."),
        ({"kind": "input", "value": 1, "more": 2}, "This one is a dict."),
        (7, "This one is a int."),
    ],
)
def test_what_is_not_an_answer_is_refused_with_the_reason(data: Any, error: str) -> None:
    with pytest.raises(AnswerError) as refused:
        answer_from(data)
    assert error in str(refused.value)
    assert refused.value.reason == "invalid"


def test_errors_are_the_same_after_pickling() -> None:
    error = pickle.loads(pickle.dumps(ToolError("no room", "limited", retry="never", details={"a": 1})))
    assert error.to_dict() == {"code": "limited", "message": "no room", "retry": "never", "details": {"a": 1}}
    answer = pickle.loads(pickle.dumps(AnswerError("too late", "expired")))
    assert (str(answer), answer.reason) == ("too late", "expired")


def test_an_error_knows_its_codes_and_whether_to_call_again() -> None:
    assert ToolError("a").to_dict() == {"code": "failed", "message": "a", "retry": "later"}
    assert ToolError("a", "denied").retry == "never"
    with pytest.raises(ValueError, match=r"^'nope' is not an error code. The codes are: unknown_tool, "):
        ToolError("a", "nope")


def test_a_spec_as_data_has_no_empty_members() -> None:
    assert ToolSpec("a", "does a", {"type": "object"}).to_dict() == {
        "name": "a",
        "description": "does a",
        "input_schema": {"type": "object"},
    }
    spec = ToolSpec(
        "a",
        "does a",
        {"type": "object", "properties": {"b": {"default": 1}, "c": True, "d": {}}},
        hints=Hints(read_only=False),
        auth=[ToolAuth("github", scopes=["repo"]), Secret("KEY")],
        tags=frozenset({"y", "x"}),
        examples=[{"b": 1}],
    )
    data = spec.to_dict()
    assert spec.defaults() == {"b": 1}
    assert (data["hints"], data["tags"], data["examples"]) == ({"read_only": False}, ["x", "y"], [{"b": 1}])
    assert data["auth"] == [{"provider": "github", "handler": None, "scopes": ["repo"]}, {"secret": "KEY"}]
    alone = ToolSpec("a", "does a", {}, auth=Secret("KEY"))
    assert alone.to_dict()["auth"] == {"secret": "KEY"}
