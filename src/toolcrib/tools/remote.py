"""MCP servers as text and as values: `mcp:URL`, a URL, `mcp:COMMAND`, and a file with a client's `mcpServers`.

    https://host/mcp    mcp:https://host/mcp    "mcp:npx -y server"    "npx -y server"    mcp:servers.json#NAME

This file does no I/O but reading such a file; a server is reached when its source starts.
"""

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..core import LoadError, SetupError
from ..machinery import raise_missing_extra
from ..schema import closest_match, did_you_mean, display_name
from .content import MAX_TEXT_BYTES, bytes_of
from .mcp.targets import Target, shown_url

if TYPE_CHECKING:
    from .mcp.source import MCPUpstream

FORMS = "mcp:https://HOST/mcp, 'mcp:COMMAND ARGUMENT...' or mcp:FILE.json#NAME of a file with 'mcpServers'"

_PREFIX = "mcp:"
_URL = re.compile(r"https?://", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_TABLES = ("mcpServers", "servers")
_ENDPOINTS = ("/mcp", "/mcp/", "/sse")


@dataclass(frozen=True, slots=True, kw_only=True)
class MCPSource(Target):
    """An MCP server as a source: a *command* that is started, by words, or the *url* of one that runs.

    A command gets *env* beside PATH, HOME and the like, and *folder* as its current one; a URL gets *headers* with each
    request. The host of the URL may be a private one; *allow* are hosts and networks that may be reached by http, too.
    Where it is *required*, nothing starts without it. Its *name* is what its questions and errors call it; without one,
    its host or its program. It may ask the model of the client whose call it answers with *sampling*, and for the
    folders of that client's user with *roots*.
    """

    def __str__(self) -> str:
        return f"{_PREFIX}{self.url or shlex.join(self.command)}"

    def source(self, name: str | None = None) -> "MCPUpstream":
        """Return the source, which connects when it starts, and is called *name* in messages. Raises LoadError."""
        self.require()
        try:
            from .mcp.source import MCPUpstream
        except ModuleNotFoundError as missing:
            raise_missing_extra(missing, "MCP servers need", "mcp")
        return MCPUpstream(self, name=name)


# Text that names a server


def is_remote(source: object) -> bool:
    """Return whether *source* is an MCP server, or text that names one, or a file with several."""
    if isinstance(source, MCPSource):
        return True
    if not isinstance(source, str) or source.startswith("git+"):
        return False
    if source.startswith(_PREFIX) or _URL.match(source) or (source.endswith(".json") and has_servers(Path(source))):
        return True
    program, space, _ = source.strip().partition(" ")
    return bool(space) and not Path(source).exists() and shutil.which(program) is not None


def answers_with_document(source: object) -> bool:
    """Return whether *source* is a URL that has an OpenAPI document: any other is one of an MCP server.

    So it is asked, for a few seconds at most, but for one that ends as those of MCP servers do.
    """
    if not isinstance(source, str) or not _URL.match(source) or urlsplit(source).path.endswith(_ENDPOINTS):
        return False
    try:
        from .openapi import has_document
    except SetupError:
        return False
    return has_document(source)


def remote_names(source: str) -> list[str]:
    """Return *source*, or where it is a file with servers, the text for each of them. Raises LoadError."""
    file, name = _in_file(source)
    return [source] if file is None or name else [f"{_PREFIX}{file}#{name}" for name in _servers(Path(file))]


def placed(source: str, folder: Path) -> str:
    """Return *source* with the file that it names, if it does, as a path from *folder*."""
    file, name = _in_file(source)
    return source if file is None else f"{_PREFIX}{folder / Path(file).expanduser()}{name and '#'}{name}"


def locked_text(source: "str | MCPSource", relative: Callable[[str], str]) -> str:
    """Return the one text for all spellings of *source*, with the path of a client's file as *relative* has it."""
    if isinstance(source, MCPSource):
        return str(source)
    file, name = _in_file(source)
    if file is not None:
        if not name and has_servers(Path(file).expanduser()) and len(names := remote_names(source)) == 1:
            name = names[0].rpartition("#")[2]
        return f"{_PREFIX}{relative(file)}{name and '#'}{name}"
    text = source.removeprefix(_PREFIX).strip()
    with suppress(ValueError):  # of a command that cannot be read
        text = text if _URL.match(text) else shlex.join(shlex.split(text))
    return f"{_PREFIX}{text}"


def remote_source(source: "str | MCPSource") -> "MCPUpstream":
    """Return the MCP server that *source* names. Raises LoadError."""
    if isinstance(source, MCPSource):
        return source.source()
    text = source.removeprefix(_PREFIX).strip()
    if not text:
        raise LoadError(f"'{source}' does not name an MCP server: {FORMS}.")
    if _URL.match(text):
        return MCPSource(url=text).source()
    file, name = _in_file(text)
    if file is not None:
        names = remote_names(source)
        if not name and len(names) > 1:
            raise LoadError(f"{text} has {len(names)} servers, each a source of its own: {', '.join(names)}.")
        name = name or names[0].rpartition("#")[2]
        upstream = _named(Path(file), name)
        upstream.fallback_prefix = f"{re.sub(r'[^A-Za-z0-9-]+', '_', name).strip('_')}_"
        return upstream
    try:
        words = shlex.split(text)
    except ValueError:
        raise LoadError(f"'{display_name(text)}' is not a command: a quote in it is never closed.") from None
    return MCPSource(command=words).source()


def _in_file(source: str) -> tuple[str | None, str]:
    """Return the file of a client that *source* names, if it does, and the name of a server in it, or ""."""
    path, _, name = source.removeprefix(_PREFIX).partition("#")
    return (None, "") if not path.endswith(".json") or _URL.match(path) or " " in path else (path, name)


# A client's file


def has_servers(file: Path) -> bool:
    """Return whether *file* can be read, and has a table of servers."""
    try:
        return bool(_servers(file))
    except LoadError:
        return False


def _servers(file: Path) -> dict[str, Any]:
    """Return the table of servers in *file*, as Claude, Cursor and VS Code have it. Raises LoadError."""
    try:
        data = json.loads(bytes_of(file, MAX_TEXT_BYTES))
    except (ValueError, RecursionError):
        data = None
    table = next((data[name] for name in _TABLES if name in data), None) if isinstance(data, dict) else None
    if not isinstance(table, dict) or not all(isinstance(server, dict) for server in table.values()):
        raise LoadError(f'{file} has no table of MCP servers: {{"mcpServers": {{"NAME": {{"command": ...}}}}}}.')
    return table


def _named(file: Path, name: str) -> "MCPUpstream":
    servers = _servers(file)
    if name not in servers:
        hint = did_you_mean(closest_match(name, list(servers)))
        raise LoadError(f"{file} has no server '{display_name(name)}'.{hint} It has: {', '.join(servers)}.")
    server, place = servers[name], f"{file}: '{name}'"
    if server.get("disabled") is True:
        raise LoadError(f"{place} is disabled there.")
    if isinstance(url := server.get("url", server.get("serverUrl")), str):
        headers = _texts(server, "headers", place)
        return MCPSource(name=name, url=_filled(url, place), headers=headers).source(f"{name} ({shown_url(url)})")
    arguments, folder = server.get("args", []), server.get("cwd")
    if not (isinstance(server.get("command"), str) and isinstance(arguments, list)):
        raise LoadError(f"{place} has neither a 'command' nor a 'url'.")
    words = [_filled(word, place) for word in (server["command"], *arguments)]
    folder = folder if isinstance(folder, str) else None
    return MCPSource(name=name, command=words, env=_texts(server, "env", place), folder=folder).source(name)


def _texts(server: Mapping[str, Any], key: str, place: str) -> dict[str, str]:
    table = server.get(key) or {}
    if not isinstance(table, dict):
        raise LoadError(f"{place}: '{key}' is a table of texts.")
    return {name: _filled(str(value), place) for name, value in table.items()}


def _filled(text: Any, place: str) -> str:
    """Return *text* with `${NAME}` replaced by the variable of that name. Raises LoadError where it is not set."""

    def value(reference: re.Match[str]) -> str:
        if (text := os.environ.get(reference[1])) is None:
            raise LoadError(f"{place}: the variable {reference[1]} is not set.")
        return text

    return _REFERENCE.sub(value, str(text))
