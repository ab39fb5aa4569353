"""Where work runs that must be stoppable: worker processes of our own. `sandbox.worker` is their own side of it."""

from .processes import Codec, Processes, ProcessWork
from .wire import TooLarge
from .workers import Limits, OutputTooLarge, Worker, WorkerGone, Workers

__all__ = [
    "Codec",
    "Limits",
    "OutputTooLarge",
    "ProcessWork",
    "Processes",
    "TooLarge",
    "Worker",
    "WorkerGone",
    "Workers",
]
