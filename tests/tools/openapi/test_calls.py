"""Calls of operations at a service: what is sent, what comes back, and what neither a model nor a document can do."""

import base64
import email
import email.policy
import json
import logging
import math
from pathlib import Path
from typing import Any

import pydantic_core
import pytest

from toolcrib import Caller, Crib, Image, Result, ToolAuth, Workbench
from toolcrib.auth import CredentialBroker
from toolcrib.core import File, LoadError
from toolcrib.formats.mcp import call_result
from toolcrib.tools import load, openapi_source

from ...held import held, seconds_of
from ..conftest import Service
from .conftest import OK, Write


async def call(
    file: Path, arguments: dict[str, Any], *, broker: Any = None, tool: str | None = None, **options: Any
) -> Result[Any]:
    source = openapi_source(file, **options)
    async with Workbench([source], broker=broker) as bench:
        return await bench.call(tool or source.tools()[0].spec.name, arguments)


def of(schema: Any, kind: str = "application/json", **more: Any) -> dict[str, Any]:
    return {"content": {kind: {"schema": schema, **more}}}


async def test_every_argument_goes_where_it_belongs_and_no_further(service: Service, write: Write) -> None:
    listed = [
        {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
        {"name": "q", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
        {"name": "X-Trace", "in": "header", "schema": {"type": "integer"}},
        {"name": "session", "in": "cookie", "schema": {"type": "string"}},
    ]
    item = {"post": {**OK, "operationId": "it", "parameters": listed, "requestBody": of({"type": "object"})}}
    file = write({"/a/{id}/b": item}, server=f"{service.url}/v1")
    arguments = {
        "id": "x/y?z#&=% é{id}",
        "q": ["1&admin=1", "2"],
        "X-Trace": 7,
        "session": "s; admin=1",
        "body": {"n": [1, None]},
    }
    result = await call(file, arguments)
    assert result.status == "success", result.text
    method, target, headers, body = service.last
    assert (method, target) == ("POST", "/v1/a/x%2Fy%3Fz%23%26%3D%25%20%C3%A9%7Bid%7D/b?q=1%26admin%3D1&q=2")
    assert (headers["x-trace"], headers["cookie"], headers["host"]) == ("7", "session=s%3B%20admin%3D1", service.netloc)
    assert (headers["content-type"], json.loads(body)) == ("application/json", {"n": [1, None]})
    for wrong in ({"id": "../../admin"}, {"id": "x", "Host": "evil"}, {}):
        assert (await call(file, wrong)).error.code == "invalid_arguments"
    assert len(service.requests) == 1


async def test_a_path_with_a_query_or_a_fragment_is_sent_as_a_request_can_be(service: Service, write: Write) -> None:
    lat = {"name": "lat", "in": "query", "required": True, "schema": {"type": "number"}}
    paths = {
        "/messages": {"get": {**OK, "operationId": "plain"}},
        "/messages?beta=true": {"get": {**OK, "operationId": "beta", "parameters": [{**lat, "name": "n"}]}},
        "/alerts?lat={lat}&units=m": {"get": {**OK, "operationId": "alerts", "parameters": [lat]}},
        "/#Action=List": {"get": {**OK, "operationId": "list"}},
        "/wrong?lat={lat}": {"get": {**OK, "operationId": "wrong"}},
    }
    file = write(paths, server=service.url)
    (problem,) = openapi_source(file).problems
    assert "GET /wrong?lat={lat} is left out: its path has '{lat}', which is not among" in str(problem)
    targets: list[str] = []
    for tool, arguments in (("plain", {}), ("beta", {"n": 1}), ("alerts", {"lat": 1.5}), ("list", {})):
        result = await call(file, arguments, tool=tool)
        assert result.status == "success", result.text
        targets.append(service.last[1])
    assert targets == ["/messages", "/messages?beta=true&n=1", "/alerts?units=m&lat=1.5", "/"]


async def test_bodies_are_forms_parts_text_and_bytes(service: Service, write: Write) -> None:
    form = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "tags": {"type": "array"}, "deep": {"type": "object"}},
    }
    parts = {
        "type": "object",
        "additionalProperties": True,
        "properties": {
            "file": {"type": "string", "format": "binary"},
            "meta": {"type": "object"},
            "many": {"type": "array", "items": {"type": "string", "format": "binary"}},
            "note": {"type": "string"},
        },
    }
    bodies = {
        "form": of(
            form, "application/x-www-form-urlencoded", encoding={"deep": {"style": "deepObject", "explode": True}}
        ),
        "parts": of(parts, "multipart/form-data", encoding={"file": {"contentType": "image/png, image/gif"}}),
        "text": of({"type": "string"}, "text/plain"),
        "bytes": of({}, "application/pdf"),
        "patch": of({"type": "array"}, "application/json-patch+json"),
    }
    file = write(
        {f"/{name}": {"post": {**OK, "operationId": name, "requestBody": body}} for name, body in bodies.items()},
        server=service.url,
    )
    encoded = base64.b64encode(b"\x00\r\n--x").decode()

    await call(file, {"name": "a b&c=d", "tags": ["x", "y"], "deep": {"k": "v"}}, tool="form")
    assert service.last[3] == b"name=a%20b%26c%3Dd&tags=x&tags=y&deep%5Bk%5D=v"
    several = {"file": encoded, "meta": {"a": 1}, "many": [encoded, encoded], "note": 'x"\r\nX: y'}
    await call(file, {"body": {**several, 'odd"\r\nname': "z"}}, tool="parts")
    _, _, headers, body = service.last
    message = email.message_from_bytes(
        b"content-type: " + headers["content-type"].encode() + b"\r\n\r\n" + body, policy=email.policy.HTTP
    )
    got = [
        (part.get_param("name", header="content-disposition"), part.get_content_type(), part.get_payload(decode=True))
        for part in message.iter_parts()
    ]  # type: ignore[attr-defined]
    assert got == [
        ("file", "image/png", b"\x00\r\n--x"),
        ("meta", "application/json", b'{"a":1}'),
        ("many", "application/octet-stream", b"\x00\r\n--x"),
        ("many", "application/octet-stream", b"\x00\r\n--x"),
        ("note", "text/plain", b'x"\r\nX: y'),
        ("odd%22%0D%0Aname", "text/plain", b"z"),
    ]
    await call(file, {"body": "grün"}, tool="text")
    assert service.last[2]["content-type"] == "text/plain; charset=utf-8"
    assert service.last[3] == "grün".encode()
    await call(file, {"body": encoded}, tool="bytes")
    assert (service.last[2]["content-type"], service.last[3]) == ("application/pdf", b"\x00\r\n--x")
    await call(file, {"body": [1]}, tool="patch")
    assert service.last[2]["content-type"] == "application/json-patch+json"
    before = len(service.requests)
    assert (await call(file, {"body": "not base64!"}, tool="bytes")).status == "error"
    assert len(service.requests) == before


async def test_what_comes_back_is_content_of_its_kind(service: Service, write: Write) -> None:
    kinds = {
        "/json": ("application/problem+json", b'{"a": [1]}', {"a": [1]}),
        "/text": ("text/csv; charset=iso-8859-1", b"gr\xfcn", "grün"),
        "/odd": ("text/plain; charset=unicode_escape", b"\\x41", "\\x41"),
        "/image": ("image/png", b"\x89PNG", Image(b"\x89PNG", "image/png")),
        "/file": ("application/zip", b"PK", File(b"PK", "application/zip", "x.zip")),
        "/none": ("application/json", b"", None),
    }
    for path, (kind, content, _) in kinds.items():
        named = {"content-type": kind, "content-disposition": 'attachment; filename="../../x.zip"'}
        service.replies[path] = (200, named, content)
    file = write({path: {"get": OK} for path in kinds}, server=service.url)
    for path, (_, _, value) in kinds.items():
        result = await call(file, {}, tool=f"get_{path[1:]}")
        assert result.status == "success"
        assert result.value == value, path
    service.replies["/json"] = (200, {"content-type": "application/json"}, b"{")
    assert (await call(file, {}, tool="get_json")).error.code == "invalid_result"
    head = await call(write({"/h": {"head": OK}}, server=service.url), {})
    assert head.value["content-type"] == "application/json"


async def test_an_answer_that_is_not_as_promised_is_not_taken_for_a_result(service: Service, write: Write) -> None:
    promise = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
    file = write({"/a": {"get": {"responses": {"200": {"description": "", **of(promise)}}}}}, server=service.url)
    service.replies["/a"] = (200, {"content-type": "application/json"}, b'{"id": 5, "more": true}')
    result = await call(file, {})
    assert result.value == {"id": 5, "more": True}
    service.replies["/a"] = (200, {"content-type": "application/json"}, b'{"id": "secret-value"}')
    result = await call(file, {})
    assert result.error.code == "invalid_result"
    assert "at '/id'" in result.text
    assert "secret-value" not in result.text
    assert (await call(file, {}, output_schemas=False)).value == {"id": "secret-value"}


@pytest.mark.parametrize(
    ("status", "headers", "code", "retry"),
    [
        (400, {}, "invalid_arguments", "changed"),
        (401, {}, "unauthorized", "later"),
        (404, {}, "failed", "changed"),
        (413, {}, "too_large", "changed"),
        (429, {"retry-after": "7"}, "limited", "later"),
        (503, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, "limited", "later"),
        (503, {"retry-after": "soon"}, "unavailable", "later"),
        (304, {}, "failed", "never"),
    ],
)
async def test_a_status_is_an_error_with_its_code(
    service: Service, write: Write, status: int, headers: dict[str, str], code: str, retry: str
) -> None:
    content = b"" if status == 304 else b'{"detail": "because\\u0007 of ' + b"x" * 5000 + b'"}'
    service.replies["/a"] = (status, {"content-type": "application/json", **headers}, content)
    result = await call(write({"/a": {"get": OK}}, server=service.url), {})
    assert (result.error.code, result.error.retry) == (code, retry)
    assert result.error.details["status"] == status
    waits = {"7": 7.0, "Wed, 21 Oct 2015 07:28:00 GMT": 0.0}.get(headers.get("retry-after", ""))
    assert result.error.details.get("retry_after_s") == waits
    assert len(result.text) < 1300
    assert status == 304 or "because" in result.text


async def test_redirects_stay_at_the_origin_and_repeat_nothing(service: Service, write: Write) -> None:
    other = Service()
    components = {"securitySchemes": {"key": {"type": "apiKey", "in": "query", "name": "key"}}}
    secured = {**OK, "security": [{"key": []}]}
    file = write(
        {path: {"get": secured, "post": secured} for path in ("/here", "/away", "/loop", "/see")},
        server=service.url,
        components=components,
    )
    broker = CredentialBroker(secrets={f"{service.netloc}/key": "key-of-service"})
    service.replies["/here"] = (302, {"location": "/there?a=1"}, b"")
    service.replies["/away"] = (307, {"location": f"{other.url}/there"}, b"")
    service.replies["/loop"] = (302, {"location": "/loop"}, b"")
    service.replies["/see"] = (303, {"location": "/there"}, b"")
    assert "key-of-service" not in (await call(file, {}, tool="get_here", broker=broker)).text
    assert service.last[1] == "/there?a=1&key=key-of-service"
    for name in ("get_away", "post_here", "get_loop"):
        assert (await call(file, {}, tool=name, broker=broker)).status == "error", name
    assert other.requests == []
    seen = await call(file, {}, tool="post_see", broker=broker)
    assert (seen.status, service.last[0]) == ("success", "GET")
    other.close()


SCHEMES: Any = {
    "query": {"type": "apiKey", "in": "query", "name": "api_key"},
    "header": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "bearer": {"type": "http", "scheme": "Bearer"},
    "basic": {"type": "http", "scheme": "basic"},
    "login": {"type": "oauth2", "flows": {}},
}


async def test_credentials_are_put_where_the_document_has_them_and_shown_nowhere(
    service: Service, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    components = {"securitySchemes": SCHEMES}
    expected = {
        "query": lambda target, headers: target == "/a?api_key=top%3Asecret%2B1",
        "header": lambda target, headers: headers["x-key"] == "top:secret+1",
        "cookie": lambda target, headers: headers["cookie"] == "sid=top:secret+1",
        "bearer": lambda target, headers: headers["authorization"] == "Bearer top:secret+1",
        "basic": lambda target, headers: headers["authorization"] == "Basic dG9wOnNlY3JldCsx",
        "login": lambda target, headers: headers["authorization"] == "Bearer top:secret+1",
    }
    for name, is_right in expected.items():
        file = write({"/a": {"get": {**OK, "security": [{name: []}]}}}, components=components, server=service.url)
        broker = CredentialBroker(secrets={f"{service.netloc}/{name}": "top:secret+1"})
        result = await call(file, {}, broker=broker)
        assert is_right(service.last[1], service.last[2]), (name, service.last)
        assert "secret+1" not in str(result)
        assert "secret%2B1" not in str(result)
    assert "HTTP Request" in caplog.text
    assert "secret" not in caplog.text


async def test_a_document_does_not_choose_whose_secrets_it_gets(service: Service, write: Write) -> None:
    components = {"securitySchemes": {"OTHER_KEY": SCHEMES["header"]}}
    file = write({"/a": {"get": {**OK, "security": [{"OTHER_KEY": []}]}}}, components=components, server=service.url)
    broker = CredentialBroker(secrets={"OTHER_KEY": "key-of-other", "api.example.com/OTHER_KEY": "key-of-other"})
    assert (await call(file, {}, broker=broker)).status == "pending"
    # A provider's credentials go to that provider's hosts, whatever the operator mapped.
    from toolcrib.auth import Grant, Owner

    broker = CredentialBroker()
    await broker.save(Owner.of(Caller(), "github", "token"), Grant("token-of-github"))
    result = await call(file, {}, broker=broker, auth={"OTHER_KEY": ToolAuth("github", "token")})
    assert result.error.code == "denied"
    assert service.requests == []


async def test_an_argument_does_not_stand_beside_a_credential(service: Service, write: Write) -> None:
    for place, name in (("header", "x-key"), ("query", "api_key"), ("cookie", "sid")):
        listed = [{"name": name, "in": place, "schema": {"type": "string"}}]
        scheme = {"type": "apiKey", "in": place, "name": name.upper() if place == "header" else name}
        item = {"get": {**OK, "parameters": listed, "security": [{"key": []}]}}
        file = write({"/a": item}, server=service.url, components={"securitySchemes": {"key": scheme}})
        broker = CredentialBroker(secrets={f"{service.netloc}/key": "key-of-service"})
        (argument,) = openapi_source(file).tools()[0].spec.input_schema["properties"]
        assert (await call(file, {argument: "of-the-model"}, broker=broker)).status == "success"
        assert "key-of-service" in str(service.last)
        assert "of-the-model" not in str(service.last)


async def test_cookies_of_one_caller_are_not_sent_for_another(service: Service, write: Write) -> None:
    service.replies["/a"] = (200, {"set-cookie": "sid=of-alice; Path=/", "content-type": "text/plain"}, b"in")
    crib = Crib([openapi_source(write({"/a": {"get": OK}, "/b": {"get": OK}}, server=service.url))])
    async with crib:
        assert (await crib.workbench(Caller("alice")).call("get_a", {})).text == "in"
        assert (await crib.workbench(Caller("bob")).call("get_b", {})).status == "success"
    assert "cookie" not in service.last[2]


async def test_a_response_is_bounded(service: Service, write: Write) -> None:
    service.replies["/a"] = (200, {"content-type": "text/plain"}, b"x" * (11 * 1024**2))
    assert (await call(write({"/a": {"get": OK}}, server=service.url), {})).error.code == "too_large"


async def test_documents_are_fetched_and_servers_are_relative_to_them(service: Service) -> None:
    document = {"openapi": "3.1.0", "info": {}, "servers": [{"url": "../v2"}], "paths": {"/a": {"get": OK}}}
    service.replies["/docs/api.json"] = (200, {"content-type": "application/json"}, json.dumps(document).encode())
    (tool,) = load(f"openapi:{service.url}/docs/api.json").tools
    assert tool.requires["request"] == f"GET {service.url}/v2/a"
    async with Workbench([f"openapi:{service.url}/docs/api.json"]) as bench:
        assert (await bench.call("get_a", {})).value["target"] == "/v2/a"
    with pytest.raises(LoadError, match="HTTP 404"):
        service.replies["/none"] = (404, {}, b"")
        load(f"openapi:{service.url}/none")
    with pytest.raises(LoadError, match="may not be reached"):
        load("openapi:https://10.0.0.1/api.json")
    with pytest.raises(LoadError, match="public"):
        load("openapi:http://192.0.2.1/api.json")


async def test_a_document_that_has_changed_is_read_again_at_the_next_start(service: Service, write: Write) -> None:
    source = openapi_source(write({"/a": {"get": OK}}, server=service.url))
    first = source.tools()[0]
    await source.start()
    await source.stop()
    await source.start()
    assert source.tools()[0] is first
    await source.stop()
    write({"/a": {"get": OK}, "/b": {"get": OK}}, server=service.url)
    async with Workbench([source]) as bench:
        assert [spec.name for spec in bench.specs()] == ["get_a", "get_b"]
        assert (await bench.call("get_b", {})).status == "success"


def test_an_approval_of_one_operation_is_not_one_of_another(write: Write) -> None:
    def body(server: str, **more: Any) -> str:
        return openapi_source(write({"/a": {"get": {**OK, **more}}}, server=server)).tools()[0].body()

    assert body("https://x.example.com") == body("https://x.example.com")
    assert body("https://x.example.com") != body("https://y.example.com")
    style = {"name": "q", "in": "query", "schema": {}, "explode": False}
    assert body("https://x.example.com", parameters=[style]) != body(
        "https://x.example.com", parameters=[{**style, "explode": True}]
    )


async def test_references_to_other_addresses_stay_at_the_origin_of_the_document(service: Service) -> None:
    other = Service()
    for each in (service, other):
        each.replies["/types.json"] = (200, {"content-type": "application/json"}, b'{"A": {"type": "integer"}}')

    def document(ref: str) -> None:
        listed = [{"name": "q", "in": "query", "schema": {"$ref": ref}}]
        paths = {"/a": {"get": {**OK, "parameters": listed}}, "/good": {"get": OK}}
        data = {"openapi": "3.1.0", "servers": [{"url": "/"}], "paths": paths}
        service.replies["/api.json"] = (200, {"content-type": "application/json"}, json.dumps(data).encode())

    address = f"{service.url}/api.json"
    document("types.json#/A")
    assert len(openapi_source(address, external_refs=True).tools()) == 2
    assert len(openapi_source(address).tools()) == 1
    for ref in (f"{other.url}/types.json#/A", "file:///etc/hostname#/A"):
        document(ref)
        assert len(openapi_source(address, external_refs=True).tools()) == 1
    assert other.requests == []
    other.close()


LISTED: Any = {
    "200": {
        "description": "ok",
        "headers": {
            "Link": {"schema": {"type": "string"}},
            "X-Total-Count": {"$ref": "#/components/headers/Total"},
            "ETag": {},
            "Set-Cookie": {},
            "X-Subject-Token": {},
            "X-Next-Page-Token": {},
            "Content-Type": {},
            "X-Absent": {},
        },
        "content": {"application/json": {"schema": {"type": "array", "items": {"type": "integer"}}}},
    },
    "2XX": {"description": "made", "headers": {"Location": {}}},
}


async def test_headers_that_the_document_lists_are_in_the_result_and_no_secrets(service: Service, write: Write) -> None:
    """GitHub and GitLab page by `Link` and `X-Total`. Not named: a server that repeats the key of a request in `Link`,
    Keystone's token in a header of its own, and a status that is documented as `2XX`."""
    schemes = {"key": {"type": "apiKey", "in": "query", "name": "key"}}
    item = {"get": {"operationId": "get", "responses": LISTED, "security": [{"key": []}]}}
    item["post"] = {"operationId": "post", "responses": LISTED, "security": []}
    file = write({"/a": item}, server=service.url, components={"securitySchemes": schemes})
    sent = {
        "content-type": "application/json",
        "Link": f'<{service.url}/a?page=2&key=s3cret-key>; rel="next"',
        "X-TOTAL-COUNT": "41",
        "ETag": 'W/"1"',
        "Set-Cookie": "sid=1",
        "X-Subject-Token": "t0ken",
        "X-Next-Page-Token": "p2",
        "X-Other": "not listed",
    }
    service.replies["/a"] = (200, sent, b"[1, 2]")
    broker = CredentialBroker(secrets={f"{service.netloc}/key": "s3cret-key"})
    result = await call(file, {}, broker=broker, tool="get")
    headers = {
        "link": f'<{service.url}/a?page=2&key=[secret]>; rel="next"',
        "x-total-count": "41",
        "etag": 'W/"1"',
        "x-next-page-token": "p2",
    }
    assert result.value == [1, 2]
    assert result.metadata["headers"] == headers
    assert result.text == "[1,2]\nResponse headers:\n" + "\n".join(f"{name}: {text}" for name, text in headers.items())
    assert "s3cret" not in json.dumps(result.to_dict())
    service.replies["/a"] = (201, {"Location": "/a/7", "ETag": "1"}, b"")
    made = await call(file, {}, tool="post", output_schemas=False)
    assert (made.value, made.metadata["headers"], made.text) == (
        None,
        {"location": "/a/7"},
        "null\nResponse headers:\nlocation: /a/7",
    )
    service.replies["/a"] = (200, {"content-type": "application/json"}, b"[1]")
    plain = await call(file, {}, tool="post")
    assert (plain.value, plain.metadata, plain.text) == ([1], {}, "[1]")


async def test_headers_leave_the_promise_and_a_large_result_as_they_are(service: Service, write: Write) -> None:
    """Of a text, too, whose content for MCP was to be one part."""

    def item(name: str, kind: str) -> Any:
        success = {"description": "", "headers": {"ETag": {}}, **of({"type": kind})}
        return {"get": {"operationId": name, "responses": {"200": success}}}

    kinds = {"text": "string", "numbers": "array", "wrong": "null"}
    file = write({f"/{name}": item(name, kind) for name, kind in kinds.items()}, server=service.url)
    for name, body in (("text", '"hello"'), ("numbers", json.dumps([*range(2000)])), ("wrong", "[]")):
        service.replies[f"/{name}"] = (200, {"content-type": "application/json", "ETag": "7"}, body.encode())
    source = openapi_source(file)
    promises = {tool.spec.name: tool.spec.output_schema for tool in source.tools()}
    async with Workbench([source], max_result_chars=1000) as bench:
        text = await bench.call("text")
        answer = call_result(text, promises["text"])
        assert answer["structuredContent"] == {"result": "hello"}
        assert answer["_meta"] == {"toolcrib/headers": {"etag": "7"}}
        large = await bench.call("numbers")
        assert large.text.endswith("\nResponse headers:\netag: 7")
        assert (large.value, large.metadata["headers"]) == ([*range(2000)], {"etag": "7"})
        last = await bench.call("read_result", {"handle": large.metadata["handle"], "pointer": "/1999"})
        assert last.text.endswith("\n1999")
        assert (await bench.call("wrong")).error.code == "invalid_result"


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": [1]}', {"a": [1]}),
        (b"\xef\xbb\xbf[1]", [1]),
        (b"7", 7),
        ("grüße".encode(), "grüße"),
        (b"[1, NaN]", "[1, NaN]"),
        (b'{"a": 1}\n{"a": 2}', '{"a": 1}\n{"a": 2}'),
        (b"[" * 5000, "[" * 5000),
        (b"\x00\x01", File(b"\x00\x01", "application/octet-stream")),
        (b"\xff\xfe", File(b"\xff\xfe", "application/octet-stream")),
    ],
)
@pytest.mark.parametrize("headers", [{}, {"Content-Type": " "}])
async def test_an_answer_without_a_content_type_is_read(
    service: Service, write: Write, body: bytes, value: Any, headers: dict[str, str]
) -> None:
    """It was a file of bytes. Not named: a content type that is empty, as some proxies leave it."""
    file = write({"/a": {"get": OK}}, server=service.url)
    service.replies["/a"] = (200, headers, body)
    result = await call(file, {})
    assert result.status == "success"
    assert result.value == value


async def test_a_long_answer_is_read_in_a_thread(service: Service, write: Write) -> None:
    """A server answers with nothing but empty lists, as large as an answer may be."""
    content = b"[" + b",".join([b"[]"] * 1_500_000) + b"]"
    service.replies["/a"] = (200, {"content-type": "application/json"}, content)
    file = write({"/a": {"get": {"operationId": "read"}}}, server=service.url)
    async with Workbench([file]) as bench:
        await bench.start()
        shortest_s = math.inf
        for _ in range(3):  # what else the machine does can only add to it
            longest_s, result = await held(bench.call("read", {}))
            shortest_s = min(shortest_s, longest_s)
            assert len(result.value) == 1_500_000
    # The value is freed here, for half of that.
    assert shortest_s < seconds_of(lambda: pydantic_core.from_json(content))
