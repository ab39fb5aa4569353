"""Real MCP clients against a server process: the TypeScript SDK, version 1 of the Python SDK, and pydantic-ai."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..environments import python_with
from ..npm import ROOT, installed, node

pytestmark = pytest.mark.full

HERE = Path(__file__).parent
SERVER = str(ROOT / "tests/conformance/mcp_server.py")
TYPESCRIPT = "@modelcontextprotocol/sdk@1.32.2"
EXPECTED = {
    "tools": True,
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


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, SERVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_a_client_of_the_typescript_sdk(url: str, transport: str, tmp_path: Path) -> None:
    home = installed(TYPESCRIPT, "package.json").parents[3]
    # Node looks for packages beside the file.
    script = home / "mcp_client.mjs"
    script.write_text((HERE / "mcp_client.mjs").read_text())
    ran = node(str(script), *([url] if transport == "http" else [sys.executable, SERVER, "stdio"]), timeout_s=60)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == EXPECTED


def run(python: str, script: str, url: str) -> Any:
    ran = subprocess.run([python, str(HERE / script), url], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_client_of_version_1_of_the_python_sdk(url: str) -> None:
    assert run(python_with("mcp==1.30.0"), "old_client.py", url) == EXPECTED


def test_an_agent_of_pydantic_ai(url: str) -> None:
    found = run(python_with("pydantic-ai-slim[mcp]==2.68.0"), "pydantic_ai_client.py", url)
    assert set(found) == {"test_simple_text", "test_multiple_content_types", "test_x_mcp_header"}
    assert found["test_simple_text"] == "This is a simple text response for testing."
    assert "Hello from" in found["test_x_mcp_header"]
