"""The engine's C functions where its package has a slower way, or none: a pool of memories, functions, starts.

The package makes each number that crosses an object of its own, and asks for every function's type again: that costs
several times what the engine does. What is called here is what the package's own methods call.
"""

import ctypes
import mmap
import struct
import sys
from collections.abc import Callable
from typing import Any

import wasmtime
from wasmtime import _bindings, _func  # pyright: ignore[reportPrivateUsage]

_native: Any = _bindings
_entered: Any = _func.enter_wasm
_MEMORY, _START = ctypes.create_string_buffer(b"memory"), ctypes.create_string_buffer(b"_start")
_FUNCTION_KIND, _MEMORY_KIND = 0, 3
_VALUE_BYTES = ctypes.sizeof(_native.wasmtime_val_raw_t)
_Callback = _native.wasmtime_func_unchecked_callback_t
_Finalizer = _native._wasmtime_linker_define_func_unchecked.argtypes[-1]
_NOTHING: Any = ctypes.cast(0, _Finalizer)

_SLOTS = 400
"""How many guests at once: more than there are threads for them."""
_TABLES, _MOST_TABLES = 4000, 10
_POOL_BYTES = 2**41
"""More of the address space than as many memories of 4 GiB take; memory they take only where a guest has used it."""
_RESIDENT_BYTES = 2**17
_NO_RESERVE = 0x4000

_defined: list[Any] = []
"""The callbacks: for ever, as linkers have their addresses."""


class OutOfBounds(Exception):
    """An address that is not in the guest's memory."""


class GuestMemory:
    """The memory of the guest *caller* while it waits for us. Raises OutOfBounds; also where it has none."""

    __slots__ = ("_address", "_size")

    def __init__(self, caller: Any) -> None:
        found = _native.wasmtime_extern_t()
        is_there = _native._wasmtime_caller_export_get(caller, _MEMORY, 6, ctypes.byref(found))
        # What was found needs no deletion: only shared memories do, and no guest has threads.
        if not is_there or found.kind != _MEMORY_KIND:
            raise OutOfBounds
        context, memory = _native._wasmtime_caller_context(caller), ctypes.byref(found.of.memory)
        self._address = ctypes.cast(_native._wasmtime_memory_data(context, memory), ctypes.c_void_p).value or 0
        self._size = _native._wasmtime_memory_data_size(context, memory)

    def read(self, at: int, size: int) -> bytes:
        return ctypes.string_at(self._at(at, size), size)

    def write(self, at: int, data: bytes) -> None:
        ctypes.memmove(self._at(at, len(data)), data, len(data))

    def require(self, at: int, size: int) -> None:
        """Raise OutOfBounds where *size* bytes from *at* are not all in it."""
        self._at(at, size)

    def _at(self, at: int, size: int) -> int:
        at &= 0xFFFFFFFF
        if at + size > self._size:
            raise OutOfBounds
        return self._address + at


def pool(config: wasmtime.Config, *, table_elements: int) -> bool:
    """Have the engine of *config* keep the memories of guests that have ended for the next, emptied; whether it can.

    Else each is given a new one, which has all threads wait for the kernel. The engine refuses modules with more than
    ten tables, or with more elements in one than *table_elements*.
    """
    if sys.platform != "linux":
        return False
    try:  # an engine that finds less room ends the process
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        mmap.mmap(-1, _POOL_BYTES, flags=flags, prot=0).close()
    except OSError:
        return False
    made, prefix = _native.wasmtime_pooling_allocation_config_new(), "wasmtime_pooling_allocation_config_"
    for name, value in {
        "total_core_instances": _SLOTS,
        "total_memories": _SLOTS,
        "total_tables": _TABLES,
        "max_tables_per_module": _MOST_TABLES,
        "table_elements": table_elements,
        "linear_memory_keep_resident": _RESIDENT_BYTES,
    }.items():
        getattr(_native, f"{prefix}{name}_set")(made, value)
    _native.wasmtime_pooling_allocation_strategy_set(config.ptr(), made)
    _native.wasmtime_pooling_allocation_config_delete(made)
    return True


def define(linker: wasmtime.Linker, module: str, name: str, parameters: int, function: Callable[..., int]) -> None:
    """Offer *function* to the guests of *linker*: it is given the caller and as many i32, and returns an i32.

    It must not raise. A function of this name that is there already is replaced.
    """
    numbers = struct.Struct("<" + f"i{_VALUE_BYTES - 4}x" * parameters)

    @_Callback  # type: ignore[untyped-decorator]
    def called(_: Any, caller: Any, values: Any, _count: int) -> int:
        values[0].i32 = function(caller, *numbers.unpack(ctypes.string_at(values, numbers.size)))
        return 0

    _defined.append(called)
    i32 = wasmtime.ValType.i32()
    kind = wasmtime.FuncType([i32] * parameters, [i32])
    words = [(ctypes.create_string_buffer(text, len(text)), len(text)) for text in (module.encode(), name.encode())]
    error = _native.wasmtime_linker_define_func_unchecked(
        linker.ptr(), *words[0], *words[1], kind.ptr(), called, None, _NOTHING
    )
    assert not error, f"{module}.{name} is there already"


def start(store: wasmtime.Store, instance: wasmtime.Instance) -> None:
    """Call `_start` of *instance*, a function without parameters. Raises what the engine raises."""
    found = _native.wasmtime_extern_t()
    context: Any = store._context()  # pyright: ignore[reportPrivateUsage]
    own = ctypes.byref(instance._instance)  # pyright: ignore[reportPrivateUsage]
    is_there = _native._wasmtime_instance_export_get(context, own, _START, 6, ctypes.byref(found))
    assert is_there, "it was there when the module was loaded"
    assert found.kind == _FUNCTION_KIND, "it was a function then"
    with _entered(store) as trap:
        error = _native._wasmtime_func_call_unchecked(context, ctypes.byref(found.of.func), None, 0, trap)
        if error:
            raise wasmtime.WasmtimeError._from_ptr(error)  # pyright: ignore[reportPrivateUsage]
