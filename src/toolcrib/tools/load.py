"""Any source → tools: callables, Tools, objects with `__toolcrib__()`, references, `.py` files and folders of them."""

import hashlib
import importlib
import importlib.util
import re
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from ..core import LoadError, ToolcribError
from .function import Definition, Tool, as_tool

KINDS = (
    "a function, a Tool, an object with __toolcrib__(), 'package.module' or 'package.module:name', "
    "a .py file or a folder of them"
)

_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*(\.[^\W\d]\w*)*)?")
_importing = threading.RLock()


@dataclass(frozen=True, slots=True)
class LoadProblem:
    """What could not be loaded, and why: *place* is a file with its line where there is one."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


@dataclass(slots=True)
class Loaded:
    """The tools of a source, and what of it could not be loaded."""

    tools: list[Tool[..., Any]] = field(default_factory=list[Tool[..., Any]])
    problems: list[LoadProblem] = field(default_factory=list[LoadProblem])


def load(source: Any) -> Loaded:
    """The tools of *source*.

    In a folder, a file that cannot be imported becomes a problem and the others load. Raises LoadError where the
    source itself cannot be read, and DefinitionError for a tool that cannot work.
    """
    if isinstance(source, Path):
        return _from_path(source)
    if isinstance(source, str):
        return _from_text(source)
    if isinstance(source, ModuleType):
        return Loaded(_tools_of(source, source.__name__))
    return Loaded(_from_object(source))


def _from_object(source: Any) -> list[Tool[..., Any]]:
    offers = getattr(source, "__toolcrib__", None)
    if isinstance(source, Tool) or isinstance(offers, Definition):
        return [as_tool(source)]
    if offers is not None and not isinstance(source, type):
        offered = offers()
        tools = list(offered) if isinstance(offered, Sequence) else [offered]
        if wrong := [item for item in tools if not isinstance(item, Tool)]:
            raise LoadError(
                f"{type(source).__name__}.__toolcrib__() gave a {type(wrong[0]).__name__}. It gives a Tool or a list."
            )
        return tools
    if callable(source):
        return [as_tool(source)]
    raise LoadError(f"A {type(source).__name__} is no source of tools. A source is {KINDS}.")


def _from_text(source: str) -> Loaded:
    path = Path(source)
    name = ""
    if not path.exists() and ".py:" in source:
        file, _, name = source.rpartition(":")
        path = Path(file)
    if path.is_dir() or path.suffix == ".py" or "/" in source:
        return _from_path(path, name)
    if not _DOTTED.fullmatch(source):
        raise LoadError(f"'{source}' is no source of tools, and no such file is here. A source is {KINDS}.")
    module_name, _, name = source.partition(":")
    with _importing:
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
                raise LoadError(
                    f"There is no module '{error.name}' to import for '{source}', and no file of that name. "
                    "Install it, or name a file: tools.py."
                ) from None
            raise LoadError(str(_problem(error, source))) from error
        except (Exception, SystemExit) as error:
            raise LoadError(str(_problem(error, source))) from error
    return Loaded(_named(module, name, source) if name else _tools_of(module, source))


def _from_path(path: Path, name: str = "") -> Loaded:
    if path.is_dir():
        files = sorted(file for file in path.glob("*.py") if not file.name.startswith(("_", ".")))
        if not files:
            raise LoadError(f"The folder {path} holds no .py file.")
        loaded = Loaded()
        for file in files:
            try:
                loaded.tools += _tools_of(_module_of(file), str(file), may_be_none=True)
            except ToolcribError as error:
                loaded.problems.append(LoadProblem(str(file), str(error).removeprefix(f"{file}: ")))
        if not loaded.tools and not loaded.problems:
            raise LoadError(f"No file in the folder {path} defines a tool. Mark its functions with @tool.")
        return loaded
    if not path.is_file():
        raise LoadError(f"There is no file {path}. A source is {KINDS}.")
    if path.suffix != ".py":
        raise LoadError(f"{path} is no Python file. A source is {KINDS}.")
    module = _module_of(path)
    return Loaded(_named(module, name, f"{path}:{name}") if name else _tools_of(module, str(path)))


def _module_of(file: Path) -> ModuleType:
    """The module in *file*, imported under a name of its own; an import again gives the file as it is now."""
    file = file.resolve()
    plain, digest = re.sub(r"\W", "_", file.stem), hashlib.sha256(str(file).encode()).hexdigest()
    name = f"toolcrib_{plain}_{digest[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _importing, _on_path(str(file.parent)):
        before = sys.modules.get(name)
        sys.modules[name] = module  # pydantic and pickle look a class's module up by name
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            if before is None:
                del sys.modules[name]
            else:
                sys.modules[name] = before
            raise LoadError(str(_problem(error, str(file)))) from error
    return module


@contextmanager
def _on_path(folder: str) -> Iterator[None]:
    """*folder* can be imported from, for now: files next to each other may import each other while they load."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _tools_of(module: ModuleType, place: str, *, may_be_none: bool = False) -> list[Tool[..., Any]]:
    """What a module itself defines and marks as tools, in its order."""
    found: dict[int, Tool[..., Any]] = {}
    exported: Iterable[str] | None = getattr(module, "__all__", None)
    for name, value in list(vars(module).items()):
        offers = getattr(value, "__toolcrib__", None)
        if isinstance(value, type) or not (isinstance(value, Tool) or isinstance(offers, Definition)):
            continue
        home = getattr(value.fn if isinstance(value, Tool) else value, "__module__", module.__name__)
        if home == module.__name__ or (exported is not None and name in exported):
            tool = as_tool(value)
            found[id(value)] = tool
    if not found and not may_be_none:
        raise LoadError(f"{place} defines no tool. Mark its functions with @tool, or name one: {place}:name.")
    return list(found.values())


def _named(module: ModuleType, name: str, source: str) -> list[Tool[..., Any]]:
    value: Any = module
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise LoadError(f"'{source}': there is no '{part}' in {getattr(value, '__name__', value)}.") from None
    return _from_object(value)


def _problem(error: BaseException, place: str) -> LoadProblem:
    """Where an import failed: the innermost line of the file itself."""
    kind = type(error).__name__
    if isinstance(error, SyntaxError) and error.filename:
        return LoadProblem(f"{error.filename}:{error.lineno}", f"{kind}: {error.msg}")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == place]
    at = f"{place}:{frames[-1].lineno}" if frames else place
    return LoadProblem(at, f"{kind}: {error}" if str(error) else kind)
