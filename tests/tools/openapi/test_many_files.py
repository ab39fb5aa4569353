"""A document of hundreds of files, as DigitalOcean publishes its own: each operation a `$ref` to a file."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Workbench
from toolcrib.tools import openapi_source
from toolcrib.tools.openapi import source as source_module

from ..conftest import Service
from .conftest import Write


def write_files(folder: Path, server: str, groups: int = 9) -> int:
    """Write a document of three operations and two files of models a group. Return how many files there are."""
    paths: dict[str, Any] = {}
    for number in range(groups):
        group = folder / f"resources/things{number}"
        (group / "models").mkdir(parents=True)
        paths[f"/v2/things{number}"] = {
            "get": {"$ref": f"resources/things{number}/things_list.yml"},
            "post": {"$ref": f"resources/things{number}/things_create.yml"},
        }
        paths[f"/v2/things{number}/{{thing_id}}"] = {"get": {"$ref": f"resources/things{number}/things_get.yml"}}
        answers = "responses: {'200': {$ref: '../../shared/responses.yml#/thing'}}\n"
        (group / "things_list.yml").write_text(
            f"operationId: things{number}_list\n"
            f"parameters: [{{$ref: '../../shared/parameters.yml#/per_page'}}]\n{answers}"
        )
        (group / "things_get.yml").write_text(
            f"operationId: things{number}_get\nparameters: [{{$ref: 'parameters.yml#/thing_id'}}]\n{answers}"
        )
        (group / "things_create.yml").write_text(
            f"operationId: things{number}_create\nrequestBody:\n  required: true\n"
            "  content: {application/json: {schema: {type: array, items: {$ref: models/thing.yml}}}}\n"
            f"{answers}"
        )
        (group / "parameters.yml").write_text(
            "thing_id: {name: thing_id, in: path, required: true, schema: {type: integer, minimum: 1}}\n"
        )
        (group / "models/thing.yml").write_text(
            "type: object\nrequired: [name]\nproperties: {name: {type: string}, parent: {$ref: thing.yml}}\n"
        )
    shared = folder / "shared"
    shared.mkdir()
    (shared / "parameters.yml").write_text("per_page: {name: per_page, in: query, schema: {type: integer}}\n")
    (shared / "responses.yml").write_text("thing: {description: ok}\n")
    head = {"openapi": "3.0.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": server}]}
    (folder / "api.json").write_text(json.dumps({**head, "paths": paths}))
    return sum(path.is_file() for path in folder.rglob("*"))


def serve(service: Service, folder: Path) -> str:
    """Have *service* send the files in *folder*. Return the address of the document."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    service.replies |= {f"/{path.relative_to(folder)}": (200, {}, path.read_bytes()) for path in files}
    return f"{service.url}/api.json"


def schemas(source: Any) -> dict[str, Any]:
    return {tool.spec.name: tool.spec.input_schema for tool in source.tools()}


async def test_a_document_of_300_files_is_loaded_whole_from_a_folder_and_from_a_server(
    tmp_path: Path, service: Service
) -> None:
    assert write_files(tmp_path, service.url, 60) > 300
    local = openapi_source(tmp_path / "api.json", external_refs=True)
    remote = openapi_source(serve(service, tmp_path), external_refs=True)
    assert schemas(local) == schemas(remote)
    assert len(schemas(local)) == 3 * 60
    assert list(local.problems) == list(remote.problems) == []
    assert schemas(local)["things7_get"]["properties"] == {"thing_id": {"type": "integer", "minimum": 1}}
    assert [*schemas(local)["things7_list"]["properties"]] == ["per_page"]
    assert schemas(local)["things7_create"]["required"] == ["body"]
    assert {*Counter(path for _, path, _, _ in service.requests).values()} == {1}  # each file is fetched once,
    assert len(service.peers) == 2  # the document over one connection, and all that it leads to over another
    async with Workbench([local]) as bench:
        assert (await bench.call("things7_get", {"thing_id": 5})).status == "success"
        assert service.last[1] == "/v2/things7/5"


def test_an_operation_is_left_out_with_the_reason_where_its_reference_cannot_be_followed(write: Write) -> None:
    """It was a tool without arguments. Beside DigitalOcean's files: a reference within the document, as Redocly
    bundles them, in `additionalOperations`, and one with members beside it, of which one side would be lost.
    """
    id_parameter = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    shared = {"operationId": "shared", "parameters": [id_parameter], "responses": {"200": {"description": "ok"}}}
    file = write(
        {
            "/a": {"get": {"$ref": "resources/a.yml"}},
            "/b/{id}": {
                "get": {"$ref": "#/components/x-operations/shared"},
                "additionalOperations": {"LINK": {"$ref": "#/components/x-operations/shared"}},
                "post": {"$ref": "#/components/x-operations/shared", "requestBody": {}},
                "put": {"$ref": "#/components/x-operations/shared", "description": "Mine.", "x-note": 1},
                "head": {"$ref": "#/components/x-operations/loop"},
            },
            "/c": {"$ref": "#/paths/~1a", "parameters": [id_parameter]},
        },
        components={"x-operations": {"shared": shared, "loop": {"$ref": "#/components/x-operations/loop"}}},
        version="3.2.0",
    )
    source = openapi_source(file)
    assert {
        tool.requires["request"].split()[0]: [*tool.spec.input_schema["properties"]] for tool in source.tools()
    } == {
        "GET": ["id"],
        "LINK": ["id"],
        "PUT": ["id"],
    }
    assert {tool.spec.description for tool in source.tools()} == {"Mine.", "GET /b/{id}", "LINK /b/{id}"}
    reasons = {
        "GET /a": "`external_refs` is not set",
        "POST /b/{id}": "'requestBody' stands beside its '$ref'",
        "HEAD /b/{id}": "without end",
        "/c": "'parameters' stands beside",
    }
    problems = [str(problem) for problem in source.problems]
    assert len(problems) == len(reasons)
    assert all(
        any(f"{label} is left out" in line and why in line for line in problems) for label, why in reasons.items()
    )


def test_a_file_that_is_not_there_is_asked_for_once_and_costs_its_operations_only(
    tmp_path: Path, service: Service
) -> None:
    write_files(tmp_path, "http://127.0.0.1:1")
    missing = "/shared/parameters.yml"
    address = serve(service, tmp_path)
    service.replies[missing] = (404, {}, b"")
    source = openapi_source(address, external_refs=True)
    assert (len(source.tools()), len(source.problems)) == (2 * 9, 9)
    assert "HTTP 404" in str(source.problems[0])
    assert [path for _, path, _, _ in service.requests].count(missing) == 1


@pytest.mark.parametrize(("bound", "value"), [("MAX_BYTES", 3_000), ("_REFERENCES_TIMEOUT_S", -1.0)])
def test_files_are_read_within_a_bound_of_bytes_and_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: float
) -> None:
    """A remote server can answer slowly, and with files that lead to the next without end."""
    write_files(tmp_path, "http://127.0.0.1:1")
    document = json.loads((tmp_path / "api.json").read_text())
    document["paths"]["/own"] = {"get": {"operationId": "own", "responses": {}}}
    (tmp_path / "api.json").write_text(json.dumps(document))
    monkeypatch.setattr(source_module, bound, value)
    source = openapi_source(tmp_path / "api.json", external_refs=True)
    assert "own" in schemas(source)
    assert "references lead to" in str(source.problems[-1])
    assert len(source.tools()) + len(source.problems) == 3 * 9 + 1
