"""Tasks: calls that outlive a process. An embedded engine runs them in the process that has their tools."""

from .engine import EmbeddedTasks

__all__ = ["EmbeddedTasks"]
