"""Where work runs that must be stoppable: worker processes of our own. `sandbox.worker` is their own side of it."""

from .folders import MAX_BYTES, MAX_FILES, content_hash, folder_digest, native_code_in
from .processes import Limits, Processes, Worker, WorkerGone, guest_processes
from .wire import TooLarge
from .work import Codec, ProcessWork

__all__ = [
    "MAX_BYTES",
    "MAX_FILES",
    "Codec",
    "Limits",
    "ProcessWork",
    "Processes",
    "TooLarge",
    "Worker",
    "WorkerGone",
    "content_hash",
    "folder_digest",
    "guest_processes",
    "native_code_in",
]
