"""What `import toolcrib` costs: in a fresh interpreter, by what it loads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "pydantic",
    "pydantic_core",
    "pydantic_settings",
    "griffe",
    "jsonschema_rs",
    "jiter",
    "typer",
    "rich",
    "mcp",
    "mcp_types",
    "anyio",
    "starlette",
    "uvicorn",
    "watchfiles",
    "opentelemetry",
    "prometheus_client",
    "sqlalchemy",
    "cryptography",
    "httpx2",
    "platformdirs",
    "wasmtime",
    "pytest",
)
DEFINE = """
from toolcrib import tool
@tool
def add(a: int, b: int) -> int:
    return a + b
"""


def loaded(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after *code*."""
    show = "import json, sys; print(json.dumps(list(sys.modules)))"
    command = [sys.executable, "-c", f"{code}\n{show}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import toolcrib", id="import toolcrib"),
        pytest.param("import toolcrib.testing", id="import toolcrib.testing"),
        pytest.param("import toolcrib.cli", id="import toolcrib.cli"),
    ],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(code: str) -> None:
    assert loaded(code) & set(HEAVY) == set()


def test_a_workbench_loads_what_checks_arguments_and_neither_server_nor_terminal() -> None:
    found = loaded(
        f"{DEFINE}\nfrom toolcrib import Workbench\nWorkbench([add]).call_sync('add', '{{\"a\": 1, \"b\": 2}}')"
    )
    assert "pydantic" in found
    assert found & {"typer", "rich", "mcp", "anyio", "starlette", "uvicorn", "opentelemetry", "pytest"} == set()


@pytest.mark.parametrize("option", ["--help", "--help-all", "--version"])
def test_the_help_loads_neither_what_checks_arguments_nor_a_terminal(option: str) -> None:
    found = loaded(f"from toolcrib.cli import main\nmain(['{option}'])")
    assert "typer" in found
    assert found & ({*HEAVY} - {"typer"}) == set()


def test_a_server_over_stdio_loads_nothing_of_http_no_client_and_no_reader_of_variables_that_are_not_set(
    tmp_path: Path,
) -> None:
    file = tmp_path / "tools.py"
    file.write_text(DEFINE)
    found = loaded(f"from toolcrib.cli import main\nmain(['serve', {str(file)!r}, '--stdio'])")
    assert {"mcp_types", "mcp.shared.inbound"} <= found
    others = {"mcp.client", "mcp.server.lowlevel", "uvicorn.main", "toolcrib.auth", "toolcrib.serve.app"}
    others |= {"http", "httpx2", "pydantic_settings", "multiprocessing", "opentelemetry", "cryptography.exceptions"}
    assert found & (others | {"jsonschema_rs.jsonschema_rs"}) == set()


def test_a_server_builds_the_models_of_the_messages_that_it_has_had() -> None:
    code = """
import toolcrib.serve.mcp.server
from mcp_types.methods import CLIENT_REQUESTS, validate_client_request
validate_client_request("tools/call", "2025-11-25", {"name": "add"})
print({model.__name__ for model in CLIENT_REQUESTS.values() if model.__pydantic_complete__})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "{'CallToolRequest'}\n"
