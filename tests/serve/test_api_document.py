"""The OpenAPI document says what the HTTP API takes: what a client that was generated from it may send."""

import re
from typing import Any

import jsonschema_rs
import pytest
from starlette.routing import Route

from toolcrib import Crib
from toolcrib.serve import local_caller
from toolcrib.serve.access.callers import Callers
from toolcrib.serve.api.document import document
from toolcrib.serve.api.routes import api_routes


def takes(schema: dict[str, Any], value: Any) -> bool:
    whole = {**schema, "components": document()["components"]}
    return jsonschema_rs.Draft202012Validator(whole).is_valid(value)


def test_the_document_is_of_3_1_and_names_every_route() -> None:
    whole = document()
    assert whole["openapi"] == "3.1.0"
    for schema in whole["components"]["schemas"].values():
        jsonschema_rs.meta.validate(schema)
    routes = {
        route.path: route.methods for route in api_routes(Callers(Crib(), local_caller)) if isinstance(route, Route)
    }
    assert whole["paths"].keys() == routes.keys() | {"/livez", "/readyz"}
    for path, methods in routes.items():
        assert {method.upper() for method in whole["paths"][path]} == (methods or {"POST"}) - {"HEAD"}, path


def test_parameters_in_a_path_are_required_and_others_are_not() -> None:
    others: dict[str, list[str]] = {}
    for path, methods in document()["paths"].items():
        for operation in methods.values():
            parameters = operation.get("parameters", ())
            required = [one["name"] for one in parameters if one.get("required", False)]
            assert required == re.findall(r"{(\w+)}", path)
            if names := [one["name"] for one in parameters if one["name"] not in required]:
                others[path] = names
            for one in parameters:
                assert not takes(one["schema"], "") or one["name"] == "pointer"
                assert takes(one["schema"], "a") or one["name"] in ("offset", "limit", "of", "state")
    paged = ("limits", "workers", "sources/changes", "pending", "grants")
    assert others == {
        **{f"/api/{name}": ["after", "limit"] for name in paged},
        "/api/tools/{name}/call": ["Idempotency-Key"],
        "/api/tasks": ["after", "limit", "of", "state"],
        "/api/results/{handle}": ["pointer", "offset", "limit"],
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
