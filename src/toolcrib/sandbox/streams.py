"""The functions of WASI that are ours: standard streams in memory, and a sleep that can be ended.

They run in the guest's thread, and never raise: what a function raises here could come out in another thread's call.
Numbers of a guest are signed and may be anything: each is masked, and each address is checked.
"""

import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import wasmtime

from . import bindings
from .bindings import GuestMemory, OutOfBounds
from .run import Run

WASI = "wasi_snapshot_preview1"

_SUCCESS, _BAD_FILE, _FAULT, _INTERRUPTED, _INVALID, _NOT_SUPPORTED = 0, 8, 21, 27, 28, 58
_MOST_PIECES = 1024
_PIECE = struct.Struct("<II")
_NUMBER = struct.Struct("<I")
_SUBSCRIPTION = struct.Struct("<QB7xI4xQQH6x")
_EVENT = struct.Struct("<QHB5xQH6x")
_REALTIME, _CLOCK, _READ = 0, 0, 1

here = threading.local()
"""`here.run` is the Run of the guest in this thread."""


def define(linker: wasmtime.Linker, *, streams: bool) -> None:
    """Put our functions in place of those of WASI: the sleep, and with *streams* the standard streams."""
    linker.allow_shadowing = True
    ours: dict[str, Callable[..., int]] = {"poll_oneoff": _poll}
    if streams:
        ours |= {"fd_read": _read, "fd_write": _write}
    for name, function in ours.items():
        bindings.define(linker, WASI, name, 4, function)


def _pieces(memory: GuestMemory, at: int, count: int) -> list[tuple[int, int]]:
    """Return address and size of each of *count* pieces, which are listed at *at*; of too many the first."""
    count = min(count & 0xFFFFFFFF, _MOST_PIECES)
    pieces = list(_PIECE.iter_unpack(memory.read(at, count * _PIECE.size)))
    for piece in pieces:
        memory.require(*piece)
    return pieces


def _guarded(function: Callable[..., int]) -> Callable[..., int]:
    def guarded(caller: Any, *numbers: int) -> int:
        try:
            return function(here.run, GuestMemory(caller), *numbers)
        except OutOfBounds:
            return _FAULT
        except BaseException:
            here.run.stop()
            return _INVALID

    return guarded


@_guarded
def _read(run: Run, memory: GuestMemory, file: int, pieces: int, count: int, read_at: int) -> int:
    if file != 0:
        return _BAD_FILE
    total = 0
    for at, size in _pieces(memory, pieces, count):
        data = bytes(run.read(size))
        memory.write(at, data)
        total += len(data)
        if len(data) < size:
            break
    memory.write(read_at, _NUMBER.pack(total))
    return _SUCCESS


@_guarded
def _write(run: Run, memory: GuestMemory, file: int, pieces: int, count: int, written_at: int) -> int:
    if file not in (1, 2):
        return _BAD_FILE
    total = 0
    for at, size in _pieces(memory, pieces, count):
        if file == 1:
            run.write(memory.read(at, min(size, run.room)))
        else:
            run.write_error(memory.read(at, min(size, run.error_room)))
        total += size
        if run.is_over:
            break
    memory.write(written_at, _NUMBER.pack(total & 0xFFFFFFFF))
    return _SUCCESS


@_guarded
def _poll(run: Run, memory: GuestMemory, subscriptions: int, events: int, count: int, ready_at: int) -> int:
    """Wait for the first of the clocks. Standard streams are always ready."""
    if not 0 < count <= _MOST_PIECES:
        return _INVALID
    listed: list[tuple[int, ...]] = list(
        _SUBSCRIPTION.iter_unpack(memory.read(subscriptions, count * _SUBSCRIPTION.size))
    )
    if any(tag == _CLOCK and flags & 1 and clock != _REALTIME for _, tag, clock, _, _, flags in listed):
        return _NOT_SUPPORTED  # moments of a clock that is not ours
    waits_s = [0.0 if tag != _CLOCK else _wait_s(timeout, flags) for _, tag, _, timeout, _, flags in listed]
    least_s = min(waits_s)
    if run.stopped.wait(min(least_s, threading.TIMEOUT_MAX)):
        return _INTERRUPTED
    due = [one for one, wait_s in zip(listed, waits_s, strict=True) if wait_s <= least_s]
    memory.write(events, b"".join(_EVENT.pack(user, 0, tag, 1 if tag == _READ else 0, 0) for user, tag, *_ in due))
    memory.write(ready_at, _NUMBER.pack(len(due)))
    return _SUCCESS


def _wait_s(timeout: int, flags: int) -> float:
    return max(0.0, (timeout - time.time_ns() if flags & 1 else timeout) / 1e9)
