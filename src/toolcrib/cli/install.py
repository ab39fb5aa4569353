"""`toolcrib install` and `uninstall`: the settings of MCP clients, by which they start `toolcrib serve --stdio`.

An entry has the command and its arguments, and never a variable: what is secret stays in this project's settings.
"""

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from ..core import ToolcribError
from .app import Session, command, group
from .arguments import SourceNames
from .edits import JSONC, TOML, Form
from .serving import stdio_command
from .sources import named_sources
from .terminal import UsageError, echo, no_such, one_line

app = group()

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_BACKUP = ".toolcrib-backup"


@dataclass(frozen=True, slots=True)
class _Client:
    """Where a client has its settings: in a project, below its folder, and for a user. *key* holds the servers."""

    title: str
    project: str | None
    user: str
    key: str = "mcpServers"
    is_typed: bool = False  # whether an entry says that it is of `stdio`


_CLIENTS = {
    "claude-code": _Client("Claude Code", ".mcp.json", "~/.claude.json", is_typed=True),
    "claude-desktop": _Client("Claude Desktop", None, "CONFIG/Claude/claude_desktop_config.json"),
    "cursor": _Client("Cursor", ".cursor/mcp.json", "~/.cursor/mcp.json", is_typed=True),
    "vscode": _Client("VS Code", ".vscode/mcp.json", "CONFIG/Code/User/mcp.json", key="servers", is_typed=True),
    "gemini-cli": _Client("Gemini CLI", ".gemini/settings.json", "~/.gemini/settings.json"),
    "codex": _Client("Codex", ".codex/config.toml", "CODEX/config.toml", key="mcp_servers"),
}

_Change = Callable[[str, dict[str, Any], Form], str]
"""Changes the data of the servers in a file, and returns its text."""

_CLIENT_HELP = f"One of: {', '.join(_CLIENTS)}"
_EntryName = Annotated[str, typer.Option("--name", metavar="NAME", help="The name of the server in the client.")]
_User = Annotated[bool, typer.Option("--user", help="In the settings for all projects of this user.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]


@command(app, "install", example="toolcrib install claude-code", takes="config")
def install(
    session: Session,
    client: Annotated[str, typer.Argument(metavar="CLIENT", help=f"{_CLIENT_HELP}, json.")],
    sources: SourceNames = None,
    name: _EntryName = "toolcrib",
    user: _User = False,
    dry_run: _DryRun = False,
) -> None:
    """Have an MCP client start the server of these tools.

    This writes the settings of the client. What is there stays, with its comments, and there is a backup. They are in
    the folder of the project, unless the client has none there. With `json` they are printed, for any other client.
    """
    _require_name(name)
    of = None if client == "json" else _client(client)
    named_sources(sources or (), session.settings, "For example: toolcrib install claude-code tools.py")
    for source in sources or ():
        _require_no_key(source)
    start, *arguments = stdio_command(sources or (), (), session.settings.file)
    entry: dict[str, Any] = {"command": start, "args": arguments}
    if of is None:
        session.output.json({"mcpServers": {name: entry}})
        return
    entry = {"type": "stdio", **entry} if of.is_typed else entry

    def change(text: str, servers: dict[str, Any], edit: Form) -> str:
        old = servers.get(name)
        if old is None:
            servers[name] = entry
            return edit.insert(text, (of.key, name), entry)
        if not isinstance(old, dict) or old.get("args") != arguments:
            raise ToolcribError(
                f"It has another server '{name}'. Choose another name with --name, or remove that one: "
                f"toolcrib uninstall {client} --name {name}{' --user' if user else ''}"
            )
        for key, value in entry.items():
            text = text if old.get(key) == value else edit.insert(text, (of.key, name, key), value)
        old.update(entry)
        return text

    _change(session, of, change, user=user, dry_run=dry_run, after=f"{of.title} starts it: restart {of.title}.")


@command(app, "uninstall", example="toolcrib uninstall claude-code", takes="config")
def uninstall(
    session: Session,
    client: Annotated[str, typer.Argument(metavar="CLIENT", help=f"{_CLIENT_HELP}.")],
    name: _EntryName = "toolcrib",
    user: _User = False,
    dry_run: _DryRun = False,
) -> None:
    """Remove a server from the settings of an MCP client. What else is there stays, and there is a backup."""
    _require_name(name)
    of = _client(client)

    def change(text: str, servers: dict[str, Any], edit: Form) -> str:
        if name not in servers:
            raise ToolcribError(no_such("It has no server", name, servers))
        del servers[name]
        return edit.drop(text, (of.key, name))

    _change(session, of, change, user=user, dry_run=dry_run, after=f"'{name}' is removed.")


def _client(name: str) -> _Client:
    if name not in _CLIENTS:
        raise UsageError(f"{no_such('There is no client', name, _CLIENTS)} The clients are: {', '.join(_CLIENTS)}.")
    return _CLIENTS[name]


def _require_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError("--name takes letters, digits, - and _, and begins with a letter.")


def _require_no_key(source: str) -> None:
    """Raise UsageError for a URL that may have a key in it: the settings of a client are in clear, and often shared."""
    with suppress(ValueError):
        parts = urlsplit(source)
        if "://" in source and (parts.query or "@" in parts.netloc):
            raise UsageError(
                "An address with a password or a query may have a key in it, which would be in the client's settings. "
                "Make it a [[source]] of toolcrib.toml, with the key in 'headers', and leave it out here."
            )


def _change(session: Session, of: _Client, change: _Change, *, user: bool, dry_run: bool, after: str) -> None:
    """Change the file of a client, and report it."""
    file = _file(of, session.settings.file, user=user)
    text, after_text = _read(file, of.key, change)
    if after_text == text:
        echo(f"{file} stays as it is.")
    elif dry_run:
        # Without the lines around what changes: other servers may have keys there.
        lines = unified_diff(text.splitlines(), after_text.splitlines(), str(file), str(file), lineterm="", n=0)
        session.output.write("\n".join(lines))
    else:
        if file.exists():
            _write(file.with_name(file.name + _BACKUP), text, file)
        _write(file, after_text, file)
        echo(f"Written: {file}. {after}")


def _read(file: Path, key: str, change: _Change) -> tuple[str, str]:
    """Return the text of *file*, empty where it is not there, and the new one. Raises ToolcribError."""
    try:
        text = file.read_bytes().decode() if file.exists() else ""
        return text, _edited(text, TOML if file.suffix == ".toml" else JSONC, key, change)
    except OSError as error:
        raise ToolcribError(f"{file} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        problem = "It is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else one_line(str(error))
        raise ToolcribError(f"{file}: Nothing was changed: {problem}.") from None
    except ToolcribError as error:
        raise ToolcribError(f"{file}: Nothing was changed: {error}") from None


def _edited(text: str, edit: Form, key: str, change: _Change) -> str:
    """Return the new *text*, whose data are the old ones but for what *change* has changed under *key*."""
    data = edit.parse(text)
    servers = data.setdefault(key, {}) if isinstance(data, dict) else None
    if not isinstance(servers, dict):
        raise ToolcribError(f"It is not an object, or its '{key}' is none.")
    text = change(text, servers, edit)
    result = None
    with suppress(ValueError):
        result = edit.parse(text)
    if result not in (data, {name: value for name, value in data.items() if value or name != key}):
        raise ToolcribError(f"'{key}' is written in a form that is changed only by hand.")
    return text


def _file(of: _Client, settings: Path | None, *, user: bool) -> Path:
    """Return the file of the client's settings. A symbolic link leads to the file itself, so that it stays a link."""
    if of.project is not None and not user:
        folder = Path() if settings is None else settings.parent
        return (folder / of.project).resolve()
    head, _, tail = of.user.partition("/")
    home = Path.home()
    if head == "CODEX":
        folder = Path(os.environ.get("CODEX_HOME") or home / ".codex")
    elif head == "~":
        folder = home
    elif sys.platform == "darwin":
        folder = home / "Library" / "Application Support"
    elif sys.platform == "win32":
        folder = Path(os.environ["APPDATA"])
    else:
        folder = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    return (folder / tail).resolve()


def _write(file: Path, text: str, like: Path) -> None:
    """Replace *file* at once, with the mode of the file *like*. Raises ToolcribError."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    mode = like.stat().st_mode & 0o777 if like.exists() else None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside.touch(0o666 if mode is None else 0o600, exist_ok=False)
        beside.write_bytes(text.encode())
        if mode is not None:
            beside.chmod(mode)
        beside.replace(file)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ToolcribError(f"{file} cannot be written: {error.strerror}.") from None
