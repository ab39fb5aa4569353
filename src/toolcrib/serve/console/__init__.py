"""The console: pages for people, on the HTTP API.

A page shows what the API answers to its visitor; its `.json` is that answer. What it changes, it changes by the API.
So there is nothing here that the API does not allow its caller.
"""

from ...machinery import raise_missing_extra

try:
    from .app import Console
    from .sessions import Sessions
except ModuleNotFoundError as missing:
    raise_missing_extra(missing, "The console needs", "serve")

__all__ = ["Console", "Sessions"]
