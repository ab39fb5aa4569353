"""What is imported from a folder of somebody else's is its source, whatever bytecode stands beside it."""

import importlib.util
import marshal
import subprocess
import sys
from pathlib import Path

import pytest

from toolcrib.sandbox import source_imports
from toolcrib.sandbox.source_imports import compile_imports_from

SOURCE, PLANTED = "WHO = 'reviewed'\n", "WHO = 'planted'\n"


def plant(file: Path, text: str = PLANTED, kind: str = "unchecked") -> Path:
    """Put bytecode of *text* where Python looks for that of *file*: as committed, it fits whatever the source is."""
    code = marshal.dumps(compile(text, str(file), "exec"))
    status = file.stat()
    heads = {
        "unchecked": (1).to_bytes(4, "little") + bytes(8),
        "by its time": bytes(4) + int(status.st_mtime).to_bytes(4, "little") + status.st_size.to_bytes(4, "little"),
    }
    cached = Path(importlib.util.cache_from_source(str(file)))
    cached.parent.mkdir(exist_ok=True)
    cached.write_bytes(importlib.util.MAGIC_NUMBER + heads[kind] + code)
    return cached


@pytest.mark.parametrize("kind", ["unchecked", "by its time"])
@pytest.mark.parametrize("script", [False, True])
def test_bytecode_beside_a_source_is_neither_read_nor_written(tmp_path: Path, kind: str, script: bool) -> None:
    """Of an author: beside a module, in a package, in one without `__init__`; and without any source."""
    (tmp_path / "package").mkdir()
    (tmp_path / "bare").mkdir()
    files = [tmp_path / name for name in ("helper.py", "package/__init__.py", "package/inner.py", "bare/inner.py")]
    for file in files:
        file.write_text(SOURCE)
        plant(file, kind=kind)
    cached = plant(tmp_path / "package/inner.py", kind=kind)
    (tmp_path / "ghost.pyc").write_bytes(cached.read_bytes())
    (tmp_path / "fresh.py").write_text(SOURCE)
    program = tmp_path / "main.py"
    program.write_text(
        "import helper, package, package.inner, bare.inner, fresh\n"
        "try: import ghost\n"
        "except ImportError: ghost = helper\n"
        "print(__name__, *{m.WHO for m in (helper, package, package.inner, bare.inner, fresh, ghost)})\n"
    )
    if script:
        command = [sys.executable, source_imports.__file__, str(program)]
    else:
        run = f"import sys; from toolcrib.sandbox.source_imports import compile_imports_from as f; f({str(tmp_path)!r})"
        command = [
            sys.executable,
            "-c",
            f"{run}; sys.path.insert(0, {str(tmp_path)!r}); exec(open({str(program)!r}).read())",
        ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("__main__ reviewed\n", "")
    assert not list(tmp_path.glob("__pycache__/fresh*"))


def test_what_is_installed_elsewhere_is_found_as_ever(tmp_path: Path) -> None:
    compile_imports_from(str(tmp_path))
    assert sys.path_importer_cache.pop(str(tmp_path)) is not None
    assert importlib.util.find_spec("json") is not None
