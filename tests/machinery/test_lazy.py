"""Packages that are imported when a name of theirs is first asked for."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import ModuleType

import pytest

from toolcrib.machinery import defer_package


def package(folder: Path, name: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("from .heavy import WEIGHT\n__all__ = ['WEIGHT']\n")
    (folder / name / "heavy.py").write_text("WEIGHT = 12\n")
    (folder / name / "light.py").write_text("COLOUR = 'blue'\n")


def test_a_deferred_package_runs_when_a_name_of_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "deferred_one")
    monkeypatch.syspath_prepend(tmp_path)
    deferred = defer_package("deferred_one")
    from deferred_one.light import COLOUR  # type: ignore[import-not-found]

    assert COLOUR == "blue"
    assert "deferred_one.heavy" not in sys.modules
    from deferred_one import WEIGHT  # type: ignore[import-not-found]

    assert WEIGHT == 12
    assert defer_package("deferred_one") is deferred is sys.modules["deferred_one"]
    with pytest.raises(AttributeError, match="module 'deferred_one' has no attribute 'HEIGHT'"):
        _ = deferred.HEIGHT


def test_a_package_that_is_missing_is_not_deferred() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'deferred_none'") as raised:
        defer_package("deferred_none")
    assert raised.value.name == "deferred_none"


def test_a_deferred_package_that_fails_is_run_again_and_its_own_names_on_demand_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deferred_two.py").write_text(
        "import os\nif 'DEFERRED_FAILS' in os.environ:\n    raise RuntimeError('not yet')\n"
        "def __getattr__(name):\n    if name == 'late':\n        return 12\n    raise AttributeError(name)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("DEFERRED_FAILS", "1")
    deferred = defer_package("deferred_two")
    with pytest.raises(RuntimeError, match="not yet"):
        _ = deferred.late
    monkeypatch.delenv("DEFERRED_FAILS")
    assert deferred.late == 12
    with pytest.raises(AttributeError):
        _ = deferred.never


def test_a_second_thread_waits_until_a_deferred_package_has_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deferred_three.py").write_text("import held\nheld.begun.set()\nheld.go_on.wait(30)\nWEIGHT = 12\n")
    held = ModuleType("held")
    held.begun, held.go_on = Event(), Event()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "held", held)
    monkeypatch.syspath_prepend(tmp_path)
    deferred = defer_package("deferred_three")
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(lambda: deferred.WEIGHT)
        assert held.begun.wait(30)
        second = threads.submit(lambda: deferred.WEIGHT)
        held.go_on.set()
        assert (first.result(30), second.result(30)) == (12, 12)
