"""The pages of the console, by what they are about."""

from .home import PAGES as _HOME
from .tools import PAGES as _TOOLS

PAGES = (*_HOME, *_TOOLS)

__all__ = ["PAGES"]
