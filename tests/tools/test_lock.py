"""`toolcrib.lock` as a file: what is written is read, and what is damaged locks nothing."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcrib import Secret, tool
from toolcrib.core import LoadError
from toolcrib.tools import as_tool
from toolcrib.tools.lock import LOCK, Lock, LockedSource, definition_of, locked_hash, read_lock

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
DEFINITIONS = st.dictionaries(st.text(max_size=20), st.dictionaries(st.text(), JSON, max_size=2), max_size=2)
HASHES = st.none() | st.text("0123456789abcdef", min_size=64, max_size=64)
COMMITS = st.none() | st.text("0123456789abcdef", min_size=40, max_size=40)
ENTRY = 'version = 1\n[[source]]\nfrom = "a"\n'
QUICK = settings(deadline=None, max_examples=20)
SOURCES = st.builds(LockedSource, st.text(max_size=30), COMMITS, HASHES, DEFINITIONS)


@tool(read_only=True, title="Add")
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def written(lock: Lock) -> str:
    lock.write()
    return lock.file.read_text("utf-8")


@QUICK
@given(st.lists(SOURCES, max_size=2))
def test_what_is_written_is_read(sources: list[LockedSource]) -> None:
    with TemporaryDirectory() as folder:
        lock = Lock(Path(folder) / "toolcrib.lock", {source.where: source for source in sources})
        text = written(lock)
        assert all(c.isprintable() or c == "\n" for c in text)
        assert read_lock(lock.file) == lock


@settings(QUICK, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_locks_what_it_did_or_nothing(data: st.DataObject, tmp_path: Path) -> None:
    entry = LockedSource("git+https://a.example/b", "a" * 40, "b" * 64, {"add": definition_of(as_tool(add))})
    lock = Lock(tmp_path / "toolcrib.lock", {entry.where: entry})
    text = written(lock).encode()
    at = data.draw(st.integers(0, len(text)))
    to = data.draw(st.integers(at, min(len(text), at + 40)))
    lock.file.write_bytes(
        text[:at] + data.draw(st.binary(max_size=5) | st.sampled_from([b'"', b"'''", b"\n"])) + text[to:]
    )
    try:
        read = read_lock(lock.file)
    except LoadError as error:
        assert str(lock.file) in str(error)
    else:  # a definition is there as it was accepted, or not at all
        for source in read.sources.values():
            assert all(definition == entry.tools["add"] for definition in source.tools.values())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("version = 2\n", "not of version 1"),
        ('version = 1\n[[source]]\nfrom = "a"\ncommit = "main"\n', "source.0.commit"),
        ('version = 1\n[[source]]\nfrom = "a"\n[[source]]\nfrom = "a"\n', "two entries"),
        (
            f'{ENTRY}[[source.tool]]\nname = "t"\nsha256 = "{"0" * 64}"\ndefinition = "{{}}"\n',
            "'t' does not have its hash",
        ),
    ],
)
def test_a_file_that_is_not_one_is_refused_with_the_place(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "toolcrib.lock").write_text(text)
    with pytest.raises(LoadError, match=why):
        read_lock(tmp_path / "toolcrib.lock")
    assert read_lock(tmp_path / "none") is None


def test_every_part_of_a_definition_counts_and_nothing_else(tmp_path: Path) -> None:
    plain = as_tool(add)
    entry = LockedSource("tools.py", tools={"add": definition_of(plain)})
    assert entry.changes([plain]) == []

    def other(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a - b

    same = {"name": "add", "title": "Add", "read_only": True}
    assert entry.changes([as_tool(tool(**same)(other))]) == []
    for option in (
        {"description": "Add numbers."},
        {"title": "Sum"},
        {"read_only": None},
        {"destructive": False},
        {"auth": Secret("KEY")},
        {"parameters": {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"]}},
    ):
        (change,) = entry.changes([as_tool(tool(**{**same, **option})(other))])
        assert (change.name, change.kind, "@@" in change.diff) == ("add", "changed", True), option
    (gone,) = entry.changes([])
    new = entry.changes([plain, as_tool(tool(name="sub")(other))])
    assert ([gone.kind], [change.kind for change in new]) == (["gone"], ["new"])
    assert json.loads(json.dumps(entry.tools)) == entry.tools


# What runs of a locked file


IMPORTS = """
import helper, package.inner
from toolcrib import tool
try:
    import extra
except ImportError:
    pass
importlib = __import__("importlib")
importlib.import_module("literal")

@tool
def hello() -> str:
    return helper.WHO
"""


@pytest.fixture
def imports(tmp_path: Path) -> Path:
    files = {"helper.py": "import deeper\nWHO = deeper.WHO", "deeper.py": "WHO = 1", "literal.py": "", "other.py": ""}
    for name, text in {**files, "package/inner.py": "", "package/data.txt": "", "tools.py": IMPORTS}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "tools.py"


@pytest.mark.parametrize("source", ["tools.py", "tools.py:hello", "link.py"])
@pytest.mark.parametrize(
    ("changed", "is_held"),
    [
        ("helper.py", True),
        ("deeper.py", True),
        ("package/inner.py", True),
        ("literal.py", True),
        ("extra.py", True),  # planted: it was not there when the file was locked
        ("toolcrib.py", True),  # planted in place of what is installed
        ("package/__init__.py", True),
        ("other.py", False),
        ("package/data.txt", False),
    ],
)
def test_what_a_locked_file_imports_beside_it_is_locked_with_it(
    imports: Path, monkeypatch: pytest.MonkeyPatch, source: str, changed: str, is_held: bool
) -> None:
    """By who may write beside a reviewed file. A function of a file, and a file by a link, had no hash of content."""
    folder = imports.parent
    monkeypatch.chdir(folder)
    (folder / "link.py").symlink_to(imports)
    before = Lock(folder / LOCK)
    lock = before.with_source(LockedSource(before.key(source), sha256=locked_hash(source)))
    assert lock.pinned(source) == source
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "helper.cpython-311.pyc").write_bytes(b"cached")
    assert lock.pinned(source) == source
    (folder / changed).write_text("WHO = 'planted'")
    if is_held:
        with pytest.raises(LoadError, match=f"{source} has changed since it was locked"):
            lock.pinned(source)
    else:
        assert lock.pinned(source) == source


@pytest.mark.parametrize("locked", ["tools.py", "tools.py:go", "package"])
def test_a_lock_holds_a_path_in_all_of_its_spellings(
    imports: Path, monkeypatch: pytest.MonkeyPatch, locked: str
) -> None:
    monkeypatch.chdir(imports.parent)
    before = Lock(Path(LOCK).absolute())
    lock = before.with_source(LockedSource(before.key(locked), sha256="0" * 64))
    for spelling in (locked, f"./{locked}", f"package/../{locked}", str(Path(locked).absolute())):
        with pytest.raises(LoadError, match="has changed since it was locked"):
            lock.pinned(spelling)


COMPUTED = ["import importlib\nimportlib.import_module(__name__)", "from importlib import import_module as other"]


@pytest.mark.parametrize("where", ["tools.py", "helper.py", "package/inner.py"])
@pytest.mark.parametrize("code", COMPUTED)
def test_a_file_that_imports_by_a_computed_name_is_locked_by_its_folder_only(
    imports: Path, where: str, code: str
) -> None:
    file = imports.parent / where
    file.write_text(f"{file.read_text()}\n{code}\n")
    with pytest.raises(LoadError, match=r"name that is only known when it runs, so .* lock the folder: toolcrib lock"):
        locked_hash(str(imports))
    assert locked_hash(str(imports.parent)) is not None
    assert locked_hash(str(imports.parent / "none")) is None


def test_a_folder_is_locked_also_where_its_lock_is_in_it(imports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(imports.parent)
    lock = Lock(Path(LOCK).absolute()).with_source(LockedSource("./", sha256=locked_hash(".")))
    lock.write()
    assert lock.pinned(".") == "."


def test_what_a_link_in_a_locked_folder_leads_to_is_in_its_hash(imports: Path, tmp_path: Path) -> None:
    folder = tmp_path / "linked"
    folder.mkdir()
    (folder / "tools.py").symlink_to(imports)
    before = locked_hash(str(folder))
    imports.write_text("WHO = 'planted'")
    assert locked_hash(str(folder)) != before
