"""A source of tools as settings or a command name it, and what it means from the folder of the settings."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..tools import Permissions
from ..tools.git import DOCUMENT, DOCUMENTS, is_git_address, parse_git_address
from ..tools.remote import MCPSource, is_remote, placed


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A source of tools as it was *written*, and the *source* that `load` takes for it.

    *place* is where it is written, if that is in the settings; *view* applies its filters and names.
    """

    written: str
    source: str | MCPSource
    place: str | None = None
    line: int | None = None
    view: Callable[[Any], Any] = lambda source: source
    required: bool = True
    permissions: Permissions = field(default_factory=Permissions)
    openapi: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def granted(self, source: Any) -> Any:
        """Return *source*, this one as it is loaded now, with its permissions and options. Raises LoadError and
        SetupError.
        """
        if self.openapi and isinstance(source, str):
            from ..tools.openapi import openapi_source

            source = openapi_source(source, permissions=self.permissions, **self.openapi)
        return self.permissions.to(source)


def path_or_module(source: str, folder: Path) -> str:
    """Return *source* as a path from *folder*, as a git address, as a server, or as the name of a module."""
    if is_git_address(source):
        return str(parse_git_address(source).beside(folder))
    if (folder / source).suffix in DOCUMENTS and (folder / source).is_file():
        return str(folder / source)  # of servers, or an OpenAPI document
    if is_remote(source):
        return placed(source, folder)
    if source.startswith(DOCUMENT):
        where = source.removeprefix(DOCUMENT)
        return source if "://" in where else f"{DOCUMENT}{folder / Path(where).expanduser()}"
    path = Path(source).expanduser()
    is_path = "/" in source or os.sep in source or source.endswith(".py") or ".py:" in source
    return str(folder / path) if is_path or (folder / path).exists() else source
