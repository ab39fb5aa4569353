"""The life of one call. Runs any `core.Tool`, and knows no kind of tool."""

from .depends import Provided
from .life import Scene, refuse, run

__all__ = ["Provided", "Scene", "refuse", "run"]
