"""The values that calls are made of: what they are by default, and what they show of themselves."""

from datetime import UTC, datetime
from typing import Any

import pytest

from toolcrib import Call, Input, Result, Text, ToolError
from toolcrib.core import Credential, Data, Emitted, Pending, Repair
from toolcrib.machinery import StillPending, canonical, is_handle, new_handle

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
PENDING = Pending("p1", "approval", "May it?", "d", "t", "alice", "t1", NOW)


def test_secrets_and_values_are_in_no_repr() -> None:
    shown = [
        Call("a", data={"key": "hunter2"}),
        Credential("github", "hunter2"),
        Input("hunter2"),
        Emitted((), "hunter2"),
        Result("hunter2", ()),
    ]
    assert "hunter2" not in repr(shown)


@pytest.mark.parametrize(
    ("kind", "secrets", "header"),
    [
        ("bearer", ("user:word",), "Bearer user:word"),
        ("basic", ("user:word", "word"), "Bearer dXNlcjp3b3Jk"),
        ("keypair", ("user:word", "user", "word"), "Bearer user:word"),
    ],
)
def test_the_secrets_of_a_credential_and_how_it_is_sent(kind: str, secrets: tuple[str, ...], header: str) -> None:
    credential = Credential("github", "user:word", kind)
    assert (credential.secrets, credential.header_value) == (secrets, header)


def test_one_value_has_one_canonical_text() -> None:
    assert canonical({"b": [1, 1.0, True], "a": float("nan")}) == '{"a":NaN,"b":[1,1.0,true]}'
    with pytest.raises(TypeError):
        canonical({"a": {1}})


def test_handles_are_distinguished_from_other_texts() -> None:
    handle = new_handle()
    assert is_handle(handle)
    assert not any(map(is_handle, (handle[:-1], handle + "a", "result_", "a" + handle, "")))
    assert new_handle() != handle


@pytest.mark.parametrize(
    ("result", "data"),
    [
        (
            Result(3, (Data("3"),), None, (Repair("/a", "string", "integer"),), NOW, NOW, "c1", "add"),
            {
                "status": "success",
                "content": [{"type": "data", "data": 3}],
                "repairs": [{"path": "/a", "from": "string", "to": "integer"}],
            },
        ),
        (
            Result(None, (Text("no"), Text("way")), ToolError("no"), (), NOW, NOW, "c1", "add", metadata={"a": 1}),
            {
                "status": "error",
                "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "way"}],
                "error": {"code": "failed", "message": "no", "retry": "later"},
                "metadata": {"a": 1},
            },
        ),
        (
            Result(None, (), None, (), NOW, NOW, "c1", "add", PENDING),
            {"status": "pending", "content": [], "pending": PENDING.to_dict()},
        ),
    ],
)
def test_a_result_as_data_has_no_empty_members(result: Result[Any], data: dict[str, Any]) -> None:
    times = {"started_at": "2030-01-02T03:04:05+00:00", "finished_at": "2030-01-02T03:04:05+00:00"}
    assert result.to_dict() == {"call_id": "c1", "tool": "add", **times, **data}
    assert result.text == "\n".join(part.text for part in result.content)
    if result.status == "success":
        assert result.unwrap() == 3
    else:
        with pytest.raises(ToolError if result.error else StillPending):
            result.unwrap()
