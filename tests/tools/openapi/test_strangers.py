"""What documents and services that mean ill, or are odd, cannot do to a call."""

from typing import Any

import pytest

from ..conftest import Service
from .conftest import OK, Write
from .test_calls import call, of
from .test_operations import parameter


@pytest.mark.parametrize(
    ("place", "members"),
    [
        ("query", {"action": "delete"}),
        ("query", {"p": "y"}),
        ("cookie", {"p": "y"}),
    ],
)
async def test_members_of_an_object_do_not_stand_beside_another_parameter(
    service: Service, write: Write, place: str, members: dict[str, Any]
) -> None:
    listed = [parameter("o", place, schema={}), parameter("p", place)]
    file = write({"/a?action=read": {"get": {**OK, "parameters": listed}}}, server=service.url)
    assert (await call(file, {"o": {"more": 1, **members}, "p": "x"})).error.code == "invalid_arguments"
    assert service.requests == []


@pytest.mark.parametrize(
    ("content_type", "disposition", "content"),
    [
        ("text/plain", "attachment", "[text]"),
        (f'text/plain; a="{";" * 20_000}', "attachment", "[text]"),
        ("application/pdf", "attachment; filename*=undefined''616", "[file: application/pdf, 6 bytes]"),
        ("application/pdf", "attachment; filename*=utf-8''..%2f..%2fa%0d%0ab", "[file ab: application/pdf, 6 bytes]"),
    ],
)
async def test_any_headers_of_an_answer_are_read(
    service: Service, write: Write, content_type: str, disposition: str, content: str
) -> None:
    service.replies["/a"] = (200, {"content-type": content_type, "content-disposition": disposition}, b"[text]")
    result = await call(write({"/a": {"get": OK}}, server=service.url), {})
    assert (result.status, result.text) == ("success", content)


REF = {"$ref": "#/components/schemas/A"}


@pytest.mark.parametrize(
    "schema",
    [
        {"oneOf": [REF, {"$ref": "#/components/schemas/B"}]},
        {"allOf": [{"oneOf": [REF, {"$ref": "#/components/schemas/B"}], "allOf": [True]}]},
        {"if": REF, "then": False},
        {"properties": {"b": {"contains": REF, "maxContains": 0, "minContains": 0}}},
    ],
)
async def test_a_schema_that_is_cut_refuses_nothing_that_it_admitted(
    service: Service, write: Write, schema: dict[str, Any]
) -> None:
    many = {f"p{number}": {"type": "string", "description": "d" * 900} for number in range(150)}
    large = {
        name: {"type": "object", "required": ["kind"], "properties": {"kind": {"const": name}, **many}} for name in "AB"
    }
    value = {"kind": "B", "b": [1]}
    success = {"responses": {"200": {"description": "", **of(schema)}}}
    item = {"post": {**OK, "requestBody": of(schema)}, "get": success}
    file = write({"/a": item}, server=service.url, components={"schemas": large})
    assert (await call(file, {"body": value}, tool="post_a")).status == "success"
    service.replies["/a"] = (200, {"content-type": "application/json"}, b'{"kind": "B", "b": [1]}')
    assert (await call(file, {}, tool="get_a")).value == value
