"""Ports for servers of tests."""

import random
import socket


def free_port() -> int:
    """A port of loopback that nobody listens on, and that no system gives to those who take any: so it stays free."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
