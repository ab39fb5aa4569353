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


def test_modules_that_share_a_file_are_imported_under_each_of_the_originals_names() -> None:
    import toolcrib.dialects.hyperpocket.tool.wasm.invoker
    import toolcrib.dialects.spark.agents.config
    from toolcrib.dialects.hyperpocket.util.json_schema_to_model import json_schema_to_model
    from toolcrib.dialects.spark.agents import memory
    from toolcrib.dialects.spark.models.echo import EchoModel
    from toolcrib.dialects.spark.nodes.types import NodeMessage

    shared = (EchoModel, NodeMessage, memory.MemoryConfig, toolcrib.dialects.spark.agents.config.AgentConfig)
    assert [kind.__name__ for kind in shared] == ["EchoModel", "NodeMessage", "MemoryConfig", "AgentConfig"]
    assert toolcrib.dialects.hyperpocket.tool.wasm.invoker.WasmInvoker.trusted is False
    assert json_schema_to_model({}, "Nothing").__name__ == "Nothing"
