"""Objects of other packages as sources: by readers that plug-ins register under the entry point `toolcrib.sources`."""

import functools
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..core import LoadError, is_source
from .function import Tool, is_tool

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def from_plugin(value: Any) -> Any:
    """Return the source that a plug-in makes of *value*, an object of a package that it knows; else *value* itself."""
    if value is None or isinstance(value, type | ModuleType | functools.partial) or inspect.isroutine(value):
        return value
    packages = {f"{cls.__module__}." for cls in type(value).__mro__}
    if packages <= {"builtins."} or hasattr(value, "__toolcrib__") or is_source(value) or is_tool(value):
        return value
    for reader in _readers():
        if any(package.startswith(f"{reader.name}.") for package in packages):
            try:
                source = reader.load()(value)
            except ImportError as error:
                raise LoadError(f"A {type(value).__name__} cannot be read: {error}") from error
            if source is not None:
                return _Offered(source) if isinstance(source, list) else source
    return value


@functools.cache
def _readers() -> "tuple[EntryPoint, ...]":
    """Return the readers of foreign objects that are installed, each named by the package whose objects it reads."""
    from importlib.metadata import entry_points  # which takes as long to import as the rest of this room

    return tuple(entry_points(group="toolcrib.sources"))


@dataclass(frozen=True, slots=True)
class _Offered:
    tools: Sequence[Tool[..., Any]]

    def __toolcrib__(self) -> Sequence[Tool[..., Any]]:
        return self.tools
