"""An agent of LangGraph and an MCP client use one crib: its function, MCP server, document and LangChain tool.

They are under one policy: the destructive call waits, is approved by another person, and runs once.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from .running import run

HERE = Path(__file__).parent

OUTPUT = """\
['3', '{"bolt":7}', 'HI']
May 'wipe' run with these arguments? []
foreign []
Deleted /tmp/x. ['/tmp/x']
['add', 'shout', 'stock', 'wipe']
7
{"nut":7}
HO
True Tool 'wipe' has not run: it waits for approval. May 'wipe' run with these arguments? ['/tmp/x']
"""
EXTRAS = ("langchain", "mcp", "openapi", "serve")


@pytest.mark.full
def test_an_agent_and_an_mcp_client_use_one_crib(
    tmp_path: Path, clean_env: Callable[..., Path], user_environ: Callable[[Path], dict[str, str]]
) -> None:
    also = ["--with", "langchain", "--with", "langgraph"]
    programs = clean_env("--free", *(word for extra in EXTRAS for word in ("--extra", extra)), *also)
    shutil.copy(HERE / "one_crib.py", tmp_path)
    shutil.copy(HERE / "gateway_server.py", tmp_path / "server.py")
    done = run(tmp_path, user_environ(programs), "python", "one_crib.py", "0")
    assert (done.returncode, done.stdout) == (0, OUTPUT), done.stderr[-5000:]
