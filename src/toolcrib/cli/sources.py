"""The sources of the command line, or those of the settings, opened: parts of a workbench or a crib.

The one file of the command that reads settings into a workbench; `check` reports on them.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import LoadError, ToolcribError
from ..machinery import call_later
from ..tools import load
from ..tools.git import DOCUMENT, is_document
from ..tools.loading import split_name
from ..tools.modules import webassembly_in
from ..tools.remote import is_remote
from ..workbench import Crib, Workbench
from ..workbench.config import LoadedSource, for_loaded, load_sources
from ..workbench.credentials import configured
from ..workbench.lifespan import START_TIMEOUT_S, name_of
from ..workbench.settings import NamedSource, Settings
from ..workbench.views import known_names, only_named, prefixes_of
from .arguments import SOURCE_FORMS
from .terminal import LogFormatter, UsageError, echo, no_such

if TYPE_CHECKING:
    from ..tools import Loaded

SAY_AFTER_S = 2.0
"""How long a server may take to start before a person is told what is waited for."""


@dataclass
class Opened:
    """The sources and options that a Crib or a Workbench is made of, and a sentence for each thing that is left out."""

    sources: list[Any]
    options: dict[str, Any]
    problems: tuple[str, ...]
    has_servers: bool = False

    @cached_property
    def bench(self) -> Workbench:
        bench = Workbench(self.sources, **self.options)
        bench.crib.own(self.options.get("store"))  # which closes it
        return bench

    @cached_property
    def crib(self) -> Crib:
        crib = Crib(self.sources, **self.options)
        crib.own(self.options.get("store"))
        return crib

    @asynccontextmanager
    async def started(self) -> AsyncGenerator[Workbench]:
        """Start the workbench, and wait for its servers as long as the first start by `npx -y` may take."""
        lifespan = self.bench.crib.lifespan
        lifespan.patience_s = START_TIMEOUT_S

        def say() -> None:
            if names := ", ".join(map(name_of, lifespan.unlisted())):
                echo(self.bench.redacted(f"Waiting for {names} to start, for at most {START_TIMEOUT_S:g} seconds ..."))

        timer = call_later(SAY_AFTER_S, say)
        try:
            async with self.bench as bench:
                timer.cancel()
                yield bench
        finally:
            timer.cancel()

    def listed(self) -> Workbench:
        """Return the workbench, with the tools of servers: they are known only once these have been connected to."""
        bench = self.bench
        if self.has_servers:

            async def connect() -> None:
                async with self.started():
                    self.problems += tuple(map(bench.redacted, map(str, bench.problems)))

            logging.getLogger("toolcrib").setLevel(logging.ERROR)  # what cannot be loaded is in the problems
            logging.getLogger("toolcrib.names").setLevel(logging.WARNING)
            bench.run_sync(connect())
        return bench

    def record_lines(self) -> None:
        """Write a line for each call into the log, beside what else records it."""
        from ..record import CallLines

        self.options["recorder"] = [*(self.options.get("recorder") or ()), CallLines()]

    def echo_problems(self) -> None:
        for problem in self.problems:
            echo(f"Not loaded: {problem}")


def load_listed(source: Any, *, connects: bool = True) -> "Loaded":
    """Load *source*, and connect to it where its tools are known only once it has started. Raises ToolcribError."""
    listing = load(source)
    server: Any = listing.source

    async def connect() -> None:
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await server.start()
        except TimeoutError:
            raise LoadError(f"It did not answer within {START_TIMEOUT_S:g} seconds.") from None
        listing.tools, listing.problems = list(server.tools()), list(server.problems)
        await server.stop()

    if connects and getattr(server, "listed_at_start", False):
        asyncio.run(connect())
    return listing


def open_sources(
    sources: Sequence[str],
    settings: Settings,
    *,
    example: str,
    only: Sequence[str] = (),
    tool: str | None = None,
    defaults: Mapping[str, Any] | None = None,
    follow: bool = False,
    needs_store: bool = False,
    may_wait: bool = False,
    store: str | None = None,
    **options: Any,
) -> Opened:
    """Open all tools of *sources*, or where there are none, of the *settings*; of these *only* the named.

    Servers that the *tool* cannot be in are left out, where one is named.

    *store* and *options* go before the settings, and these before *defaults*. With *follow* the workbench keeps up with
    what is saved in files; with *needs_store* there is a store for what waits.

    Raises UsageError, showing *example*, where no source is named, and ToolcribError where none could be loaded; a file
    that is followed *may_wait* until it is repaired.
    """
    listed = named_sources(sources, settings, example)
    log_fetches()
    candidates = load_sources(listed, settings, followed=_followed if follow else None)
    problems = tuple(problem for source in candidates for problem in source.problems)
    listings = candidates if tool is None else _with_tool(tool, candidates)
    settings = for_loaded(settings, candidates, is_part=bool(only) or listings != candidates)
    has_servers = any(source.is_listed_at_start for source in listings)
    if only:
        listings = _only(only, listings, is_complete=not (problems or has_servers))
    _require_tools(listings, problems, candidates, may_wait=may_wait)
    return Opened(
        [source.source for source in listings],
        {**_credentials(listings, settings, store, needs_store=needs_store), **settings.options(defaults, **options)},
        problems,
        has_servers=has_servers,
    )


def _require_tools(
    listings: Sequence[LoadedSource], problems: Sequence[str], candidates: Sequence[LoadedSource], *, may_wait: bool
) -> None:
    """Raise ToolcribError where *problems* have left no tool, unless one of the *candidates* may be repaired."""
    is_waiting = may_wait and any(source.source != () for source in candidates)
    if problems and not is_waiting and not any(source.tools for source in listings):
        raise ToolcribError("\n".join(problems))


def named_sources(sources: Sequence[str], settings: Settings, example: str) -> Sequence[NamedSource]:
    """Return *sources*, or without them those of the *settings*. Raises UsageError, showing *example*, without any."""
    listed = tuple(NamedSource(source, source) for source in sources) or settings.sources
    if not listed:
        where = f", and {settings.file} names none" if settings.file else ""
        raise UsageError(f"No source of tools is named{where}. {SOURCE_FORMS}. {example}")
    return listed


def log_fetches() -> None:
    """Write to standard error what is fetched, from now on."""
    if not logging.getLogger("toolcrib.git").handlers:
        log_lines("toolcrib.git", LogFormatter("%(message)s"))


def log_lines(name: str, formatter: logging.Formatter) -> None:
    """Write the log *name* to standard error, from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    log = logging.getLogger(name)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def _credentials(
    listings: Sequence[LoadedSource], settings: Settings, store: str | None, *, needs_store: bool
) -> dict[str, Any]:
    """Return the options `store` and `broker`, where a call may need them: their imports take a while."""
    needs_store = (
        needs_store
        or bool(settings.values.rule)
        or any(
            source.is_listed_at_start or any(tool.spec.auth or tool.needs_context for tool in source.tools)
            for source in listings
        )
    )
    has_extra = all(find_spec(name) is not None for name in ("sqlalchemy", "cryptography", "authlib"))
    options = {} if store is None else {"store": store}
    return configured(settings, options, default_store=needs_store and has_extra)


def _only(names: Sequence[str], listings: Sequence[LoadedSource], *, is_complete: bool) -> list[LoadedSource]:
    """Return the sources with the tools of these *names* alone. Raises UsageError for one that is in none of them."""
    tool_names = [tool.spec.name for source in listings for tool in source.tools]
    unknown = [name for name in names if name not in tool_names]
    if unknown and is_complete:
        message = no_such("--tool: there is no tool", unknown[0], tool_names)
        raise UsageError(f"{message} The tools are: {', '.join(tool_names)}.")
    return [part for source in listings if (part := _part(source, names)).tools or source.is_listed_at_start]


def _part(source: LoadedSource, names: Sequence[str]) -> LoadedSource:
    tools = tuple(tool for tool in source.tools if tool.spec.name in names)
    return replace(source, source=only_named(source.source, names), tools=tools)


def _with_tool(name: str, listings: Sequence[LoadedSource]) -> list[LoadedSource]:
    """Return *listings* without the servers that the tool *name* cannot be in."""
    is_known = any(tool.spec.name == name for source in listings for tool in source.tools)
    endings = {name[at:] for at in range(len(name))}  # one of them is the name of the tool at its server
    owners = [] if is_known else _owners(name, listings)
    return [
        source
        for source in listings
        if not source.is_listed_at_start or (source in owners and name in known_names(source.source, endings))
    ]


def _owners(name: str, listings: Sequence[LoadedSource]) -> Sequence[LoadedSource]:
    """Return the sources whose prefix *name* has; all of them where it has none of theirs."""
    return [source for source in listings if any(map(name.startswith, prefixes_of(source.source)))] or listings


def _followed(source: Any, named_source: NamedSource) -> Any:
    """Return *source*, that of *named*; where it is a file or a folder of tools, as one that follows what is saved."""
    # Imported here, as not every command follows files.
    from ..tools.watch import Watched, WatchedDocument, WatchedSandboxed

    if not isinstance(source, str | Path) or not str(source).strip():
        return source
    if is_document(source):
        document = Path(str(source).removeprefix(DOCUMENT)).expanduser()
        if is_remote(source) or not document.is_file():
            return source
        from ..tools import openapi_source

        read = partial(openapi_source, document, permissions=named_source.permissions, **named_source.openapi)
        return WatchedDocument(document, read)
    path, _ = split_name(source)
    if not path.exists():
        return source
    if webassembly_in(path):
        return WatchedSandboxed(path, named_source.permissions)
    return Watched(source) if path.is_dir() or path.suffix == ".py" else source
