"""Stop one of the guests of an engine: each looks whether its own run has to end when the engine's epoch changes.

wasmtime's package declares the function for this, and has no method for it.
"""

import ctypes
from typing import Any

import wasmtime
from wasmtime import _bindings  # pyright: ignore[reportPrivateUsage]

from .run import Run
from .streams import here

_native: Any = _bindings


def watch(store: wasmtime.Store, run: Run) -> None:
    """Have the guest of *store*, which runs in this thread next, end when *run* is stopped."""
    here.run = run
    _native.wasmtime_store_epoch_deadline_callback(store.ptr(), _look, None, _NOTHING)
    store.set_epoch_deadline(0 if run.stopped.is_set() else 1)


_Callback, _Finalizer = _native._wasmtime_store_epoch_deadline_callback.argtypes[1::2]
_NOTHING: Any = ctypes.cast(0, _Finalizer)


@_Callback  # type: ignore[untyped-decorator]
def _look(_context: Any, _data: Any, ticks: Any, _kind: Any) -> int:
    if here.run.stopped.is_set():
        error = _native.wasmtime_error_new(ctypes.create_string_buffer(b"stopped"))
        return ctypes.cast(error, ctypes.c_void_p).value or 0
    ticks[0] = 1  # and the guest goes on, unless another kind is set
    return 0
