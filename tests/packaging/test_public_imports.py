"""What dialects and bridges import of Toolcrib: names that users could import, too."""

import ast
import importlib
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

import pytest

import toolcrib

SRC = Path(toolcrib.__file__).parent
USERS = (
    *(f"dialects.{dialect}" for dialect in ("autogen", "hyperpocket", "spark", "swarm")),
    *(f"bridges.{file.stem}" for file in (SRC / "bridges").glob("[a-z]*.py")),
)


def modules(user: str) -> Iterator[tuple[str, Path]]:
    """Yield the modules of *user*, a package or a module, and their files."""
    path = SRC.joinpath(*user.split("."))
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]:
        parts = file.relative_to(SRC).with_suffix("").parts
        yield ".".join(("toolcrib", *parts)), file


def imports(module: str, file: Path) -> Iterator[tuple[str, str]]:
    """Yield the modules and names that *module* imports, also inside functions."""
    package = module.removesuffix(".__init__") if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), package)
            yield from ((source, alias.name) for alias in node.names)


def is_public(source: str, name: str) -> bool:
    """Return whether *name* of the module *source* is of the package itself, or in the `__all__` of a room.

    A room, and a module that its `__init__` offers (such as `formats.bedrock`), may be imported as a whole.
    """
    if source == "toolcrib":
        return name in toolcrib.__all__ or (SRC / name / "__init__.py").is_file()
    if source.count(".") > 1:
        return False
    room = importlib.import_module(source)
    return name in room.__all__ or f"{source}.{name}" in PUBLIC_MODULES


PUBLIC_MODULES = frozenset(
    f"toolcrib.formats.{form}" for form in ("anthropic", "bedrock", "gemini", "mcp", "openai", "openai_responses")
)


DESIGN = frozenset(
    (
        *(
            "tool",
            "Tool",
            "ToolSpec",
            "ToolAuth",
            "Secret",
            "Source",
            "Registry",
            "Workbench",
            "Crib",
            "Call",
            "Caller",
        ),
        *("Context", "Depends", "Result", "Pending", "Approve", "Deny", "Input", "StatefulTool", "Handle"),
        *("CancellationToken", "ToolError", "ToolcribError"),
    )
)


def test_the_top_of_the_package_has_thirty_names_those_of_the_design_among_them() -> None:
    assert set(toolcrib.__all__) >= DESIGN
    assert set(toolcrib.__all__) - DESIGN == {
        *("File", "Image", "MCPSource", "SetupError", "Text", "__version__", "openapi_source"),
    }
    assert len(toolcrib.__all__) == 30
    for name in toolcrib.__all__:
        getattr(toolcrib, name)


@pytest.mark.parametrize(
    ("name", "place"),
    [("Broker", "toolcrib.core"), ("Variables", "toolcrib.core"), ("CallLog", "toolcrib.record")],
)
def test_a_name_that_has_moved_raises_with_its_new_place(name: str, place: str) -> None:
    with pytest.raises(ImportError, match=f"from {place} import {name}"):
        getattr(toolcrib, name)
    assert hasattr(importlib.import_module(place), name)


def test_dialects_and_bridges_import_public_names_only() -> None:
    inner = {
        f"{module.removeprefix('toolcrib.').removesuffix('.__init__')}: {source.removeprefix('toolcrib.')}.{name}"
        for user in USERS
        for module, file in modules(user)
        for source, name in imports(module, file)
        if source.split(".")[0] == "toolcrib"
        and not f"{source}.".startswith(f"toolcrib.{user.partition('.')[0]}.")
        and not is_public(source, name)
    }
    assert inner == set()
