"""`toolcrib serve` and `dev`: a server of the tools, over MCP and HTTP, and what a person is shown of it."""

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
from .sources import log_fetches, open_sources
from .terminal import LogFormatter, UsageError, echo, log_to_stderr, prints_to_stderr

if TYPE_CHECKING:
    from ..workbench.settings import Settings

_TIMEOUT_S = 60.0
"""The longest that a call of an MCP client may take, where no other time is set."""


@dataclass(frozen=True, slots=True)
class Server:
    """The command line of `serve` and `dev`. Raises UsageError for a host that others could reach without a key."""

    settings: "Settings"
    sources: Sequence[str]
    tools: Sequence[str]
    stdio: bool = field(kw_only=True)
    host: str | None = field(kw_only=True)
    port: int | None = field(kw_only=True)
    options: FileOptions = field(kw_only=True)
    is_dev: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        at = self.settings.values.server
        if not (self.stdio or at.keys or at.issuer):
            _require_loopback(self.host or at.host, option="--host" if self.host else "The host of the settings,")

    @property
    def is_json(self) -> bool:
        """Whether standard error has lines of JSON only."""
        return self.settings.values.log.format == "json"

    @property
    def shows_calls(self) -> bool:
        """Whether there is a line for each call."""
        chosen = self.settings.values.log.calls
        return self.is_dev if chosen is None else chosen

    def _tell(self, text: str) -> None:
        if self.is_json:
            logging.getLogger("toolcrib.serve").info("%s", text)
        else:
            echo(text)

    def run(self, interrupts: Interrupts, **opening: Any) -> int:
        """Serve until the client leaves, or a signal ends it. Returns the exit status.

        *opening* is how `open_sources` opens the sources.
        """
        log_to_stderr(tracebacks=True)
        if self.shows_calls:
            log_lines("toolcrib.calls")
        if self.is_json:
            log_lines("toolcrib.serve")
            log_json()
        settings, names, at = self.settings, self.sources, self.settings.values.server
        defaults = {"timeout_s": _TIMEOUT_S}
        with prints_to_stderr():
            opened = open_sources(
                names, settings, only=self.tools, defaults=defaults, serves=True, **opening, **self.options
            )
        if self.shows_calls:
            opened.record_lines()
        for problem in opened.problems:
            self._tell(f"Not loaded: {problem}")
        from ..serve import serve_http, serve_stdio
        from ..serve.authentication import configured_identify

        command = _stdio_command(names, self.tools, settings.file)
        if self.stdio:
            if sys.stdin.isatty() and not self.is_json:
                echo(_stdio_text(command))
            interrupts.run(serve_stdio(opened.crib))
            return 0
        interrupts.grace_s += at.grace_s
        try:
            interrupts.run(
                serve_http(
                    opened.crib,
                    configured_identify(settings, opened.crib.database),
                    host=self.host or at.host,
                    port=at.port if self.port is None else self.port,
                    base_url=at.public_base_url,
                    allowed_hosts=at.allowed_hosts,
                    grace_s=at.grace_s,
                    ready=lambda url: self._tell(
                        f"Serving MCP at {url}"
                        if self.is_json
                        else _http_text(url, command, base_url=at.public_base_url, has_keys=at.keys)
                    ),
                )
            )
        except SetupError as error:
            raise SetupError(f"{error} The port is set with --port.") from None
        return 0


def log_lines(name: str) -> None:
    """From now on, write to standard error what is in the log *name*, each line with the time.

    `toolcrib.watch` has what was loaded again, and what could not be; `toolcrib.calls` the calls.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log = logging.getLogger(name)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def log_json() -> None:
    """From now on, write all that goes to standard error as lines of JSON."""
    from ..record.json_log import JsonFormatter

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
            f"{option} {host[:60]}: without keys, only loopback is served: 127.0.0.1, ::1 or localhost. Whoever "
            "reached it could call every tool. Set 'keys = true' or an 'issuer' in [server] of the settings."
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
