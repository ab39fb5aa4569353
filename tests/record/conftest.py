"""Stores in real databases, as for the tests of the store, and a log that is written however busy the machine is."""

import pytest

from toolcrib.record import database

from ..store.conftest import make_store, store

__all__ = ["make_store", "store"]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """How busy the machine is does not matter to what is in the log."""
    monkeypatch.setattr(database, "_FLUSH_TIMEOUT_S", 60.0)
