"""The guarded HTTP client: what a user or a document names is reached only where it is public, or the host allows it.

Needs the extra `toolcrib[net]`: importing this without it raises SetupError.
"""

from ..core import SetupError

try:
    from .addresses import Guard, GuardError, Resolve
    from .authorized import authorized
    from .client import client
except ModuleNotFoundError as missing:
    package = (missing.name or "").partition(".")[0]
    if package == "toolcrib":
        raise
    raise SetupError(
        f"HTTP requests need the package '{package}', which is missing: pip install 'toolcrib[net]'"
    ) from missing

__all__ = ["Guard", "GuardError", "Resolve", "authorized", "client"]
