"""What importing a dialect costs, in a fresh interpreter, by what it loads; and which names there are to import."""

import importlib
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "dialects"

DIALECTS = "toolcrib.dialects.autogen.tools, toolcrib.dialects.spark.agents, toolcrib.dialects.swarm"
HYPERPOCKET = "toolcrib.dialects.hyperpocket.pocket_main, toolcrib.dialects.hyperpocket.tool"
HEAVY = {"PIL", "anthropic", "boto3", "google", "mcp", "openai", "opentelemetry", "rich", "starlette", "typer"}


def loaded(*imports: str) -> list[set[str]]:
    """The modules that a fresh interpreter has loaded after each of *imports*, one after the other."""
    code = "import json, sys\n" + "\n".join(
        f"import {names}; print(json.dumps(list(sys.modules)))" for names in imports
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    return [set(json.loads(line)) for line in done.stdout.splitlines()]


def test_toolcrib_loads_no_dialect() -> None:
    (modules,) = loaded("toolcrib, toolcrib.agent, toolcrib.cli")
    assert [name for name in modules if "dialects." in name] == []


def test_a_dialect_loads_no_server_no_terminal_and_no_package_of_a_provider() -> None:
    """And hyperpocket's tools no database and no HTTP client."""
    tools, dialects = loaded("toolcrib.dialects.hyperpocket.tool", f"{DIALECTS}, {HYPERPOCKET}")
    assert tools & {"authlib", "httpx2", "redis", "sqlalchemy"} == set()
    assert dialects & HEAVY == set()


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


@pytest.mark.parametrize("dialect", ["autogen", "hyperpocket", "spark", "swarm"])
def test_each_page_lists_all_names_that_are_there_and_no_others(dialect: str) -> None:
    package = importlib.import_module(f"toolcrib.dialects.{dialect}")
    listed = PAGES.joinpath(f"{dialect}.md").read_text().partition("## All names\n")[2].partition("\n## ")[0]
    lines = [re.findall("`([^`]+)`", line) for line in listed.split("\n- ")[1:]]
    on_page = {module: names for module, *names in lines}
    below = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    modules = map(importlib.import_module, [package.__name__, *(module.name for module in below)])
    public = {module.__name__.removeprefix(package.__name__) or module.__name__: module for module in modules}
    assert on_page == {
        name: sorted(module.__all__)
        for name, module in public.items()
        if "._" not in name and hasattr(module, "__all__")
    }
    for name, module in public.items():
        assert [missing for missing in on_page.get(name, ()) if not hasattr(module, missing)] == []


def test_what_a_dialect_has_not_says_what_stands_instead() -> None:
    """A program of Spark with a graph read that the module `has no attribute`. Second case: `from ... import`."""
    from toolcrib.dialects.spark import nodes

    assert not hasattr(nodes, "Graph")
    with pytest.raises(AttributeError, match=r"has no attribute 'Node'\. Nodes and graphs are left out.*spark\.md"):
        _ = nodes.Node
    with pytest.raises(ImportError, match=r"has no attribute 'Bedrock'\. AgentConfig\(model=\.\.\.\) takes any model"):
        from toolcrib.dialects.spark.models import Bedrock  # type: ignore[attr-defined] # noqa: F401
    with pytest.raises(ImportError, match="The depot and the simulations are left out: write a function"):
        exec("from toolcrib.dialects.spark.tools import depot")
