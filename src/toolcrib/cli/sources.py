"""Sources of the command line, or of the settings → a workbench. One that cannot be loaded does not take the others
along.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core import ToolcribError
from ..tools import Tool, load
from ..workbench import Workbench, filtered
from ..workbench.views import loaded_from
from .dev import followed
from .streams import tell
from .usage import UsageError

if TYPE_CHECKING:
    from ..workbench.settings import NamedSource, Settings

A_SOURCE = "A source is a .py file, a folder of them, or an importable name: 'package.module' or 'package.module:name'"


@dataclass(frozen=True, slots=True)
class LoadedSource:
    """One source: its tools that can be called, as *source* offers them, and a sentence for each thing that cannot."""

    named: "NamedSource"
    source: Any
    tools: tuple[Tool[..., Any], ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """A workbench of what could be loaded, and a sentence for each thing that could not."""

    bench: Workbench
    problems: tuple[str, ...]


def open_sources(
    sources: Sequence[str],
    settings: "Settings",
    *,
    example: str,
    unless_set: Mapping[str, Any] | None = None,
    follow: bool = False,
    may_wait: bool = False,
    **options: Any,
) -> Opened:
    """A workbench of all tools of *sources*, or where there are none, of the *settings*.

    *options* go before the settings, and these before *unless_set*. With *follow* the workbench keeps up with what is
    saved in files.

    Raises UsageError, showing *example*, where no source is given, and ToolcribError where none could be loaded; a file
    that is followed *may_wait* until it is mended.
    """
    from ..workbench.settings import NamedSource

    named = tuple(NamedSource(source, source) for source in sources) or settings.sources
    if not named:
        where = f"No source of tools is given, and {settings.file} names none." if settings.file else ""
        raise UsageError(f"{where or 'No source of tools is given.'} {A_SOURCE}. To try: {example}")
    loaded = load_sources(named, settings, follow=follow)
    problems = tuple(problem for one in loaded for problem in one.problems)
    bench = Workbench([one.source for one in loaded], **settings.options(unless_set, **options))
    if problems and not bench.registry and not (may_wait and any(one.source != () for one in loaded)):
        raise ToolcribError("\n".join(problems))
    return Opened(bench, problems)


def load_sources(named: "Sequence[NamedSource]", settings: "Settings", *, follow: bool = False) -> list[LoadedSource]:
    """What each source gives, with the deadlines of the settings. Each is loaded once; with *follow*, a file is loaded
    again when it is saved.
    """
    _let_import(settings)
    origins: dict[str, str] = {}
    each = {(one.said, one.place): one for one in named}.values()
    return [_load(one, settings, origins, follow=follow) for one in each]


def _load(named: "NamedSource", settings: "Settings", origins: dict[str, str], *, follow: bool) -> LoadedSource:
    """*origins* says which source each name is of. The first one keeps it."""
    source: Any = ()
    tools: list[Tool[..., Any]] = []
    try:
        loaded = load(followed(named.source) if follow else named.source)
        problems = [*map(str, (*loaded.problems, *getattr(loaded.source, "problems", ())))]
        # One that changes goes on as itself; of any other the tools are enough.
        given: Any = loaded.source
        if given is None:
            given, twice = _firsts(loaded.tools, {}, named)
            problems += twice
        source = settings.timed(named.view(given))
        tools = loaded_from(source).tools
    except ToolcribError as error:
        source, problems = (), [_placed(error, named)]
    kept, taken = _firsts(tools, origins, named)
    if taken:
        source = filtered(source, without=[tool.spec.name for tool in tools if tool not in kept])
    return LoadedSource(named, source, tuple(kept), tuple(map(settings.struck, [*problems, *taken])))


def _firsts(
    tools: Sequence[Tool[..., Any]], origins: dict[str, str], named: "NamedSource"
) -> tuple[list[Tool[..., Any]], list[str]]:
    """Those of *tools* whose names no source has yet, `-` and `_` being one, and a problem for each other one."""
    kept: list[Tool[..., Any]] = []
    problems: list[str] = []
    for tool in tools:
        name = tool.spec.name.replace("-", "_")
        if name not in origins:
            origins[name] = named.said
            kept.append(tool)
            continue
        way_out = '@tool(name="...")' if named.place is None else 'prefix = "..."'
        problems.append(
            f"{named.said}: '{tool.spec.name}' is the name of a tool in {origins[name]} too, so only that one is here. "
            f"Give one another name: {way_out}."
        )
    return kept, problems


def tell_problems(opened: Opened) -> None:
    for problem in opened.problems:
        tell(f"Not loaded: {problem}")


def _let_import(settings: "Settings") -> None:
    # As `python -m` has it, but behind everything installed: a file here must not shadow a module of ours.
    for folder in ("", *([] if settings.file is None else [str(settings.file.parent.resolve())])):
        if folder not in sys.path:
            sys.path.append(folder)


def _placed(error: ToolcribError, source: "NamedSource") -> str:
    said = str(error)
    said = said if source.said in said else f"{source.said}: {said}"
    return said if source.place is None else f"{source.place}: {said}"
