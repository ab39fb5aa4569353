"""An OpenAPI document of 1,000 operations: loading it, beside parsing it and validating the schemas of its tools."""

import json
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema_rs
from report import BARE, FLOOR, OPENAPI

from toolcrib.tools import openapi_source

TITLE = OPENAPI
_OPERATIONS = 1000
_SCHEMAS = 200


@contextmanager
def loads() -> Generator[Mapping[str, Callable[[], Any]]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "api.json"
        file.write_text(json.dumps(_document()))
        tools = openapi_source(file).tools()
        assert len(tools) == _OPERATIONS
        schemas = [schema for tool in tools for schema in (tool.spec.input_schema, tool.spec.output_schema) if schema]

        def floor() -> None:
            json.loads(file.read_bytes())
            for schema in schemas:
                jsonschema_rs.meta.validate(schema)
                jsonschema_rs.Draft202012Validator(schema)

        yield {FLOOR: floor, BARE: lambda: openapi_source(file)}


def _document() -> dict[str, Any]:
    """As a large service publishes one: a few parameters, a body for half of the operations, schemas that nest."""
    ok = {"description": "ok"}
    paths: dict[str, Any] = {}
    for number in range(_OPERATIONS // 2):
        named = {"$ref": f"#/components/schemas/Thing{number % _SCHEMAS}"}
        content = {"application/json": {"schema": named}}
        listed = [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "maxLength": 64}},
            {"name": "expand", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
            {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 100}},
            {"name": "X-Request-Id", "in": "header", "schema": {"type": "string", "format": "uuid"}},
        ]
        about = {"summary": f"Thing {number}", "tags": ["things"], "parameters": listed}
        answer = {"responses": {"200": {**ok, "content": content}}}
        paths[f"/things{number}/{{id}}"] = {
            "get": {**about, **answer, "operationId": f"get_thing_{number}"},
            "put": {**about, **answer, "operationId": f"put_thing_{number}", "requestBody": {"content": content}},
        }
    schemas = {f"Thing{number}": _thing(number) for number in range(_SCHEMAS)}
    schemas |= {"Owner": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}}
    servers = [{"url": "https://api.example.com"}]
    info = {"title": "Things", "version": "1"}
    return {"openapi": "3.1.0", "info": info, "servers": servers, "paths": paths, "components": {"schemas": schemas}}


def _thing(number: int) -> dict[str, Any]:
    fields = {
        f"field_{index}": {"type": kind, "description": f"The field {index} of thing {number}."}
        for index, kind in enumerate(("string", "integer", "boolean", "number", "string", "string") * 3)
    }
    more = {"owner": {"$ref": "#/components/schemas/Owner"}, "kind": {"enum": ["a", "b", "c"]}}
    return {"type": "object", "required": ["field_0", "kind"], "properties": {**fields, **more}}
