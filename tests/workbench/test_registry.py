"""Names to tools: conflicts, references, serialization."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Registry, Tool, ToolcribError, tool
from toolcrib.core import LoadError, NameConflictError, UnknownToolError


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(name="read-file")
async def read(path: str) -> str:
    return path


def test_tools_are_added_found_replaced_and_removed() -> None:
    registry = Registry([add, read])
    assert (registry.get("add").spec.name, "add" in registry, len(registry)) == ("add", True, 2)
    assert [spec.name for spec in registry.specs()] == ["add", "read-file"]
    other = Tool(lambda a: a, name="add")
    assert registry.replace(other) is other
    assert [spec.name for spec in registry.specs()] == ["add", "read-file"]
    assert registry["add"] is other
    assert registry.remove("add") is other
    assert list(registry) == [registry.get("read-file")]


def test_tools_are_exchanged_all_or_none_and_each_change_is_notified() -> None:
    registry = Registry([add, read])
    changes: list[list[str]] = []
    end = registry.on_change(lambda: changes.append([spec.name for spec in registry.specs()]))
    other, more = Tool(lambda a: a, name="add"), Tool(lambda a: a, name="read_file")
    # In another spelling, where the first one goes.
    registry.exchange(["read-file"], [more])
    registry.exchange(["add"], [other])
    assert (registry["add"], changes) == (other, [["add", "read_file"], ["add", "read_file"]])
    for old, new in [([], [add]), (["add"], [read]), ([], [Tool(add, name="x"), Tool(read, name="x")])]:
        with pytest.raises(
            NameConflictError, match=r"cannot be put in: there is a tool '.*' \(.*test_registry\.py:\d+\)"
        ):
            registry.exchange(old, new)
    with pytest.raises(UnknownToolError, match="no tool 'ad'"):
        registry.exchange(["ad"], [add])
    assert ([*registry], len(changes)) == ([other, more], 2)
    end()
    end()
    registry.exchange(["add", "read_file"], [read])
    registry.add(add)
    assert ([spec.name for spec in registry.specs()], len(changes)) == (["read-file", "add"], 2)


def test_names_that_differ_only_in_dash_and_underscore_are_refused() -> None:
    registry = Registry([read])
    with pytest.raises(NameConflictError, match="differs only in - and _, 'read-file'"):
        registry.add(Tool(lambda path: path, name="read_file"))
    with pytest.raises(NameConflictError, match="already has a tool 'read-file'"):
        registry.add(Tool(lambda path: path, name="read-file"))
    assert len(registry) == 1
    registry.remove("read-file")
    registry.add(Tool(lambda path: path, name="read_file"))


def test_the_same_tool_from_two_sources_is_one_tool() -> None:
    registry = Registry([add, add])
    assert registry.add(add) is registry.get("add")
    assert len(registry) == 1


def test_the_error_for_an_unknown_name_names_the_nearest() -> None:
    with pytest.raises(UnknownToolError) as caught:
        Registry([add]).get("addd")
    assert str(caught.value) == "There is no tool 'addd'. Did you mean 'add'? The tools are: add."
    assert isinstance(caught.value, KeyError)
    for how in (Registry().remove, Registry().get):
        with pytest.raises(UnknownToolError, match="There are no tools here"):
            how("add")
    with pytest.raises(UnknownToolError):
        Registry().replace(add)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "some_tools.py").write_text(
        "from toolcrib import Tool, tool\n"
        "@tool(name='plus')\ndef add(a: int) -> int:\n    return a\n"
        "class Box:\n    @staticmethod\n    @tool\n    def take(n: int) -> int:\n        return n\n"
        "def plain(n: int) -> int:\n    return n\n"
        "number = 3\n"
        "renamed = Tool(plain, name='other')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import some_tools  # type: ignore[import-not-found]

    yield some_tools
    del sys.modules["some_tools"]


def test_a_registry_is_written_and_read_by_reference(module: Any) -> None:
    registry = Registry([module.add, module.Box.take, module.plain])
    written = json.loads(json.dumps(registry.to_dict()))
    assert written == {
        "tools": [
            {"name": "plus", "ref": "some_tools:add"},
            {"name": "take", "ref": "some_tools:Box.take"},
            {"name": "plain", "ref": "some_tools:plain"},
        ]
    }
    again = Registry.from_dict(written)
    assert [spec.to_dict() for spec in again.specs()] == [spec.to_dict() for spec in registry.specs()]
    assert Registry.from_dict(written, trusted=["some_tools"]).specs() == registry.specs()


def test_what_cannot_be_imported_again_is_refused_when_it_is_written(module: Any) -> None:
    for wrong, reason in (
        (Tool(lambda a: a, name="lambda_tool"), "local, bound or a lambda"),
        (module.renamed, "is another tool"),
    ):
        with pytest.raises(ToolcribError, match=reason):
            Registry([wrong]).to_dict()


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"ref": "os"}, "not a reference"),
        ({"ref": "__import__('os').system('true')"}, "not a reference"),
        ({"ref": "no_such_module_here:x"}, "cannot be imported"),
        ({"ref": "some_tools:missing"}, "there is no 'missing' in some_tools"),
        ({"ref": "some_tools:number"}, "is a int, not a tool"),
        ({"name": "add", "ref": "some_tools:add"}, "named 'plus' now"),
        ({"name": "add"}, 'has no "ref"'),
        ("some_tools:add", 'has no "ref"'),
    ],
)
def test_a_bad_entry_is_named_and_nothing_is_registered(module: Any, entry: Any, reason: str) -> None:
    with pytest.raises(LoadError, match=reason):
        Registry.from_dict({"tools": [{"ref": "some_tools:add"}, entry]})


def test_a_module_outside_the_trusted_packages_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil_tools.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for trusted in ([], ["evil"], ["other"]):
        with pytest.raises(LoadError, match="outside the trusted packages"):
            Registry.from_dict({"tools": [{"ref": "evil_tools:x"}]}, trusted=trusted)
    assert "evil_tools" not in sys.modules
    for data in ({}, {"tools": "x"}, {"tools": None}):
        with pytest.raises(LoadError, match="is written as"):
            Registry.from_dict(data)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package `our_tools`, which uses `other_tools`."""
    (tmp_path / "other_tools.py").write_text(
        "import functools\nfrom toolcrib import tool\n"
        "@tool\ndef marked(a: int) -> int:\n    return a\n"
        "def logged(fn):\n"
        "    @functools.wraps(fn)\n    def inner(*args, **kwargs):\n        return fn(*args, **kwargs)\n"
        "    return inner\n"
        "class Callable:\n    def __call__(self, a: int) -> int:\n        return a\n"
    )
    (tmp_path / "our_tools_too.py").write_text("def x() -> int:\n    return 1\n")
    (tmp_path / "our_tools").mkdir()
    (tmp_path / "our_tools" / "__init__.py").write_text("from .files import read\nfrom json import loads\n")
    (tmp_path / "our_tools" / "files.py").write_text(
        "import functools, os, subprocess\n"
        "from json import JSONDecoder\nfrom subprocess import getoutput\n"
        "import other_tools\nfrom other_tools import logged, marked\nfrom toolcrib import Tool, tool\n"
        "shell = functools.partial(functools.partial(getoutput), 'ls')\n"
        "class Own(JSONDecoder):\n"
        "    @staticmethod\n    @tool\n    def take(n: int) -> int:\n        return n\n"
        "    def __call__(self, n: int) -> int:\n        return n\n"
        "own = Own()\n"
        "class Heir(other_tools.Callable): pass\n"
        "heir = Heir()\n"
        "decode = own.decode\n"
        "@tool\ndef read(path: str) -> str:\n    return path\n"
        "def plain(path: str) -> str:\n    return path\n"
        "part = functools.partial(plain, 'x')\n"
        "listed = tool(name='ls')(functools.partial(getoutput, 'ls'))\n"
        "named = Tool(getoutput, name='named')\n"
        "@logged\ndef wipe(path: str) -> str:\n    return path\n"
        "@functools.lru_cache\ndef cached(path: str) -> str:\n    return path\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [
        name for name in sys.modules if name.partition(".")[0] in ("our_tools", "our_tools_too", "other_tools")
    ]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "ref",
    [
        "our_tools:loads",
        "our_tools_too:x",
        "our_tools:files.read",
        *("our_tools.files:" + name for name in ("subprocess.getoutput", "os.system", "getoutput", "shell")),
        *("our_tools.files:" + name for name in ("own.decode", "decode", "Own.decode", "Own.__base__.decode", "heir")),
        *("our_tools.files:" + name for name in ("marked", "other_tools.marked", "logged", "Own.__subclasses__")),
        *("our_tools.files:" + name for name in ("wipe.__wrapped__", "plain.__globals__.get", "plain.__call__")),
        *("our_tools.files:" + name for name in ("__builtins__.get", "__loader__.exec_module", "read.__toolcrib__")),
    ],
)
def test_what_a_trusted_package_only_uses_is_refused(packages: None, ref: str) -> None:
    """It is in reach of the package, and not what its author offers: `subprocess.getoutput` is a shell."""
    with pytest.raises(LoadError, match="trusted packages"):
        Registry.from_dict({"tools": [{"ref": "our_tools:read"}, {"ref": ref}]}, trusted=["our_tools"])
