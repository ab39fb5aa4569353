"""The command: `toolcrib list`, `show`, `call`, `chat`, `serve`, `dev`, `check`, `dialects`."""

from .entry import main

__all__ = ["main"]
