"""More than one tool at once: the registry, and the workbench that calls them for one caller."""

from .registry import Registry
from .workbench import Workbench

__all__ = ["Registry", "Workbench"]
