"""Modules in the sandbox: a warm call, beside wasmtime's own instance and a Python program, and one that is cached."""

import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import wasmtime
from cases import Loop
from report import BARE, FLOOR, SUBPROCESS, WARM

from toolcrib import Workbench
from toolcrib.sandbox.guests import GuestPrograms
from toolcrib.tools import load

TITLE, READY = WARM, "a cached 30 kB module ready"
TEXT = '{"a":1,"b":2}'
_ECHO = """
(module
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  %s
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 65536))
    (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 4)))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))
"""
_FUNCTION = "(func (param i32) (result i32) (i32.mul (local.get 0) (i32.const 3)))\n"
_MEMORY_BYTES = 64 * 1024**2


@asynccontextmanager
async def calls() -> AsyncGenerator[Mapping[str, Loop]]:
    """The same module by wasmtime alone and in a worker, and as much in Python."""
    with _folder() as folder:
        file = _module(folder / "echo.wasm")
        async with Workbench([file]) as apart:
            yield {
                FLOOR: _times(_by_hand(file, folder)),
                BARE: _calls_of(apart),
                SUBPROCESS: _times(_program),
            }


@contextmanager
def cached_module() -> Generator[Callable[[], Any]]:
    """What has a module of 30 kB ready that was compiled before."""
    with _folder() as folder:
        file = _module(folder / "large.wasm", _FUNCTION * 3400)
        assert 28_000 < file.stat().st_size < 36_000, file.stat().st_size
        where = load(file).tools[0].work.codec.where
        programs = GuestPrograms()
        yield lambda: programs.load(where, "large")


@contextmanager
def _folder() -> Generator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


def _module(file: Path, more: str = "") -> Path:
    file.write_bytes(wasmtime.wat2wasm(_ECHO % more))
    return file


def _by_hand(file: Path, folder: Path) -> Callable[[], str]:
    config = wasmtime.Config()
    config.epoch_interruption = True
    engine = wasmtime.Engine(config)
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    prepared = linker.instantiate_pre(wasmtime.Module.from_file(engine, str(file)))
    given, written = folder / "input", folder / "output"
    given.write_text(TEXT)

    def call() -> str:
        wasi = wasmtime.WasiConfig()
        wasi.stdin_file, wasi.stdout_file = given, str(written)
        store = wasmtime.Store(engine)
        store.set_limits(memory_size=_MEMORY_BYTES, table_elements=100_000, instances=1, memories=1)
        store.set_wasi(wasi)
        store.set_epoch_deadline(1)
        prepared.instantiate(store).exports(store)["_start"](store)  # type: ignore[operator]
        store.close()
        return written.read_text()

    return call


def _program() -> str:
    code = "import json, sys; print(json.dumps(json.load(sys.stdin), separators=(',', ':')))"
    return subprocess.run([sys.executable, "-c", code], input=TEXT, capture_output=True, text=True).stdout.strip()


def _times(call: Callable[[], str]) -> Loop:
    async def loop(times: int) -> str:
        answer = ""
        for _ in range(times):
            answer = call()
        return answer

    return loop


def _calls_of(bench: Workbench) -> Loop:
    async def loop(times: int) -> str:
        answer = ""
        for _ in range(times):
            answer = (await bench.call("echo", TEXT)).text
        return answer

    return loop
