"""WebAssembly modules as programs: compiled once, and run with an input, an environment and limits, and nothing else.

A module reads its input from standard input, and writes its result to standard output (WASI preview 1). It has no
files, no network, no variables of this process. Runs in a worker process: a guest that does not return is ended there.
"""

import asyncio
import contextlib
import hashlib
import os
import selectors
import stat
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile

import wasmtime
from platformdirs import user_cache_path

from ..core import LoadError

_WASI = ("wasi_snapshot_preview1", "wasi_unstable")
_PIECE_BYTES = 2**16
_TABLE_ELEMENTS = 100_000
_STACK_BYTES = 512 * 1024
_REASONS = {
    wasmtime.TrapCode.UNREACHABLE: "it gave up (an instruction that is never to be reached)",
    wasmtime.TrapCode.STACK_OVERFLOW: "its calls were nested too deeply",
    wasmtime.TrapCode.MEMORY_OUT_OF_BOUNDS: "it reached outside its memory",
    wasmtime.TrapCode.INTEGER_DIVISION_BY_ZERO: "it divided by zero",
}


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """What one run may use, in bytes: *memory*, standard output, and of standard error what is kept."""

    memory_bytes: int = 64 * 1024**2
    output_bytes: int = 8 * 1024**2
    error_bytes: int = 16 * 1024


class Trapped(Exception):
    """The program was stopped, for the reason in its text. *error_output* is what it had written to standard error."""

    def __init__(self, reason: str, error_output: bytes) -> None:
        super().__init__(reason)
        self.error_output = error_output


class OutputOverLimit(Exception):
    """The program wrote more than its limit."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended, and what it wrote."""

    status: int
    output: bytes
    error_output: bytes


class Programs:
    """Compiles modules, and keeps what was compiled in a folder that nobody else can write to."""

    def __init__(self) -> None:
        config = wasmtime.Config()
        config.epoch_interruption = True
        config.wasm_threads = False
        config.max_wasm_stack = _STACK_BYTES
        self._engine = wasmtime.Engine(config)
        self._linker = wasmtime.Linker(self._engine)
        self._linker.define_wasi()
        self._key = f"{version('wasmtime')} {_STACK_BYTES} epochs".encode()

    def compile(self, code: bytes) -> "Program":
        """The program in *code*. Raises LoadError for what cannot run here."""
        name = hashlib.sha256(self._key + b"\0" + code).hexdigest()
        folder = _private_folder()
        module = None if folder is None else self._cached(folder / name)
        if module is None:
            try:
                module = wasmtime.Module(self._engine, code)
            except wasmtime.WasmtimeError as error:
                raise LoadError(f"It is not a valid WebAssembly module: {_first_line(error)}.") from None
            if folder is not None:
                _keep(folder / name, bytes(module.serialize()))
        return Program(self._engine, self._linker, module)

    def _cached(self, file: Path) -> wasmtime.Module | None:
        # What is damaged is compiled again: it is native code, which nothing checks once it is loaded.
        try:
            kept = file.read_bytes()
        except OSError:
            return None
        digest, compiled = kept[:32], kept[32:]
        if hashlib.sha256(compiled).digest() != digest:
            return None
        with contextlib.suppress(wasmtime.WasmtimeError):
            return wasmtime.Module.deserialize(self._engine, compiled)
        return None


class Program:
    """A compiled module. Raises LoadError for one that is not a program, or needs what it cannot have here."""

    def __init__(self, engine: wasmtime.Engine, linker: wasmtime.Linker, module: wasmtime.Module) -> None:
        foreign = sorted({f"{one.module}.{one.name}" for one in module.imports if one.module not in _WASI})
        if foreign:
            raise LoadError(f"It imports {', '.join(foreign[:3])}, which nothing here offers. It may import WASI only.")
        if not any(one.name == "_start" and isinstance(one.type, wasmtime.FuncType) for one in module.exports):
            raise LoadError("It is not a program: it has no '_start'. Build it as a command, for WASI preview 1.")
        self._engine = engine
        self._linker = linker
        self._module = module

    async def run(self, data: bytes, environment: Mapping[str, str], limits: ProgramLimits) -> Ended:
        """Run it with *data* as standard input. Raises Trapped, OutputOverLimit.

        Cancelled, it leaves the guest running in its thread: whoever cancels ends the process.
        """
        with _Pipes(data, limits, stop=self._engine.increment_epoch) as pipes:
            status = await asyncio.to_thread(self._status, pipes, environment, limits)
            pipes.finish()
            if pipes.is_over:
                raise OutputOverLimit
            if isinstance(status, str):
                raise Trapped(status, pipes.error_output)
            return Ended(status, pipes.output, pipes.error_output)

    def _status(self, pipes: "_Pipes", environment: Mapping[str, str], limits: ProgramLimits) -> int | str:
        """Its exit status, or the reason why it was stopped."""
        wasi = wasmtime.WasiConfig()
        wasi.env = list(environment.items())
        wasi.argv = ["tool"]
        wasi.stdin_file, wasi.stdout_file, wasi.stderr_file = pipes.paths
        store = wasmtime.Store(self._engine)
        store.set_limits(memory_size=limits.memory_bytes, table_elements=_TABLE_ELEMENTS, instances=1, memories=1)
        store.set_wasi(wasi)
        store.set_epoch_deadline(1)
        try:
            instance = self._linker.instantiate(store, self._module)
            start = instance.exports(store)["_start"]
            assert isinstance(start, wasmtime.Func)
            start(store)
        except wasmtime.ExitTrap as ended:
            return ended.code
        except wasmtime.Trap as trap:
            return _REASONS.get(trap.trap_code, "it did what WebAssembly forbids") if trap.trap_code else "it trapped"
        except wasmtime.WasmtimeError:
            return f"it cannot begin with the {limits.memory_bytes // 1024**2} MiB of memory that it may have"
        finally:
            store.close()
        return 0


class _Pipes:
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

    def __enter__(self) -> "_Pipes":
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
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        return bool(self._data)

    def _read(self, end: int, kind: str) -> bool:
        """Take some of what was written; whether there may be more."""
        written = self._written[kind]
        try:
            piece = os.read(end, _PIECE_BYTES)
        except BlockingIOError:
            return True
        if kind == "error":  # the first of it says what went wrong; the rest is let go
            written += piece[: self._limits.error_bytes - len(written)]
            return bool(piece)
        written += piece
        if len(written) > self._limits.output_bytes:
            self.is_over = True
            self._stop()
            return False
        return bool(piece)


def _private_folder() -> Path | None:
    """Where compiled code is kept; None where nobody can vouch for the folder."""
    folder = user_cache_path("toolcrib") / "wasm"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        seen = folder.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid() and not seen.st_mode & 0o077
    return folder if is_ours else None


def _keep(file: Path, compiled: bytes) -> None:
    with contextlib.suppress(OSError), NamedTemporaryFile(dir=file.parent, delete=False) as made:
        made.write(hashlib.sha256(compiled).digest() + compiled)
        made.close()
        Path(made.name).replace(file)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200].rstrip(".")
