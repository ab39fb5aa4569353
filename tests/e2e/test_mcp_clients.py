"""Real MCP clients against a server process: both TypeScript SDKs, version 1 of the Python SDK, FastMCP, the inspector,
and pydantic-ai. (Version 2 of the Python SDK is the client of tests/serve.)
"""

import json
import subprocess
import sys
from os import environ
from pathlib import Path
from typing import Any

import pytest

from ..environments import python_with
from ..npm import installed, node
from .conftest import SERVER

pytestmark = pytest.mark.full

HERE = Path(__file__).parent
TYPESCRIPT = {"1": "@modelcontextprotocol/sdk@1.32.2", "2": "@modelcontextprotocol/client@2.4.0"}
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
EXPECTED = {
    "tools": True,
    "structured": {"numbers": [0, 1], "name": "first"},
    "large": [False, 108918, '{"numbers":[0,1,'],
    "elicited": ['User response: {"username":"ada","email":"ada@example.org"}'],
    "progressed": ["Done."],
    "logs": ["Logged."],
    "kinds": ["Multiple content types test:", "image", "resource"],
    "failed": True,
    "resource": '{"id": "7", "templateTest": true, "data": "Data for ID: 7"}',
    "prompt": "Prompt with arguments: arg1='a', arg2='b'",
    "asked": ["Who?"],
    "progress": [0, 50, 100],
    "logged": ["Tool execution started", "Tool processing data", "Tool execution completed"],
}


@pytest.fixture(params=["http", "stdio"])
def target(request: pytest.FixtureRequest, mcp_url: str) -> list[str]:
    return [mcp_url] if request.param == "http" else [sys.executable, SERVER, "stdio"]


@pytest.mark.parametrize("version", TYPESCRIPT)
def test_a_client_of_the_typescript_sdk(target: list[str], version: str) -> None:
    home = installed(TYPESCRIPT[version], "package.json").parents[3]
    # Node looks for packages beside the file.
    script = home / "mcp_client.mjs"
    script.write_text((HERE / "mcp_client.mjs").read_text())
    ran = node(str(script), version, *target, timeout_s=60)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == EXPECTED


@pytest.mark.parametrize(
    ("package", "script"), [("mcp==1.30.0", "old_client.py"), ("fastmcp==4.2.3", "fastmcp_client.py")]
)
def test_a_python_client(target: list[str], package: str, script: str) -> None:
    assert run(python_with(package), script, *target) == EXPECTED


def test_the_inspector(target: list[str], tmp_path: Path) -> None:
    program = installed(INSPECTOR, "clients/launcher/build/index.js")

    def inspected(method: str, *arguments: str) -> Any:
        ran = node(
            str(program), "--cli", *target, "--method", method, *arguments, env=environ | {"HOME": str(tmp_path)}
        )
        return json.loads(ran.stdout)

    def called(name: str, *arguments: str) -> Any:
        return inspected("tools/call", "--tool-name", name, *(part for of in arguments for part in ("--tool-arg", of)))

    assert {tool["name"] for tool in inspected("tools/list")["tools"]} > {"test_structured_content", "read_result"}
    assert called("test_structured_content", "n=2")["structuredContent"] == EXPECTED["structured"]
    assert called("test_error_handling")["isError"]
    assert called("test_tool_with_progress")["content"] == [{"type": "text", "text": "Done."}]
    large = called("test_structured_content", "n=20000")
    assert not large.get("isError")
    assert large["structuredContent"]["toolcrib"]["size"] == EXPECTED["large"][1]


def run(python: str, script: str, *target: str) -> Any:
    ran = subprocess.run([python, str(HERE / script), *target], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_an_agent_of_pydantic_ai(mcp_url: str) -> None:
    found = run(python_with("pydantic-ai-slim[mcp]==2.68.0"), "pydantic_ai_client.py", mcp_url)
    assert set(found) == {"test_simple_text", "test_multiple_content_types", "test_x_mcp_header"}
    assert found["test_simple_text"] == "This is a simple text response for testing."
    assert "Hello from" in found["test_x_mcp_header"]
