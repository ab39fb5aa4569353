"""A gateway for two people: each calls tools with a key of their own, over MCP. `python gateway.py PORT`."""

import asyncio
import sys
from collections.abc import Mapping

from toolcrib import Caller, Crib
from toolcrib.serve import Authenticator, serve_http
from toolcrib.serve.access.keys import AccessKeys


async def main() -> None:
    crib = Crib.from_config("toolcrib.toml")
    by_key = Authenticator(AccessKeys(crib.options["store"]))

    async def identify(headers: Mapping[str, str]) -> Caller:
        """Whoever has a key: MCP clients send it, and browsers have it in the cookie of a login."""
        cookie = headers.get("cookie", "").removeprefix("key=")
        return await by_key({"authorization": f"Bearer {cookie}"} if cookie else headers)

    await serve_http(crib, identify, port=int(sys.argv[1]), ready=lambda url: print(f"serving {url}", flush=True))


asyncio.run(main())
