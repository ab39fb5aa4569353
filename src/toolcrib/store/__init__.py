"""One database: SQLite by default, PostgreSQL by URL. Sealed rows, versioned tables, and what calls keep in them.

Needs the extra `toolcrib[store]`: importing this without it raises SetupError.
"""

from ..core import StoreError
from ..machinery import defer_package, raise_missing_extra

try:
    defer_package("cryptography")  # raises where it is missing

    from .keys import KeySource
    from .leases import Lease, Leases
    from .ledger import DatabaseLedger
    from .pendings import DatabasePendings
    from .results import DatabaseResults
    from .store import Store
    from .webhook import Webhook
except ModuleNotFoundError as missing:
    raise_missing_extra(missing, "The store needs", "store")

__all__ = [
    "DatabaseLedger",
    "DatabasePendings",
    "DatabaseResults",
    "KeySource",
    "Lease",
    "Leases",
    "Store",
    "StoreError",
    "Webhook",
]
