"""Where work runs that must be stoppable: worker processes of our own. Their own side of it is `sandbox.child`."""

from .wire import TooLarge
from .workers import Limits, OutputTooLarge, Worker, WorkerGone, Workers

__all__ = ["Limits", "OutputTooLarge", "TooLarge", "Worker", "WorkerGone", "Workers"]
