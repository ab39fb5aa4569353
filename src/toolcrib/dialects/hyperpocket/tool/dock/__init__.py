"""`hyperpocket.tool.dock`: what makes tools of other things."""

from .dock import Dock

__all__ = ["Dock"]
