"""docs/reference.md has every public name, with its signature as it is now.

`python tests/docs/test_reference.py` writes the signatures anew. The sentences are written by hand.
"""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import toolcrib

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"

_SECTION = re.compile(r"^## (?P<name>\w+)\n\n(?P<line>[^\n]+)\n\n```pyi\n(?P<stub>.*?)^```$", re.M | re.S)
_SPECIAL = {"__init__", "__call__", "__getitem__", "__contains__", "__iter__", "__len__"}


def stub(name: str) -> ast.Module:
    """The signature of a public name, as the source has it: bodies, private names and docstrings left out."""
    thing = getattr(toolcrib, name)
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return ast.parse(f"{name}: {type(thing).__name__}")
    file = inspect.getsourcefile(thing)
    assert file is not None
    named = [node for node in ast.parse(Path(file).read_text()).body if getattr(node, "name", None) == name]
    return ast.Module([part for node in named if (part := _bare(node, len(named) > 1))], [])


def _bare(node: ast.stmt, has_overloads: bool) -> ast.stmt | None:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            marks = [ast.unparse(mark) for mark in node.decorator_list]
            if has_overloads and "overload" not in marks:
                return None
            node.body = [ast.Expr(ast.Constant(...))]
        case ast.ClassDef():
            names = [getattr(part, "name", "") for part in node.body]
            kept = [
                bare
                for part in node.body
                if _is_public(part) and (bare := _bare(part, names.count(getattr(part, "name", "")) > 1))
            ]
            node.body = kept or [ast.Expr(ast.Constant(...))]
            node.decorator_list = []
        case ast.AnnAssign():
            if isinstance(node.value, ast.Call):
                node.value = ast.Constant(...)
    return node


def _is_public(part: ast.stmt) -> bool:
    match part:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return not part.name.startswith("_") or part.name in _SPECIAL
        case ast.AnnAssign(target=ast.Name(id=name)):
            return not name.startswith("_")
        case _:
            return False


def documented() -> dict[str, str]:
    return {section["name"]: section["stub"] for section in _SECTION.finditer(PAGE.read_text())}


def test_every_public_name_is_in_the_reference_and_nothing_else() -> None:
    assert sorted(documented()) == sorted(toolcrib.__all__)


def test_the_signatures_in_the_reference_are_those_of_the_code() -> None:
    written = documented()
    stale = [
        name
        for name in toolcrib.__all__
        if name in written and ast.dump(ast.parse(written[name])) != ast.dump(ast.parse(ast.unparse(stub(name))))
    ]
    assert stale == [], "python tests/docs/test_reference.py writes them anew"


def _formatted(tree: ast.Module) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    command = [ruff, "format", "--stdin-filename", "stub.pyi", "--line-length", "110", "-"]
    return subprocess.run(command, input=ast.unparse(tree), capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    page = PAGE.read_text()
    for missing in sorted(set(toolcrib.__all__) - set(documented()), key=str.lower):
        page += f"\n## {missing}\n\nTO BE WRITTEN.\n\n```pyi\n```\n"
    PAGE.write_text(
        _SECTION.sub(
            lambda found: f"## {found['name']}\n\n{found['line']}\n\n```pyi\n{_formatted(stub(found['name']))}```",
            page,
        )
    )
