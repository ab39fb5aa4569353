"""The pages of the console, by what they are about."""

from .approvals import PAGES as _APPROVALS
from .calls import PAGES as _CALLS
from .home import PAGES as _HOME
from .operation import PAGES as _OPERATION
from .tools import PAGES as _TOOLS

PAGES = (*_HOME, *_APPROVALS, *_TOOLS, *_CALLS, *_OPERATION)

__all__ = ["PAGES"]
