"""WebAssembly components as programs: those of WASI preview 2 that export `wasi:cli/run`, and Python of the sandbox.

As modules, they read standard input and write standard output. They may send HTTP requests by a host function of ours,
to the hosts that the caller allows. WASI's own HTTP, which has no such list, is not there; its sockets reach nothing.
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import wasmtime
from wasmtime import component as model

from ..core import LoadError
from .cache import private_folder
from .guest_http import RequestRefused
from .modules import (
    Ended,
    InputOverLimit,
    Mount,
    OutputOverLimit,
    Pipes,
    ProgramLimits,
    Trapped,
    first_line,
    keep,
    kept,
)

_STACK_BYTES = 1024 * 1024
_HTTP = "toolcrib:guest/http@1.0.0"
_PROGRAM = "toolcrib:guest/program@1.0.0"
_RUN = "wasi:cli/run@0.2."
_REASONS = {
    "wasm `unreachable` instruction executed": "it aborted (its instruction 'unreachable')",
    "call stack exhausted": "its calls were nested too deeply",
    "out of bounds memory access": "it reached outside its memory",
    "integer divide by zero": "it divided by zero",
}

Fetch = Callable[[str], str]
"""Sends a request, both as JSON: see `python/guest.wit`. Raises RequestRefused. Called in the thread of a guest."""


class Raised(Exception):
    """A program in Python ended by an exception. Its text is its last line; the rest is in *error_output*."""

    def __init__(self, line: str, error_output: bytes) -> None:
        super().__init__(line)
        self.error_output = error_output


@dataclass(frozen=True, slots=True)
class Granted:
    """What one run gets: variables of its environment, what sends HTTP requests for it, and folders.

    Python gets the name of its *program* in the one that is mounted at `/tool`.
    """

    environment: Mapping[str, str]
    fetch: Fetch
    mounts: Sequence[Mount] = ()
    program: str | None = None


class Components:
    """Compiles components, and keeps what was compiled in a folder that nobody else can write to."""

    def __init__(self) -> None:
        config = wasmtime.Config()
        config.epoch_interruption = True
        config.wasm_threads = False
        config.max_wasm_stack = _STACK_BYTES
        self._engine = wasmtime.Engine(config)
        self._key = f"{version('wasmtime')} {_STACK_BYTES} component"

    def compile(self, code: bytes) -> "Component":
        """Return the program in *code*. Raises LoadError for what cannot run here."""
        return Component(self._engine, self._compiled(hashlib.sha256(code).hexdigest(), lambda: code))

    def python(self, file: Path, *, again: bool = False) -> "Component":
        """Return the Python of the sandbox, which is in *file* of our cache; compiled now if it was not, or *again*."""
        # By its name alone, which says what it was made of: to read it takes longer than to load what was compiled.
        return Component(self._engine, self._compiled(file.stem, file.read_bytes, again=again))

    def _compiled(self, content: str, code: Callable[[], bytes], *, again: bool = False) -> model.Component:
        folder = private_folder("wasm")
        file = None if folder is None else folder / hashlib.sha256(f"{self._key} {content}".encode()).hexdigest()
        compiled = None if file is None or again else kept(file, partial(model.Component.deserialize, self._engine))
        if compiled is None:
            try:
                compiled = model.Component(self._engine, code())
            except wasmtime.WasmtimeError as error:
                raise LoadError(f"It is not a valid WebAssembly component: {first_line(error)}.") from None
            if file is not None:
                keep(file, bytes(compiled.serialize()))
        return compiled


class Component:
    """A compiled component. Raises LoadError for one that is not a program, or needs what it cannot have here."""

    def __init__(self, engine: wasmtime.Engine, compiled: model.Component) -> None:
        imports, exports = compiled.type.imports(engine), compiled.type.exports(engine)
        foreign = sorted(name for name in imports if not name.startswith(_OFFERED))
        if foreign:
            raise LoadError(f"It imports {', '.join(foreign[:3])}, which nothing here offers. It may import WASI 0.2.")
        found = next((name for name in exports if name == _PROGRAM or name.startswith(_RUN)), None)
        if found is None:
            raise LoadError(f"It is not a program: it does not export {_RUN}x. Build it as a command, for WASI 0.2.")
        self._export = found
        self._engine = engine
        self._compiled = compiled

    async def run(self, data: bytes, granted: Granted, limits: ProgramLimits) -> Ended:
        """Run it with *data* as standard input. Raises Trapped, Raised, InputOverLimit, OutputOverLimit.

        Cancelled, it leaves the guest running in its thread: whoever cancels ends the process.
        """
        if len(data) > limits.input_bytes:
            raise InputOverLimit
        with Pipes(data, limits, stop=self._engine.increment_epoch) as pipes:
            status = await asyncio.to_thread(self._status, pipes, granted, limits)
            pipes.finish()
            if pipes.is_over:
                raise OutputOverLimit
            if isinstance(status, _Stopped):
                raise Trapped(status.reason, pipes.error_output)
            if isinstance(status, str):
                raise Raised(status, pipes.error_output)
            return Ended(status, pipes.output, pipes.error_output)

    def _status(self, pipes: Pipes, granted: Granted, limits: ProgramLimits) -> "int | str | _Stopped":
        """Return its exit status, the exception that ended it, or the reason why it was stopped."""
        wasi = wasmtime.WasiConfig()
        wasi.env = list(granted.environment.items())
        wasi.argv = ["tool", *filter(None, [granted.program])]
        wasi.stdin_file, wasi.stdout_file, wasi.stderr_file = pipes.paths
        for path, folder, is_writable in granted.mounts:
            # A link that has come in place of the folder since it was resolved would be followed.
            if Path(folder).resolve() != Path(folder):
                return _Stopped(f"its folder {path} is not what it was when the tool was loaded")
            try:
                wasi.preopen_dir(folder, path, is_writable)
            except wasmtime.WasmtimeError:
                return _Stopped(f"its folder {path} cannot be opened")
        store = wasmtime.Store(self._engine)
        store.set_limits(memory_size=limits.memory_bytes)
        store.set_wasi(wasi)
        store.set_epoch_deadline(1)
        has_begun = False
        try:
            instance = _linker(self._engine, granted.fetch).instantiate(store, self._compiled)
            has_begun = True
            holder = instance.get_export_index(store, self._export)
            assert holder is not None
            start = instance.get_export_index(store, "run", holder)
            assert start is not None
            run = instance.get_func(store, start)
            assert run is not None
            ended = run(store)
        except wasmtime.ExitTrap as exited:
            return exited.code
        except wasmtime.WasmtimeError as error:
            return _Stopped(_reason(str(error), limits, has_begun))
        finally:
            store.close()
        if self._export == _PROGRAM:
            return ended if isinstance(ended, int) else str(ended)
        return 0 if ended.tag == "ok" else 1


@dataclass(frozen=True, slots=True)
class _Stopped:
    reason: str


# Of what is linked, all but HTTP of our own.
_OFFERED = ("wasi:cli/", "wasi:clocks/", "wasi:filesystem/", "wasi:io/", "wasi:random/", "wasi:sockets/", _HTTP)


def _linker(engine: wasmtime.Engine, fetch: Fetch) -> model.Linker:
    def fetched(_: wasmtime.StoreContext, request: str) -> model.Variant:
        try:
            return model.Variant("ok", fetch(request))
        except RequestRefused as refused:
            return model.Variant("err", str(refused))

    linker = model.Linker(engine)
    linker.add_wasip2()
    with linker.root() as root, root.add_instance(_HTTP) as http:
        http.add_func("fetch", fetched)
    return linker


def _reason(text: str, limits: ProgramLimits, has_begun: bool) -> str:
    # The text before it has names that the program gives its functions.
    _, trapped, reason = text.rpartition("wasm trap: ")
    if trapped:
        return _REASONS.get(reason.strip(), "it did what WebAssembly forbids")
    if has_begun:
        return "it asked for what it may not have"
    return f"it cannot begin with the {limits.memory_bytes // 1024**2} MiB of memory that it may have"
