"""WebAssembly programs: compiled once, and run with an input, an environment, folders and limits.

    module       a command for WASI preview 1; it has no network
    component    one for WASI 0.2 that exports `wasi:cli/run`, or the Python of the sandbox

Both read standard input and write standard output. They have no variables of this process and only the folders that
they are given. A component may send HTTP requests by a host function of ours, to the hosts that the operator allows;
WASI's own HTTP, which has no such list, is not there, and its sockets reach nothing.

Nothing here stops a program that computes or sleeps: it runs in a worker process, which is killed at the deadline.
"""

import contextlib
import ctypes
import hashlib
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, TypeVar

import wasmtime
from wasmtime import _bindings as bindings  # pyright: ignore[reportPrivateUsage] - see _Streams
from wasmtime import component as model

from ..core import LoadError
from ..machinery import in_thread
from .cache import private_folder, touch, trim
from .guest_http import RequestRefused
from .processes import watch
from .programs import Ended, ProgramLimits, ProgramOutput
from .wire import READ_BYTES

C = TypeVar("C")

_STACK_BYTES = 1024 * 1024
_MAX_TABLE_ELEMENTS = 100_000
_MAX_TABLES = 16
_MAX_INSTANCES = 200
"""Of the modules in a component: Python has some dozens."""
_MAX_MEMORIES = 64
# The engine has no others than 0 to 125, and does not say which one it was.
_HIGH_STATUS = 126
_WASI = "wasi_snapshot_preview1"
_HTTP = "toolcrib:guest/http@1.0.0"
_PYTHON = "toolcrib:guest/program@1.0.0"
_RUN = "wasi:cli/run@0.2."
# Of what is linked, all but HTTP of our own.
_OFFERED = ("wasi:cli/", "wasi:clocks/", "wasi:filesystem/", "wasi:io/", "wasi:random/", "wasi:sockets/", _HTTP)
_REASONS = {
    "wasm `unreachable` instruction executed": "it aborted (its instruction 'unreachable')",
    "call stack exhausted": "its calls were nested too deeply",
    "out of bounds memory access": "it reached outside its memory",
    "integer divide by zero": "it divided by zero",
}

Mount = tuple[str, str, bool]
"""A folder of a guest: its path there, the resolved path of the host's folder, and whether it may be written."""

Fetch = Callable[[str], str]
"""Sends a request, both as JSON: see `python/guest.wit`. Raises RequestRefused. Called in the thread of a guest."""


class _Stopped(Exception):
    """The program was stopped, for the reason in its text."""


@dataclass(frozen=True, slots=True)
class Granted:
    """What one run gets: variables of its environment, what sends HTTP requests for it, and folders.

    Python gets the name of its *program* in the folder that is mounted at `/tool`.
    """

    environment: Mapping[str, str]
    fetch: Fetch
    mounts: Sequence[Mount] = ()
    program: str | None = None


@dataclass(frozen=True, slots=True)
class _Streams:
    """The standard streams of one run: what it reads, and the ends of the pipes that it writes to."""

    data: bytes
    output: int
    error_output: int

    def connect(self, wasi: wasmtime.WasiConfig) -> None:
        # The engine opens and reads a file in threads of its own, which takes as long as all the rest of a small run,
        # and its package has nothing but files for standard input. Its C function takes bytes. (The vector is a copy,
        # and becomes the configuration's.)
        vector = bindings.wasm_byte_vec_t()
        copy = (ctypes.c_uint8 * len(self.data)).from_buffer_copy(self.data)
        bindings.wasm_byte_vec_new(vector, len(self.data), copy)
        bindings.wasi_config_set_stdin_bytes(wasi.ptr(), vector)
        # Functions of the package's, in place of pipes, would be called in other threads too.
        wasi.stdout_file, wasi.stderr_file = f"/dev/fd/{self.output}", f"/dev/fd/{self.error_output}"


@contextlib.contextmanager
def _pipe_to(write: Callable[[bytes], None]) -> Generator[int]:
    """Yield the end of a pipe: what is written to it in the block goes to *write*, on this event loop."""
    pipe, end = os.pipe()
    os.set_blocking(pipe, False)

    def read() -> bool:
        try:
            write(os.read(pipe, READ_BYTES))
        except BlockingIOError:
            return False
        return True

    unwatch = watch(pipe, read)
    try:
        try:
            yield end
        finally:
            while read():
                pass
    finally:
        unwatch()
        os.close(pipe)
        os.close(end)


class Engine:
    """Compiles programs, and keeps what was compiled in a folder of the cache that only this user can write to."""

    def __init__(self) -> None:
        config = wasmtime.Config()
        config.epoch_interruption = True
        config.wasm_threads = False
        config.max_wasm_stack = _STACK_BYTES
        config.gc_support = False  # its heap would be a memory that no limit counts with the others
        self._engine = wasmtime.Engine(config)
        self._linker = wasmtime.Linker(self._engine)
        self._linker.define_wasi()

    def compile(self, code: bytes) -> "Program":
        """Return the module or component in *code*. Raises LoadError for what cannot run here."""
        digest = hashlib.sha256(code).hexdigest()
        if code[4:8] == b"\x01\0\0\0":
            module = self._compiled(wasmtime.Module, "module", digest, lambda: code)
            return Module(self._engine, self._linker, module)
        return Component(self._engine, self._compiled(model.Component, "component", digest, lambda: code))

    def python(self, file: Path, *, again: bool = False) -> "Program":
        """Return the Python of the sandbox, which is in *file* of our cache; compiled now if it was not, or *again*."""
        # By its name alone, which says what it was made of: reading it takes longer than loading what was compiled.
        compiled = self._compiled(model.Component, "component", file.stem, file.read_bytes, again=again)
        return Component(self._engine, compiled)

    def _compiled(self, kind: Any, noun: str, digest: str, code: Callable[[], bytes], *, again: bool = False) -> Any:
        key = f"{version('wasmtime')} {_STACK_BYTES} {noun} {digest}"
        folder = private_folder("wasm")
        file = None if folder is None else folder / hashlib.sha256(key.encode()).hexdigest()
        compiled = None if file is None or again else read_compiled(file, partial(kind.deserialize, self._engine))
        if compiled is None:
            try:
                compiled = kind(self._engine, code())
            except wasmtime.WasmtimeError as error:
                raise LoadError(f"It is not a valid WebAssembly {noun}: {first_line(error)}.") from None
            if file is not None:
                write_compiled(file, bytes(compiled.serialize()))
        return compiled


class Program:
    """A compiled program. Each run has an instance of its own."""

    def __init__(self, engine: wasmtime.Engine) -> None:
        self._engine = engine

    async def run(self, data: bytes, granted: Granted, limits: ProgramLimits) -> Ended:
        """Run it with *data* as standard input.

        Cancelled, it leaves the guest running in its thread: who cancels a call ends its process.
        """
        output = ProgramOutput(limits, stop=self._engine.increment_epoch)
        try:
            with _pipe_to(output.write) as pipe, _pipe_to(output.write_error) as error_pipe:
                streams = _Streams(data, pipe, error_pipe)
                status = await in_thread(partial(self._status, streams, granted, limits))
        except _Stopped as stopped:
            return output.end(reason=str(stopped))
        return output.end(exception=status) if isinstance(status, str) else output.end(status)

    def _status(self, streams: _Streams, granted: Granted, limits: ProgramLimits) -> int | str:
        """Return the exit status, or the exception that ended Python. Raises _Stopped."""
        wasi = wasmtime.WasiConfig()
        store = wasmtime.Store(self._engine)
        has_begun = False
        try:
            streams.connect(wasi)
            _configure(wasi, granted)
            _prepare(store, wasi, limits, self._count_memories(limits))
            start = self._instantiate(store, granted)
            has_begun = True
            return start()
        except wasmtime.ExitTrap as exited:
            return exited.code
        except (wasmtime.WasmtimeError, wasmtime.Trap) as error:
            if "invalid exit status" in str(error):
                return _HIGH_STATUS
            raise _Stopped(_reason(str(error), limits, has_begun)) from None
        finally:
            wasi.close()  # it holds the pipes where the store has not got it
            store.close()

    def _count_memories(self, limits: ProgramLimits) -> int:
        """Return how many memories an instance has. They share the limit, for the engine's own is one of each."""
        raise NotImplementedError

    def _instantiate(self, store: wasmtime.Store, granted: Granted) -> Callable[[], int | str]:
        """Return what runs an instance of its own."""
        raise NotImplementedError


class Module(Program):
    """A compiled module. Raises LoadError for one that is not a command, or needs what it cannot have here."""

    def __init__(self, engine: wasmtime.Engine, linker: wasmtime.Linker, module: wasmtime.Module) -> None:
        super().__init__(engine)
        foreign = sorted({f"{item.module}.{item.name}" for item in module.imports if item.module != _WASI})
        _require_offered(foreign, "WASI")
        if not any(item.name == "_start" and _is_plain(item.type) for item in module.exports):
            raise LoadError("It is not a program: it has no '_start'. Build it as a command, for WASI preview 1.")
        try:
            self._prepared = linker.instantiate_pre(module)
        except wasmtime.WasmtimeError as error:
            raise LoadError(f"It imports what WASI preview 1 does not have: {first_line(error)}.") from None

    def _count_memories(self, limits: ProgramLimits) -> int:
        return 1

    def _instantiate(self, store: wasmtime.Store, granted: Granted) -> Callable[[], int | str]:
        start: Any = self._prepared.instantiate(store).exports(store)["_start"]
        return lambda: start(store) or 0


class Component(Program):
    """A compiled component. Raises LoadError for one that is not a program, or needs what it cannot have here."""

    def __init__(self, engine: wasmtime.Engine, compiled: model.Component) -> None:
        super().__init__(engine)
        imports, exports = compiled.type.imports(engine), compiled.type.exports(engine)
        _require_offered(sorted(name for name in imports if not name.startswith(_OFFERED)), "WASI 0.2")
        export = next((name for name in exports if name == _PYTHON or name.startswith(_RUN)), None)
        if export is None:
            raise LoadError(f"It is not a program: it does not export {_RUN}x. Build it as a command, for WASI 0.2.")
        self._export = export
        self._compiled = compiled
        self._memories = 1
        self._is_counted = False

    def _count_memories(self, limits: ProgramLimits) -> int:
        if not self._is_counted:
            # The engine does not say how many there are. What starts with an instance is granted nothing here.
            linker = _component_linker(self._engine, _refuse)
            while self._memories <= _MAX_MEMORIES and self._has_more_memories(linker, limits):
                self._memories += 1
            self._is_counted = True
        if self._memories > _MAX_MEMORIES:
            raise _Stopped(f"it has more than {_MAX_MEMORIES} memories")
        return self._memories

    def _has_more_memories(self, linker: model.Linker, limits: ProgramLimits) -> bool:
        with contextlib.closing(wasmtime.Store(self._engine)) as store:
            _prepare(store, wasmtime.WasiConfig(), limits, self._memories)
            try:
                linker.instantiate(store, self._compiled)
            except (wasmtime.WasmtimeError, wasmtime.Trap) as error:  # any other is the run's
                return "memory count too high" in str(error)
            return False

    def _instantiate(self, store: wasmtime.Store, granted: Granted) -> Callable[[], int | str]:
        instance = _component_linker(self._engine, granted.fetch).instantiate(store, self._compiled)
        holder = instance.get_export_index(store, self._export)
        assert holder is not None
        index = instance.get_export_index(store, "run", holder)
        assert index is not None
        run = instance.get_func(store, index)
        assert run is not None

        def start() -> int | str:
            value = run(store)
            if self._export == _PYTHON:
                return value if isinstance(value, int) else str(value)
            return 0 if value.tag == "ok" else 1

        return start


def _prepare(store: wasmtime.Store, wasi: wasmtime.WasiConfig, limits: ProgramLimits, memories: int) -> None:
    store.set_limits(
        memory_size=limits.memory_bytes // memories,
        memories=memories,
        table_elements=_MAX_TABLE_ELEMENTS,
        tables=_MAX_TABLES,
        instances=_MAX_INSTANCES,
    )
    store.set_wasi(wasi)
    store.set_epoch_deadline(1)  # the next epoch is when there is too much output


def _refuse(_: str) -> str:
    raise RequestRefused("No request is sent before the program runs.")


def _component_linker(engine: wasmtime.Engine, fetch: Fetch) -> model.Linker:
    def answer(_: wasmtime.StoreContext, request: str) -> model.Variant:
        try:
            return model.Variant("ok", fetch(request))
        except RequestRefused as refused:
            return model.Variant("err", str(refused))

    linker = model.Linker(engine)
    linker.add_wasip2()
    with linker.root() as root, root.add_instance(_HTTP) as http:
        http.add_func("fetch", answer)
    return linker


def _require_offered(foreign: Sequence[str], offered: str) -> None:
    if foreign:
        names = ", ".join(foreign[:3])
        raise LoadError(f"It imports {names}, which nothing here offers. It may import {offered} only.")


def _is_plain(kind: object) -> bool:
    """Return whether it is a function without parameters and results."""
    return isinstance(kind, wasmtime.FuncType) and not kind.params and not kind.results


def _configure(wasi: wasmtime.WasiConfig, granted: Granted) -> None:
    """Give *wasi* the variables and folders of one run. Raises _Stopped for a folder that is another now."""
    wasi.env = list(granted.environment.items())
    wasi.argv = ["tool", *filter(None, [granted.program])]
    for path, folder, is_writable in granted.mounts:
        # A link that has come in place of the folder since it was resolved would be followed.
        if Path(folder).resolve() != Path(folder):
            raise _Stopped(f"its folder {path} is not what it was when the tool was loaded")
        try:
            wasi.preopen_dir(folder, path, is_writable)
        except wasmtime.WasmtimeError:
            raise _Stopped(f"its folder {path} cannot be opened") from None


def _reason(text: str, limits: ProgramLimits, has_begun: bool) -> str:
    # The text before it has names that the program gives its functions.
    _, trapped, reason = text.rpartition("wasm trap: ")
    if trapped:
        return _REASONS.get(reason.strip().partition("\n")[0], "it did what WebAssembly forbids")
    if has_begun:
        return "it asked for what it may not have"
    return f"it cannot begin with the {limits.memory_bytes // 1024**2} MiB of memory that it may have"


def read_compiled(file: Path, deserialize: Callable[[bytes], C]) -> C | None:
    """Return what `write_compiled` wrote to *file*; None where it is not there, or damaged.

    It is native code, which nothing checks once it is loaded.
    """
    try:
        content = file.read_bytes()
    except OSError:
        return None
    digest, compiled = content[:32], content[32:]
    if hashlib.sha256(compiled).digest() != digest:
        return None
    with contextlib.suppress(wasmtime.WasmtimeError):
        program = deserialize(compiled)
        touch(file)
        return program
    return None


def write_compiled(file: Path, compiled: bytes) -> None:
    """Write what was compiled to *file*, behind a digest of it."""
    with contextlib.suppress(OSError), NamedTemporaryFile(dir=file.parent, delete=False) as scratch:
        scratch.write(hashlib.sha256(compiled).digest() + compiled)
        scratch.close()
        Path(scratch.name).replace(file)
        trim(file.parent.name)


def first_line(error: Exception) -> str:
    """Return what the engine says first, without a full stop."""
    return str(error).strip().partition("\n")[0][:200].rstrip(".")
