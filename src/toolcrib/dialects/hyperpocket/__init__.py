"""hyperpocket's names: `Pocket`, `PocketAuth`, tools of functions and of one's own classes, over Toolcrib's pipeline.

Change the import root `hyperpocket` to `toolcrib.dialects.hyperpocket`.
"""

from typing import TYPE_CHECKING

from ...machinery import lazy_names

if TYPE_CHECKING:
    from .pocket_auth import PocketAuth
    from .pocket_main import Pocket

__all__ = ["Pocket", "PocketAuth"]

# A module that only defines tools needs neither, so they are imported on first use.
__getattr__ = lazy_names(__name__, {"Pocket": ".pocket_main", "PocketAuth": ".pocket_auth"})
