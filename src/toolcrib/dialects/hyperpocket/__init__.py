"""hyperpocket's names: `Pocket`, `PocketAuth`, tools of functions and of one's own classes, over Toolcrib's pipeline.

Change the import root `hyperpocket` to `toolcrib.dialects.hyperpocket`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .pocket_auth import PocketAuth
    from .pocket_main import Pocket

__all__ = ["Pocket", "PocketAuth"]

# A module that only defines tools needs neither, so they come when they are first asked for.
_HOMES = {"Pocket": "pocket_main", "PocketAuth": "pocket_auth"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    return value
