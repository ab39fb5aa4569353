"""The command: `toolcrib list`, `show`, `call`, `serve`, `check`."""

from .entry import main

__all__ = ["main"]
