"""`toolcrib serve` and `dev`: an MCP server of the tools, and what a person is shown of it."""

import json
import logging
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import SetupError
from ..workbench.options import FileOptions
from .interrupts import Interrupts
from .sources import open_sources
from .terminal import LogFormatter, UsageError, echo, log_to_stderr, prints_to_stderr

if TYPE_CHECKING:
    from ..workbench.settings import Settings

_TIMEOUT_S = 60.0
"""The longest that a call of an MCP client may take, where no other time is set."""


@dataclass(frozen=True, slots=True)
class Server:
    """The command line of `serve` and `dev`. Raises UsageError for a host that others could reach."""

    settings: "Settings"
    sources: Sequence[str]
    tools: Sequence[str]
    stdio: bool = field(kw_only=True)
    host: str | None = field(kw_only=True)
    port: int | None = field(kw_only=True)
    options: FileOptions = field(kw_only=True)

    def __post_init__(self) -> None:
        at = self.settings.values.server
        _require_loopback(self.host or at.host, option="--host" if self.host else "The host of the settings,")

    def run(self, interrupts: Interrupts, **opening: Any) -> int:
        """Serve until the client leaves, or a signal ends it. Returns the exit status.

        *opening* is how `open_sources` opens the sources.
        """
        log_to_stderr(tracebacks=True)
        settings, names, at = self.settings, self.sources, self.settings.values.server
        defaults = {"timeout_s": _TIMEOUT_S}
        with prints_to_stderr():
            opened = open_sources(names, settings, only=self.tools, defaults=defaults, **opening, **self.options)
        opened.echo_problems()
        from ..serve import serve_http, serve_stdio

        command = _stdio_command(names, self.tools, settings.file)
        if self.stdio:
            if sys.stdin.isatty():
                echo(_stdio_text(command))
            interrupts.run(serve_stdio(opened.crib))
            return 0
        try:
            interrupts.run(
                serve_http(
                    opened.crib,
                    host=self.host or at.host,
                    port=at.port if self.port is None else self.port,
                    ready=lambda url: echo(_http_text(url, command)),
                )
            )
        except SetupError as error:
            raise SetupError(f"{error} The port is set with --port.") from None
        return 0


def log_reloads() -> None:
    """From now on, write to standard error what was loaded again, and what could not be, each with the time."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log = logging.getLogger("toolcrib.watch")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def _require_loopback(host: str, *, option: str) -> None:
    try:
        loopback = ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        raise UsageError(
            f"{option} {host[:60]}: this server has no authentication, so it serves loopback only: 127.0.0.1, ::1 or "
            "localhost. Whoever reached it could call every tool."
        )


def _http_text(url: str, command: Sequence[str]) -> str:
    return (
        f"Serving MCP at {url} (Ctrl-C stops it)\n\n"
        "In the settings of an MCP client:\n"
        f"  {_client_settings({'type': 'http', 'url': url})}\n\n"
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
    found = shutil.which("toolcrib")
    start = [found] if found is not None else [sys.executable, "-m", "toolcrib"]
    options = [word for name in tools for word in ("--tool", name)]
    options += [] if config is None else ["--config", str(config.resolve())]
    return [*start, "serve", *map(_absolute, sources), *options, "--stdio"]


def _absolute(source: str) -> str:
    file, colon, name = source.rpartition(":")
    if colon and file.endswith(".py"):
        return f"{Path(file).resolve()}:{name}"
    return str(Path(source).resolve()) if Path(source).exists() else source
