"""How an MCP client connects to what is served: what a person pastes into its settings."""

import json
import shlex
import shutil
import sys
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

from .usage import UsageError


def require_loopback(host: str, *, option: str = "--host") -> None:
    """Raises UsageError for a host that others could reach, naming the *option* that gave it."""
    try:
        loopback = ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        raise UsageError(
            f"{option} {host[:60]}: this server has no authentication, so it serves loopback only: 127.0.0.1, ::1 or "
            "localhost. Whoever reached it could call every tool."
        )


def over_http(url: str, sources: Sequence[str], config: Path | None = None) -> str:
    """What is said once a server listens at *url*."""
    return (
        f"Serving MCP at {url} (Ctrl-C stops it)\n\n"
        "In the settings of an MCP client:\n"
        f"  {_settings({'type': 'http', 'url': url})}\n\n"
        "Or let the client start it, over stdio:\n"
        f"  {shlex.join(_stdio_command(sources, config))}"
    )


def over_stdio(sources: Sequence[str], config: Path | None = None) -> str:
    """What is said to a person who started by hand what a client starts."""
    command, *arguments = _stdio_command(sources, config)
    return (
        "Serving MCP over standard input and output, for a client that starts this command (Ctrl-C stops it).\n\n"
        "In the settings of an MCP client:\n"
        f"  {_settings({'command': command, 'args': arguments})}"
    )


def _settings(server: object) -> str:
    return json.dumps({"mcpServers": {"toolcrib": server}}, ensure_ascii=False)


def _stdio_command(sources: Sequence[str], config: Path | None) -> list[str]:
    # Absolute, since a client starts it in a folder of its own.
    found = shutil.which("toolcrib")
    start = [found] if found is not None else [sys.executable, "-m", "toolcrib"]
    settings = [] if config is None else ["--config", str(config.resolve())]
    return [*start, "serve", *map(_absolute, sources), *settings, "--stdio"]


def _absolute(source: str) -> str:
    file, colon, name = source.rpartition(":")
    if colon and file.endswith(".py"):
        return f"{Path(file).resolve()}:{name}"
    return str(Path(source).resolve()) if Path(source).exists() else source
