"""hyperpocket's names: `Pocket`, `PocketAuth`, tools of functions and of one's own classes, over Toolcrib's pipeline.

Change the import root `hyperpocket` to `toolcrib.dialects.hyperpocket`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .pocket_auth import PocketAuth
    from .pocket_main import Pocket

__all__ = ["Pocket", "PocketAuth"]

_MODULES = {"Pocket": ".pocket_main", "PocketAuth": ".pocket_auth"}


def __getattr__(name: str) -> Any:
    # A module that only defines tools needs neither, so they are imported on first use.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name], __name__), name)
