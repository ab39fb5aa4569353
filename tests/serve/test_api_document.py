"""The OpenAPI document says what the HTTP API takes: what a client that was generated from it may send."""

from typing import Any

import jsonschema_rs
import pytest

from toolcrib.serve.api.document import document


def takes(schema: dict[str, Any], value: Any) -> bool:
    whole = {**schema, "components": document()["components"]}
    return jsonschema_rs.Draft202012Validator(whole).is_valid(value)


def test_parameters_in_a_path_are_required_and_others_are_not() -> None:
    found: dict[str, list[tuple[str, bool]]] = {}
    for path, methods in document()["paths"].items():
        for operation in methods.values():
            for one in operation.get("parameters", ()):
                found.setdefault(path, []).append((one["name"], one.get("required", False)))
                assert not takes(one["schema"], "") or one["name"] == "pointer"
                assert takes(one["schema"], "a") or one["name"] in ("offset", "limit", "of", "state")
    assert found == {
        **{f"/api/tools/{{name}}{rest}": [("name", True)] for rest in ("", "/check", "/formats")},
        "/api/tools/{name}/call": [("name", True), ("Idempotency-Key", False)],
        "/api/connections/{provider}/{handler}/{profile}": [
            ("provider", True),
            ("handler", True),
            ("profile", True),
        ],
        "/api/keys/{id}": [("id", True)],
        "/api/limits": [("after", False), ("limit", False)],
        "/api/workers": [("after", False), ("limit", False)],
        "/api/sources/changes": [("after", False), ("limit", False)],
        "/api/sources/changes/{digest}": [("digest", True)],
        "/api/sources/changes/{digest}/accept": [("digest", True)],
        "/api/pending": [("after", False), ("limit", False)],
        "/api/pending/{id}": [("id", True)],
        "/api/pending/{id}/answer": [("id", True)],
        "/api/pending/{id}/preview": [("id", True)],
        "/api/grants": [("after", False), ("limit", False)],
        "/api/grants/{id}": [("id", True)],
        "/api/calls/{id}/settle": [("id", True)],
        "/api/tasks": [("after", False), ("limit", False), ("of", False), ("state", False)],
        **{f"/api/tasks/{{id}}{rest}": [("id", True)] for rest in ("", "/events", "/cancel")},
        "/api/results/{handle}": [("handle", True), *((name, False) for name in ("pointer", "offset", "limit"))],
    }


@pytest.mark.parametrize(("name", "least"), [("offset", 0), ("limit", 1)])
def test_numbers_in_a_query_have_the_bounds_that_the_server_has(name: str, least: int) -> None:
    parameters = document()["paths"]["/api/results/{handle}"]["get"]["parameters"]
    (schema,) = [one["schema"] for one in parameters if one["name"] == name]
    tried = (least - 1, least, 10**15 - 1, 10**15)
    assert [takes(schema, value) for value in tried] == [False, True, True, False]


def test_a_call_may_have_no_body_and_an_answer_is_one_of_three_and_nothing_more() -> None:
    paths = document()["paths"]
    assert paths["/api/tools/{name}/call"]["post"]["requestBody"]["required"] is False
    body = paths["/api/pending/{id}/answer"]["post"]["requestBody"]
    schema = body["content"]["application/json"]["schema"]
    for answer in (
        {"kind": "approve"},
        {"kind": "deny"},
        {"kind": "deny", "reason": "no"},
        {"kind": "input", "value": 1},
    ):
        assert takes(schema, answer), answer
        assert takes(schema, {**answer, "digest": "of what was shown"}), answer
        assert not takes(schema, {**answer, "more": 1}), answer
    assert body["required"] is True
    assert not takes(schema, {"kind": "input"})


def test_of_readiness_both_answers_are_described_and_counts_are_not_negative() -> None:
    responses = document()["paths"]["/readyz"]["get"]["responses"]
    assert [*responses] == ["200", "default", "503"]
    assert responses["200"]["content"] == responses["503"]["content"]
    schema = responses["200"]["content"]["application/json"]["schema"]
    ready = {"status": "ready", "sources": []}
    assert [takes(schema, {**ready, "tools": count}) for count in (-1, 0)] == [False, True]
    assert [takes(schema, each) for each in ({"status": "ready"}, {"tools": 0})] == [True, False]
