"""The reference, which `make docs` builds from docstrings, shows every public name, each with its documentation."""

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from toolcrib.bridges import FRAMEWORKS
from toolcrib.formats.format import Format

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "reference"
ROOMS = (
    "toolcrib",
    *(f"toolcrib.{page.stem}" for page in PAGES.glob("*.md") if page.stem not in ("toolcrib", "settings")),
)
PROVIDERS = ("openai", "openai_responses", "anthropic", "gemini", "bedrock")


@cache
def source_of(module: str) -> tuple[ast.Module, str]:
    """The source of *module*, and the package that its relative imports start from. Nothing optional is imported."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    package = module if spec.submodule_search_locations else module.rpartition(".")[0]
    return ast.parse(Path(spec.origin).read_text()), package


def exports(room: str) -> list[str]:
    """What `__all__` of *room* lists, but modules, whose names are described with them."""
    tree, _ = source_of(room)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module is None]
    modules = {alias.name for node in imports for alias in node.names}
    (listed,) = (node for node in tree.body if _names(node) == ["__all__"])
    assert isinstance(listed, ast.Assign | ast.AnnAssign) and listed.value is not None
    return [name for name in ast.literal_eval(listed.value) if name not in modules]


def definition(module: str, name: str) -> tuple[str, str]:
    """The module that defines what *module* has as *name*, and its docstring there."""
    tree, package = source_of(module)
    docstrings: list[str] = []  # several for overloads
    for node, following in zip(tree.body, [*tree.body[1:], ast.Pass()], strict=True):
        if name in _names(node):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstrings.append(ast.get_docstring(node) or "")
            else:
                docstrings.append(ast.unparse(following) if isinstance(following, ast.Expr) else "")
    if docstrings:
        return module, "".join(docstrings)
    for statement in ast.walk(tree):
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    relative = "." * statement.level + (statement.module or "")
                    return definition(importlib.util.resolve_name(relative, package), alias.name)
    raise LookupError(f"{module}.{name}")


def _names(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


def public_names() -> Iterator[tuple[str, str]]:
    for room in ROOMS:
        page = (PAGES / f"{room.rpartition('.')[2]}.md").read_text()
        chosen = re.search(rf"^::: {room}\n +options:\n +members: \[([^\]]+)\]", page, re.M)
        names = re.split(r",\s+", chosen[1]) if chosen else exports(room)
        yield from ((room, name) for name in names if name != "__version__")


def test_every_public_name_has_a_docstring() -> None:
    assert [f"{room}.{name}" for room, name in public_names() if not definition(room, name)[1]] == []


def test_no_two_public_things_have_one_name() -> None:
    """A name that two rooms export is the same thing in both."""
    defined: dict[str, dict[str, str]] = {}
    for room in (*sorted({*ROOMS} - {"toolcrib.core"}), "toolcrib.call", "toolcrib.schema"):
        for name in exports(room):
            defined.setdefault(name, {})[definition(room, name)[0]] = room
    assert {name: rooms for name, rooms in defined.items() if len(rooms) > 1} == {}


def test_every_bridge_is_in_the_reference() -> None:
    shown = re.findall(r"^::: toolcrib\.bridges\.(\w+)$", (PAGES / "bridges.md").read_text(), re.M)
    assert sorted(shown) == sorted(FRAMEWORKS)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_provider_has_the_functions_that_the_reference_shows_for_all(provider: str) -> None:
    (listed,) = re.findall(r"Format\n +options:\n +members: \[(.+)\]", (PAGES / "formats.md").read_text())
    module = importlib.import_module(f"toolcrib.formats.{provider}")
    names = listed.split(", ")
    assert [getattr(module, name).__func__ for name in names] == [getattr(Format, name) for name in names]
