"""A server process for the tests: `python changing.py stdio FILE` or `python changing.py http FILE`.

It serves the tools of a file as that changes. Over HTTP it prints its URL as the first line.
"""

import asyncio
import logging
import sys

from toolcrib import Crib
from toolcrib.serve import serve_http, serve_stdio
from toolcrib.tools.watch import Watched


async def main(how: str, file: str) -> None:
    logging.basicConfig(level=logging.WARNING)
    crib = Crib([Watched(file, settle_s=0.1)])
    if how == "stdio":
        await serve_stdio(crib)
    else:
        await serve_http(crib, port=0, ready=lambda url: print(url, flush=True))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
