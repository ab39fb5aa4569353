"""`toolcrib dialects`: which of a program's imports from other tool layers work here after a changed import.

The files are parsed and never executed. What is covered is looked up in the dialects themselves.
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

from ..schema import closest_match
from ..schema.describe import did_you_mean
from .terminal import Output, UsageError, counted, one_line
from .terminal import echo as tell

_ADAPTERS = frozenset(
    f"hyperpocket_{each}"
    for each in ("openai", "anthropic", "gemini", "langchain", "langgraph", "llamaindex", "crewai")
)
"""Packages beside hyperpocket that the dialect leaves out."""

ORIGINALS = {
    "autogen_core": "autogen",
    "autogen_agentchat": "autogen",
    "spark": "spark",
    "hyperpocket": "hyperpocket",
    **dict.fromkeys(sorted(_ADAPTERS), "hyperpocket"),
    "agent_swarm_kit": "swarm",
}
"""The root modules of the originals, and the dialects that replace them, or meet them."""

_BESIDE = {
    "autogen_agentchat": "It stays AutoGen's own, with the autogen_core that it needs.",
    "autogen_agentchat.agents.AssistantAgent": (
        "It stays AutoGen's own. It takes tools (tools=[...]) and workbenches (workbench=...) of the dialect."
    ),
}
"""What stays as it is beside a dialect, and what works there."""

_DIALECTS = __name__.rpartition(".")[0].rpartition(".")[0] + ".dialects"
_SKIPPED_FOLDERS = {"__pycache__", "node_modules", "site-packages"}


@dataclass(frozen=True, slots=True)
class Use:
    """A name of an original that a file uses.

    *write* is the import to use here, empty where nothing has to change; *reason* why the name is not covered.
    """

    file: Path
    line: int
    original: str
    write: str = ""
    reason: str = ""

    @property
    def is_covered(self) -> bool:
        return not self.reason


@dataclass(slots=True)
class Report:
    """The uses in a number of files, and the files that could not be parsed: file, line and message."""

    files: int = 0
    uses: list[Use] = field(default_factory=list[Use])
    problems: list[tuple[Path, int | None, str]] = field(default_factory=list[tuple[Path, int | None, str]])

    @property
    def is_well(self) -> bool:
        return not self.problems and all(use.is_covered for use in self.uses)


def read_programs(places: Sequence[Path]) -> Report:
    """Report what the files at *places* use of the originals. Raises UsageError for a place that does not exist."""
    report = Report()
    for file in _files(places):
        report.files += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes in the program are not our concern
                tree = ast.parse(file.read_bytes(), str(file))
            report.uses += sorted(_Reader(file).read(tree), key=lambda use: (use.line, use.original))
        except SyntaxError as error:
            report.problems.append((file, error.lineno, f"It is not valid Python: {error.msg}."))
        except OSError as error:
            report.problems.append((file, None, f"It cannot be read: {error.strerror or error}."))
        except (ValueError, RecursionError, MemoryError) as error:
            report.problems.append((file, None, f"It cannot be parsed as Python: {type(error).__name__}: {error}"))
    return report


def write_read(report: Report, output: Output) -> None:
    """Write *report* for people, or as lines of tab-separated fields if *output* is not a terminal."""
    for use in report.uses:
        verdict = "covered" if use.is_covered else "not covered"
        action = use.reason or use.write or "nothing to change here"
        subject = f"{use.file}:{use.line}: {one_line(use.original)}: "
        if not output.is_terminal:
            output.write("\t".join(map(one_line, (f"{use.file}:{use.line}", use.original, verdict, action))))
        elif output.is_rich:
            from rich.text import Text

            style = "green" if use.is_covered else "bold red"
            output.print(Text.assemble(subject, (verdict, style), f"\n    {action}"))
        else:
            output.write(f"{subject}{verdict}\n    {action}")
    for file, line, message in report.problems:
        tell(f"{file}{'' if line is None else f':{line}'}: {message}")
    covered = sum(use.is_covered for use in report.uses)
    counts = [f"{covered} covered", f"{len(report.uses) - covered} not covered"]
    counts += [f"{len(report.problems)} not read"] if report.problems else []
    uses, files = counted(len(report.uses), "use"), counted(report.files, "file")
    tell(f"{uses} of other tool layers in {files}: {', '.join(counts)}.")


def read_data(report: Report) -> dict[str, Any]:
    """*report* as JSON data."""
    return {
        "ok": report.is_well,
        "files": report.files,
        "imports": [
            {
                "file": str(use.file),
                "line": use.line,
                "original": use.original,
                "covered": use.is_covered,
                "write": use.write or None,
                "reason": use.reason or None,
            }
            for use in report.uses
        ],
        "problems": [{"file": str(file), "line": line, "message": text} for file, line, text in report.problems],
    }


def _files(places: Sequence[Path]) -> Iterator[Path]:
    for place in places:
        if not os.path.lexists(place):
            raise UsageError(f"There is no file or folder '{place}'.")
    seen: set[Path] = set()
    for place in places:
        for file in _python_files(place) if place.is_dir() else [place]:
            if (real := file.resolve()) not in seen:
                seen.add(real)
                yield file


def _python_files(folder: Path) -> Iterator[Path]:
    """The Python files in *folder* and below, except in hidden folders and virtual environments."""
    for at, folders, names in os.walk(folder):
        here = Path(at)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name not in _SKIPPED_FOLDERS and not (here / name / "pyvenv.cfg").exists()
        )
        yield from (here / name for name in sorted(names) if name.endswith(".py"))


class _Reader(ast.NodeVisitor):
    """Finds the uses in one file. The name of a module is followed to its attributes, unless it is assigned to."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._uses: dict[tuple[str, str, int], Use] = {}
        self._modules: dict[str, str] = {}
        self._rebound: list[set[str]] = []
        self._stars: list[str] = []
        self._has_other_stars = False

    def read(self, tree: ast.Module) -> Iterable[Use]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self._import(node)
            elif isinstance(node, ast.ImportFrom):
                self._import_from(node)
        if self._modules:
            self._rebound.append(_assigned(tree.body, within_functions=False))
            self.visit(tree)
        if self._stars and not self._has_other_stars:
            self._names_from_stars(tree)
        return self._uses.values()

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            root, _, rest = alias.name.partition(".")
            if root in ORIGINALS:
                found = resolve(alias.name)
                self._modules[alias.asname or root] = alias.name if alias.asname else root
                if alias.asname:
                    write = f"import {found.name} as {alias.asname}"
                else:
                    write = f"import {_dialect(root)} as {root}" + (f", {found.name}" if rest else "")
                self._add(alias.name, node.lineno, write, found.reason)

    def _import_from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level or module.partition(".")[0] not in ORIGINALS:
            self._has_other_stars |= any(alias.name == "*" for alias in node.names)
            return
        for alias in node.names:
            original = f"{module}.{alias.name}"
            if alias.name == "*":
                found = resolve(module)
                self._stars.append(module)
                self._add(original, node.lineno, f"from {found.name} import *", found.reason)
                continue
            found = resolve(original)
            home, _, name = found.name.rpartition(".")
            local_name = alias.asname or alias.name
            if found.is_module:
                self._modules[local_name] = original
            write = f"from {home} import {name}" + (f" as {local_name}" if local_name != name else "")
            self._add(original, node.lineno, write, found.reason)

    def _add(self, original: str, line: int, write: str, reason: str) -> None:
        use = Use(self._file, line, original, "" if reason else write, reason)
        # A covered name is reported once, because where it is used again there is nothing to do.
        self._uses.setdefault((original, use.write, line if reason else 0), use)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path: list[str] = []
        base: ast.expr = node
        while isinstance(base, ast.Attribute):
            path.insert(0, base.attr)
            base = base.value
        if not isinstance(base, ast.Name):
            self.visit(base)
        elif base.id in self._modules and not any(base.id in names for names in self._rebound):
            found = resolve(".".join([self._modules[base.id], *path]))
            self._add(found.original, node.lineno, "", found.reason)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        parameters = {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
        self._rebound.append(_assigned(body, within_functions=False) | parameters)
        self.generic_visit(node)
        self._rebound.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815
    visit_Lambda = visit_FunctionDef  # noqa: N815

    def _names_from_stars(self, tree: ast.Module) -> None:
        """Report names that only a star import can bind, and that the dialect does not have."""
        bound = _assigned(tree.body, within_functions=True) | set(dir(builtins)) | {"__file__", "__name__"}
        for node in ast.walk(tree):
            if isinstance(node, ast.alias):
                bound.add((node.asname or node.name).partition(".")[0])
            elif isinstance(node, ast.arg):
                bound.add(node.arg)
            elif isinstance(name := getattr(node, "name", None), str):  # functions, classes, exceptions, patterns
                bound.add(name)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Name) or node.id in bound:
                continue
            if not any(_exports(module, node.id) for module in self._stars):
                modules = " or ".join(self._stars)
                reason = f"'{node.id}' is used, can only come from {modules}, and is not in the dialect."
                self._add(f"{self._stars[0]}.{node.id}", node.lineno, "", reason)


def _assigned(body: Iterable[ast.AST], *, within_functions: bool) -> set[str]:
    """The names that statements assign to, except by imports."""
    names: set[str] = set()
    nodes = list(body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        is_scope = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef)
        if within_functions or not is_scope:
            nodes.extend(ast.iter_child_nodes(node))
    return names


# What the dialects have


@dataclass(frozen=True, slots=True)
class Found:
    """The name that replaces *original*, which is as much of a dotted name as was followed."""

    original: str
    name: str
    reason: str = ""
    is_module: bool = False


def resolve(original: str) -> Found:
    """What replaces the dotted name *original*, followed to the first part that is not a module."""
    root, *rest = original.split(".")
    name = _dialect(root)
    if root in _ADAPTERS:
        return Found(original, name, f"{root} is left out. What to write instead: docs/dialects/hyperpocket.md.")
    if reason := _BESIDE.get(original) or _BESIDE.get(root):
        return Found(original, name, reason)
    module = _load(name)
    if module is None:
        return Found(original, name, f"There is no dialect for {root} in this version of Toolcrib.")
    for number, part in enumerate(rest, 1):
        if isinstance(module, str):
            break
        path, name = ".".join([root, *rest[:number]]), f"{module.__name__}.{part}"
        if _has(module, part) and not isinstance(vars(module).get(part), ModuleType):
            return Found(path, name)
        if (submodule := _load(name)) is None:
            snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in part)
            if root == "agent_swarm_kit" and _has(module, snake):
                return Found(path, f"{module.__name__}.{snake}")
            names = getattr(module, "__all__", ()) if number == len(rest) else ()
            hint = did_you_mean(closest_match(part, names))
            reason = f"{module.__name__} has no '{part}'.{hint} A dialect has the tool layer only."
            return Found(path, name, reason)
        module = submodule
    return Found(original, name, module) if isinstance(module, str) else Found(original, name, is_module=True)


def _has(module: ModuleType, name: str) -> bool:
    """Whether *module* offers *name*, and has not only imported it for its own use."""
    if name in getattr(module, "__all__", ()):
        return True
    try:
        value = getattr(module, name)
    except AttributeError:
        return False
    except Exception:  # it is there, and needs a package that is not installed
        return True
    if inspect.isclass(value) or inspect.isroutine(value):
        return value.__module__.partition(".")[0] == module.__name__.partition(".")[0]
    return not isinstance(value, ModuleType)


def _exports(module: str, name: str) -> bool:
    loaded = _load(resolve(module).name)
    if not isinstance(loaded, ModuleType):
        return False
    exported = getattr(loaded, "__all__", None)
    return name in exported if exported is not None else not name.startswith("_") and _has(loaded, name)


@functools.cache
def _load(name: str) -> ModuleType | str | None:
    """The module *name*; None if there is none; a message if it cannot be loaded."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            return None
        return f"{name} cannot be loaded: {error}."
    except Exception as error:
        return f"{name} cannot be loaded: {type(error).__name__}: {error}"


def _dialect(root: str) -> str:
    return f"{_DIALECTS}.{ORIGINALS[root]}"
