"""What documents and services that mean ill, or are odd, cannot do to a call."""

from typing import Any

import pytest

from toolcrib.core import File

from .conftest import Service
from .test_calls import OK, Write, call, of

FORM = "application/x-www-form-urlencoded"


def parameter(name: str, place: str = "path", **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": {}, **more}


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/a/{x{id}}", "/a/%7Bxv%7D"),
        ("/a/{id}/{b", "/a/v/%7Bb"),
        ("/{id}}{", "/v%7D%7B"),
        ("/a/{id}{id}", "/a/vv"),
    ],
)
async def test_braces_that_are_no_placeholders_are_sent(service: Service, write: Write, path: str, sent: str) -> None:
    result = await call(
        write({path: {"get": {**OK, "parameters": [parameter("id")]}}}, server=service.url), {"id": "v"}
    )
    assert (result.status, service.last[1]) == ("success", sent)


async def test_the_path_of_a_server_is_encoded(service: Service, write: Write) -> None:
    for path, sent in {"/ä b": "/%C3%A4%20b/a", "/a%20b": "/a%20b/a", "/a<b>": "/a%3Cb%3E/a"}.items():
        assert (await call(write({"/a": {"get": OK}}, server=service.url + path), {})).status == "success"
        assert service.last[1] == sent


@pytest.mark.parametrize(
    ("place", "members"),
    [
        ("query", {"action": "delete"}),
        ("query", {"p": "y"}),
        ("query", {"p ": 1, "a ction": 2}),
        ("cookie", {"p": "y"}),
    ],
)
async def test_members_of_an_object_do_not_stand_beside_another_parameter(
    service: Service, write: Write, place: str, members: dict[str, Any]
) -> None:
    listed = [parameter("o", place), parameter("p", place)]
    file = write({"/a?action=read": {"get": {**OK, "parameters": listed}}}, server=service.url)
    result = await call(file, {"o": {"more": 1, **members}, "p": "x"})
    is_refused = not any(name.endswith(" ") for name in members)
    assert (result.error is not None and result.error.code == "invalid_arguments") == is_refused
    assert (service.requests == []) == is_refused


async def test_a_head_promises_nothing(service: Service, write: Write) -> None:
    content = of({"type": "object", "required": ["a"]})
    file = write({"/a": {"head": {"responses": {"200": {"description": "", **content}}}}}, server=service.url)
    assert (await call(file, {})).value["content-type"] == "application/json"


async def test_json_may_begin_with_a_byte_order_mark(service: Service, write: Write) -> None:
    service.replies["/a"] = (200, {"content-type": "application/json"}, b'\xef\xbb\xbf{"a": 1}')
    assert (await call(write({"/a": {"get": OK}}, server=service.url), {})).value == {"a": 1}


@pytest.mark.parametrize(
    ("content_type", "disposition", "content"),
    [
        ("text/plain", "attachment", "[text]"),
        (f'text/plain; a="{";" * 20_000}', "attachment", "[text]"),
        (f"text/plain; charset*=punycode''{'a' * 20_000}", "attachment", "[text]"),
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


async def test_of_a_long_header_the_beginning_is_read(service: Service, write: Write) -> None:
    # By the rules of `email`, the time grows with the square of the length.
    for count, name in ((10, "a.pdf"), (1000, None)):
        disposition = f"attachment; {'x=1; ' * count}filename=a.pdf"
        service.replies["/a"] = (200, {"content-type": "application/pdf", "content-disposition": disposition}, b"a")
        (file,) = (await call(write({"/a": {"get": OK}}, server=service.url), {})).content
        assert isinstance(file, File)
        assert file.name == name


@pytest.mark.parametrize("location", ["http://[", "//[::1", "http://x:99999999/", "/ä", "?q=1 2", "data:x", ""])
async def test_a_redirect_to_nowhere_is_an_error_with_a_reason(service: Service, write: Write, location: str) -> None:
    service.replies["/a"] = (302, {"location": location}, b"")
    result = await call(write({"/a": {"get": OK}}, server=service.url), {})
    assert result.error is not None
    assert (result.error.code, result.error.retry) == ("failed", "never")
    assert "The server redirects" in result.text


REF = {"$ref": "#/components/schemas/A"}


@pytest.mark.parametrize(
    "schema",
    [
        {"oneOf": [REF, {"$ref": "#/components/schemas/B"}]},
        {"allOf": [{"oneOf": [REF, {"$ref": "#/components/schemas/B"}], "allOf": [True]}]},
        {"not": REF},
        {"allOf": [REF], "unevaluatedProperties": False},
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
