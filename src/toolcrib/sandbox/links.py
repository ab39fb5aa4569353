"""Keeps the guests of a worker from making symbolic links.

A guest cannot follow one out of its folders, but the host's programs could, that read what it has written there. The
system refuses to make them (Linux, seccomp), so there is no moment at which one is there.
"""

import ctypes
import platform
import struct
import sys

from ..core import LoadError

_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER, _ALL_THREADS = 1, 1
# Of each machine: the numbers of seccomp, symlinkat and symlink, which new ones do not have.
_CALLS = {"x86_64": (317, 266, 88), "aarch64": (277, 36, 36)}
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _NOT_PERMITTED = 0x7FFF0000, 0x00050001


class _Filter(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def refuse_links() -> None:
    """Let no thread of this process make a symbolic link from now on. Raises LoadError where that is not to be had."""
    calls = _CALLS.get(platform.machine()) if sys.platform == "linux" else None
    if calls is None or not _install(*calls):
        raise LoadError(
            "It writes in a folder of the host, and this system cannot keep it from leaving links there that lead out "
            "of it. Run it on Linux, where seccomp is allowed, or let it only read."
        )


def _install(seccomp: int, *refused: int) -> bool:
    steps = [(_LOAD, 0, 0, 0)]
    steps += [(_JUMP_IF_EQUAL, len(refused) - number, 0, call) for number, call in enumerate(refused)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _NOT_PERMITTED)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    libc, program = ctypes.CDLL(None), _Filter(len(steps), ctypes.addressof(code))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    done: int = libc.syscall(seccomp, _SET_MODE_FILTER, _ALL_THREADS, ctypes.byref(program))
    return done == 0
