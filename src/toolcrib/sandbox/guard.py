"""Stands between a worker and its host, and ends everything that came of the worker when either of them is gone.

Run as a script in a new interpreter, before anything else is imported. It forks, while it is small and has one thread,
a second guard below itself, which does the same, lets its child become the worker, and waits. What a tool starts, and
what that starts, stays below the guards, which adopt orphans (Linux), so a session of its own takes nothing out of
reach. A worker that hangs in native code, is stopped or is killed cannot keep a guard from its work.
"""

import contextlib
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Iterator

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(settings: dict[str, object]) -> None:
    """Start the worker below this process and see to its end. *settings* are those of `worker.main`, and `host`."""
    channel, parent = settings["channel"], settings["host"]
    assert isinstance(channel, int)
    assert isinstance(parent, int)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Two guards on Linux, each in a session of its own: a tool that kills one of them, or its own group, leaves a
    # guard to end everything that came of it.
    for _ in range(2 if sys.platform == "linux" else 1):
        awake, wake = os.pipe()
        os.set_blocking(wake, False)
        ending: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _, ending=ending: ending.append(number))  # type: ignore[misc]
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        belong_to(parent, signal.SIGTERM)
        parent = os.getpid()
        below = os.fork()
        if below:
            _watch(below, channel, awake, ending)
        signal.set_wakeup_fd(-1)
        os.close(awake)
        os.close(wake)
        if sys.platform == "linux":
            os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    belong_to(parent, signal.SIGKILL)
    # By its full name: a script is in no package.
    from toolcrib.sandbox.worker import main as work

    work(settings)


def _watch(worker: int, channel: int, awake: int, ending: list[int]) -> None:
    """Wait for the end of the worker or the host, end what is left, and end as the worker did."""
    poll = select.poll()
    poll.register(channel, 0)  # nothing is read here: a hang-up is always reported
    poll.register(awake, select.POLLIN)
    status: int | None = None
    while (status := _reap(worker)) is None and not ending:
        if any(fd == channel for fd, _ in poll.poll()):
            break
        os.read(awake, 4096)
    kill_below(os.getpid())
    if status is None:
        _, status = os.waitpid(worker, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def _reap(worker: int) -> int | None:
    """Bury the children that have ended; how the worker did, if it is among them."""
    status: int | None = None
    while True:
        try:
            pid, end = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == worker:
            status = end


def kill_tree(pid: int) -> None:
    """Kill a guard and all that is below it: the descendants first, so that none is orphaned out of reach."""
    kill_below(pid)
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def kill_below(pid: int) -> None:
    """Kill the descendants of *pid*, in whatever session they are, and those they start meanwhile."""
    known_pids: set[int] = set()
    # What has been sent SIGKILL starts nothing more, so this ends; the bound is for what cannot be foreseen.
    for _ in range(1000):
        pids = [pid_below for pid_below in descendants(pid) if pid_below not in known_pids]
        if not pids:
            break
        known_pids.update(pids)
        for pid_below in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid_below, signal.SIGKILL)
    if pid == os.getpid() and not os.path.isdir("/proc/self"):  # noqa: PTH112
        os.killpg(0, signal.SIGKILL)  # where descendants cannot be listed, the group is what can be reached


def descendants(pid: int) -> Iterator[int]:
    """Yield the living processes that came of *pid*, the nearest first. Empty where there is no /proc."""
    children: dict[int, list[tuple[int, bool]]] = {}
    try:
        entries = os.listdir("/proc")  # noqa: PTH208 - pathlib takes longer to import than all of this to run
    except OSError:
        return
    for entry in entries:
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:  # noqa: PTH123
                # The name in brackets may hold anything, brackets and spaces too.
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        children.setdefault(int(parent), []).append((int(entry), state not in (b"Z", b"X")))
    waiting = list(children.get(pid, ()))
    while waiting:
        child, lives = waiting.pop(0)
        if lives:
            yield child
        waiting += children.get(child, ())


def belong_to(parent: int, number: int) -> None:
    """Get the signal *number* when the thread of *parent* ends that started this process; adopt orphans (Linux)."""
    if sys.platform == "linux":
        import ctypes  # only where there is something to guard

        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_PDEATHSIG, number)
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != parent:
        os._exit(0)  # it ended before it could be watched


if __name__ == "__main__":
    _settings = json.loads(sys.argv[1])
    sys.path[:] = _settings["path"]
    main(_settings)
