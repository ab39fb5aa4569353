"""Where work runs that must be stoppable: worker processes of our own. `sandbox.worker` is their own side of it."""

from .folders import folder_digest
from .processes import GuestProcesses, Limits, Processes, Worker, WorkerGone, Workers
from .wire import TooLarge
from .work import Codec, ProcessWork

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
