"""A crib that is served over HTTP while a test runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from toolcrib import Crib
from toolcrib.serve import serve_http


@asynccontextmanager
async def served(crib: Crib, *identify: Any, **options: Any) -> AsyncIterator[str]:
    """The URL of *crib* over MCP. *identify* and *options* are those of `serve_http`."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_http(crib, *identify, port=0, ready=ready.set_result, **options))
    try:
        await asyncio.wait([ready, serving], return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            await serving
        yield ready.result()
    finally:
        serving.cancel()
        await asyncio.wait([serving])
