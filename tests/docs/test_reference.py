"""docs/reference.md has every public name of every public room, with its signature as it is now.

`python tests/docs/test_reference.py` writes the signatures and tables, and what a new name's docstring begins with.
The sentences are written by hand. Signatures are read from the source, so no optional package has to be there.
"""

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from toolcrib.auth import OAuth2, Provider
from toolcrib.bridges import FRAMEWORKS
from toolcrib.call import Retry
from toolcrib.formats.format import Format
from toolcrib.schema.declared import Strict, doc_of
from toolcrib.workbench.limits import Limit
from toolcrib.workbench.options import DEFAULTS, Options
from toolcrib.workbench.rules import Rule
from toolcrib.workbench.settings import File, variables

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"
_ROOMS = (
    "core",
    "tools",
    "workbench",
    "auth",
    "store",
    "net",
    "record",
    "formats",
    "agent",
    "bridges",
    "serve",
    "testing",
)
ROOMS = ("toolcrib", *(f"toolcrib.{room}" for room in _ROOMS))
PROVIDERS = ("openai", "openai_responses", "anthropic", "gemini", "bedrock")
FORMATS = ("tools", "losses", "tool_choice", "calls", "reply", "messages", "conversation")
FORMATS_MCP = ("tools", "losses", "calls", "messages", "tool_definition", "annotations", "call_result")
# Of base classes that are not public, what users call; and what only other rooms call.
_OPENAI = ("__init__", "close")
# Of rooms that other rooms build on, what users import.
SHOWN = {
    "toolcrib.core": (
        *("AnswerError", "Audio", "Broker", "CallRecord", "Credential", "Data", "DefinitionError", "Emitted"),
        *("LoadError", "NameConflictError", "Progress", "Recorder", "Repair", "UnknownToolError", "Variables"),
    ),
    "toolcrib.tools": ("Permissions",),
}
INHERITED = {
    "Workbench": (),
    "OpenAIChat": _OPENAI,
    "OpenAIResponses": _OPENAI,
    "AnthropicModel": ("close",),
    "MCPSource": ("command", "url", "headers", "env", "folder", "allow", "required"),
    "CredentialBroker": ("needed", "discover", "missing", "flow"),
    "GeminiModel": _OPENAI,
    "Store": ("__init__", "transact", "rotate_key", "close"),
}
HIDDEN = {
    "Workbench": ("invalidate", "ended", "would_ask"),
    "Crib": (
        *("runtime_for", "database", "add_view", "keep_view", "drop_view", "program", "by_caller", "offering"),
        *("is_own", "require_open", "describe", "start_required", "reopen", "own", "close_resources", "settle_sources"),
    ),
}
DECLARED: Mapping[str, type] = {each.__name__: each for each in (Options, Rule, Limit, Retry, OAuth2, Provider)}

_ENTRY = re.compile(
    r"^### (?P<name>[\w.]+)\n\n(?P<sentences>.*?)\n\n(?P<generated>(?:```pyi\n|\| ).*?)(?=^##|\Z)", re.M | re.S
)
_STUB = re.compile(r"^```pyi\n(?P<stub>.*?)^```$", re.M | re.S)
_SPECIAL = {"__init__", "__call__", "__getitem__", "__contains__", "__iter__", "__len__"}


@cache
def source_of(module: str) -> tuple[ast.Module, str]:
    """The source of *module*, and the package that its relative imports start from."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    package = module if spec.submodule_search_locations else module.rpartition(".")[0]
    return ast.parse(Path(spec.origin).read_text()), package


def exports(room: str) -> list[str]:
    """Return what `__all__` of *room* lists, but modules, whose names are described with them."""
    tree, _ = source_of(room)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module is None]
    modules = {alias.name for node in imports for alias in node.names}
    (listed,) = (node for node in tree.body if _names(node) == ["__all__"])
    assert isinstance(listed, ast.Assign | ast.AnnAssign) and listed.value is not None
    return [name for name in ast.literal_eval(listed.value) if name not in modules]


def functions_of(module: str) -> list[str]:
    """The public functions of a bridge. `read` is what an entry point refers to."""
    tree, _ = source_of(module)
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [name for name in names if name != "read" and not name.startswith("_")]


def definition(module: str, name: str) -> tuple[str, list[ast.stmt]]:
    """The module that defines what *module* has as *name*, and its statements there: several for overloads."""
    tree, package = source_of(module)
    if found := [node for node in tree.body if name in _names(node)]:
        return module, found
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    origin = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                    return definition(origin, alias.name)
        if isinstance(node, ast.Assign) and any(
            name in _names(ast.Assign([each], node.value)) for each in _targets(node)
        ):
            return "toolcrib.formats.format", [_function_of_format(name)]
    raise LookupError(f"{module}.{name}")


def _targets(node: ast.Assign) -> list[ast.expr]:
    (target,) = node.targets
    return target.elts if isinstance(target, ast.Tuple) else []


def _function_of_format(name: str) -> ast.FunctionDef:
    """The method of `Format` that every provider's module exports as a function: `tools, ... = _FORMAT.tools, ...`."""
    classes = [definition("toolcrib.formats.format", kind)[1][0] for kind in ("Format", "ReadableFormat")]
    parts = [part for declared in classes if isinstance(declared, ast.ClassDef) for part in declared.body]
    (method,) = (part for part in parts if isinstance(part, ast.FunctionDef) and part.name == name)
    copy = ast.parse(ast.unparse(method)).body[0]
    assert isinstance(copy, ast.FunctionDef)
    del copy.args.args[0]
    return copy


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


def stub(module: str, name: str) -> list[ast.stmt]:
    """The signature of a public name as the source has it: bodies, private names and docstrings left out."""
    if name == "__version__":
        return ast.parse("__version__: str").body
    origin, found = definition(module, name)
    made = [part for node in found if (part := _bare(node, len(found) > 1))]
    for node in made:
        if isinstance(node, ast.ClassDef):
            node.body = [part for part in node.body if not {*_names(part)} & {*HIDDEN.get(name, ())}]
            if inherited := list(_inherited(origin, node) if name in INHERITED else ()):
                own = [part for part in node.body if _names(part)]
                node.body = sorted([*own, *inherited], key=lambda part: not isinstance(part, ast.AnnAssign))
    return made


def _inherited(module: str, node: ast.ClassDef) -> Iterator[ast.stmt]:
    """What INHERITED lists of the bases of *node*, which are left out of its signature."""
    bases, node.bases = node.bases, []
    for base in bases:
        yield from _of_base(module, base, {*INHERITED[node.name]})


def _of_base(module: str, base: ast.expr, names: set[str]) -> Iterator[ast.stmt]:
    name = ast.unparse(base).partition("[")[0]
    if not names or name in ("ABC", "Generic"):
        return
    origin, found = definition(module, name)
    for node in (node for node in found if isinstance(node, ast.ClassDef)):
        yield from (bare for part in node.body if {*_names(part)} & names and (bare := _bare(part, False)))
        for further in node.bases:
            yield from _of_base(origin, further, names)


def _bare(node: ast.stmt, has_overloads: bool) -> ast.stmt | None:
    node = ast.parse(ast.unparse(node)).body[0]  # a copy
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            node.decorator_list = [one for one in node.decorator_list if ast.unparse(one) != "at_home"]
            decorators = [ast.unparse(one) for one in node.decorator_list]
            if has_overloads and "overload" not in decorators:
                return None
            node.body = [ast.Expr(ast.Constant(...))]
        case ast.ClassDef():
            names = [name for part in node.body for name in _names(part)]
            public = [
                bare
                for part in node.body
                if _is_public(part) and (bare := _bare(part, names.count(_names(part)[0]) > 1))
            ]
            node.body = public or [ast.Expr(ast.Constant(...))]
            node.decorator_list = []
        case ast.AnnAssign():
            node.annotation = _Plain().visit(node.annotation)
            if isinstance(node.value, ast.Call):
                node.value = ast.Constant(...)
        case _:
            pass
    return node


class _Plain(ast.NodeTransformer):
    """Annotations without what `Annotated` adds to the type."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        is_annotated = isinstance(node.value, ast.Name) and node.value.id == "Annotated"
        return node.slice.elts[0] if is_annotated and isinstance(node.slice, ast.Tuple) else node


def _is_public(part: ast.stmt) -> bool:
    match part:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return not part.name.startswith("_") or part.name in _SPECIAL
        case ast.AnnAssign(target=ast.Name(id=name)):
            return not name.startswith("_")
        case _:
            return False


def entries() -> Iterator[tuple[str, list[tuple[str, list[ast.stmt]]]]]:
    """Each room with its entries: a name, and its signature. What several rooms export is an entry of the first."""
    seen: set[str] = set()
    for room in ROOMS:
        names = [name for name in sorted(SHOWN.get(room) or exports(room), key=str.lower) if name not in seen]
        seen.update(names)
        found = [(name, stub(room, name)) for name in names]
        if room == "toolcrib.formats":
            for module, functions in (("openai", (*FORMATS, "read_conversation")), ("mcp", FORMATS_MCP)):
                whole = [part for name in functions for part in stub(f"{room}.{module}", name)]
                found.append((f"formats.{module}", whole))
        if room == "toolcrib.bridges":
            for framework in FRAMEWORKS:
                module = f"{room}.{framework}"
                whole = [part for name in functions_of(module) for part in stub(module, name)]
                found.append((f"bridges.{framework}", whole))
        yield room, found


def signatures() -> dict[str, list[ast.stmt]]:
    return {name: made for _, found in entries() for name, made in found}


def table_of(declaration: type) -> str:
    """The fields of *declaration* with their documentation, as a table."""
    if issubclass(declaration, Strict):
        rows = [f"| `{name}` | {info.description} |\n" for name, info in declaration.model_fields.items()]
        return "| key | meaning |\n|---|---|\n" + "".join(rows)
    made = ""
    # What is imported for type checkers only may be missing here.
    for name, hint in get_type_hints(declaration, localns={"Store": object}, include_extras=True).items():
        if doc := doc_of(hint):
            made += f"| `{name}` | {_default(DEFAULTS[name]) if declaration is Options else ''} | {doc} |\n"  # type: ignore[literal-required]
    if declaration is Options:
        return f"| option | default | meaning |\n|---|---|---|\n{made}"
    return "| field | meaning |\n|---|---|\n" + made.replace(" |  | ", " | ")


def _default(value: object) -> str:
    return "the present time, in UTC" if callable(value) else f"`{value!r}`"


def settings_table() -> str:
    """The keys of toolcrib.toml, as a table."""
    made = "| key | variable | meaning |\n|---|---|---|\n"
    by_keys = {keys: name for name, keys in variables().items()}
    for keys, description in _settings(File):
        variable = by_keys.get(keys)
        made += f"| `{_key(keys)}` | {f'`{variable}`' if variable else ''} | {description} |\n"
    return made


def _settings(model: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    for name, info in model.model_fields.items():
        keys = (*above, info.alias or name)
        yield keys, info.description or ""
        kind = next(iter(get_args(info.annotation)), info.annotation)
        if isinstance(kind, type) and issubclass(kind, Strict):
            name = ".".join((*(part.strip("[]") for part in above), keys[-1]))
            yield from _settings(kind, (f"[{name}]" if get_args(info.annotation) else name,))


def _key(keys: tuple[str, ...]) -> str:
    return f"[{keys[0]}] {keys[1]}" if keys[0].startswith("[") else ".".join(keys)


def documented() -> dict[str, re.Match[str]]:
    return {entry["name"]: entry for entry in _ENTRY.finditer(PAGE.read_text())}


def test_every_public_name_is_in_the_reference_once_and_nothing_else() -> None:
    written = [entry["name"] for entry in _ENTRY.finditer(PAGE.read_text())]
    assert sorted(written) == sorted(signatures())


def test_every_name_is_described_under_its_room() -> None:
    page = PAGE.read_text()
    assert "TO BE WRITTEN" not in page
    rooms = {room: page.partition(f"\n## {room}\n")[2].partition("\n## ")[0] for room in ROOMS}
    misplaced = [name for room, found in entries() for name, _ in found if f"### {name}\n" not in rooms[room]]
    assert misplaced == []


def test_the_signatures_in_the_reference_are_those_of_the_code() -> None:
    written = documented()
    stale = [
        name
        for name, made in signatures().items()
        if name in written and name != "Options" and _dump(_stub_in(written[name])) != _dump(_text(made))
    ]
    assert stale == [], "python tests/docs/test_reference.py writes them again"


def test_the_tables_of_options_and_settings_are_those_of_their_declarations() -> None:
    page = PAGE.read_text()
    stale = [name for name, declaration in DECLARED.items() if table_of(declaration) not in page]
    assert stale == [] and settings_table() in page, "python tests/docs/test_reference.py writes them again"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_provider_has_the_functions_that_the_reference_shows_for_one(provider: str) -> None:
    def of(module: str) -> list[str]:
        return [_text(stub(f"toolcrib.formats.{module}", name)) for name in FORMATS]

    assert of(provider) == of("openai")
    module = importlib.import_module(f"toolcrib.formats.{provider}")
    assert [getattr(module, name).__func__ for name in FORMATS] == [getattr(Format, name) for name in FORMATS]


def test_no_two_public_things_have_one_name() -> None:
    """A name that two rooms export is the same thing in both."""
    defined: dict[str, dict[str, str]] = {}
    for room in (*sorted({*ROOMS} - {"toolcrib.core"}), "toolcrib.call", "toolcrib.schema"):
        for name in exports(room):
            module, _ = definition(room, name)
            defined.setdefault(name, {})[module] = room
    assert {name: rooms for name, rooms in defined.items() if len(rooms) > 1} == {}


def _text(made: list[ast.stmt]) -> str:
    return ast.unparse(ast.Module(made, []))


def _dump(text: str) -> str:
    return ast.dump(ast.parse(text))


def _stub_in(entry: re.Match[str]) -> str:
    found = _STUB.search(entry["generated"])
    return found["stub"] if found else ""


def _formatted(made: list[ast.stmt]) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    command = [ruff, "format", "--stdin-filename", "stub.pyi", "--line-length", "110", "-"]
    text = _text(made)
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _first_sentences(room: str, name: str) -> str:
    """What the docstring of a name begins with, as a start for its entry."""
    try:
        _, (node, *_) = definition(room, name)
    except LookupError:
        return "TO BE WRITTEN."
    doc = ast.get_docstring(node) if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) else None
    return re.sub(r"\s+", " ", (doc or "TO BE WRITTEN.").partition("\n\n")[0])


def _write(sentences: Mapping[str, str], introduction: Callable[[str], str]) -> str:
    page = introduction("")
    for room, found in entries():
        page += f"\n## {room}\n\n{introduction(room)}\n"
        for name, made in found:
            page += f"\n### {name}\n\n{sentences.get(name) or _first_sentences(room, name)}\n\n"
            if name != "Options":
                page += f"```pyi\n{_formatted(made)}```\n"
            if name in DECLARED:
                page += ("" if name == "Options" else "\n") + table_of(DECLARED[name])
    return f"{page}\n## Settings\n\n{introduction('Settings')}\n\n{settings_table()}"


def main() -> None:
    page = PAGE.read_text()

    def introduction(room: str) -> str:
        if not room:
            return page.partition("\n## ")[0]
        text = page.partition(f"\n## {room}\n")[2].partition("\n#")[0]
        return (text.partition("\n| ")[0] if room == "Settings" else text).strip() or "TO BE WRITTEN."

    PAGE.write_text(_write({name: entry["sentences"] for name, entry in documented().items()}, introduction))


if __name__ == "__main__":
    main()
