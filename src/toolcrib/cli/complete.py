"""What a shell may complete: sources, names of tools, and of their arguments with the values that are listed."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import typer

from ..tools.git import is_git_address
from .arguments import SchemaReader, is_source, read_words
from .sources import open_sources, settings_of
from .terminal import silenced


def complete_source(incomplete: str) -> list[str]:
    """Paths of `.py` files, and of folders that may hold some."""
    folder, slash, start = incomplete.rpartition("/")
    try:
        paths = sorted(Path(f"{folder}{slash}" or ".").iterdir())
    except OSError:
        return []
    names = [path.name + ("/" if path.is_dir() else "") for path in paths if path.is_dir() or path.suffix == ".py"]
    return [f"{folder}{slash}{name}" for name in names if name.startswith(start) and not name.startswith(("_", "."))]


def complete_tool(context: typer.Context, incomplete: str) -> list[str]:
    """Names of tools, from the sources before it on the line."""
    words = [*(context.params.get("sources") or ()), *(context.params.get("words") or ()), *context.args]
    return _starting(_tools(context, [word for word in words if is_source(word)]), incomplete)


def complete_words(context: typer.Context, incomplete: str) -> list[str]:
    """Sources, then the name of a tool, then its arguments."""
    words = read_words(context.params.get("words") or (), context.params.get("tool"))
    if words.tool is None:
        paths = [] if words.sources else complete_source(incomplete)
        return _starting(_tools(context, words.sources), incomplete) + paths
    if context.info_name != "call" or (spec := _tools(context, words.sources).get(words.tool)) is None:
        return []
    arguments = words.arguments
    # Bash takes `=` for a word of its own, and leaves it out before a word that is empty.
    if arguments[-1:] == ("=",):
        return _values(spec.input_schema, arguments[-2])
    if arguments and "=" not in arguments[-1] and arguments[-2:-1] != ("=",):
        return _values(spec.input_schema, arguments[-1])
    key, equals, _ = incomplete.partition("=")
    if equals:
        return [f"{key}={value}" for value in _values(spec.input_schema, key)]
    written = {argument.partition("=")[0] for argument in arguments}
    return [f"{name}=" for name in spec.input_schema.get("properties", {}) if name not in written]


def complete_provider(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the providers of credentials."""
    try:
        from ..auth import load_catalogue

        settings = settings_of(context.params.get("config"))
        file = settings.path(settings.values.providers)
        return _starting(load_catalogue(None if file is None else Path(file)), incomplete)
    except Exception:
        return []


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _values(schema: Any, key: str) -> list[str]:
    reader = SchemaReader(schema)
    return reader.choices(reader.path_of(key)[1])


def _tools(context: typer.Context, sources: Sequence[str]) -> dict[str, Any]:
    """The specs of the tools of *sources* and of the options of the command line, by name."""
    try:
        with silenced():
            settings = settings_of(context.params.get("config"))
            named = [*sources, *(context.params.get("source") or ())]
            if any(map(is_git_address, named)):  # nobody waits for that at a key
                return {}
            return {spec.name: spec for spec in open_sources(named, settings, example="").bench.specs()}
    except Exception:
        return {}  # completion cannot report what is wrong; the command itself will
