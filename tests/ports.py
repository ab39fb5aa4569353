"""Ports for servers of tests."""

import os
import random
import socket
from itertools import count

_EACH = 1_500
_first = 20_000 + _EACH * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8)
_numbers = count(random.randrange(_EACH))  # other runs on this machine begin elsewhere


def free_port() -> int:
    """A port of loopback that nobody listens on, and that no system gives to those who take any: so it stays free.

    No process of one run gets the same port as another, nor the same one again.
    """
    while True:
        port = _first + next(_numbers) % _EACH
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
