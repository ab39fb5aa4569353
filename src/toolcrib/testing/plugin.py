"""The pytest plugin: the fixture `bench`.

What an async test opened can only be closed on its event loop, so that loop must outlive the fixture: `bench` asks for
an async fixture of whichever plugin runs the test, which keeps the loop until `bench` has ended.
"""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .bench import MakeBench


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator["MakeBench"]:
    """Makes workbenches for this test, and stops them when it ends: `bench(add, "tools.py", overrides={...})`.

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
async def _toolcrib_anyio_loop() -> AsyncIterator[None]:
    yield  # noqa: PT022 - the loop is kept until it is resumed


def pytest_configure(config: pytest.Config) -> None:
    if config.pluginmanager.has_plugin("asyncio"):
        from . import loop

        config.pluginmanager.register(loop, "toolcrib-asyncio")
