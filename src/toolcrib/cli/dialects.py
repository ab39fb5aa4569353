"""`toolcrib dialects`: which of a program's imports from other tool layers work here after a changed import.

The files are read and never run. What is covered is looked for in the dialects themselves.
"""

import ast
import builtins
import functools
import importlib
import inspect
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from ..schema import nearest
from ..schema.words import did_you_mean
from .streams import Output, one_line, tell
from .usage import UsageError

ORIGINALS = {
    "autogen_core": "autogen",
    "spark": "spark",
    "hyperpocket": "hyperpocket",
    "agent_swarm_kit": "swarm",
}
"""The roots of the originals' modules, and the dialects that stand for them."""

_HOME = __name__.rpartition(".")[0].rpartition(".")[0] + ".dialects"
_ONLY = " A dialect has the tool layer only."
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}


@dataclass(frozen=True, slots=True)
class Import:
    """Something of an original that a file uses. *write* is what imports it here, empty where nothing has to change."""

    file: Path
    line: int
    original: str
    write: str = ""
    reason: str = ""

    @property
    def is_covered(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True)
class Unread:
    """A file that could not be read."""

    file: Path
    line: int | None
    message: str


@dataclass(slots=True)
class Read:
    files: int = 0
    imports: list[Import] = field(default_factory=list[Import])
    unread: list[Unread] = field(default_factory=list[Unread])

    @property
    def is_well(self) -> bool:
        return not self.unread and all(each.is_covered for each in self.imports)


def read_programs(places: Sequence[Path]) -> Read:
    """What the files at *places* import from the originals. Raises UsageError for a place where nothing is."""
    read = Read()
    for file in _files(places):
        read.files += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a program's doubtful escapes are not our business
                tree = ast.parse(file.read_bytes(), str(file))
            read.imports += sorted(_Reader(file).of(tree), key=lambda each: (each.line, each.original))
        except SyntaxError as error:
            read.unread.append(Unread(file, error.lineno, f"It cannot be read as Python: {error.msg}."))
        except OSError as error:
            read.unread.append(Unread(file, None, f"It cannot be read: {error.strerror or error}."))
        except (ValueError, RecursionError, MemoryError) as error:
            read.unread.append(Unread(file, None, f"It cannot be read as Python: {type(error).__name__}: {error}"))
    return read


def write_read(read: Read, output: Output) -> None:
    for each in read.imports:
        place, original = f"{each.file}:{each.line}", one_line(each.original)
        verdict = "covered" if each.is_covered else "not covered"
        said = each.reason or each.write or "nothing to change here"
        if not output.is_terminal:
            output.write("\t".join(map(one_line, (place, original, verdict, said))))
        elif output.is_rich:
            from rich.text import Text

            style = "green" if each.is_covered else "bold red"
            output.print(Text.assemble(f"{place}: {original}: ", (verdict, style), f"\n    {said}"))
        else:
            output.write(f"{place}: {original}: {verdict}\n    {said}")
    for unread in read.unread:
        tell(f"{unread.file}{'' if unread.line is None else f':{unread.line}'}: {unread.message}")
    covered = sum(each.is_covered for each in read.imports)
    counts = [f"{covered} covered", f"{len(read.imports) - covered} not covered"]
    counts += [f"{len(read.unread)} not read"] if read.unread else []
    uses, files = _count(len(read.imports), "use"), _count(read.files, "file")
    tell(f"{uses} of other tool layers in {files}: {', '.join(counts)}.")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def read_data(read: Read) -> dict[str, Any]:
    """What was read as JSON data."""
    return {
        "ok": read.is_well,
        "files": read.files,
        "imports": [
            {
                "file": str(each.file),
                "line": each.line,
                "original": each.original,
                "covered": each.is_covered,
                "write": each.write or None,
                "reason": each.reason or None,
            }
            for each in read.imports
        ],
        "problems": [{"file": str(each.file), "line": each.line, "message": each.message} for each in read.unread],
    }


def _files(places: Sequence[Path]) -> Iterator[Path]:
    for place in places:
        if not os.path.lexists(place):
            raise UsageError(f"There is no file or folder '{place}'.")
    seen: set[Path] = set()
    for place in places:
        for file in _in_folder(place) if place.is_dir() else [place]:
            if (real := file.resolve()) not in seen:
                seen.add(real)
                yield file


def _in_folder(folder: Path) -> Iterator[Path]:
    """Its Python files and those of the folders in it, hidden ones and virtual environments excepted."""
    for at, folders, names in os.walk(folder):
        here = Path(at)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name not in _SKIPPED and not (here / name / "pyvenv.cfg").exists()
        )
        yield from (here / name for name in sorted(names) if name.endswith(".py"))


class _Reader(ast.NodeVisitor):
    """Reads one file. Names of modules are followed to what is taken from them, as far as nothing else has the name."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._found: dict[tuple[str, str, int], Import] = {}
        self._modules: dict[str, str] = {}
        self._hidden: list[set[str]] = []
        self._stars: list[str] = []
        self._other_stars = False

    def of(self, tree: ast.Module) -> Iterable[Import]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self._import(node)
            elif isinstance(node, ast.ImportFrom):
                self._import_from(node)
        if self._modules:
            self._hidden.append(_bound_in(tree.body, within_functions=False))
            self.visit(tree)
        if self._stars and not self._other_stars:
            self._through_stars(tree)
        return self._found.values()

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            root, _, rest = alias.name.partition(".")
            if root not in ORIGINALS:
                continue
            found = covered_module(alias.name)
            if alias.asname:
                self._modules[alias.asname] = alias.name
                write = f"import {found.name} as {alias.asname}"
            else:
                self._modules[root] = root
                write = f"import {_home(root)} as {root}" + (f", {found.name}" if rest else "")
            self._add(alias.name, node.lineno, write, found.reason)

    def _import_from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level or module.partition(".")[0] not in ORIGINALS:
            self._other_stars |= any(alias.name == "*" for alias in node.names)
            return
        for alias in node.names:
            if alias.name == "*":
                found = covered_module(module)
                self._stars.append(module)
                self._add(f"{module}.*", node.lineno, f"from {found.name} import *", found.reason)
                continue
            found = covered(f"{module}.{alias.name}")
            home, _, name = found.name.rpartition(".")
            known_as = alias.asname or alias.name
            if found.is_module:
                self._modules[known_as] = f"{module}.{alias.name}"
            write = f"from {home} import {name}" + (f" as {known_as}" if known_as != name else "")
            self._add(f"{module}.{alias.name}", node.lineno, write, found.reason)

    def _add(self, original: str, line: int, write: str, reason: str) -> None:
        made = Import(self._file, line, original, "" if reason else write, reason)
        # What is covered is said once: where it is used again there is nothing to do.
        self._found.setdefault((original, made.write, line if reason else 0), made)

    # What is taken from a module by its name

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path: list[str] = []
        at: ast.expr = node
        while isinstance(at, ast.Attribute):
            path.insert(0, at.attr)
            at = at.value
        if not isinstance(at, ast.Name):
            self.visit(at)
        elif at.id in self._modules and not any(at.id in names for names in self._hidden):
            found = covered(".".join([self._modules[at.id], *path]))
            self._add(found.original, node.lineno, "", found.reason)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        given = node.args
        names = {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
        names |= {each.arg for each in (given.vararg, given.kwarg) if each is not None}
        self._hidden.append(_bound_in(body, within_functions=True) | names)
        self.generic_visit(node)
        self._hidden.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815
    visit_Lambda = visit_FunctionDef  # noqa: N815

    # What can only have come from a star

    def _through_stars(self, tree: ast.Module) -> None:
        known = _bound_in(tree.body, within_functions=True) | set(dir(builtins)) | {"__file__", "__name__"}
        for node in ast.walk(tree):
            if isinstance(node, ast.alias):
                known.add((node.asname or node.name).partition(".")[0])
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                known.add(node.name)
            elif isinstance(node, ast.arg):
                known.add(node.arg)
            elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
                known.add(node.name)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or node.id in known:
                continue
            if not any(_exports(module, node.id) for module in self._stars):
                modules = " or ".join(self._stars)
                reason = f"'{node.id}' is used, can only come from {modules}, and is not in the dialect."
                self._add(f"{self._stars[0]}.{node.id}", node.lineno, "", reason)


def _bound_in(body: Iterable[ast.AST], *, within_functions: bool) -> set[str]:
    """The names that statements assign to; imports aside, which are what is looked for."""
    names: set[str] = set()
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef)
        if within_functions or not inside:
            waiting.extend(ast.iter_child_nodes(node))
    return names


# What the dialects have


@dataclass(frozen=True, slots=True)
class Found:
    """Where something of an original is here. *original* is as far as its name was followed."""

    original: str
    name: str
    reason: str = ""
    is_module: bool = False


def covered_module(original: str) -> Found:
    """The module of ours that stands for *original*."""
    root, *rest = original.split(".")
    name = _home(root)
    for step in ("", *rest):
        outer, name = name, f"{name}.{step}" if step else name
        module = _module(name)
        if isinstance(module, str):
            return Found(original, name, module)
        if module is None:
            return Found(original, name, f"{outer} has no module '{step}'.{_ONLY}" if step else _no_dialect(root))
    return Found(original, name, is_module=True)


def covered(original: str) -> Found:
    """What stands here for the dotted name *original*, which is followed to the first thing that is no module."""
    root, *rest = original.split(".")
    found = covered_module(root)
    if found.reason:
        return Found(original, found.name, found.reason)
    module = _module(found.name)
    for number, step in enumerate(rest, 1):
        assert isinstance(module, ModuleType)
        path = ".".join([root, *rest[:number]])
        here = f"{module.__name__}.{step}"
        if isinstance(vars(module).get(step), ModuleType) or not _has(module, step):
            submodule = _module(here)
            if isinstance(submodule, str):
                return Found(path, here, submodule)
            if submodule is None:
                snake = _snake(step)
                if root == "agent_swarm_kit" and _has(module, snake):
                    return Found(path, f"{module.__name__}.{snake}")
                names = getattr(module, "__all__", ()) if number == len(rest) else ()
                hint = did_you_mean(nearest(step, names))
                return Found(path, here, f"{module.__name__} has no '{step}'.{hint}{_ONLY}")
            module = submodule
            continue
        return Found(path, here)
    return Found(original, f"{_home(root)}{''.join(f'.{step}' for step in rest)}", is_module=True)


def _has(module: ModuleType, name: str) -> bool:
    """Whether *module* offers *name*, and has not just imported it for itself."""
    if name in getattr(module, "__all__", ()):
        return True
    try:
        value = getattr(module, name)
    except AttributeError:
        return False
    except Exception:  # it is there, and needs something that is not installed
        return True
    if inspect.isclass(value) or inspect.isroutine(value):
        return value.__module__.partition(".")[0] == module.__name__.partition(".")[0]
    return not isinstance(value, ModuleType)


def _exports(module: str, name: str) -> bool:
    found = covered_module(module)
    loaded = _module(found.name)
    if found.reason or not isinstance(loaded, ModuleType):
        return False
    exported = getattr(loaded, "__all__", None)
    return name in exported if exported is not None else not name.startswith("_") and _has(loaded, name)


@functools.cache
def _module(name: str) -> ModuleType | str | None:
    """The module of ours called *name*; None where there is none; what is said where it cannot be loaded."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            return None
        return f"{name} cannot be loaded: {error}."
    except Exception as error:
        return f"{name} cannot be loaded: {type(error).__name__}: {error}"


def _home(root: str) -> str:
    return f"{_HOME}.{ORIGINALS[root]}"


def _no_dialect(root: str) -> str:
    return f"There is no dialect for {root} in this version of Toolcrib."


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
