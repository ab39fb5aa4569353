"""WebAssembly modules as programs: compiled once, and run with an input, an environment, folders and limits.

A module reads its input from standard input, and writes its result to standard output (WASI preview 1). It has no
network, no variables of this process, and only the folders that it is given. A run that is cancelled is stopped: where
it computes or sleeps, in its thread; with folders, where a file may block, only with the process.
"""

import asyncio
import contextlib
import hashlib
import os
import selectors
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TypeVar

import wasmtime

from ..core import LoadError, in_thread
from . import interrupts
from .bindings import pool, start
from .cache import private_folder, touch, trim
from .run import Run, close_at_exit
from .streams import WASI, define

C = TypeVar("C")

_PIECE_BYTES = 2**16
_TABLE_ELEMENTS = 100_000
_HIGH_STATUS = 126
_STACK_BYTES = 512 * 1024
_REASONS = {
    wasmtime.TrapCode.UNREACHABLE: "it aborted (its instruction 'unreachable')",
    wasmtime.TrapCode.STACK_OVERFLOW: "its calls were nested too deeply",
    wasmtime.TrapCode.MEMORY_OUT_OF_BOUNDS: "it reached outside its memory",
    wasmtime.TrapCode.INTEGER_DIVISION_BY_ZERO: "it divided by zero",
}


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """What one run may use, in bytes: memory, standard input and output, and of standard error what is kept."""

    memory_bytes: int = 64 * 1024**2
    input_bytes: int = 4 * 1024**2
    output_bytes: int = 8 * 1024**2
    error_bytes: int = 16 * 1024


class Trapped(Exception):
    """The program was stopped, for the reason in its text. *error_output* is what it had written to standard error."""

    def __init__(self, reason: str, error_output: bytes) -> None:
        super().__init__(reason)
        self.error_output = error_output


class OutputOverLimit(Exception):
    """The program wrote more than its limit."""


class InputOverLimit(Exception):
    """The program was to read more than its limit."""


Mount = tuple[str, str, bool]
"""A folder of a guest: its path there, the resolved path of the host's folder, and whether it may be written."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended, and what it wrote. *status* is 126 for all that are higher."""

    status: int
    output: bytes
    error_output: bytes


class Programs:
    """Compiles modules, and keeps what was compiled in a folder that nobody else can write to."""

    def __init__(self, *, own_signals: bool, pools: bool = False) -> None:
        """Make an engine. Without *own_signals*, checks in a module's code stop it where it traps, which is slower.

        Whoever else takes the signals of processor faults, as `faulthandler` does, would end the process at a trap.
        With *pools*, a guest is given the memory of another that has ended, emptied: for modules that are trusted.
        """
        config = wasmtime.Config()
        config.signals_based_traps = own_signals
        config.epoch_interruption = True
        config.wasm_threads = False
        config.max_wasm_stack = _STACK_BYTES
        self._own_signals, self._pools = own_signals, pools and pool(config, table_elements=_TABLE_ELEMENTS)
        self._engine = close_at_exit(wasmtime.Engine(config))
        self._linkers = {streams: _linker(self._engine, streams=streams) for streams in (True, False)}
        self._key = f"{version('wasmtime')} {_STACK_BYTES} epochs {own_signals} {self._pools}".encode()

    def compile(self, code: bytes, mounts: Sequence[Mount] = ()) -> "Program":
        """Return the program in *code*, which has the folders *mounts*. Raises LoadError for what cannot run here."""
        name = hashlib.sha256(self._key + b"\0" + code).hexdigest()
        folder = private_folder("wasm")
        module = None if folder is None else kept(folder / name, partial(wasmtime.Module.deserialize, self._engine))
        if module is None:
            try:
                module = wasmtime.Module(self._engine, code)
            except wasmtime.WasmtimeError as error:
                if self._pools and "pooling allocator" in str(error):  # it is too large for a slot
                    return self._without_pool.compile(code, mounts)
                raise LoadError(f"It is not a valid WebAssembly module: {first_line(error)}.") from None
            if folder is not None:
                keep(folder / name, bytes(module.serialize()))
        return Program(self._engine, self._linkers[not mounts], module, mounts)

    @cached_property
    def _without_pool(self) -> "Programs":
        return Programs(own_signals=self._own_signals)


class Program:
    """A compiled module. Raises LoadError for one that is not a program, or needs what it cannot have here."""

    def __init__(
        self, engine: wasmtime.Engine, linker: wasmtime.Linker, module: wasmtime.Module, mounts: Sequence[Mount]
    ) -> None:
        foreign = sorted({f"{one.module}.{one.name}" for one in module.imports if one.module != WASI})
        if foreign:
            raise LoadError(f"It imports {', '.join(foreign[:3])}, which nothing here offers. It may import WASI only.")
        if not any(one.name == "_start" and _is_plain(one.type) for one in module.exports):
            raise LoadError("It is not a program: it has no '_start'. Build it as a command, for WASI preview 1.")
        try:
            self._prepared = close_at_exit(linker.instantiate_pre(module))
        except wasmtime.WasmtimeError as error:
            raise LoadError(f"It imports what WASI preview 1 does not have: {first_line(error)}.") from None
        self._engine = engine
        self._mounts = mounts

    async def run(self, data: bytes, environment: Mapping[str, str], limits: ProgramLimits) -> Ended:
        """Run it with *data* as standard input. Raises Trapped, InputOverLimit, OutputOverLimit."""
        if len(data) > limits.input_bytes:
            raise InputOverLimit
        if self._mounts:
            return await self._run_by_pipes(data, _wasi(environment), limits)
        run = Run(
            data,
            output_bytes=limits.output_bytes,
            error_bytes=limits.error_bytes,
            interrupt=self._engine.increment_epoch,
        )
        try:
            status = await in_thread(lambda: self._status(run, _wasi(environment), limits))
        except BaseException:
            run.stop()
            raise
        return _ended(status, bytes(run.output), bytes(run.error_output), is_over=run.is_over)

    async def _run_by_pipes(self, data: bytes, wasi: wasmtime.WasiConfig, limits: ProgramLimits) -> Ended:
        run = Run(b"", output_bytes=0, error_bytes=0, interrupt=self._engine.increment_epoch)
        with Pipes(data, limits, stop=run.stop) as pipes:
            wasi.stdin_file, wasi.stdout_file, wasi.stderr_file = pipes.paths
            try:
                status = await asyncio.to_thread(self._status_with_mounts, run, wasi, limits)
            except BaseException:
                run.stop()
                raise
            pipes.finish()
            return _ended(status, pipes.output, pipes.error_output, is_over=pipes.is_over)

    def _status_with_mounts(self, run: Run, wasi: wasmtime.WasiConfig, limits: ProgramLimits) -> int | str:
        for path, folder, is_writable in self._mounts:
            try:
                # A link that has come in place of the folder since it was resolved would be followed.
                if Path(folder).resolve() != Path(folder):
                    raise wasmtime.WasmtimeError("it is another folder now")
                wasi.preopen_dir(folder, path, is_writable)
            except wasmtime.WasmtimeError:
                wasi.close()  # it holds the pipes
                return f"its folder {path} is not what it was when the tool was loaded"
        return self._status(run, wasi, limits)

    def _status(self, run: Run, wasi: wasmtime.WasiConfig, limits: ProgramLimits) -> int | str:
        """Return its exit status, or the reason why it was stopped."""
        store = wasmtime.Store(self._engine)
        store.set_limits(memory_size=limits.memory_bytes, table_elements=_TABLE_ELEMENTS, instances=1, memories=1)
        store.set_wasi(wasi)
        interrupts.watch(store, run)
        try:
            try:
                instance = self._prepared.instantiate(store)
            except wasmtime.WasmtimeError:
                return f"it cannot begin with the {limits.memory_bytes // 1024**2} MiB of memory that it may have"
            start(store, instance)
        except wasmtime.ExitTrap as ended:
            return ended.code
        except wasmtime.Trap as trap:
            return _REASONS.get(trap.trap_code, "it did what WebAssembly forbids") if trap.trap_code else "it trapped"
        except wasmtime.WasmtimeError as error:
            if "invalid exit status" in str(error):  # the engine has no others than 0 to 125, and does not say which
                return _HIGH_STATUS
            return "it was interrupted" if run.stopped.is_set() else "a function of WASI refused it"
        finally:
            store.close()
            run.ended.set()
        return 0


def _is_plain(kind: object) -> bool:
    """Return whether it is a function without parameters and results: it is called without looking again."""
    return isinstance(kind, wasmtime.FuncType) and not kind.params and not kind.results


def _linker(engine: wasmtime.Engine, *, streams: bool) -> wasmtime.Linker:
    linker = close_at_exit(wasmtime.Linker(engine))
    linker.define_wasi()
    define(linker, streams=streams)
    return linker


def _ended(status: int | str, output: bytes, error_output: bytes, *, is_over: bool) -> Ended:
    if is_over:
        raise OutputOverLimit
    if isinstance(status, str):
        raise Trapped(status, error_output)
    return Ended(status, output, error_output)


def _wasi(environment: Mapping[str, str]) -> wasmtime.WasiConfig:
    wasi = wasmtime.WasiConfig()
    if environment:
        wasi.env = list(environment.items())
    wasi.argv = ["tool"]
    return wasi


class Pipes:
    """The standard streams of one run: feeds the input, and collects what is written, in a thread of its own."""

    def __init__(self, data: bytes, limits: ProgramLimits, *, stop: Callable[[], None]) -> None:
        self.is_over = False
        self._data = memoryview(data)
        self._limits = limits
        self._stop = stop
        self._written = {"output": bytearray(), "error": bytearray()}
        input_end, self._feed = os.pipe()
        self._out, output_end = os.pipe()
        self._err, error_end = os.pipe()
        self._theirs = [input_end, output_end, error_end]
        self.paths = [f"/dev/fd/{end}" for end in self._theirs]
        self._thread = threading.Thread(target=self._copy, name="toolcrib-guest-streams", daemon=True)

    @property
    def output(self) -> bytes:
        return bytes(self._written["output"])

    @property
    def error_output(self) -> bytes:
        return bytes(self._written["error"])

    def __enter__(self) -> "Pipes":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Wait until everything that was written is here: the guest has ended, and holds no end of a pipe."""
        while self._theirs:
            os.close(self._theirs.pop())
        self._thread.join()

    def _copy(self) -> None:
        with selectors.DefaultSelector() as selector:
            for end, mode, kind in (
                (self._feed, selectors.EVENT_WRITE, "input"),
                (self._out, selectors.EVENT_READ, "output"),
                (self._err, selectors.EVENT_READ, "error"),
            ):
                os.set_blocking(end, False)
                selector.register(end, mode, kind)
            while selector.get_map():
                for key, _ in selector.select():
                    if not (self._fed() if key.data == "input" else self._read(key.fd, key.data)):
                        selector.unregister(key.fd)
                        os.close(key.fd)

    def _fed(self) -> bool:
        """Write some of the input; whether there is more."""
        try:
            self._data = self._data[os.write(self._feed, self._data[:_PIECE_BYTES]) :]
        except BrokenPipeError:
            return False
        return bool(self._data)

    def _read(self, end: int, kind: str) -> bool:
        """Take some of what was written; whether there may be more."""
        written = self._written[kind]
        piece = os.read(end, _PIECE_BYTES)
        if kind == "error":  # the first of it says what went wrong; the rest is let go
            written += piece[: self._limits.error_bytes - len(written)]
            return bool(piece)
        written += piece
        if len(written) > self._limits.output_bytes:
            self.is_over = True
            self._stop()
            return False
        return bool(piece)


def kept(file: Path, deserialize: Callable[[bytes], C]) -> C | None:
    """Return what `keep` wrote to *file*; None where it is not there, or damaged.

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
        loaded = deserialize(compiled)
        touch(file)
        return loaded
    return None


def keep(file: Path, compiled: bytes) -> None:
    """Write what was compiled to *file*, behind a digest of it."""
    with contextlib.suppress(OSError), NamedTemporaryFile(dir=file.parent, delete=False) as made:
        made.write(hashlib.sha256(compiled).digest() + compiled)
        made.close()
        Path(made.name).replace(file)
        trim(file.parent.name)


def first_line(error: Exception) -> str:
    """Return what the engine says first, without a full stop."""
    return str(error).strip().partition("\n")[0][:200].rstrip(".")
