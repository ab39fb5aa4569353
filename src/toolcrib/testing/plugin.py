"""The pytest plugin: the fixtures `bench` and `cassette`.

What an async test opened can only be closed on its event loop, so that loop must outlive the fixture: `bench` asks for
an async fixture of whichever plugin runs the test, which keeps the loop until `bench` has ended.
"""

import re
from collections.abc import AsyncIterator, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .bench import MakeBench
    from .cassette import Cassette

_RECORD = "--record-cassettes"
_has_failed = pytest.StashKey[bool]()


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator["MakeBench"]:
    """Make workbenches for this test, and stop them when it ends: `bench(add, "tools.py", overrides={...})`.

    It takes the sources and settings of a Workbench. `bench(add).as_caller("alice")` is the same for another caller.
    """
    from .bench import MakeBench

    if "anyio_backend" in request.fixturenames:
        request.getfixturevalue("_toolcrib_anyio_loop")
    elif request.config.pluginmanager.has_plugin("asyncio"):
        request.getfixturevalue("_toolcrib_asyncio_loop")
    benches = MakeBench()
    yield benches
    benches.finish()


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> Iterator["Cassette"]:
    """Give the cassette of this test, for `bench(add, middleware=[cassette])`: calls recorded once, then replayed.

    It is in `cassettes/`, beside the file of the test. `pytest --record-cassettes=always` records it again.
    """
    from .cassette import Cassette

    name = re.sub(r"[^\w.-]+", "-", request.node.name).strip("-")
    path = request.path.parent / "cassettes" / f"{request.path.stem}.{name}.json"
    record: Any = request.config.getoption(_RECORD)
    tape = Cassette(path, record=record)
    yield tape
    if not request.node.stash.get(_has_failed, False) or not tape.records:
        tape.finish()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[_has_failed] = report.failed
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("toolcrib").addoption(
        _RECORD,
        choices=("once", "always", "never"),
        default="once",
        help="Cassettes of tool calls: recorded if there is none yet, always, or never.",
    )


@pytest.fixture
async def _toolcrib_anyio_loop() -> AsyncIterator[None]:
    yield  # noqa: PT022 - keeps the loop open until the fixture is resumed


def pytest_configure(config: pytest.Config) -> None:
    if config.pluginmanager.has_plugin("asyncio"):
        from . import loop

        config.pluginmanager.register(loop, "toolcrib-asyncio")
