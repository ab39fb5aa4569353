"""A fuzzer that knows the OpenAPI document finds nothing: every answer is one that the document describes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .. import fuzz

SERVER = """
import asyncio
from toolcrib import Context, Crib, ToolError, tool
from toolcrib.serve import serve_http
from toolcrib.workbench import Ask

@tool
def add(a: int, b: int) -> int:
    return a + b

@tool
def echo(value: dict[str, list[str | float | None]], note: str = "") -> dict:
    return {"value": value, "note": note}

@tool
async def rows(count: int, context: Context) -> list[str]:
    context.progress(1, 2)
    return ["row"] * min(abs(count), 5000)

@tool(destructive=True)
def drop(name: str) -> str:
    return name

@tool
def fail(code: str) -> None:
    raise ToolError("It went wrong.", code)

def policy(spec, arguments, caller):
    return Ask("Drop it?") if spec.hints.destructive else "allow"

crib = Crib([add, echo, rows, drop, fail], policy=policy, max_result_chars=1000, store="calls.db")
asyncio.run(serve_http(crib, port=0, ready=lambda url: print(url.removesuffix("/mcp"), flush=True)))
"""
# One operation stands for the calls of all tools: what its schema allows may not be what a tool takes, hence 422.
CONFIG = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", 401, 403, 404, 409, 422, 429]
"""
HOOKS = """
import schemathesis

@schemathesis.hook
def map_path_parameters(context, path_parameters):
    # Half of the calls are of tools that are there.
    if path_parameters and "name" in path_parameters:
        name = path_parameters["name"]
        path_parameters["name"] = ["add", "echo", "rows", "drop", "fail", name][len(name) % 6]
    return path_parameters
"""


@pytest.mark.full
def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text(HOOKS)
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    chosen = ["--max-examples", str(fuzz.cases(60)), "--seed", str(fuzz.seed(1))]
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as server:
        try:
            url = server.stdout.readline().strip()
            command = Path(sys.executable).with_name("schemathesis")
            ran = subprocess.run(
                [command, "run", f"{url}/api/openapi.json", "--no-color", *chosen],
                capture_output=True,
                text=True,
                cwd=tmp_path,
                env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "SCHEMATHESIS_HOOKS": "hooks"},
                timeout=600,
            )
        finally:
            server.kill()
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr
    made = re.search(r"(\d+) generated, (\d+) passed", ran.stdout)
    assert made is not None and made[1] == made[2] and int(made[1]) > 300, ran.stdout
