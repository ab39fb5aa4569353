"""The life of one call. Runs any `core.Tool`, and knows no kind of tool."""

from .depends import Provided
from .fail import refused
from .life import Scene, run

__all__ = ["Provided", "Scene", "refused", "run"]
