"""The server process of `crib.py`, and the official client connected to it: over both transports, in both eras."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from .issuer import Issuer

CRIB = str(Path(__file__).with_name("crib.py"))
Connect = Callable[[], Client]


@pytest.fixture(scope="session")
def url(forked_python: str) -> Iterator[str]:
    """One server over HTTP, for all tests."""
    with subprocess.Popen(
        [forked_python, CRIB, "http"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.fixture(
    params=[
        "http 2025-11-25",
        "http 2026-07-28",
        "stdio 2025-11-25",
        pytest.param("stdio 2026-07-28", marks=pytest.mark.full),
    ]
)
def connect(request: pytest.FixtureRequest, url: str, forked_python: str) -> Connect:
    """Opens a client over this transport, in this era. Over stdio, each has a server process of its own."""
    transport, _, version = request.param.partition(" ")
    mode = "legacy" if version == "2025-11-25" else version
    if transport == "http":
        return lambda: Client(url, mode=mode)
    return lambda: Client(StdioServerParameters(command=forked_python, args=[CRIB, "stdio"]), mode=mode)


@pytest.fixture(params=["2025-11-25", "2026-07-28"])
def connect_http(request: pytest.FixtureRequest, url: str) -> Connect:
    """Opens a client over HTTP, in this era."""
    return lambda: Client(url, mode="legacy" if request.param == "2025-11-25" else request.param)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.server.shutdown()
    made.server.server_close()
