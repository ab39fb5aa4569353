"""Swagger 2.0: what a document of it sends, and what is read of it otherwise than of OpenAPI 3."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Workbench
from toolcrib.auth import CredentialBroker
from toolcrib.core import LoadError
from toolcrib.tools import openapi_source

from ..conftest import Service
from .conftest import OK


def at(place: str, name: str, kind: str = "string", **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "type": kind, "required": place == "path"} | more


def some(place: str, name: str, **more: Any) -> dict[str, Any]:
    return at(place, name, "array", items={"type": "string"}, **more)


def document(netloc: str, paths: dict[str, Any], **more: Any) -> dict[str, Any]:
    head = {"swagger": "2.0", "info": {"title": "t", "version": "1"}, "host": netloc, "basePath": "/v1"}
    return {**head, "schemes": ["http"], "paths": paths, **more}


def write(folder: Path, data: Any, name: str = "api.json") -> Path:
    file = folder / name
    file.write_text(json.dumps(data))
    return file


async def test_every_parameter_is_sent_as_its_collection_format_has_it(service: Service, tmp_path: Path) -> None:
    listed = [
        some("path", "ids"),
        some("query", "csv"),
        some("query", "multi", collectionFormat="multi"),
        some("query", "ssv", collectionFormat="ssv"),
        some("query", "pipes", collectionFormat="pipes"),
        some("header", "X-List"),
        at("query", "limit", "integer", maximum=10, exclusiveMaximum=True),
    ]
    bad = [[some("query", "tsv", collectionFormat="tsv")], [some("header", "X", collectionFormat="multi")]]
    paths = {"/a/{ids}": {"parameters": listed, "get": {**OK, "operationId": "get"}}}
    paths |= {f"/bad{number}": {"get": {**OK, "parameters": wrong}} for number, wrong in enumerate(bad)}
    source = openapi_source(write(tmp_path, document(service.netloc, paths)))
    assert [str(problem).split(": ", 1)[1] for problem in source.problems] == [
        "GET /bad0 is left out: its parameter 'tsv' has the collectionFormat 'tsv'.",
        "GET /bad1 is left out: its parameter 'X' has the style 'form', which is not one of a header.",
    ]
    async with Workbench([source]) as bench:
        two = ["a b", "c"]
        arguments = {"ids": two, "X-List": two, "limit": 9} | dict.fromkeys(("csv", "multi", "ssv", "pipes"), two)
        assert (await bench.call("get", arguments)).status == "success"
        method, target, headers, _ = service.last
        assert (method, headers["x-list"]) == ("GET", "a b,c")
        assert target == "/v1/a/a%20b,c?csv=a%20b,c&multi=a%20b&multi=c&ssv=a%20b%20c&pipes=a%20b%7Cc&limit=9"
        assert (await bench.call("get", {"ids": two, "limit": 10})).error.code == "invalid_arguments"


async def test_bodies_and_forms_are_sent(service: Service, tmp_path: Path) -> None:
    body = {"name": "pet", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Pet"}}
    fields = [at("formData", "name", required=True), some("formData", "tags"), at("formData", "age", "integer")]
    many = some("formData", "tags", collectionFormat="multi")
    paths = {
        "/json/{id}": {"parameters": [at("path", "id")], "put": {**OK, "operationId": "put", "parameters": [body]}},
        "/form": {"post": {**OK, "operationId": "form", "parameters": fields}},
        "/file": {
            "post": {
                **OK,
                "operationId": "upload",
                "consumes": ["multipart/form-data"],
                "parameters": [at("formData", "file", "file", required=True), many, {"$ref": "#/parameters/note"}],
            }
        },
        "/text": {
            "post": {
                **OK,
                "operationId": "text",
                "consumes": ["text/plain"],
                "parameters": [{"name": "b", "in": "body", "schema": {"type": "string"}}],
            }
        },
        "/both": {"post": {**OK, "parameters": [body, at("formData", "name")]}},
        "/parts": {"post": {**OK, "consumes": ["multipart/form-data"], "parameters": [some("formData", "tags")]}},
    }
    pet = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string", "x-nullable": True}, "seen": {"type": "string", "readOnly": True}},
    }
    shared = {"definitions": {"Pet": pet}, "parameters": {"note": at("formData", "note")}}
    source = openapi_source(write(tmp_path, document(service.netloc, paths, **shared)))
    assert ["/both" in str(problem) or "/parts" in str(problem) for problem in source.problems] == [True, True]
    async with Workbench([source]) as bench:
        assert (await bench.call("put", {"id": "1", "name": None})).status == "success"
        assert (service.last[1], json.loads(service.last[3])) == ("/v1/json/1", {"name": None})
        assert (await bench.call("form", {"name": "a&b", "tags": ["x", "y"], "age": 3})).status == "success"
        assert service.last[2]["content-type"] == "application/x-www-form-urlencoded"
        assert service.last[3] == b"name=a%26b&tags=x,y&age=3"
        data = base64.b64encode(b"\x00\x01").decode()
        assert (await bench.call("upload", {"file": data, "tags": ["x", "y"], "note": "n"})).status == "success"
        assert service.last[2]["content-type"].startswith("multipart/form-data; boundary=")
        assert service.last[3].count(b'name="tags"') == 2
        assert b'name="file"; filename="file"' in service.last[3]
        assert (await bench.call("text", {"body": "hello"})).status == "success"
        assert service.last[3] == b"hello"


async def test_credentials_answers_and_headers_are_those_of_the_document(service: Service, tmp_path: Path) -> None:
    schemes = {"login": {"type": "basic"}, "key": {"type": "apiKey", "in": "query", "name": "k"}}
    answer = {"description": "", "schema": {"$ref": "#/definitions/Pet"}, "headers": {"X-Total": {"type": "integer"}}}
    paths = {
        "/login": {"get": {"operationId": "login", "security": [{"login": []}], "responses": {"200": answer}}},
        "/key": {"get": {"operationId": "key", "produces": ["text/csv"], "responses": {"200": answer}}},
        "/file": {"get": {**OK, "operationId": "file", "responses": {"200": {"schema": {"type": "file"}}}}},
    }
    more = {"securityDefinitions": schemes, "security": [{"key": []}], "definitions": {"Pet": {"type": "object"}}}
    source = openapi_source(write(tmp_path, document(service.netloc, paths, **more)))
    promises = {tool.spec.name: tool.spec.output_schema for tool in source.tools()}
    assert promises == {"login": {"type": "object", "$defs": {"Pet": {"type": "object"}}}, "key": None, "file": None}
    service.replies["/v1/login"] = (200, {"content-type": "application/json", "X-Total": "5"}, b"{}")
    secrets = {f"{service.netloc}/login": "ann:secret-of-ann", f"{service.netloc}/key": "secret-key"}
    async with Workbench([source], broker=CredentialBroker(secrets=secrets)) as bench:
        result = await bench.call("login")
        assert (result.value, result.metadata["headers"]) == ({}, {"x-total": "5"})
        assert service.last[2]["authorization"] == "Basic " + base64.b64encode(b"ann:secret-of-ann").decode()
        await bench.call("key")
        assert service.last[1] == "/v1/key?k=secret-key"


@pytest.mark.parametrize(
    ("more", "operation", "request_line"),
    [
        ({"schemes": ["http", "https"]}, {}, "GET https://api.example.com/v1/a"),
        ({"schemes": None}, {}, "GET https://api.example.com/v1/a"),
        ({"basePath": "/"}, {}, "GET https://api.example.com/a"),
        ({"basePath": "v2/"}, {}, "GET https://api.example.com/v2/a"),
        ({"schemes": ["wss"]}, {"schemes": ["https"]}, "GET https://api.example.com/v1/a"),
        ({"host": "api.example.com:8443"}, {}, "GET https://api.example.com:8443/v1/a"),
    ],
)
def test_the_server_is_host_base_path_and_scheme(
    tmp_path: Path, more: dict[str, Any], operation: dict[str, Any], request_line: str
) -> None:
    data = document("api.example.com", {"/a": {"get": {**OK, **operation}}}) | {"schemes": ["https"], **more}
    (tool,) = openapi_source(write(tmp_path, data)).tools()
    assert tool.requires["request"] == request_line


def test_what_names_no_host_needs_one_and_an_older_version_is_refused(tmp_path: Path) -> None:
    data = document("", {"/a": {"get": OK}})
    with pytest.raises(LoadError, match="does not name the address of its server"):
        openapi_source(write(tmp_path, data))
    (tool,) = openapi_source(write(tmp_path, data), server="https://b.example.com").tools()
    assert tool.requires["request"] == "GET https://b.example.com/a"
    with pytest.raises(LoadError, match=r"Swagger 1\.2"):
        openapi_source(write(tmp_path, data | {"swagger": "1.2"}))


def test_other_files_are_of_swagger_too(tmp_path: Path) -> None:
    """Not named in what was asked for: Azure's documents have their parameters and definitions in shared files."""
    common = {
        "definitions": {"Id": {"type": "integer"}},
        "parameters": {
            "Ids": some("query", "ids", collectionFormat="pipes"),
            "Body": {"name": "b", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Id"}},
        },
        "responses": {"Ok": {"description": "", "schema": {"$ref": "#/definitions/Id"}}},
    }
    write(tmp_path, common, "common.json")
    listed = [{"$ref": "common.json#/parameters/Ids"}, {"$ref": "common.json#/parameters/Body"}]
    item = {"post": {"parameters": listed, "responses": {"200": {"$ref": "common.json#/responses/Ok"}}}}
    data = document("api.example.com", {"/a": item}, schemes=["https"])
    (tool,) = openapi_source(write(tmp_path, data), external_refs=True).tools()
    assert tool.spec.input_schema == {
        "type": "object",
        "properties": {"ids": {"type": "array", "items": {"type": "string"}}, "body": {"$ref": "#/$defs/Id"}},
        "required": ["body"],
        "additionalProperties": False,
        "$defs": {"Id": {"type": "integer"}},
    }
    assert tool.spec.output_schema == {"type": "integer", "$defs": {"Id": {"type": "integer"}}}
