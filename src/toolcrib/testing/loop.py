"""The part of the plugin that is there where pytest-asyncio is: an async fixture of its kind, which keeps the loop."""

from collections.abc import AsyncIterator

import pytest_asyncio


@pytest_asyncio.fixture
async def _toolcrib_asyncio_loop() -> AsyncIterator[None]:
    yield
