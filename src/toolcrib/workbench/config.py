"""From settings to what a Crib is made of: sources that are loaded, with their views and deadlines, and options.

A program and the command go the same way. What cannot be loaded is a problem of its own source, and of no other.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..core import LoadError, ToolcribError
from ..machinery import compile_globs
from ..tools import Loaded, LoadProblem, Permissions, load
from ..tools.lock import LOCK, Hold, Lock, read_lock
from ..tools.mcp.targets import Target
from ..tools.permissions import Permitted
from ..tools.remote import MCPSource, is_remote, remote_names
from .credentials import configured
from .options import Options
from .registry import fold
from .settings import SOURCES, NamedSource, Settings, find_settings, read_settings
from .views import AnyTool, View, loaded_from

_log = logging.getLogger("toolcrib")


@dataclass(frozen=True, slots=True)
class LoadedSource:
    """One source: its tools that can be called, as *source* offers them, and a sentence for each thing that cannot."""

    named: NamedSource
    source: Any
    tools: tuple[AnyTool, ...]
    problems: tuple[str, ...]
    is_listed_at_start: bool = False
    """Whether there are no tools yet: they are known once the source has started."""


@dataclass(frozen=True, slots=True)
class Config:
    """What a Crib is made of: `Crib(config.sources, **config.options)`. *problems* are of sources that are left out.

    *own_store* is the store among the options, where it was made for this: the crib closes it.
    """

    sources: list[Any]
    options: Options
    problems: tuple[str, ...] = ()
    own_store: Any = None


def config_of(
    file: str | Path | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
    *,
    environ: Mapping[str, str] = os.environ,
) -> Config:
    """Return what *file* and the variables of *environ* configure. *options* override it; secrets are those of all.

    Without *file*, it is the one that the command finds. Raises SettingsError for settings that are not valid, and
    LoadError where there is no file, and for a required source that cannot be loaded.
    """
    path = find_settings(None if file is None else Path(file), environ)
    if path is None:
        raise LoadError("There is no toolcrib.toml here or above, and no pyproject.toml with a table [tool.toolcrib].")
    settings = read_settings(path, environ)
    lock_option = options.get("lock")
    sources = load_sources(settings.sources, settings, lock=None if lock_option is None else lock_in(lock_option))
    if failures := _problems_of(source for source in sources if source.named.required and not source.tools):
        raise LoadError("\n".join(failures))
    parts = configured(settings := for_loaded(settings, sources), options)
    all_options: Any = {**settings.options(), **options, **parts}
    all_options["secrets"] = (*settings.secrets, *options.get("secrets", ()))
    return Config([source.source for source in sources], all_options, _problems_of(sources), parts.get("store"))


def _problems_of(sources: Iterable[LoadedSource]) -> tuple[str, ...]:
    return tuple(problem for source in sources for problem in source.problems)


def load_sources(
    named: Iterable[NamedSource],
    settings: Settings,
    *,
    followed: Callable[[Any, NamedSource], Any] | None = None,
    lock: Lock | None = None,
) -> list[LoadedSource]:
    """Load each source once, with the deadlines of *settings*. *followed* makes of a source one that follows its files.

    What *lock*, or `toolcrib.lock`, has of a source holds: its commit, its content, and the definitions of its tools.
    From then on, modules beside the settings and in the current folder can be imported.
    """
    _let_import(settings)
    lock = lock or read_lock(lock_file(settings))
    origins: dict[str, NamedSource] = {}
    unique_sources = {(single.written, single.place): single for single in named}.values()
    return [_load(single, settings, lock, origins, followed) for whole in unique_sources for single in _single(whole)]


def for_loaded(settings: Settings, sources: Sequence[LoadedSource], *, is_part: bool = False) -> Settings:
    """Return *settings* for *sources*: where these are a part of theirs, or stand in for them, what a rule or limit
    names may be missing, which is logged.
    """
    if has_all(settings, sources) and not is_part:
        return settings
    if not any(source.is_listed_at_start for source in sources):
        for key, number, sentence in settings.unknown_names([tool.spec for source in sources for tool in source.tools]):
            _log.warning("%s: This %s %s", settings.place(key, number)[0], key, sentence)
    return settings.for_some()


def has_all(settings: Settings, sources: Sequence[LoadedSource]) -> bool:
    """Return whether *sources* are all those of *settings*, and none of them is left out."""
    are_others = settings.values.source and any(source.named.place in (None, SOURCES) for source in sources)
    return not are_others and all(source.source != () for source in sources)


def _single(named: NamedSource) -> list[NamedSource]:
    """Return *named*, or where it is a file with several servers, each of them."""
    if not isinstance(named.source, str) or not is_remote(named.source):
        return [named]
    try:
        names = remote_names(named.source)
    except LoadError:  # which is reported where it is loaded
        return [named]
    # Each has its own name there.
    server = {key: value for key, value in named.server.items() if key != "name"}
    whole = names == [named.source]
    return [named] if whole else [replace(named, written=name, source=name, server=server) for name in names]


def lock_file(settings: Settings) -> Path:
    """Return where what is locked is noted: beside the settings, or in the current folder."""
    return (Path() if settings.file is None else settings.file.parent) / LOCK


def _load(
    named: NamedSource,
    settings: Settings,
    lock: Lock | None,
    origins: dict[str, NamedSource],
    followed: Callable[[Any, NamedSource], Any] | None,
) -> LoadedSource:
    source: Any = ()
    tools: list[AnyTool] = []
    is_listed_at_start = False
    try:
        content = load(named.granted(_source_now(named, lock, followed)))
        problems = [*map(str, (*content.problems, *getattr(content.source, "problems", ())))]
        # A source that changes stays itself; of any other the tools are enough.
        offer: Any = content.source
        is_listed_at_start = getattr(offer, "listed_at_start", False)
        if offer is None:
            offer, repeats = _firsts(content.tools, {}, named)
            problems += repeats
        else:
            _set_options(offer, named, is_listed_at_start=is_listed_at_start)
        hold = None if lock is None else lock.hold(named.source)
        offer, changes = accepted(offer, content, hold, named.shown)
        problems += map(str, changes)
        source = with_deadlines(named.view(offer), settings)
        tools = [] if is_listed_at_start else loaded_from(source).tools
    except ToolcribError as error:
        source, problems = (), [_placed(error, named)]
    own_tools, conflicts = _firsts(tools, origins, named)
    if conflicts:
        taken = {tool.spec.name for tool in tools if tool not in own_tools}
        source = View(str(source), (source,), lambda tools: [tool for tool in tools if tool.spec.name not in taken])
    return LoadedSource(
        named, source, tuple(own_tools), tuple(map(settings.redact, [*problems, *conflicts])), is_listed_at_start
    )


def _source_now(named: NamedSource, lock: Lock | None, followed: Callable[[Any, NamedSource], Any] | None) -> Any:
    """Return the source as *lock* has it, or what follows its files and stays within the lock."""
    source: Any = named.source if lock is None else lock.pinned(named.source)
    if followed is not None:
        source = followed(source, named)
        if lock is not None and hasattr(source, "require_locked"):
            source.require_locked = partial(lock.pinned, named.source)
    return source


def _set_options(source: Any, named: NamedSource, *, is_listed_at_start: bool) -> None:
    """Set what the settings say of a source that changes."""
    source.required = named.required and (named.place is not None or not is_listed_at_start)
    if named.only:
        source.only = named.only
    if named.server and isinstance(target := getattr(source, "target", None), Target):
        source.target = replace(target, **named.server)


def with_deadlines(source: Any, settings: Settings) -> Any:
    """Return *source*, its tools with the deadlines of *settings*."""
    deadlines = [(compile_globs(table.tools), table.timeout_s) for table in settings.values.deadline]

    def timed(tool: AnyTool) -> AnyTool:
        due = next((timeout_s for names, timeout_s in deadlines if names.fullmatch(tool.spec.name)), None)
        return tool if due is None else tool.replace(spec=replace(tool.spec, timeout_s=due))

    return View(str(source), (source,), lambda tools: [*map(timed, tools)]) if deadlines else source


def _firsts(
    tools: Sequence[AnyTool], origins: dict[str, NamedSource], named: NamedSource
) -> tuple[list[AnyTool], list[str]]:
    """Return the *tools* whose names no source in *origins* has, with `-` and `_` as one, and a problem for each other
    one.
    """
    firsts: list[AnyTool] = []
    problems: list[str] = []
    for tool in tools:
        name = fold(tool.spec.name)
        if name not in origins:
            origins[name] = named
            firsts.append(tool)
            continue
        way_out = '@tool(name="...")' if named.place is None else 'prefix = "..."'
        problems.append(
            f"{named.shown}: a tool in {origins[name].shown} has the name '{tool.spec.name}' too, so this one is left "
            f"out. Rename one of them: {way_out}."
        )
    return firsts, problems


def _let_import(settings: Settings) -> None:
    # As `python -m` does, but after everything installed: a file here must not shadow a module of ours.
    for folder in ("", *([] if settings.file is None else [str(settings.file.parent.resolve())])):
        if folder not in sys.path:
            sys.path.append(folder)


def _placed(error: ToolcribError, source: NamedSource) -> str:
    message = str(error)
    message = message if source.shown in message else f"{source.shown}: {message}"
    return message if source.place is None else f"{source.place}: {message}"


# What a lock file has: sources at their commit, with their content, and the tools that were accepted


def lock_in(file: str | Path) -> Lock:
    """Return what is in *file*. Raises LoadError; also where there is no such file."""
    lock = read_lock(Path(file))
    if lock is None:
        raise LoadError(f"There is no lock file {file}. Write it, in its folder: toolcrib lock SOURCE...")
    return lock


def pinned(source: Any, lock: Lock) -> tuple[Any, Hold | None]:
    """Return *source* as it was locked, for `load`, and what holds it to that. Raises LoadError as `Lock.pinned` does.

    What is not text, nor a path or a server, is as it was given.
    """
    target, permissions = source, Permissions()
    if isinstance(source, Permitted):
        target, permissions = source.source, source.permissions
    if isinstance(target, Path):
        target = str(target)
    if not isinstance(target, str | MCPSource) or hasattr(target, "__toolcrib__"):
        return source, None
    return permissions.to(lock.pinned(target)), lock.hold(target)


def accepted(offered: Any, loaded: Loaded, hold: Hold | None, name: str) -> tuple[Any, list[LoadProblem]]:
    """Return *offered*, what *loaded* of the source *name* offers, without what was not accepted, and the problems."""
    if hold is None:
        return offered, []
    source: Any = loaded.source
    if getattr(source, "listed_at_start", False):
        source.hold, source.expected = hold, tuple(hold.entry.tools)
        return offered, []
    hold(loaded.tools)
    return View(name, (offered,), hold, hold=hold), hold.problems
