"""What importing a dialect costs: in a fresh interpreter, by what it loads."""

import json
import subprocess
import sys

DIALECTS = "toolcrib.dialects.autogen.tools, toolcrib.dialects.spark.agents, toolcrib.dialects.swarm"
HYPERPOCKET = "toolcrib.dialects.hyperpocket.pocket_main, toolcrib.dialects.hyperpocket.tool"
HEAVY = {"PIL", "anthropic", "boto3", "google", "mcp", "openai", "opentelemetry", "rich", "starlette", "typer"}


def loaded(imports: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after importing *imports*."""
    code = f"import json, sys, {imports}; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    return set(json.loads(done.stdout))


def test_toolcrib_loads_no_dialect() -> None:
    assert [name for name in loaded("toolcrib, toolcrib.agent, toolcrib.cli") if "dialects." in name] == []


def test_a_dialect_loads_no_server_no_terminal_and_no_package_of_a_provider() -> None:
    assert loaded(f"{DIALECTS}, {HYPERPOCKET}") & HEAVY == set()


def test_hyperpockets_tools_load_no_database_and_no_http_client() -> None:
    assert loaded("toolcrib.dialects.hyperpocket.tool") & {"authlib", "httpx2", "redis", "sqlalchemy"} == set()
