"""The guarded HTTP client: what a user or a document names is reached only where it is public, or the host allows it.

Needs httpx2, which each extra brings that reaches a network: importing this without it raises SetupError.
"""

from ..machinery import raise_missing_extra

try:
    from .addresses import Guard, GuardError, Resolve
    from .client import authorized, client
except ModuleNotFoundError as missing:
    raise_missing_extra(missing, "HTTP requests need", "auth")

__all__ = ["Guard", "GuardError", "Resolve", "authorized", "client"]
