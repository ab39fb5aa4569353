"""The command: `toolcrib list`, `show`, `call`, `serve`."""

from .entry import main

__all__ = ["main"]
