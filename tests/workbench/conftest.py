"""Stores in one real database, and programs that use it: what limits of several processes are tested with."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toolcrib.store import Store

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def stores(url: str, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Give stores in the same database, as other processes would open them."""
    opened: list[Store] = []

    def make() -> Store:
        opened.append(Store(url, key=tmp_path / "store.key"))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def start_program(url: str, tmp_path: Path) -> Iterator[Start]:
    """Start programs of this folder on the database: `PROGRAM STORE KEY ARGUMENTS`."""
    processes: list[subprocess.Popen[str]] = []

    def start(program: str, *arguments: object) -> "subprocess.Popen[str]":
        file = Path(__file__).with_name(program)
        command = [sys.executable, str(file), url, str(tmp_path / "store.key"), *map(str, arguments)]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()
