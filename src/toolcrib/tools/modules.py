"""Import `.py` files by path, each as a module with a name of its own, and report where an import failed."""

import ast
import hashlib
import importlib
import importlib.util
import os
import re
import sys
import threading
import traceback
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ..core import DefinitionError, LoadError
from ..sandbox.source_imports import SUFFIXES, SourceLoader, compile_imports_from
from .definition import CONTENT
from .function import definition_errors

importing = threading.RLock()
"""Held while sources are imported: `sys.path` and `sys.modules` are the same for all threads."""

Errors = Sequence[tuple[Any, DefinitionError]]
"""What decorators refused in a file: functions, and why."""

_HERE = Path(__file__).parent
_PREFIX = "toolcrib_"
_MODULE_NAME = re.compile(_PREFIX + r"(\w+?)_[0-9a-f]{12}(\.(?=\w))?")


@dataclass(frozen=True, slots=True)
class LoadProblem:
    """What could not be loaded, and why. *place* is a file, with its line where that is known."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


def source_hash(file: Path) -> str:
    """Return the SHA-256 of *file*, and of what its import statements lead to in its folder: what a lock holds."""
    digest = hashlib.sha256(file.read_bytes())
    for path in _imported_beside(file):
        for source in _files_of(path):
            digest.update(f"\0{source.relative_to(file.parent)}\0".encode(errors="surrogateescape"))
            digest.update(hashlib.sha256(source.read_bytes()).digest())
    return digest.hexdigest()


def require_static_imports(file: Path) -> None:
    """Raise LoadError where *file*, or what it imports beside it, imports by a name that is only known when it runs."""
    for path in (file, *_imported_beside(file)):
        for node in _nodes(path):
            is_computed = isinstance(node, ast.Call) and _imports(node) and not _imported_names(node)
            if is_computed or (isinstance(node, ast.alias) and node.name == "import_module" and node.asname):
                raise LoadError(
                    f"{path}:{node.lineno} imports a module by a name that is only known when it runs, so the lock of "
                    f"{file.name} cannot hold it. Write the import out, or lock the folder: toolcrib lock {file.parent}"
                )


def _imported_beside(file: Path) -> list[Path]:
    """Return the files and packages in the folder of *file* that it imports, and those that these import, by name."""
    paths: set[Path] = set()
    waiting = [file]
    while waiting:
        names = {name.partition(".")[0] for node in _nodes(waiting.pop()) for name in _imported_names(node)}
        candidates = {file.with_name(name + suffix) for name in names if name for suffix in ("", *SUFFIXES)}
        new = {path for path in candidates - paths - {file} if (path.is_file() if path.suffix else path.is_dir())}
        paths |= new
        waiting += new
    return sorted(paths)


def _files_of(path: Path) -> list[Path]:
    """Return the files that can be imported of *path*, a file or a package."""
    paths = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [path for path in paths if path.name.endswith(SUFFIXES) and path.is_file()]


def _nodes(path: Path) -> Iterator[Any]:
    for file in _files_of(path):
        try:
            yield from ast.walk(ast.parse(file.read_bytes()))
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue  # it is not Python, or cannot be imported


def _imported_names(node: Any) -> Sequence[str]:
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom(module=str(name), level=0):
            return [name]
        case ast.Call(args=[ast.Constant(value=str(name)), *_]) if _imports(node):
            return [name]
        case _:
            return ()


def _imports(call: ast.Call) -> bool:
    return ast.unparse(call.func).rpartition(".")[2] in ("import_module", "__import__")


class LoadFailed(LoadError):
    """A source of which nothing could be loaded, and the *problems*."""

    def __init__(self, problems: Sequence[LoadProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = list(problems)


def import_file(file: Path) -> tuple[ModuleType, Errors]:
    """Return the module in *file*, imported under a name of its own, and what its decorators refused.

    Importing it again gives the file as it is now.
    """
    if not file.is_file():  # reading a pipe would wait for its writer
        raise LoadFailed([LoadProblem(str(file), "It is not a file that can be read.")])
    name = module_name_of(file)
    spec = importlib.util.spec_from_file_location(name, file, loader=SourceLoader(name, str(file)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    setattr(module, CONTENT, source_hash(file))
    before = sys.modules.get(name)
    sys.modules[name] = module  # pydantic and pickle look a class's module up by name
    errors: list[tuple[Any, DefinitionError]] = []
    token = definition_errors.set(errors)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise LoadFailed([import_problem(error, str(file))]) from error
    finally:
        definition_errors.reset(token)
    return module, errors


def module_name_of(file: Path) -> str:
    stem, digest = re.sub(r"\W", "_", file.stem), hashlib.sha256(str(file).encode()).hexdigest()
    return f"{_PREFIX}{stem}_{digest[:12]}"


def without_module_names(text: str) -> str:
    """Return *text* with no name of a module that was made for a file."""
    return _MODULE_NAME.sub(lambda match: "" if match[2] else match[1], text)


@contextmanager
def siblings_of(file: Path) -> Generator[None]:
    """Make the files next to *file* importable, for now.

    Afterwards what was imported so is removed from `sys.modules`, and what it replaced is back: another folder, or the
    program, may have a module of the same name.
    """
    folder = file.parent
    with importing:
        entries = [entry for entry in sys.path if Path(entry).resolve() == folder]
        for entry in entries or [str(folder)]:
            compile_imports_from(entry or str(Path.cwd()))
        if entries:
            yield
            return
        hidden_modules = _hide_conflicts(folder)
        before = set(sys.modules)
        sys.path.insert(0, str(folder))
        try:
            yield
        finally:
            with suppress(ValueError):
                sys.path.remove(str(folder))
            for name in set(sys.modules) - before:
                if not name.startswith(_PREFIX) and _is_sibling(folder, name):
                    del sys.modules[name]
            sys.modules.update(hidden_modules)


def _hide_conflicts(folder: Path) -> dict[str, ModuleType]:
    """Remove from `sys.modules`, and return, what is there from elsewhere by the name of a file in *folder*."""
    siblings = {sibling.stem for sibling in folder.glob("*.py")} - sys.stdlib_module_names - {"toolcrib"}
    conflicts = [name for name in list(sys.modules) if name.partition(".")[0] in siblings]
    return {name: sys.modules.pop(name) for name in conflicts if not _is_sibling(folder, name)}


def _is_sibling(folder: Path, name: str) -> bool:
    """Return whether the imported module *name* is in *folder* itself: a virtual environment may be in it, too."""
    module = sys.modules[name]
    places = [Path(place) for place in (getattr(module, "__file__", None), *getattr(module, "__path__", ())) if place]
    firsts = [place.relative_to(folder).parts[0] for place in places if folder in place.parents]
    return any(first.partition(".")[0] == name.partition(".")[0] for first in firsts)


def import_problem(error: BaseException, place: str) -> LoadProblem:
    """Return where an import failed: the innermost line of the file itself, or of what a module's name led to."""
    kind = type(error).__name__
    if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith("<"):
        line = f":{error.lineno}" if error.lineno else ""
        return LoadProblem(f"{error.filename}{line}", f"{kind}: {error.msg}")
    return LoadProblem(_line_of(error, place), f"{kind}: {without_module_names(str(error))}" if str(error) else kind)


def _line_of(error: BaseException, place: str) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_internal(frame.filename)]
    own = [frame for frame in frames if frame.filename == place] or ([] if place.endswith(".py") else frames)
    return f"{own[-1].filename}:{own[-1].lineno}" if own else place


def _is_internal(filename: str) -> bool:
    return filename.startswith("<") or filename == importlib.__file__ or Path(filename).parent == _HERE


def imported_from(folder: Path) -> dict[str, Path]:
    """Return the files in *folder*, a resolved path, that are imported now, by the names of their modules."""
    prefix = f"{folder}{os.sep}"
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    return {
        name: Path(file)
        for name, file in files.items()
        if isinstance(file, str)
        and file.startswith(prefix)  # first: there are thousands of modules
        and not name.startswith((_PREFIX, "__main__"))
        and _is_sibling(folder, name)
    }


def webassembly_in(path: Path) -> list[Path]:
    """Return the tools for the sandbox at *path*: a `.wasm` file, a folder with a `tool.toml`, or those in a folder.

    None where the folder has `.py` files too.
    """
    if path.suffix == ".wasm":
        return [path]
    return [] if not (path / "tool.toml").is_file() and any(path.glob("*.py")) else sandboxed_in(path)


def sandboxed_in(folder: Path) -> list[Path]:
    """Return the tools for the sandbox in *folder*, or the folder itself, where it has a `tool.toml`."""
    if (folder / "tool.toml").is_file():
        return [folder]
    return sorted([*folder.glob("*.wasm"), *(file.parent for file in folder.glob("*/tool.toml"))])


def python_files(folder: Path) -> list[Path]:
    """Return the `.py` files of *folder* that may define tools."""
    return sorted(file for file in folder.glob("*.py") if not file.name.startswith(("_", ".")))
