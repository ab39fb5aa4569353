"""A client that is not ours and not Python: the MCP Inspector's command, under Node, in both eras and transports."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..npm import ROOT, installed, node

pytestmark = pytest.mark.full

CRIB = str(ROOT / "tests/serve/crib.py")
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
Ask = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture(scope="session")
def inspector() -> str:
    return str(installed(INSPECTOR, "clients/launcher/build/index.js"))


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, CRIB, "http"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.fixture(params=["stdio legacy", "stdio modern", "http legacy", "http modern"])
def ask(request: pytest.FixtureRequest, inspector: str, url: str, tmp_path: Path) -> Ask:
    """Runs the Inspector once. Gives its status, what it printed as JSON, and what it wrote to standard error."""
    transport, _, era = request.param.partition(" ")
    target = [url] if transport == "http" else [sys.executable, CRIB, "stdio"]

    def run(*arguments: str) -> tuple[int, dict[str, Any], str]:
        env = {**os.environ, "HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
        ran = node(inspector, "--cli", *target, "--protocol-era", era, "--format", "json", "-q", *arguments, env=env)
        return ran.returncode, json.loads(ran.stdout or "{}"), ran.stderr

    return run


def test_the_inspector_lists_and_calls_tools(ask: Ask) -> None:
    status, printed, problems = ask("--method", "tools/list", "--strict")
    assert (status, problems, len(printed["result"]["tools"])) == (0, "", 24)

    def call(tool: str, arguments: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        how = ("--method", "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments))
        status, printed, problems = ask(*how)
        result = printed.get("result") or json.loads(problems)
        result.get("_meta", {}).pop("io.modelcontextprotocol/serverInfo", None)
        return status, result

    three = {"content": [{"type": "text", "text": "3"}], "structuredContent": {"result": 3}, "isError": False}
    status, result = call("add", {"A": 1, "b": 2})
    assert status == 0
    assert result == {**three, "_meta": {"toolcrib/repairs": [{"path": "/A", "from": "key", "to": "key"}]}}
    status, result = call("greet", {"nmae": "Ada"})
    assert (status, result["_meta"]) == (5, {"toolcrib/error": {"code": "invalid_arguments", "retry": "changed"}})
    assert "Did you mean 'name'?" in result["content"][0]["text"]
    status, result = call("missing", {})
    assert (status, result["content"]) == (5, [{"type": "text", "text": "There is no such order."}])
    status, result = call("everything", {})
    kinds = [block["type"] for block in result["content"]]
    assert (status, kinds) == (0, ["text", "image", "audio", "resource"])
    status, result = call("ad", {})
    assert (status, result["error"]["code"]) == (5, "tool_not_found")
