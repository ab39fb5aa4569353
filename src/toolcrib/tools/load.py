"""Any source → tools: callables, Tools, objects with `__toolcrib__()`, references, `.py` files and folders of them."""

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import threading
import traceback
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from ..core import DefinitionError, LoadError, Source, ToolcribError, is_source
from .function import Definition, Tool, as_tool, offered
from .stateful import Group, StatefulTool, tools_of_object

TEXTS = "a .py file or a folder of them, 'package.module' or 'package.module:name'"
KINDS = f"a function, a Tool, an object or class with methods that are tools, {TEXTS}"

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
    """The tools of a source, and what of it could not be loaded.

    *source* is the Source that they are of, where it is one that may offer others later.
    """

    tools: list[Tool[..., Any]] = field(default_factory=list[Tool[..., Any]])
    problems: list[LoadProblem] = field(default_factory=list[LoadProblem])
    source: Source | None = None


def load(source: Any) -> Loaded:
    """The tools of *source*.

    In a folder, a file that cannot be imported becomes a problem and the others load. Raises LoadError where the
    source itself cannot be read, and DefinitionError for a tool that cannot work.
    """
    if isinstance(source, Path):
        return _from_path(source)
    if isinstance(source, str) and not hasattr(source, "__toolcrib__"):
        return _from_text(source)
    if isinstance(source, ModuleType):
        return Loaded(_tools_of(source, source.__name__))
    return _loaded(source)


def _loaded(source: Any) -> Loaded:
    tools = _from_object(source)
    return Loaded(tools, source=source if is_source(source) and not isinstance(source, Group) else None)


def load_again(
    files: Sequence[Path], name: str = "", *, stale: Collection[Path] = ()
) -> list[list[Tool[..., Any]] | LoadProblem]:
    """The tools of each of *files*, `.py` files of one folder, as they are now; with *name*, the one it leads to.

    None may be in a file. What was imported from the *stale* files, which have changed, is imported anew, once for all
    *files*. Where a file cannot be loaded there is a problem in its place; its module, and where none can be loaded
    those of the stale files, are as they were before: what still runs goes on with them.
    """
    if not files:
        return []
    with _siblings_of(files[0]):
        own = set(map(_module_name, files))
        aside = {key: module for key, module in list(sys.modules.items()) if key not in own and _is_of(module, stale)}
        for key in aside:
            del sys.modules[key]
        # Python takes bytecode for current if size and second of the source fit, and looks for new files by the second.
        for changed in {*files, *stale}:
            with suppress(OSError, NotImplementedError):
                Path(importlib.util.cache_from_source(str(changed))).unlink(missing_ok=True)
        importlib.invalidate_caches()
        results = [_load_again(file, name) for file in files]
        if all(isinstance(result, LoadProblem) for result in results):
            sys.modules.update(aside)
        return results


def _load_again(file: Path, name: str) -> list[Tool[..., Any]] | LoadProblem:
    own = _module_name(file)
    before = sys.modules.get(own)
    place, module = str(file), None
    try:
        module = _module_of(file)
        return _named(module, name, f"{file}:{name}") if name else _tools_of(module, place, may_be_none=True)
    except (Exception, SystemExit) as error:
        if before is not None:
            sys.modules[own] = before
        if isinstance(error, _Broken):
            return error.problem
        if isinstance(error, DefinitionError) and module is not None:
            return LoadProblem(f"{place}:{_line_of_wrong(module)}", str(error))
        return LoadProblem(place, str(error)) if isinstance(error, ToolcribError) else _problem(error, place)


def imported(ref: str, *, trusted: Sequence[str] | None = None) -> Any:
    """What the reference `module:qualified.name` leads to.

    Importing runs a module's code: with *trusted* packages named, no other is imported. Raises LoadError.
    """
    module_name, colon, path = ref.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module_name.split("."), *path.split("."))):
        raise LoadError(f"'{ref[:100]}' is no reference. It has the form module:name.")
    if trusted is not None and not any(module_name == name or module_name.startswith(f"{name}.") for name in trusted):
        raise LoadError(
            f"'{ref}' is outside the trusted packages ({', '.join(trusted) or 'none'}), so it is not imported."
        )
    try:
        value: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise LoadError(f"'{ref}' cannot be imported: {error}.") from None
    except (Exception, SystemExit) as error:
        raise LoadError(str(_problem(error, ref))) from error
    for part in path.split("."):
        try:
            value = getattr(value, part)
        except AttributeError as error:
            raise LoadError(f"'{ref}' cannot be imported: {error}.") from None
    return value


def _is_of(module: Any, files: Collection[Path]) -> bool:
    at = getattr(module, "__file__", None)
    if not files or not isinstance(at, str) or getattr(module, "__name__", "__main__") == "__main__":
        return False
    return Path(at).resolve() in files


def _line_of_wrong(module: ModuleType) -> int:
    for value in list(vars(module).values()):
        if not isinstance(value, type) and isinstance(marked := _mark_of(value), Definition):
            try:
                marked()
            except DefinitionError:
                return line_of(marked.fn)
    return 1


def line_of(fn: Any) -> int:
    """The line on which the function *fn* begins, its decorators included; 1 where that cannot be told."""
    return getattr(_code_of(fn), "co_firstlineno", 1)


def place_of(fn: Any) -> str | None:
    """File and line of the function *fn*, None where they cannot be told."""
    code = _code_of(fn)
    return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _code_of(fn: Any) -> Any:
    return getattr(inspect.unwrap(fn), "__code__", None) if callable(fn) else None


def _from_object(source: Any) -> list[Tool[..., Any]]:
    if isinstance(source, Group) or Source in type(source).__mro__:
        return tools_of_source(source)
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
    if (methods := tools_of_object(source)) is not None:
        return methods
    if is_source(source):
        return tools_of_source(source)
    if callable(source):
        return [as_tool(source)]
    raise LoadError(f"A {type(source).__name__} is no source of tools. A source is {KINDS}.")


def tools_of_source(source: Any) -> list[Tool[..., Any]]:
    """What *source*, a Source, offers now, as Tools. Raises LoadError for what can be none, and what `tools` raises."""
    offered: Any = source.tools()
    if isinstance(offered, str) or not isinstance(offered, Iterable):
        raise LoadError(f"{type(source).__name__}.tools() gave a {type(offered).__name__}. It gives a list of Tools.")
    tools = list(offered)
    if wrong := [item for item in tools if not callable(item)]:
        raise LoadError(
            f"{type(source).__name__}.tools() gave a {type(wrong[0]).__name__} among its tools. It gives Tools, or "
            "functions to make them of."
        )
    return [as_tool(item) for item in tools]


def _from_text(source: str) -> Loaded:
    if not source.strip():
        raise LoadError(f"An empty text is no source of tools. In text, a source is {TEXTS}.")
    path = Path(source)
    name = ""
    if not path.exists() and ".py:" in source:
        file, _, name = source.rpartition(":")
        path = Path(file)
    if path.is_dir() or path.suffix == ".py" or "/" in source:
        return _from_path(path, name)
    if not _DOTTED.fullmatch(source):
        raise LoadError(f"'{source}' is no source of tools, and no such file is here. In text, a source is {TEXTS}.")
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
    return _loaded(_value(module, name, source)) if name else Loaded(_tools_of(module, source))


def _from_path(path: Path, name: str = "") -> Loaded:
    if path.is_dir():
        return _from_folder(path)
    if not path.is_file():
        raise LoadError(f"There is no file {path}. In text, a source is {TEXTS}.")
    if path.suffix != ".py":
        raise LoadError(f"{path} is no Python file. In text, a source is {TEXTS}.")
    file = path.resolve()
    with _siblings_of(file):
        module = _module_of(file)
        return _loaded(_value(module, name, f"{path}:{name}")) if name else Loaded(_tools_of(module, str(path)))


def _from_folder(path: Path) -> Loaded:
    files = sorted(file for file in path.resolve().glob("*.py") if not file.name.startswith(("_", ".")))
    if not files:
        raise LoadError(f"The folder {path} holds no .py file.")
    loaded = Loaded()
    found: set[Any] = set()
    with _siblings_of(files[0]):
        for file in files:
            try:
                tools = _tools_of(_module_of(file), str(file), may_be_none=True)
            except _Broken as broken:
                loaded.problems.append(broken.problem)
            except ToolcribError as error:
                loaded.problems.append(LoadProblem(str(file), str(error)))
            else:
                # A file may export what it imported from the next one: one tool, found twice.
                loaded.tools += [tool for tool in tools if origin(tool) not in found]
                found |= set(map(origin, tools))
    if not loaded.tools and not loaded.problems:
        raise LoadError(f"No file in the folder {path} defines a tool. Mark its functions with @tool.")
    return loaded


def origin(tool: Tool[..., Any]) -> Any:
    code = getattr(inspect.unwrap(tool.fn), "__code__", None)
    return id(tool) if code is None else (code.co_filename, code.co_firstlineno, tool.spec.name)


class _Broken(LoadError):
    """A file that cannot be imported."""

    def __init__(self, problem: LoadProblem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def _module_of(file: Path) -> ModuleType:
    """The module in *file*, imported under a name of its own; an import again gives the file as it is now."""
    name = _module_name(file)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module  # pydantic and pickle look a class's module up by name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise _Broken(_problem(error, str(file))) from error
    return module


_OURS = "toolcrib_"


def _module_name(file: Path) -> str:
    plain, digest = re.sub(r"\W", "_", file.stem), hashlib.sha256(str(file).encode()).hexdigest()
    return f"{_OURS}{plain}_{digest[:12]}"


@contextmanager
def _siblings_of(file: Path) -> Generator[None]:
    """The files next to *file* can be imported, for now.

    What was imported so is forgotten afterwards, and what it stood in the way of is back: another folder, or the
    program, may have a module of the same name.
    """
    folder = file.parent
    with _importing:
        if any(Path(entry).resolve() == folder for entry in sys.path):
            yield
            return
        siblings = {other.stem for other in folder.glob("*.py")} - sys.stdlib_module_names - {"toolcrib"}
        others = [name for name in list(sys.modules) if name.partition(".")[0] in siblings]
        hidden = {name: sys.modules.pop(name) for name in others if not _is_sibling(folder, name)}
        before = set(sys.modules)
        sys.path.insert(0, str(folder))
        try:
            yield
        finally:
            if str(folder) in sys.path:
                sys.path.remove(str(folder))
            for name in [name for name in list(sys.modules) if name not in before and not name.startswith(_OURS)]:
                if _is_sibling(folder, name):
                    del sys.modules[name]
            sys.modules.update(hidden)


def _is_sibling(folder: Path, name: str) -> bool:
    """Whether the imported module *name* stands in *folder* itself: an environment may lie in it, too."""
    module = sys.modules[name]
    places = [Path(place) for place in (getattr(module, "__file__", None), *getattr(module, "__path__", ())) if place]
    firsts = [place.relative_to(folder).parts[0] for place in places if folder in place.parents]
    return any(first.partition(".")[0] == name.partition(".")[0] for first in firsts)


def _tools_of(module: ModuleType, place: str, *, may_be_none: bool = False) -> list[Tool[..., Any]]:
    """What a module itself defines and marks as tools, in its order. Its StatefulTools are marked by what they are."""
    found: dict[int, list[Tool[..., Any]]] = {}
    exported: Iterable[str] | None = getattr(module, "__all__", None)
    values = list(vars(module).items())
    unmade: LoadError | None = None
    for name, value in values:
        of = value if isinstance(value, type) else type(value)
        if issubclass(of, StatefulTool):
            is_own = of.__module__ == module.__name__ or (exported is not None and name in exported)
            if not is_own or (of is value and _is_used_up(value, values)):
                continue
            try:
                found[id(value)] = tools_of_object(value) or []
            except LoadError as error:
                unmade = error
            continue
        marked = None if isinstance(value, type) else _mark_of(value)
        marked = marked or offered(value)
        if marked and (marked.home == module.__name__ or (exported is not None and name in exported)):
            found[id(value)] = [marked if isinstance(marked, Tool) else as_tool(value)]
    tools = [tool for several in found.values() for tool in several]
    if not tools and not may_be_none:
        if unmade is not None:
            raise LoadError(f"{place}: {unmade}")
        raise LoadError(f"{place} defines no tool. Mark its functions with @tool, or name one: {place}:name.")
    return tools


def _is_used_up(cls: type, values: Iterable[tuple[str, Any]]) -> bool:
    """Whether a module has an instance of its class, or a subclass, and so means these."""
    return any(
        issubclass(value, cls) and value is not cls if isinstance(value, type) else isinstance(value, cls)
        for _, value in values
    )


def _mark_of(value: Any) -> Tool[..., Any] | Definition | None:
    if isinstance(value, Tool):
        return value
    try:
        offers = getattr(value, "__toolcrib__", None)
    except Exception:  # a stand-in for something that is not there yet
        return None
    return offers if isinstance(offers, Definition) else None


def _named(module: ModuleType, name: str, source: str) -> list[Tool[..., Any]]:
    return _from_object(_value(module, name, source))


def _value(module: ModuleType, name: str, source: str) -> Any:
    value: Any = module
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise LoadError(f"'{source}': there is no '{part}' in {getattr(value, '__name__', value)}.") from None
    return value


def _problem(error: BaseException, place: str) -> LoadProblem:
    """Where an import failed: the innermost line of the file itself, or of what a module's name led to."""
    kind = type(error).__name__
    if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith("<"):
        line = f":{error.lineno}" if error.lineno else ""
        return LoadProblem(f"{error.filename}{line}", f"{kind}: {error.msg}")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_importing(frame.filename)]
    own = [frame for frame in frames if frame.filename == place] or ([] if place.endswith(".py") else frames)
    at = f"{own[-1].filename}:{own[-1].lineno}" if own else place
    return LoadProblem(at, f"{kind}: {error}" if str(error) else kind)


def _is_importing(filename: str) -> bool:
    return filename.startswith("<") or filename in (__file__, importlib.__file__)
