"""The processes of `toolcrib serve --workers N`: forked, started again when one dies, and stopped together.

They share one socket, on which the system gives each connection to one of them. The first process serves nothing and
opens nothing, neither sources nor a store, so its forks inherit no thread and no connection.
"""

import gc
import mmap
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..core import SetupError
from .interrupts import DEFAULT_GRACE_S, Interrupts

if TYPE_CHECKING:
    from ..store import Store

_RESTART_INTERVAL_S = 1.0
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "ceph", "fuse.sshfs", "fuse.glusterfs", "lustre")
"""Kinds of file systems that several machines share."""


@dataclass(frozen=True, slots=True)
class Process:
    """One of several processes. *is_first* for the one that speaks for all at their start."""

    is_first: bool
    flag: mmap.mmap

    def begin(self) -> None:
        """Note that it serves. Where a process ends before any has begun, none is started again."""
        self.flag[0] = 1


def fork(count: int, interrupts: Interrupts, report: Callable[[str], None]) -> Process:
    """Return in each of *count* processes. In this one, which starts them again, raise Interrupted or SystemExit."""
    running: dict[int, int] = {}  # the number of each, by its process id; in a fork, none
    flag, (reader, writer) = mmap.mmap(-1, 1), os.pipe()
    interrupts.grace_s += DEFAULT_GRACE_S  # the first process waits longer than the others have
    gc.freeze()  # what is loaded stays in the memory that they share

    def start(number: int) -> bool:
        """Return whether this is the new process."""
        if pid := os.fork():
            running[pid] = number
            return False
        running.clear()
        interrupts.grace_s -= DEFAULT_GRACE_S
        os.close(writer)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the first process passes it on
        interrupts.messages[signal.SIGTERM] = f"Worker {number} stops."
        interrupts.wake_here()
        threading.Thread(target=_end_with_parent, args=(reader,), name="toolcrib-parent", daemon=True).start()
        return True

    try:
        for number in range(1, count + 1):
            if start(number):
                return Process(number == 1, flag)
        while True:
            pid, status = os.wait()
            number, code = running.pop(pid), os.waitstatus_to_exitcode(status)
            if not flag[0]:
                raise SystemExit(max(code, 1))
            reason = f"status {code}" if code >= 0 else signal.Signals(-code).name
            report(f"Worker {number} has ended ({reason}), and is started again.")
            time.sleep(_RESTART_INTERVAL_S)
            if start(number):
                return Process(False, flag)
    finally:
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for pid in running:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _end_with_parent(reader: int) -> None:
    os.read(reader, 1)  # it ends when the first process, which has the other end, does
    os.kill(os.getpid(), signal.SIGTERM)


def require_local(store: "Store", mounts: Path = Path("/proc/self/mounts")) -> None:
    """Raise SetupError for an SQLite file on a file system that machines share: SQLite in WAL is for one machine."""
    if (file := store.file) is None or not mounts.exists():
        return
    lines = [line.split(" ") for line in mounts.read_text("utf-8", "replace").splitlines()]
    kinds = {folder: kind for _, folder, kind, *_ in lines}
    nearest = next((kinds[str(folder)] for folder in file.resolve().parents if str(folder) in kinds), "")
    if nearest in _NETWORK:
        raise SetupError(
            f"The store {file} is SQLite on a file system of a network ({nearest}), where several machines "
            "would damage it. Workers on several machines need PostgreSQL: --store postgresql://USER@HOST/NAME"
        )
