"""`toolcrib serve` and `dev`: a server of the tools, over MCP and HTTP, and what a person is shown of it."""

import asyncio
import json
import logging
import shlex
import shutil
import sys
from collections.abc import Callable, Coroutine, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core import SetupError
from .app import Session, command, group
from .arguments import Port, SourceNames, ToolNames
from .prompts import answer_as_operator
from .sources import log_fetches, log_lines
from .terminal import LogFormatter, UsageError, echo, log_to_stderr, prints_to_stderr

if TYPE_CHECKING:
    from .sources import Opened

DEFAULT_TIMEOUT_S = 60.0
"""The longest that a call of an MCP client may take, where no other time is set."""

app = group()

_TIMED = LogFormatter("%(asctime)s %(message)s", "%H:%M:%S")

_Stdio = Annotated[bool, typer.Option("--stdio", help="Serve over standard input and output, not over HTTP.")]
_Host = Annotated[str | None, typer.Option(metavar="ADDRESS", help="The address to listen on (default: 127.0.0.1).")]


@command(app, "serve", example="toolcrib serve tools.py --port 8642", takes="config store")
def serve(
    session: Session,
    sources: SourceNames = None,
    tool: ToolNames = None,
    stdio: _Stdio = False,
    host: _Host = None,
    port: Port = None,
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
    _serve(session, sources or (), tool or (), stdio=stdio, host=host, port=port, how=how)


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

    What you save is loaded again, and the outcome is shown. Models see the text of exceptions. A file that is broken at
    the start is waited for.
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
    is_dev: bool = False,
) -> None:
    """Serve until the client leaves, or a signal ends it. *how* `open_sources` opens the sources.

    Raises UsageError for a host that others could reach without a key.
    """
    settings, at = session.settings, session.settings.values.server
    if not (stdio or at.keys or at.issuer):
        _require_loopback(host or at.host, option="--host" if host else "The host of the settings,")
    parts, report = opened(session, sources, tools, is_dev=is_dev, **how)
    is_json = report is not echo
    from ..serve import serve_http, serve_stdio
    from ..serve.authentication import configured_identify

    command = _stdio_command(sources, tools, settings.file)
    if stdio:
        if sys.stdin.isatty() and not is_json:
            echo(_stdio_text(command))
        session.run(serve_stdio(parts.crib))
        return
    session.interrupts.grace_s += at.grace_s

    def ready(url: str) -> None:
        text = f"Serving MCP at {url}"
        report(text if is_json else _http_text(url, command, base_url=at.public_base_url, has_keys=at.keys))

    server = serve_http(
        parts.crib,
        configured_identify(settings, parts.crib.database),
        host=host or at.host,
        port=at.port if port is None else port,
        base_url=at.public_base_url,
        allowed_hosts=at.allowed_hosts,
        grace_s=at.grace_s,
        workbenches=at.workbenches,
        ready=ready,
    )
    asking = answer_as_operator(parts.crib, report, asks=not is_json)
    try:
        session.run(_beside(asking, server))
    except SetupError as error:
        raise SetupError(f"{error} The port is set with --port.") from None


async def _beside(watch: Coroutine[Any, Any, None], work: Coroutine[Any, Any, None]) -> None:
    """Await *work*, with *watch* beside it."""
    watching = asyncio.ensure_future(watch)
    try:
        await work
    finally:
        watching.cancel()


def opened(
    session: Session, sources: Sequence[str], tools: Sequence[str], *, is_dev: bool = False, **how: Any
) -> "tuple[Opened, Callable[[str], None]]":
    """Set up the log, and open the *sources* with a store. Return them, and the function that reports to a person."""
    log = session.settings.values.log
    log_to_stderr(tracebacks=True)
    shows_calls = is_dev if log.calls is None else log.calls
    if shows_calls:
        log_lines("toolcrib.calls", _TIMED)
    if log.format == "json":
        _log_json()
    report: Callable[[str], None] = logging.getLogger("toolcrib.serve").info if log.format == "json" else echo
    with prints_to_stderr():
        parts = session.open(sources, only=tools, needs_store=True, defaults={"timeout_s": DEFAULT_TIMEOUT_S}, **how)
    if shows_calls:
        parts.record_lines()
    for problem in parts.problems:
        report(f"Not loaded: {problem}")
    return parts, report


def _log_json() -> None:
    """Write all that goes to standard error as lines of JSON from now on."""
    from ..record.calls import JsonFormatter

    log_lines("toolcrib.serve", _TIMED)
    log_fetches()  # so that they are among these
    for name in (None, *(f"toolcrib.{part}" for part in ("calls", "git", "serve", "watch"))):
        for handler in logging.getLogger(name).handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
                handler.setFormatter(JsonFormatter())


def _require_loopback(host: str, *, option: str) -> None:
    try:
        loopback = ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        raise UsageError(
            f"{option} {host[:60]}: without keys, only loopback is served: 127.0.0.1, ::1 or localhost. Any machine "
            "that reached it could call every tool. Set 'keys = true' or an 'issuer' in [server] of the settings."
        )


def _http_text(url: str, command: Sequence[str], *, base_url: str | None, has_keys: bool) -> str:
    server: dict[str, Any] = {"type": "http", "url": url if base_url is None else f"{base_url.rstrip('/')}/mcp"}
    if has_keys:
        server["headers"] = {"Authorization": "Bearer KEY"}
    hint = "\n  with a KEY from: toolcrib keys add NAME" if has_keys else ""
    return (
        f"Serving MCP at {url} (Ctrl-C stops it)\n"
        f"The HTTP API: {url.removesuffix('/mcp')}/api/openapi.json\n\n"
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


def _stdio_command(sources: Sequence[str], tools: Sequence[str], config: Path | None) -> list[str]:
    # Absolute, since a client starts it in a folder of its own.
    program = shutil.which("toolcrib")
    start = [program] if program is not None else [sys.executable, "-m", "toolcrib"]
    options = [word for name in tools for word in ("--tool", name)]
    options += [] if config is None else ["--config", str(config.resolve())]
    return [*start, "serve", *map(_absolute, sources), *options, "--stdio"]


def _absolute(source: str) -> str:
    file, colon, name = source.rpartition(":")
    if colon and file.endswith(".py"):
        return f"{Path(file).resolve()}:{name}"
    return str(Path(source).resolve()) if Path(source).exists() else source
