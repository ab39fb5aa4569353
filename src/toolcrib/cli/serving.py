"""`toolcrib serve` and `dev`: a server of the tools, over MCP and HTTP, and what a person is shown of it."""

import asyncio
import gc
import json
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core import SetupError, ToolcribError
from ..workbench.credentials import store_of
from ..workbench.settings import ServerTable, Settings, read_settings
from .app import Session, command, group
from .arguments import Port, SourceNames, ToolNames
from .processes import Process, fork, require_local
from .prompts import answer_as_operator
from .sources import log_fetches, log_lines
from .terminal import LogFormatter, UsageError, echo, log_to_stderr, prints_to_stderr

if TYPE_CHECKING:
    from ..workbench import Crib
    from .sources import Opened

DEFAULT_TIMEOUT_S = 60.0
"""The longest that a call of an MCP client may take, where no other time is set."""

app = group()

_TIMED = LogFormatter("%(asctime)s %(message)s", "%H:%M:%S")

_Stdio = Annotated[bool, typer.Option("--stdio", help="Serve over standard input and output, not over HTTP.")]
_Workers = Annotated[
    int, typer.Option("--workers", min=1, max=1000, metavar="NUMBER", help="Serve in so many processes (default: 1).")
]
_Host = Annotated[str | None, typer.Option(metavar="ADDRESS", help="The address to listen on (default: 127.0.0.1).")]


@command(app, "serve", example="toolcrib serve tools.py --port 8642", takes="config store")
def serve(
    session: Session,
    sources: SourceNames = None,
    tool: ToolNames = None,
    stdio: _Stdio = False,
    host: _Host = None,
    port: Port = None,
    workers: _Workers = 1,
    watch: Annotated[
        bool, typer.Option("--watch/--no-watch", help="Load files again when they are saved, and notify the clients.")
    ] = True,
) -> None:
    """Serve tools to MCP clients, and as an HTTP API.

    Over HTTP they are served to this computer only, unless the settings let in clients with keys or tokens. An MCP
    client that starts its servers itself starts this one with --stdio. How calls run is set in the settings, or by
    variables such as TOOLCRIB_TIMEOUT_S.
    """
    how = {"follow": watch, "example": "For example: toolcrib serve toolcrib.demo"}
    _serve(session, sources or (), tool or (), stdio=stdio, host=host, port=port, workers=workers, how=how)


@command(app, "dev", example="toolcrib dev tools.py", takes="config store")
def dev(
    session: Session,
    sources: SourceNames = None,
    tool: ToolNames = None,
    stdio: _Stdio = False,
    host: _Host = None,
    port: Port = None,
) -> None:
    """Serve tools while you write them.

    What you save is loaded again, the settings too, and the outcome is shown. Models see the text of exceptions. A file
    that is broken at the start is waited for.
    """
    log_lines("toolcrib.watch", _TIMED)
    example = "For example: toolcrib dev tools.py"
    how = {"follow": True, "may_wait": True, "show_errors": True, "example": example}
    _serve(session, sources or (), tool or (), stdio=stdio, host=host, port=port, how=how, is_dev=True)


def _serve(
    session: Session,
    sources: Sequence[str],
    tools: Sequence[str],
    *,
    stdio: bool,
    host: str | None,
    port: int | None,
    how: dict[str, Any],
    workers: int = 1,
    is_dev: bool = False,
) -> None:
    """Serve until the client leaves, or a signal ends it. *how* `open_sources` opens the sources.

    Raises UsageError for a host that others could reach without a key.
    """
    _require_forks(workers, stdio=stdio)
    settings, at = session.settings, session.settings.values.server
    if not stdio:
        _require_loopback_without_keys(host, at)
    report = set_up_log(session, is_dev=is_dev)
    command = stdio_command(sources, tools, settings.file)
    open_sources = partial(opened, session, sources, tools, is_dev=is_dev, **how)
    if stdio:
        _serve_stdio(session, open_sources(report=report).crib, report, command, is_dev=is_dev)
        return
    host, port = host or at.host, at.port if port is None else port
    _serve_http(session, open_sources, report, command, host=host, port=port, workers=workers, is_dev=is_dev)


def _serve_http(
    session: Session,
    open_sources: Callable[..., "Opened"],
    report: Callable[[str], None],
    command: Sequence[str],
    *,
    host: str,
    port: int,
    workers: int,
    is_dev: bool,
) -> None:
    from ..serve.access.authentication import configured_identify
    from ..serve.http import listening, serve_http, url_of

    settings, at, is_json = session.settings, session.settings.values.server, report is not echo
    session.interrupts.grace_s += at.grace_s
    try:
        listener = listening(host, port)
    except SetupError as error:
        raise SetupError(f"{error} The port is set with --port.") from None
    with listener:
        process, announce = _forked(session, workers, report)
        crib = open_sources(report=announce).crib
        identify = configured_identify(settings, crib.database)
        speaks = process is None or process.is_first
        base_url = (at.public_base_url or url_of(host, listener)) if speaks else None
        has_console, link = _console(crib, identify, at, base_url)

        def ready(url: str) -> None:
            text = f"Serving MCP at {url}"
            at_text = _http_text(url, command, base_url=at.public_base_url, has_keys=at.keys, console=link)
            announce(text if is_json else at_text)
            gc.collect()
            gc.freeze()  # the definitions of all tools are never garbage, and there may be thousands
            if process is not None:
                process.begin()

        server = serve_http(
            crib,
            identify,
            host=host,
            listener=listener,
            base_url=at.public_base_url,
            allowed_hosts=at.allowed_hosts,
            grace_s=at.grace_s,
            workbenches=at.workbenches,
            asks=process is None,
            console=has_console,
            roles=settings.roles,
            ready=ready,
        )
        # Of several processes none has the terminal for itself.
        asking = answer_as_operator(crib, report, asks=not is_json and process is None)
        served = _beside(asking, server)
        is_changed = session.run(_until_changed(settings, report, served) if is_dev else served, serves=True)
    if is_changed:
        report("The server starts again.")
        os.execv(sys.executable, [sys.executable, "-m", "toolcrib", *sys.argv[1:]])  # noqa: S606 - itself, again


def _forked(
    session: Session, workers: int, report: Callable[[str], None]
) -> tuple[Process | None, Callable[[str], None]]:
    """Return which of several processes this is, None for a single one, and what reports for all: that of the first."""
    if workers == 1:
        return None, report
    require_local(store_of(session.settings, session.store))
    process = fork(workers, session.interrupts, report)
    return process, report if process.is_first else lambda _: None


def _require_forks(workers: int, *, stdio: bool) -> None:
    """Raise UsageError for several *workers* where there can be one."""
    if workers > 1 and (stdio or not hasattr(os, "fork")):
        reason = "with --stdio, one process serves one client" if stdio else "this system cannot fork processes"
        raise UsageError(f"--workers {workers}: {reason}. Leave it out.")


def _serve_stdio(
    session: Session, crib: "Crib", report: Callable[[str], None], command: Sequence[str], *, is_dev: bool
) -> None:
    from ..serve import serve_stdio

    if sys.stdin.isatty() and report is echo:
        echo(_stdio_text(command))
    server = serve_stdio(crib)
    session.run(_beside(_report_change(session.settings, report), server) if is_dev else server)


def _console(crib: "Crib", identify: object, at: ServerTable, base_url: str | None) -> tuple[bool, str]:
    """Return whether the console is served, and its link at *base_url*, if that is given, or why it is not."""
    if not at.console:
        return False, ""
    if at.issuer and not (at.keys or at.client_id):
        return False, "not served, without a way to log in. Set 'client_id' in [server]: the issuer's."
    return True, "" if base_url is None else asyncio.run(_console_link(crib, identify, base_url.rstrip("/")))


async def _report_change(settings: Settings, report: Callable[[str], None]) -> None:
    """Wait until the file of *settings* has other valid ones, and report which, and what is not valid."""
    from watchfiles import awatch

    if settings.file is None:
        return await asyncio.Future()
    file = settings.file.resolve()
    async for _ in awatch(file.parent, watch_filter=lambda _, path: Path(path) == file, recursive=False):
        try:
            written = read_settings(file).written
        except ToolcribError as error:
            report(f"Not loaded, so the settings stay as they were: {error}")
            continue
        before = settings.written
        if names := sorted(name for name in {*before, *written} if before.get(name) != written.get(name)):
            report(f"{file.name} has changed: {', '.join(names)}. It takes effect when the server starts again.")
            return None
    return None


async def _until_changed(settings: Settings, report: Callable[[str], None], work: Coroutine[Any, Any, None]) -> bool:
    """Await *work*, and end it where the file of *settings* changes. Returns whether it has."""
    tasks = [asyncio.ensure_future(part) for part in (work, _report_change(settings, report))]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        task.result()
    return tasks[0] not in done


async def _console_link(crib: "Crib", identify: object, base_url: str) -> str:
    """Return the address of the console: for the person at this computer, a link that lets them in."""
    from ..serve import local_caller
    from ..serve.console import Sessions

    if identify is not local_caller or crib.database is None:
        return f"{base_url}/"
    return await Sessions(crib.database).link(base_url)


@command(app, "console", example="toolcrib console", takes="config store")
async def console(session: Session, port: Port = None) -> None:
    """Print a link that lets you into the console of the server that runs here. It works once, for five minutes."""
    from ..serve.console import Sessions

    at = session.settings.values.server
    if at.keys or at.issuer:
        raise UsageError("The server of these settings is entered by a key or a login: open its address.")
    base_url = at.public_base_url or f"http://{at.host}:{at.port if port is None else port}"
    with session.opened_store() as store:
        echo(await Sessions(store).link(base_url.rstrip("/")))


async def _beside(watch: Coroutine[Any, Any, None], work: Coroutine[Any, Any, None]) -> None:
    """Await *work*, with *watch* beside it."""
    watching = asyncio.ensure_future(watch)
    try:
        await work
    finally:
        watching.cancel()


def set_up_log(session: Session, *, is_dev: bool = False) -> Callable[[str], None]:
    """Set up the log. Return the function that reports to a person."""
    log = session.settings.values.log
    log_to_stderr(tracebacks=True)
    if _shows_calls(session, is_dev=is_dev):
        log_lines("toolcrib.calls", _TIMED)
    if log.format == "json":
        _log_json()
    return logging.getLogger("toolcrib.serve").info if log.format == "json" else echo


def opened(
    session: Session,
    sources: Sequence[str],
    tools: Sequence[str],
    *,
    report: Callable[[str], None],
    is_dev: bool = False,
    **how: Any,
) -> "Opened":
    """Open the *sources* with a store, and *report* those that cannot be."""
    with prints_to_stderr():
        parts = session.open(sources, only=tools, needs_store=True, defaults={"timeout_s": DEFAULT_TIMEOUT_S}, **how)
    if _shows_calls(session, is_dev=is_dev):
        parts.record_lines()
    for problem in parts.problems:
        report(f"Not loaded: {problem}")
    return parts


def _shows_calls(session: Session, *, is_dev: bool) -> bool:
    shows_calls = session.settings.values.log.calls
    return is_dev if shows_calls is None else shows_calls


def _log_json() -> None:
    """Write all that goes to standard error as lines of JSON from now on."""
    from ..record.calls import JsonFormatter

    log_lines("toolcrib.serve", _TIMED)
    log_fetches()  # so that they are among these
    for name in (None, *(f"toolcrib.{part}" for part in ("calls", "git", "serve", "watch"))):
        for handler in logging.getLogger(name).handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
                handler.setFormatter(JsonFormatter())


def _require_loopback_without_keys(host: str | None, at: ServerTable) -> None:
    """Raise UsageError for a *host*, or that of the settings, that others could reach without a key."""
    if at.keys or at.issuer:
        return
    option, host = ("--host", host) if host else ("The host of the settings,", at.host)
    try:
        loopback = ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        raise UsageError(
            f"{option} {host[:60]}: without keys, only loopback is served: 127.0.0.1, ::1 or localhost. Any machine "
            "that reached it could call every tool. Set 'keys = true' or an 'issuer' in [server] of the settings."
        )


def _http_text(url: str, command: Sequence[str], *, base_url: str | None, has_keys: bool, console: str) -> str:
    server: dict[str, Any] = {"type": "http", "url": url if base_url is None else f"{base_url.rstrip('/')}/mcp"}
    if has_keys:
        server["headers"] = {"Authorization": "Bearer KEY"}
    hint = "\n  with a KEY from: toolcrib keys add NAME" if has_keys else ""
    return (
        f"Serving MCP at {url} (Ctrl-C stops it)\n"
        f"The HTTP API: {url.removesuffix('/mcp')}/api/openapi.json\n"
        f"{f'The console: {console}' if console else ''}\n"
        "In the settings of an MCP client:\n"
        f"  {_client_settings(server)}{hint}\n\n"
        "Or let the client start it, over stdio:\n"
        f"  {shlex.join(command)}"
    )


def _stdio_text(command: Sequence[str]) -> str:
    start, *arguments = command
    return (
        "Serving MCP over standard input and output, for a client that starts this command (Ctrl-C stops it).\n\n"
        "In the settings of an MCP client:\n"
        f"  {_client_settings({'command': start, 'args': arguments})}"
    )


def _client_settings(server: object) -> str:
    return json.dumps({"mcpServers": {"toolcrib": server}}, ensure_ascii=False)


def stdio_command(sources: Sequence[str], tools: Sequence[str], config: Path | None) -> list[str]:
    """Return the command by which a client starts the server: absolute, since it starts it in a folder of its own."""
    # That of this environment comes first, which has what the tools import.
    program = shutil.which("toolcrib", path=Path(sys.executable).parent) or shutil.which("toolcrib")
    start = [program] if program is not None else [sys.executable, "-m", "toolcrib"]
    options = [word for name in tools for word in ("--tool", name)]
    options += [] if config is None else ["--config", str(config.resolve())]
    return [*start, "serve", *map(_absolute, sources), *options, "--stdio"]


def _absolute(source: str) -> str:
    file, colon, name = source.rpartition(":")
    if colon and file.endswith(".py"):
        return f"{Path(file).resolve()}:{name}"
    return str(Path(source).resolve()) if Path(source).exists() else source
