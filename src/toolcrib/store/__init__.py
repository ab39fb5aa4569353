"""One database: SQLite by default, PostgreSQL by URL. Sealed rows, versioned tables, leases, pending calls, results.

Needs the extra `toolcrib[store]`: importing this without it raises SetupError.
"""

from ..core import SetupError, StoreError

try:
    from .database import Store
    from .keys import KeySource
    from .leases import Lease, Leases
    from .pendings import DatabasePendings
    from .results import DatabaseResults
except ModuleNotFoundError as missing:
    package = (missing.name or "").partition(".")[0]
    if package == "toolcrib":
        raise
    raise SetupError(
        f"The store needs the package '{package}', which is missing: pip install 'toolcrib[store]'"
    ) from missing

__all__ = ["DatabasePendings", "DatabaseResults", "KeySource", "Lease", "Leases", "Store", "StoreError"]
