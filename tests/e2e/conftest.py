"""The server that the conformance suite is run against, for clients and a gateway."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from ..npm import ROOT

SERVER = str(ROOT / "tests/conformance/mcp_server.py")


@pytest.fixture(scope="module")
def mcp_url() -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, SERVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()
