"""Load tools from any source: functions, tools, objects, modules, references, `.py` files and folders of them.

A host loads them by `load`, and a worker process by `WorkerTools`.
"""

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from ..core import Context, DefinitionError, LoadError, Source, ToolcribError
from ..machinery import is_source
from .function import Definition, Tool, as_tool, is_tool, mark_of, run_nowhere
from .modules import (
    Errors,
    LoadFailed,
    LoadProblem,
    import_file,
    import_problem,
    imported_from,
    importing,
    module_name_of,
    python_files,
    sandboxed_in,
    siblings_of,
    source_hash,
    webassembly_in,
    without_module_names,
)
from .stateful import ObjectSource, StatefulTool, marked_methods, tools_of_object

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from .git import GitSource
    from .permissions import Permissions

TEXT_SOURCES = (
    "a .py or .wasm file, a folder of either or with a tool.toml, a git address, an MCP server (its URL, "
    "'mcp:COMMAND', or a client's .json), an OpenAPI document (.json, .yaml, 'openapi:URL'), 'package.module' or "
    "'package.module:name'"
)

SOURCES = f"a function, a Tool, an object or class with methods that are tools, {TEXT_SOURCES}"

_PYTHON = (
    "It is Python, which would run in this process, and a source from outside is not trusted. If you have read it and "
    "trust it, write `trusted = true` in its [[source]] of toolcrib.toml, or in a program: "
    "Permissions(trusted=True).to(source)."
)

_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*(\.[^\W\d]\w*)*)?")

AnyTool = Tool[..., Any]


@dataclass(slots=True)
class Loaded:
    """The tools of a source, and what could not be loaded. *source* is the Source whose tools may change later."""

    tools: list[AnyTool] = field(default_factory=list[AnyTool])
    problems: list[LoadProblem] = field(default_factory=list[LoadProblem])
    source: Source | None = None

    @property
    def failed(self) -> bool:
        """Whether there are problems, and no tool."""
        return bool(self.problems) and not self.tools


def load(source: Any) -> Loaded:
    """Return the tools of *source*.

    A tool that cannot work, and in a folder a file that cannot be imported, is a problem; the others load. Raises
    LoadError where *source* cannot be read or none of its tools can work, and DefinitionError where it is itself a
    function or object that cannot be a tool.
    """
    # With the first source, and not with the package.
    from .git import GitSource
    from .permissions import NOTHING_GRANTED, Permitted
    from .remote import MCPSource

    permissions = NOTHING_GRANTED
    if isinstance(source, Permitted):
        source, permissions = source.source, source.permissions
    if isinstance(source, ModuleType):
        return _load_module(source, source.__name__)
    is_place = isinstance(source, str | Path | GitSource | MCPSource) and not hasattr(source, "__toolcrib__")
    return _load_place(source, permissions) if is_place else _load_object(source)


def _load_place(source: Any, permissions: "Permissions") -> Loaded:
    """Return the tools of what only names where they are: text, a path, a git address, a server, a document."""
    from .git import GitSource, fetch, is_document, is_git_address, parse_git_address
    from .remote import answers_with_document, is_remote, remote_source

    if is_git_address(source):
        source = GitSource(parse_git_address(source))
    if isinstance(source, GitSource):
        folder = fetch(source).path
        if not permissions.trusted:
            return Loaded(*_sandboxed_tools(source, folder, permissions))
        source = folder
    is_server = is_remote(source)
    if is_server and not answers_with_document(source):
        return Loaded(source=remote_source(source))
    if is_server or is_document(source):
        from .openapi import openapi_source

        source = openapi_source(source, permissions=permissions)
    if isinstance(source, Path):
        return _load_path(source, permissions=permissions)
    return _load_text(source, permissions) if isinstance(source, str) else _load_object(source)


def _sandboxed_tools(
    source: "GitSource", folder: Path, permissions: "Permissions"
) -> tuple[list[AnyTool], list[LoadProblem]]:
    """Return the tools of *source*, which is not trusted and in *folder*, and a problem for each that cannot be one.

    Those are what runs in the sandbox. Python beside folders of tools is a problem where it may define tools. Raises
    LoadError where no tool is left.
    """
    from .sandboxed import wasm_tools

    paths = sandboxed_in(folder)
    files = [] if paths == [folder] else python_files(folder)
    python = [file for file in files if not paths or b"toolcrib" in file.read_bytes()]
    problems = [LoadProblem(f"{source}: {file.name}", _PYTHON) for file in python]
    if not paths:
        raise LoadFailed(problems or [LoadProblem(str(source), "There is no tool.toml and no .wasm file in it.")])
    tools, wasm_problems = wasm_tools(paths, permissions)
    return tools, problems + wasm_problems


def reload_files(files: Sequence[Path], name: str, *, stale: Collection[Path]) -> tuple[list[Loaded], set[Path]]:
    """Return what each of *files*, `.py` files of one folder, has now, and the files beside them that are imported.

    With *name*, only what has that name is loaded. Modules of the *stale* files, which have changed, are imported
    again, once for all *files*. The module of a file that fails, and where all fail those of the stale files, are
    restored: what runs goes on with them.
    """
    if not files:
        return [], set()
    folder = files[0].parent
    with siblings_of(files[0]):
        stale_modules = {key: sys.modules.pop(key) for key, file in imported_from(folder).items() if file in stale}
        importlib.invalidate_caches()  # Python looks for new files by the second
        results = [_reload(file, name) for file in files]
        if all(result.failed for result in results):
            sys.modules.update(stale_modules)
        return results, set(imported_from(folder).values())


def imported(ref: str, *, trusted: Sequence[str] | None = None) -> Any:
    """Import what the reference `module:qualified.name` names.

    Importing runs a module's code: with *trusted* packages, no other is imported, and only what they define themselves
    is returned. Raises LoadError.
    """
    if isinstance(trusted, str):
        raise LoadError(f"'trusted' is a list of the names of packages: trusted=[{trusted!r}].")
    module_name, colon, path = ref.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module_name.split("."), *path.split("."))):
        raise LoadError(f"'{ref[:100]}' is not a reference, which has the form module:name.")
    if trusted is not None and not _is_inside(module_name, trusted):
        raise LoadError(
            f"'{ref}' is outside the trusted packages ({', '.join(trusted) or 'none'}), so it is not imported."
        )
    module = _import_module(module_name, ref)
    return _attribute(module, path, ref) if trusted is None else _own_attribute(module, path, ref, trusted)


def _own_attribute(module: ModuleType, path: str, ref: str, trusted: Sequence[str]) -> Any:
    """Return what *path* names in *module*. Raises LoadError where a *trusted* package does not define it itself."""
    # Only classes on the way: of a function, `__wrapped__` and `__globals__` lead to what its module does not offer.
    holder, _, name = path.rpartition(".")
    is_own = not holder or isinstance(_attribute(module, holder, ref), type)
    value = _attribute(module, path, ref) if is_own else None
    if not is_own or not _is_inside(_home(value), trusted):
        raise LoadError(
            f"'{ref}' is not defined in the trusted packages ({', '.join(trusted)}): '{name}' comes from elsewhere."
        )
    return value


def _is_inside(module: str | None, packages: Sequence[str]) -> bool:
    return module is not None and any(module == name or module.startswith(f"{name}.") for name in packages)


def _home(value: Any) -> str | None:
    """Return the name of the module that defines *value*: a tool, a function, or a class; None for anything else."""
    if isinstance(value, type):
        return value.__module__
    if isinstance(mark := mark_of(value), Tool | Definition):
        return mark.home
    while isinstance(value, functools.partial):
        value = value.func
    if callable(value) and not inspect.isroutine(value) and not hasattr(value, "__wrapped__"):
        value = type(value).__call__
    value = inspect.unwrap(getattr(value, "__func__", value))
    return value.__module__ if inspect.isfunction(value) else None


def offered_by(source: Any) -> list[Any]:
    """Return what *source*, a Source, offers now. Raises LoadError for what is not a tool, and as its `tools` does."""
    answer: Any = source.tools()
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        raise LoadError(
            f"{type(source).__name__}.tools() returned a {type(answer).__name__}. It returns a list of Tools."
        )
    tools = list(answer)
    if wrong := [item for item in tools if not (is_tool(item) or callable(item))]:
        raise LoadError(
            f"{type(source).__name__}.tools() returned a {type(wrong[0]).__name__} among its tools. It returns Tools, "
            "or functions to make them of."
        )
    return tools


# Objects


def _load_object(source: Any) -> Loaded:
    tools: list[AnyTool] = []
    try:
        if is_tool(source):
            return Loaded([as_tool(source)])
        loaded = _from_plugin(_source_behind(source))
        if isinstance(loaded, Loaded):
            return loaded
        source = loaded
        tools = _tools_of(source)
    except DefinitionError as error:
        if (place := place_of_error(source)) is not None:
            error.add_note(f"It is defined at {place}.")
        raise
    except Exception:
        # One that need not start need not list anything yet; it is asked again, and the reason is reported then.
        if not is_source(source) or getattr(source, "required", True):
            raise
    return Loaded(tools, source=source if is_source(source) and not isinstance(source, ObjectSource) else None)


def _source_behind(value: Any) -> Any:
    """Return the Source that an object's own `__toolcrib__()` returns, as of workbenches of dialects; else *value*."""
    offer = getattr(value, "__toolcrib__", None)
    if offer is None or isinstance(value, type) or isinstance(offer, Definition) or is_source(value):
        return value
    source = offer()
    return source if is_source(source) else value


def _tools_of(source: Any) -> list[AnyTool]:
    if isinstance(source, ObjectSource) or Source in type(source).__mro__:
        return list(map(as_tool, offered_by(source)))
    offer = getattr(source, "__toolcrib__", None)
    if isinstance(offer, Definition):
        return [as_tool(source)]
    if offer is not None and not isinstance(source, type):
        return _tools_in(offer(), source)
    if (methods := tools_of_object(source)) is not None:
        return [*methods]
    if is_source(source):
        return list(map(as_tool, offered_by(source)))
    if callable(source):
        return [as_tool(source)]
    raise LoadError(f"A value of type {type(source).__name__} is not a source of tools. A source is {SOURCES}.")


def _tools_in(answer: Any, source: Any) -> list[AnyTool]:
    """Return the tools in the *answer* of the `__toolcrib__()` of *source*. Raises LoadError for what is not a tool."""
    tools = list(answer) if isinstance(answer, Sequence) else [answer]
    if wrong := [item for item in tools if not is_tool(item)]:
        raise LoadError(
            f"{type(source).__name__}.__toolcrib__() returned a {type(wrong[0]).__name__}. It returns a Tool or a list "
            "of Tools."
        )
    return list(map(as_tool, tools))


def _from_plugin(value: Any) -> Any:
    """Return the source, or what is Loaded, that a plug-in makes of *value*, an object of a package that it knows.

    Return *value* itself where there is none.
    """
    packages = _foreign_packages(value)
    for reader in _readers() if packages else ():
        if any(package.startswith(f"{reader.name}.") for package in packages):
            try:
                source = reader.load()(value)
            except ImportError as error:
                raise LoadError(f"A {type(value).__name__} cannot be read: {error}") from error
            if source is not None:
                return Loaded(list(map(as_tool, source))) if isinstance(source, list) else source
    return value


def _foreign_packages(value: Any) -> set[str]:
    """Return the packages, each with a dot, of which *value* is an object; none where it can be read without them."""
    if isinstance(value, type | ModuleType | functools.partial) or inspect.isroutine(value):
        return set()
    packages = {f"{cls.__module__}." for cls in type(value).__mro__} - {"builtins."}
    return set() if hasattr(value, "__toolcrib__") or is_source(value) else packages


@functools.cache
def _readers() -> "tuple[EntryPoint, ...]":
    """Return the readers of foreign objects that are installed, each named by the package whose objects it reads."""
    from importlib.metadata import entry_points  # which takes as long to import as the rest of this room

    return tuple(entry_points(group="toolcrib.sources"))


def _problem(error: ToolcribError, value: Any, place: str) -> LoadProblem:
    return LoadProblem(place_of_error(value) or place, without_module_names(str(error)))


# Text and paths


def _load_text(source: str, permissions: "Permissions") -> Loaded:
    if not source.strip():
        raise LoadError(f"An empty text is not a source of tools. A source is {TEXT_SOURCES}.")
    path, name = split_name(source)
    if path.is_dir() or path.suffix in (".py", ".wasm") or "/" in source:
        return _load_path(path, name, permissions=permissions)
    if not _DOTTED.fullmatch(source):
        raise LoadError(f"'{source}' is not a source of tools, and there is no such file. A source is {TEXT_SOURCES}.")
    module_name, _, name = source.partition(":")
    module = _import_module(module_name, source)
    return _load_named(module, name, source) if name else _load_module(module, source)


def _import_module(name: str, source: str) -> ModuleType:
    with importing:
        try:
            return importlib.import_module(name)
        except (Exception, SystemExit) as error:
            if isinstance(error, ModuleNotFoundError) and _is_inside(name, [error.name or ""]):
                raise LoadError(
                    f"'{source}' cannot be imported: there is no module '{error.name}', and no file of that name. "
                    "Install it, or name a file: tools.py."
                ) from None
            raise LoadFailed([import_problem(error, source)]) from error


def _attribute(module: ModuleType, path: str, source: str) -> Any:
    value: Any = module
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            holder = getattr(value, "__name__", str(value))
            raise LoadError(without_module_names(f"'{source}': there is no '{name}' in {holder}.")) from None
    return value


def split_name(source: str | Path) -> tuple[Path, str]:
    """Return the path in *source*, and the name after it in `file.py:name`."""
    path = Path(source)
    if not path.exists() and ".py:" in str(source):
        file, _, name = str(source).rpartition(":")
        return Path(file), name
    return path, ""


def _load_path(path: Path, name: str = "", *, permissions: "Permissions") -> Loaded:
    if paths := webassembly_in(path):
        from .sandboxed import wasm_tools

        return Loaded(*wasm_tools(paths, permissions))
    if path.is_dir():
        return _load_folder(path)
    if not path.is_file():
        raise LoadError(f"There is no file {path}. A source is {TEXT_SOURCES}.")
    if path.suffix != ".py":
        raise LoadError(f"{path} is not a Python file. A source is {TEXT_SOURCES}.")
    file = path.resolve()
    with siblings_of(file):
        module, errors = import_file(file)
        return _load_named(module, name, f"{path}:{name}", errors) if name else _load_module(module, str(path), errors)


def _load_folder(path: Path) -> Loaded:
    files = python_files(path.resolve())
    if not files:
        raise LoadError(f"The folder {path} has no .py file.")
    result = Loaded()
    identities: set[Any] = set()
    with siblings_of(files[0]):
        for file in files:
            part = _reload(file)
            result.problems += part.problems
            # A file may export what it imported from the next one: one tool, found twice.
            result.tools += [tool for tool in part.tools if identity(tool) not in identities]
            identities |= set(map(identity, part.tools))
    if not result.tools and not result.problems:
        raise LoadError(f"No file in the folder {path} defines a tool. Mark its functions with @tool.")
    return result


def _load_named(module: ModuleType, name: str, source: str, errors: Errors = ()) -> Loaded:
    value = _attribute(module, name, source)
    for fn, error in errors:
        if fn is value:
            raise LoadFailed([_problem(error, value, source)]) from error
    try:
        return _load_object(value)
    except (DefinitionError, LoadError) as error:
        raise LoadFailed([_problem(error, value, source)]) from error


def _load_module(module: ModuleType, place: str, errors: Errors = ()) -> Loaded:
    """Return what a module defines and marks as tools. Raises LoadError where no tool is left of it."""
    result = _scan(module, place, errors)
    if result.failed:
        raise LoadFailed(result.problems)
    if not result.tools:
        raise LoadError(f"{place} defines no tool. Mark its functions with @tool, or name one: {place}:name.")
    return result


def _scan(module: ModuleType, place: str, errors: Errors = ()) -> Loaded:
    """Return what a module itself defines and marks as tools, in its order, and a problem for each that cannot work."""
    result = Loaded(problems=[_problem(error, fn, place) for fn, error in errors])
    exported: Collection[str] = getattr(module, "__all__", ())
    values = _members(module)
    done_ids: set[int] = set()
    no_instance: list[LoadProblem] = []
    for name, value in values.items():
        if id(value) in done_ids:
            continue
        try:
            tools = _own_tools(module, value, values.values(), is_exported=name in exported)
            result.tools += tools
            if tools:
                done_ids.add(id(value))
        except LoadError as error:  # a class that needs arguments: it may be the base of the others
            no_instance = [_problem(error, value, place)]
        except ToolcribError as error:
            result.problems.append(_problem(error, value, place))
            done_ids.add(id(value))
        except Exception as error:
            result.problems.append(import_problem(error, place))
    if not result.tools and not result.problems:
        result.problems += no_instance
    return result


def _members(module: ModuleType) -> dict[str, Any]:
    """Return what *module* has by a name that is not Python's own."""
    return {name: value for name, value in vars(module).items() if not (name.startswith("__") and name.endswith("__"))}


def _own_tools(module: ModuleType, value: Any, values: Iterable[Any], *, is_exported: bool) -> Sequence[AnyTool]:
    kind = value if isinstance(value, type) else type(value)
    if issubclass(kind, StatefulTool):
        is_own = is_exported or kind.__module__ == module.__name__
        return _stateful_tools(value, values) if is_own else ()
    mark = mark_of(value)
    # A tool that does not know its module is taken for one of this module.
    if mark is None or not (is_exported or getattr(mark, "home", module.__name__) == module.__name__):
        return ()
    return [as_tool(value if isinstance(mark, Definition) else mark)]


def _stateful_tools(value: Any, values: Iterable[Any]) -> Sequence[AnyTool]:
    """Return the tools of *value*, an object or a class; none where *values* have an instance or a subclass of it."""
    is_used = isinstance(value, type) and any(
        issubclass(item, value) and item is not value if isinstance(item, type) else isinstance(item, value)
        for item in values
    )
    return () if is_used else tools_of_object(value) or ()


def _reload(file: Path, name: str = "") -> Loaded:
    """Return what *file* has now. Where it fails, its module is what it was before."""
    before = sys.modules.get(module_name_of(file))
    try:
        module, errors = import_file(file)
        result = _load_named(module, name, f"{file}:{name}", errors) if name else _scan(module, str(file), errors)
    except LoadFailed as error:
        result = Loaded(problems=error.problems)
    except LoadError as error:
        result = Loaded(problems=[LoadProblem(str(file), str(error))])
    if result.failed and before is not None:
        sys.modules[before.__name__] = before
    return result


# Where what a source has is defined


def place_of(value: Any) -> str | None:
    """Return the file and line of a tool, a function, a class or an object's class; None where there is none."""
    value = getattr(value, "fn", value) if is_tool(value) else value
    while isinstance(value, functools.partial):
        value = value.func
    try:
        code = getattr(inspect.unwrap(value) if callable(value) else value, "__code__", None)
        if code is run_nowhere.__code__:
            return None
        if isinstance(code, CodeType):
            return f"{code.co_filename}:{code.co_firstlineno}"
        kind = value if isinstance(value, type) else type(value)
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    except Exception:  # nothing that was written in a file, or a stand-in
        return None


def identity(tool: Tool[..., Any]) -> Any:
    """Return what two Tools have in common where one file only imports the tool of another."""
    code = getattr(inspect.unwrap(getattr(tool, "fn", None)), "__code__", None)  # type: ignore[arg-type]
    return id(tool) if code is None else (code.co_filename, code.co_firstlineno, tool.spec.name)


def place_of_error(value: Any) -> str | None:
    """Return where *value* is defined, or the first of its methods that cannot be a tool."""
    with suppress(DefinitionError):
        for definition in marked_methods(value if isinstance(value, type) else type(value)).values():
            try:
                definition()
            except DefinitionError:
                return place_of(definition.fn)
    return place_of(value)


# In a worker process


class WorkerTools:
    """Imports the tools of a worker process, each once, and what a host sends for them."""

    def __init__(self) -> None:
        self._modules: dict[str, ModuleType] = {}
        self._versions: dict[str, Any] = {}

    def load(self, where: Mapping[str, Any], name: str) -> Callable[[str, Context], Awaitable[dict[str, Any]]]:
        """Return what runs the tool at *where*: arguments as JSON text and the Context → its value as JSON data.

        Raises LoadError where it is not what the host loaded, and what importing it raises.
        """
        module = where["module"]
        if self._versions.setdefault(module, where["version"]) != where["version"]:
            raise LoadError(f"A worker has imported an older version of {module}.")
        if where["sha256"] is not None and source_hash(Path(where["file"])) != where["sha256"]:
            raise LoadError(f"Its file has changed since the host loaded it ({where['file']}). Load it again.")
        value = attrgetter(where["path"])(self._module(where))
        tool = Tool(
            value.fn if isinstance(value, Tool) else value,
            name=name,
            isolation="process",
            parameters=where["parameters"],
            examples=(),
        )
        codec = tool.codec
        assert codec is not None
        if codec.where["schema"] != where["schema"]:
            raise LoadError(f"Its file has changed since the host loaded it ({where['file']}). Load it again.")

        async def run(arguments: str, context: Context) -> dict[str, Any]:
            return codec.write_value(await codec.work(codec.read_arguments(arguments), context))

        return run

    def _module(self, where: Mapping[str, Any]) -> ModuleType:
        name, file = where["module"], where["file"]
        if where["sha256"] is None:
            try:
                return importlib.import_module(name)
            except ModuleNotFoundError as error:
                if file is None or not _is_inside(name, [error.name or ""]):
                    raise
                # The host imported it in another way, as test runners do.
        if file not in self._modules:
            tool = load(f"{file}:{where['path']}").tools[0]
            self._modules[file] = sys.modules[tool.fn.__module__]
        return self._modules[file]
