"""Where work runs that must be stoppable: worker processes of our own. `sandbox.worker` is their own side of it."""

from .folders import folder_digest
from .processes import Codec, GuestProcesses, Processes, ProcessWork
from .wire import TooLarge
from .workers import Limits, Worker, WorkerGone, Workers

__all__ = [
    "Codec",
    "GuestProcesses",
    "Limits",
    "ProcessWork",
    "Processes",
    "TooLarge",
    "Worker",
    "WorkerGone",
    "Workers",
    "folder_digest",
]
