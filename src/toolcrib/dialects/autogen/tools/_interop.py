"""Where PyPI's autogen-core is installed, its programs accept the tools and workbenches of this dialect."""

from importlib.util import find_spec

from ._base import BaseTool
from ._workbench import Workbench


def register() -> None:
    """Make this dialect's base classes virtual subclasses of autogen-core's, for its `isinstance`."""
    if find_spec("autogen_core") is None:
        return
    from autogen_core import tools as theirs  # pyright: ignore[reportMissingImports]

    theirs.BaseTool.register(BaseTool)
    theirs.Workbench.register(Workbench)
