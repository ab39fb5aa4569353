"""The settings of a program that uses the dialect: in a folder of its own, and forgotten afterwards."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toolcrib.dialects.hyperpocket import server
from toolcrib.dialects.hyperpocket.config import config
from toolcrib.dialects.hyperpocket.futures import FutureStore
from toolcrib.dialects.hyperpocket.session.in_memory import InMemorySessionStorage

Settings = Callable[..., None]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """Writes `settings.toml`, and other files by name, into the working directory, which is read again."""
    monkeypatch.chdir(tmp_path)

    def write(text: str = "", **files: str) -> None:
        for name, content in {"settings": text, **files}.items():
            (tmp_path / f"{name}.toml").write_text(content)
        config.cache_clear()

    def forget() -> None:
        config.cache_clear()
        InMemorySessionStorage.storage.clear()
        FutureStore.futures.clear()
        for user in [*server._users, FutureStore]:  # those of other tests in this process
            server.stop_callback_server(user)

    forget()
    write()
    yield write
    forget()
