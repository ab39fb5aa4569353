"""A gateway for two people: each calls tools under their own name, over MCP. `python gateway.py PORT`."""

import asyncio
import sys
from collections.abc import Mapping

from toolcrib import Caller, Crib
from toolcrib.serve import serve_http

KEYS = {"key-of-alice": "alice", "key-of-bob": "bob"}


def identify(headers: Mapping[str, str]) -> Caller:
    """Whoever has a key: MCP clients send it, and browsers have it in the cookie of a login."""
    key = headers.get("authorization", "").removeprefix("Bearer ") or headers["cookie"].removeprefix("key=")
    return Caller(KEYS[key])


async def main() -> None:
    crib = Crib.from_config("toolcrib.toml")
    await serve_http(crib, identify, port=int(sys.argv[1]), ready=lambda url: print(f"serving {url}", flush=True))


asyncio.run(main())
