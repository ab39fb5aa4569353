"""What the site of `make docs` has beside the pages of docs/: a start page, tables of settings, and a folder a version.

The README is the start page. Links out of docs/ lead to the repository. `build/docs` holds a folder for each version
that was built into it, and lists them for the switch in the header.
"""

import ast
import json
import posixpath
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from toolcrib import __version__
from toolcrib.auth import OAuth2, Provider
from toolcrib.schema.declared import Strict, doc_of
from toolcrib.workbench.options import DEFAULTS, Options
from toolcrib.workbench.settings import File as Settings
from toolcrib.workbench.settings import variables

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "docs"
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
_FILES = f"{REPOSITORY}/blob/main/"
_PICTURES = re.compile(r"https://raw\.githubusercontent\.com/[\w./-]+/docs/images/")
_LINK = re.compile(r"(?<=\]\()(?P<to>\.\.?/[^)\s#]+)")
# Methods without an underscore that only other rooms call, and what a room repeats of `toolcrib`.
_INTERNAL = {
    "workbench": ("Crib", "Registry", "Workbench", "Options"),
    "Workbench": ("invalidate", "ended", "would_ask"),
    "Crib": (
        *("runtime_for", "database", "add_view", "keep_view", "drop_view", "program", "by_caller", "offering"),
        *("is_own", "require_open", "describe", "start_required", "reopen", "own", "close_resources", "settle_sources"),
    ),
}
_SPECIAL = {"__init__", "__call__", "__getitem__", "__contains__", "__iter__", "__len__", "__version__"}
_REDIRECT = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={0}/"><a href="{0}/">{0}</a>\n'
)


class PublicNames(griffe.Extension):
    """What the reference shows of the code: texts of `Doc` too, and neither internal names nor fields said twice."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        if pkg.name == "toolcrib":
            self._prune(pkg)

    def _prune(self, parent: griffe.Object) -> None:
        if parent.is_module and parent.filepath.name == "__init__.py":
            parent.docstring = None  # it is for maintainers, and the page has its own
        for name in _INTERNAL.get(parent.name, ()):
            if name in parent.members:
                parent.members[name].public = False
        for name, member in [*parent.members.items()]:
            if member.is_alias:
                continue
            if name == "model_config" or (name.startswith("__") and name not in _SPECIAL):
                member.public = False
            if isinstance(member, griffe.Attribute):
                member.docstring = member.docstring or _documented(member)
                if "dataclass" in parent.labels and member.docstring is None and "property" not in member.labels:
                    del parent.members[name]  # its signature has it
            elif isinstance(member, griffe.Module | griffe.Class):
                self._prune(member)


def _documented(attribute: griffe.Attribute) -> griffe.Docstring | None:
    for part in attribute.annotation.iterate(flat=False) if isinstance(attribute.annotation, griffe.Expr) else ():
        for call in part.iterate(flat=False) if isinstance(part, griffe.Expr) else ():
            if isinstance(call, griffe.ExprCall) and str(call.function) == "Doc":
                return griffe.Docstring(ast.literal_eval(str(call.arguments[0])), parent=attribute)
    return None


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.site_dir = str(SITE / __version__)
    config.extra["version"]["default"] = __version__
    assert config.nav is not None
    explanations = next(part["Explanations"] for part in config.nav if "Explanations" in part)
    explanations += sorted(f"why/{page.name}" for page in (ROOT / "docs" / "why").glob("[a-z]*.md"))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    text = (ROOT / "README.md").read_text().replace(f"{_FILES}docs/", "")
    files.append(File.generated(config, "index.md", content=_PICTURES.sub("images/", text)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if page.file.src_uri.startswith(("why/", "promises", "limits.")):
        page.meta["search"] = {"boost": 0.2}  # they mention everything

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), match["to"]))
        return match["to"] if target.startswith("docs/") else _FILES + target

    return re.sub(r"^<!-- table: (\w+) -->$", _table, _LINK.sub(link, markdown), flags=re.M)


def on_post_build(config: MkDocsConfig) -> None:
    versions = sorted((page.parent.name for page in SITE.glob("*/index.html")), key=_number, reverse=True)
    entries = [{"version": version, "title": version, "aliases": []} for version in versions]
    (SITE / "versions.json").write_text(json.dumps(entries))
    (SITE / "index.html").write_text(_REDIRECT.format(versions[0]))


def _number(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def _table(match: re.Match[str]) -> str:
    return {"settings": settings_table, "Options": options_table}.get(match[1], lambda: table_of(match[1]))()


def table_of(name: str) -> str:
    """Return the fields of the declaration *name* with their documentation, as a table."""
    declaration = {"OAuth2": OAuth2, "Provider": Provider}[name]
    hints = get_type_hints(declaration, include_extras=True)
    rows = [f"| `{field}` | {doc} |\n" for field, hint in hints.items() if (doc := doc_of(hint))]
    return "| key | meaning |\n|---|---|\n" + "".join(rows)


def options_table() -> str:
    """Return the options of a workbench as a table."""
    # What is imported for type checkers only may be missing here.
    hints = get_type_hints(Options, localns={"Store": object}, include_extras=True)
    rows = [f"| `{name}` | {_default(name)} | {doc} |\n" for name, hint in hints.items() if (doc := doc_of(hint))]
    return "| option | default | meaning |\n|---|---|---|\n" + "".join(rows)


def _default(name: str) -> str:
    value = DEFAULTS[name]  # type: ignore[literal-required]
    return "the present time, in UTC" if callable(value) else f"`{value!r}`"


def settings_table() -> str:
    """Return the keys of toolcrib.toml as a table."""
    by_keys = {keys: name for name, keys in variables().items()}
    rows = []
    for keys, description in _settings(Settings):
        key = f"[{keys[0]}] {keys[1]}" if keys[0].startswith("[") else ".".join(keys)
        variable = f"`{by_keys[keys]}`" if keys in by_keys else ""
        rows.append(f"| `{key}` | {variable} | {description} |\n")
    return "| key | variable | meaning |\n|---|---|---|\n" + "".join(rows)


def _settings(model: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    for name, info in model.model_fields.items():
        keys = (*above, info.alias or name)
        yield keys, info.description or ""
        kind = next(iter(get_args(info.annotation)), info.annotation)
        if isinstance(kind, type) and issubclass(kind, Strict):
            table = ".".join((*(part.strip("[]") for part in above), keys[-1]))
            yield from _settings(kind, (f"[{table}]" if get_args(info.annotation) else table,))
