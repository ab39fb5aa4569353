"""Objects of other packages as sources, by readers that are installed under the entry point `toolcrib.sources`."""

import functools
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Workbench
from toolcrib.core import LoadError
from toolcrib.tools import load, loading

THEIRS = """
class Thing:
    def __init__(self, name="thing"):
        self.name = name

    def __call__(self):
        return "not read"
"""

PLUGIN = """
from toolcrib import ToolSpec
from toolcrib.tools import from_work

def read(value):
    if value.name == "other":
        return None
    async def work(arguments, context):
        return f"read {value.name}"
    return [from_work(ToolSpec(value.name, "", {"type": "object"}), work, home="plugin")]
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package of another's, a plug-in that reads its objects, and one that cannot be imported."""
    (tmp_path / "their_package").mkdir()
    (tmp_path / "their_package" / "__init__.py").write_text("")
    (tmp_path / "their_package" / "things.py").write_text(THEIRS)
    (tmp_path / "their_plugin.py").write_text(PLUGIN)
    (tmp_path / "broken_package.py").write_text(THEIRS)
    about = tmp_path / "their_plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-plugin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[toolcrib.sources]\ntheir_package = their_plugin:read\nbroken_package = no_such_plugin:read\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    loading._readers.cache_clear()
    yield
    loading._readers.cache_clear()


async def test_an_object_is_read_by_the_plugin_of_its_package(installed: None) -> None:
    from their_package.things import Thing  # type: ignore[import-not-found]

    class Own(Thing):  # type: ignore[misc]
        pass

    bench = Workbench([Thing(), Own("own")])
    assert [(await bench.call(name)).text for name in ("thing", "own")] == ["read thing", "read own"]


async def test_what_no_plugin_reads_is_what_it_was(installed: None) -> None:
    from their_package.things import Thing

    (made,) = load(Thing("other")).tools  # a callable, named by its class
    assert made.fn() == "not read"


async def test_a_plugin_that_cannot_be_imported_is_named(installed: None) -> None:
    from broken_package import Thing  # type: ignore[import-not-found]

    with pytest.raises(LoadError, match="A Thing cannot be read: No module named 'no_such_plugin'"):
        load(Thing())


def test_no_plugin_is_looked_for_where_toolcrib_knows_the_object(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    @functools.cache
    def readers() -> tuple[EntryPoint, ...]:
        looked.append("once")
        return ()

    monkeypatch.setattr(loading, "_readers", readers)

    def add(a: int) -> int:
        """Add."""
        return a

    load(add)
    load(functools.partial(add, 1))
    load(Workbench([add]).registry.get("add"))
    assert looked == []
