"""The part of the plugin for pytest-asyncio: an async fixture, which keeps the event loop."""

from collections.abc import AsyncIterator

import pytest_asyncio


@pytest_asyncio.fixture
async def _toolcrib_asyncio_loop() -> AsyncIterator[None]:
    yield
