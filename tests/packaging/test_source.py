"""What holds for every file of the source: no import circles, and the words of the field."""

import ast
import importlib.util
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import toolcrib

ROOT = Path(toolcrib.__file__).parent
# A name that ends in `_s` is a duration; a moment is an aware datetime, whose name ends in `_at`.
MOMENTS = ("started", "finished", "expires", "deadline", "created", "answered", "begins", "ends", "now")


@cache
def modules() -> Mapping[str, tuple[Path, str]]:
    """Every module of the package: its file and its source."""
    found = {}
    for file in sorted(ROOT.rglob("*.py")):
        name = ".".join(("toolcrib", *file.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
        found[name] = (file, file.read_text())
    return found


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Each statement of a source, also in others: what they say of values, which is most of it, is not looked at."""
    for part in ("body", "handlers", "orelse", "finalbody", "cases"):
        for statement in getattr(node, part, ()):
            yield statement
            yield from statements(statement)


def imports(name: str) -> set[str]:
    """The modules of the package that *name* imports: at its top, in functions and under TYPE_CHECKING."""
    file, source = modules()[name]
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                inner = f"{origin}.{alias.name}"
                found.add(inner if inner in modules() else origin)
    return {other for other in found if other in modules() and other != name}


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each identifier of a source with its line, where it is given to something or used."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield line, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield line, name
            case ast.alias(name=name, asname=other):
                yield line, other or name
            case ast.keyword(arg=str(name)) | ast.MatchAs(name=str(name)) | ast.ExceptHandler(name=str(name)):
                yield line, name
            case _:
                pass


def test_no_modules_import_one_another_in_a_circle() -> None:
    try:
        TopologicalSorter({name: imports(name) for name in modules()}).prepare()
    except CycleError as error:
        raise AssertionError(" imports ".join(reversed(error.args[1]))) from None


def test_names_in_seconds_are_durations() -> None:
    pattern = re.compile(rf"({'|'.join(MOMENTS)})_s\b")
    moments = [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file, source in modules().values()
        if pattern.search(source)
        for line, name in names(ast.parse(source))
        if re.search(rf"(^|_){pattern.pattern}$", name)
    ]
    assert moments == []


def test_what_messages_and_docs_say_to_install_is_an_extra() -> None:
    repository = Path(__file__).parents[2]
    extras = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
    pages = [*repository.glob("*.md"), *repository.glob("docs/**/*.md"), *(repository / "examples").glob("**/*.md")]
    texts = dict(modules().values()) | {page: page.read_text() for page in pages}
    unknown = {
        f"{file}: {name}"
        for file, text in texts.items()
        for names in re.findall(r"toolcrib\[([a-z,-]+)\]|raise_missing_extra\(missing, .*, \"([a-z-]+)\"\)", text)
        for name in ",".join(filter(None, names)).split(",")
        if name not in extras
    }
    assert unknown == set()
