"""Measure the house: lines by room, words of docs, limits, walkers, loops, docstrings, names; `make check` runs it.

    python scripts/house.py           what is measured, beside its budget, and where the room for more is
    python scripts/house.py --list limits    the places that a measure counts

Budgets stand in `[tool.house]` of pyproject.toml. They only fall; raising one is a commit of its own that says why.
"""

import argparse
import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from radon.complexity import cc_visit
from radon.visitors import Function

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "toolcrib"
WORDS = tomllib.loads((ROOT / "scripts" / "house_words.toml").read_text())
_VERBS, _BARE = set(WORDS["verbs"].split()), set(f"{WORDS['participles']} {WORDS['pronouns']}".split())

MAX_COMPLEXITY = 10
_ALTERNATIVES, _PARTS = {"allOf", "anyOf", "oneOf"}, {"properties", "items", "additionalProperties"}
_LOOPS = re.compile(
    r"\b(get_running_loop|get_event_loop|new_event_loop|AbstractEventLoop|asyncio\.Runner"
    r"|call_soon_threadsafe|run_coroutine_threadsafe)\b"
)
_BLOCK, _WORD = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE), re.compile(r"[^\s|]*\w[^\s|]*")
_LIMIT_NAME = re.compile(r"^_?[A-Z][A-Z0-9_]*$")

Place = str
Files = Mapping[Path, tuple[str, ast.Module]]


def python_files(folder: str) -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", f"{folder}/*.py"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    return [path for name in names if (path := ROOT / name).exists()]


def lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def words() -> int:
    """Count the words of README and docs, without blocks of code."""
    pages = (page.read_text() for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))
    return sum(len(_WORD.findall(_BLOCK.sub("", page))) for page in pages)


def room_of(path: Path) -> str:
    """Return the row of the table of budgets that *path* counts in, such as "tools/mcp" or "top"."""
    parts = path.relative_to(PACKAGE).parts
    if len(parts) == 1:
        return "top"
    if parts[0] == "tools" and (parts[1] == "openapi" or parts[1].startswith(("mcp", "remote"))):
        return "tools/openapi" if parts[1] == "openapi" else "tools/mcp"
    if parts[:2] == ("serve", "console"):
        return "serve/console"
    return "cli, testing, demo" if parts[0] in ("cli", "testing", "demo") else parts[0]


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _place(path: Path, node: ast.AST, text: str) -> Place:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}: {text}"


def _is_number(node: ast.expr | None) -> bool:
    match node:
        case ast.Constant(value=value):
            return type(value) in (int, float)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
        case _:
            return False


def limits(files: Files) -> Iterator[Place]:
    """Yield the names in capitals that are numbers."""
    for path, (_, tree) in files.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AnnAssign) and _is_number(node.value):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Name) and _LIMIT_NAME.match(target.id):
                        yield _place(path, node, f"{target.id} = {ast.unparse(node.value or target)}")


def walkers(files: Files) -> Iterator[Place]:
    """Yield the files that look through JSON Schemas by themselves: they name alternatives as well as parts."""
    for path, (_, tree) in files.items():
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in docs}
        keywords = texts & (_ALTERNATIVES | _PARTS)
        if len(keywords & _ALTERNATIVES) > 1 and keywords & _PARTS:
            yield f"{path.relative_to(ROOT)}: {', '.join(sorted(keywords))}"


def loops(files: Files) -> Iterator[Place]:
    """Yield the files that must think of event loops."""
    for path, (text, _) in files.items():
        if uses := sorted(set(_LOOPS.findall(text))):
            yield f"{path.relative_to(ROOT)}: {', '.join(uses)}"


def docstrings(files: Files) -> Iterator[Place]:
    """Yield the docstrings of functions, but not of properties, that do not begin with an imperative verb."""
    for path, (_, tree) in files.items():
        for function in _functions(tree):
            words = (ast.get_docstring(function) or "").split()
            if words and not _is_property(function) and words[0].strip(",.:").lower() not in _VERBS:
                yield _place(path, function, " ".join(words[:8]))


def documented(files: Files) -> int:
    return sum(
        bool(ast.get_docstring(function)) and not _is_property(function)
        for _, tree in files.values()
        for function in _functions(tree)
    )


def _is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def assigned(files: Files) -> Iterator[tuple[Path, ast.Name]]:
    for path, (_, tree) in files.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield path, node


def names(files: Files) -> Iterator[Place]:
    """Yield the assigned names that are participles or pronouns."""
    return (_place(path, node, node.id) for path, node in assigned(files) if node.id.lstrip("_") in _BARE)


def people(files: Files) -> Iterator[Place]:
    """Yield the lines that speak of nobody, somebody or whoever."""
    for path, (text, _) in files.items():
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(WORDS["people"], line, re.IGNORECASE):
                yield f"{path.relative_to(ROOT)}:{number}: {line.strip()}"


def inner_imports(files: Files) -> Iterator[Place]:
    """Yield the imports of a module of another room, past what that room's `__init__` makes public."""
    for path, (_, tree) in files.items():
        folder = path.relative_to(PACKAGE).parent.parts
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or node.module is None or node.level < 2:
                continue
            above = len(folder) - (node.level - 1)
            parts = node.module.split(".")
            if above == 0 and folder and parts[0] != folder[0] and len(parts) > 1:
                yield _place(path, node, f"from {'.' * node.level}{node.module} import ...")


def complex_functions(files: Files) -> Iterator[Place]:
    """Yield the functions of radon's grade C or worse: a cyclomatic complexity above 10."""
    for path, (text, _) in files.items():
        for block in cc_visit(text):
            if isinstance(block, Function) and block.complexity > MAX_COMPLEXITY:
                yield f"{path.relative_to(ROOT)}:{block.lineno}: {block.name} {block.complexity}"


MEASURES: Mapping[str, Callable[[Files], Iterator[Place]]] = {
    "limits": limits,
    "walkers": walkers,
    "loops": loops,
    "docstrings": docstrings,
    "names": names,
    "people": people,
    "inner_imports": inner_imports,
    "complex": complex_functions,
}


def measure() -> dict[str, float]:
    """Return each measure by its name; "docstrings" in percent, "names" in 1,000 names, the others are counts."""
    paths = python_files("src")
    files = {path: (text := path.read_text(), ast.parse(text)) for path in paths}
    by_room: Counter[str] = Counter()
    for path, (text, _) in files.items():
        by_room[room_of(path)] += len(text.splitlines())
    counts = {name: sum(1 for _ in count(files)) for name, count in MEASURES.items()}
    return {
        "src": sum(by_room.values()),
        "files": len(paths),
        "tests": lines(python_files("tests")),
        "words": words(),
        **counts,
        "docstrings": round(100 * counts["docstrings"] / documented(files), 1),
        "names": round(1000 * counts["names"] / sum(1 for _ in assigned(files)), 1),
        **{f"room {name}": count for name, count in sorted(by_room.items())},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", choices=MEASURES, help="the places that a measure counts")
    listed = parser.parse_args().list
    if listed:
        files = {path: (text := path.read_text(), ast.parse(text)) for path in python_files("src")}
        print(*MEASURES[listed](files), sep="\n")
        return 0
    budgets: dict[str, float] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["house"]
    measures = measure()
    over = {name for name, value in measures.items() if value > budgets.get(name, 0)}
    for name, value in measures.items():
        print(f"{name:24} {value:>9,} of {budgets.get(name, 0):>9,}{'   over its budget' if name in over else ''}")
    if unknown := budgets.keys() - measures.keys():
        print(f"[tool.house] has no measure for: {', '.join(sorted(unknown))}. Delete them.")
    if over:
        print("Over its budget. `python scripts/house.py --list NAME` shows the places; the best change removes code.")
    return 1 if over or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
