"""Modules as programs, in this process: their limits, their cache, their pipes, and how they are stopped."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
import wasmtime

from toolcrib.core import LoadError
from toolcrib.sandbox import bindings, cache, interrupts
from toolcrib.sandbox import run as runs
from toolcrib.sandbox.guest import GuestPrograms
from toolcrib.sandbox.modules import (
    InputOverLimit,
    OutputOverLimit,
    Pipes,
    Program,
    ProgramLimits,
    Programs,
    Trapped,
    first_line,
    keep,
)
from toolcrib.sandbox.run import Run

WASI = """
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args (param i32 i32) (result i32)))
  (memory (export "memory") 8)
  (func $say (param $to i32) (param $from i32) (param $size i32)
    (i32.store (i32.const 0) (local.get $from)) (i32.store (i32.const 4) (local.get $size))
    (drop (call $write (local.get $to) (i32.const 0) (i32.const 1) (i32.const 12))))
  (func $hear (result i32)
    (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 65536))
    (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
    (i32.load (i32.const 8)))
"""
# Writes 300,000 bytes before it reads anything, then what it reads, and both to standard error too, in two pieces.
TALKS_FIRST = """(func (export "_start") (local $size i32)
  (call $say (i32.const 1) (i32.const 100000) (i32.const 300000))
  (loop $more
    (if (local.tee $size (call $hear)) (then
      (call $say (i32.const 1) (i32.const 64) (local.get $size)) (br $more))))
  (call $say (i32.const 2) (i32.const 64) (i32.const 3)) (call $say (i32.const 2) (i32.const 67) (i32.const 3)))"""
READS_NOTHING = '(func (export "_start"))'
WRITES_100 = '(func (export "_start") (call $say (i32.const 1) (i32.const 64) (i32.const 100)))'
LOOPS = '(func (export "_start") (loop $again (br $again)))'
COUNTS = '(func (export "_start") (loop $on (call $say (i32.const 2) (i32.const 64) (i32.const 1)) (br $on)))'
ARGUMENTS = """(func (export "_start")
  (drop (call $args_sizes (i32.const 16) (i32.const 20))) (drop (call $args (i32.const 1024) (i32.const 8192)))
  (call $say (i32.const 1) (i32.const 8192) (i32.load (i32.const 20))))"""


@pytest.fixture(scope="module")
def programs() -> Programs:
    return Programs(own_signals=False)


@pytest.fixture(autouse=True)
def kept_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(runs, "_running", WeakSet())  # without those of other tests that nobody has collected yet
    return tmp_path / "toolcrib" / "wasm"


def code(text: str, wasi: str = WASI) -> bytes:
    return bytes(wasmtime.wat2wasm(f"(module {wasi} {text})"))


def compiled(programs: Programs, text: str, folder: Path | None = None) -> Program:
    return programs.compile(code(text), [] if folder is None else [("/data", str(folder.resolve()), False)])


@pytest.fixture(params=["in memory", "by pipes"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """None, or a folder that a program is given: such a one has pipes as its streams."""
    return None if request.param == "in memory" else tmp_path


# Streams and limits


async def test_all_is_written_and_read_whichever_comes_first(programs: Programs, folder: Path | None) -> None:
    data = bytes(range(250)) * 1200
    ended = await compiled(programs, TALKS_FIRST, folder).run(data, {}, ProgramLimits())
    assert (ended.status, len(ended.output), ended.output[300_000:] == data) == (0, 600_000, True)
    assert len(ended.error_output) == 6
    ended = await compiled(programs, READS_NOTHING, folder).run(data, {}, ProgramLimits())
    assert (ended.status, ended.output) == (0, b"")


async def test_limits_of_input_and_output_are_those_that_still_pass(programs: Programs, folder: Path | None) -> None:
    program = compiled(programs, WRITES_100, folder)
    ended = await program.run(b"12345", {}, ProgramLimits(input_bytes=5, output_bytes=100))
    assert len(ended.output) == 100
    with pytest.raises(InputOverLimit):
        await program.run(b"123456", {}, ProgramLimits(input_bytes=5))
    with pytest.raises(OutputOverLimit):
        await program.run(b"", {}, ProgramLimits(output_bytes=99))


def test_the_limits_by_default() -> None:
    assert ProgramLimits() == ProgramLimits(
        memory_bytes=64 * 2**20, input_bytes=4 * 2**20, output_bytes=8 * 2**20, error_bytes=16 * 2**10
    )


async def test_a_program_is_called_tool(programs: Programs, folder: Path | None) -> None:
    assert (await compiled(programs, ARGUMENTS, folder).run(b"", {}, ProgramLimits())).output == b"tool\0"


async def test_beyond_its_limit_nothing_is_read_of_a_pipe_and_what_comes_in_pieces_is_read_whole() -> None:
    limits, stopped = ProgramLimits(output_bytes=10, error_bytes=3), asyncio.Event()
    with Pipes(b"", limits, stop=stopped.set) as pipes:
        output, error = (os.open(path, os.O_WRONLY) for path in pipes.paths[1:])
        for piece, whole in ((b"a", b"a"), (b"b", b"ab"), (b"cd", b"abc")):
            os.write(error, piece)
            async with asyncio.timeout(60):
                while pipes.error_output != whole:
                    await asyncio.sleep(0.001)
        os.write(output, bytes(11))
        async with asyncio.timeout(60):
            while not pipes.is_over:
                await asyncio.sleep(0.001)
        for end in (output, error):
            os.close(end)
    assert (stopped.is_set(), len(pipes.output)) == (True, 11)


async def test_a_program_has_one_memory_of_its_own(programs: Programs) -> None:
    program = programs.compile(code('(memory 1) (memory 1) (func (export "_start"))', ""))
    with pytest.raises(Trapped, match="it cannot begin with the 64 MiB"):
        await program.run(b"", {}, ProgramLimits())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('(import "wasi_snapshot_preview1" "nothing" (func)) (func (export "_start"))', "what WASI preview 1 does not"),
        ('(memory 1 1 shared) (func (export "_start"))', "It is not a valid WebAssembly module"),
        ('(func (export "run"))', "it has no '_start'"),
    ],
)
def test_what_cannot_run_is_refused(programs: Programs, text: str, reason: str) -> None:
    with pytest.raises(LoadError, match=reason):
        programs.compile(code(text, ""))


def test_of_what_the_engine_reports_the_first_line_is_quoted() -> None:
    assert first_line(Exception(" one.\ntwo")) == "one"
    assert first_line(Exception("x" * 300)) == "x" * 200


# The cache


def test_a_module_is_compiled_once_and_its_last_use_is_noted(kept_at: Path) -> None:
    Programs(own_signals=False).compile(code(LOOPS))
    (file,) = kept_at.iterdir()
    made = file.stat().st_ino
    os.utime(file, (0, 0))
    Programs(own_signals=False).compile(code(LOOPS))
    assert file.stat().st_ino == made, "it was not written again"
    assert file.stat().st_mtime > 0


def test_what_the_engine_does_not_take_is_compiled_again(kept_at: Path) -> None:
    Programs(own_signals=False).compile(code(LOOPS))
    (file,) = kept_at.iterdir()
    content = file.read_bytes()
    keep(file, b"no code of this engine")
    Programs(own_signals=False).compile(code(LOOPS))
    assert file.read_bytes() == content


def test_the_cache_of_modules_is_bounded(kept_at: Path) -> None:
    assert cache.private_folder("wasm") == kept_at
    (kept_at / "old").touch()
    os.utime(kept_at / "old", (0, 0))
    Programs(own_signals=False).compile(code(LOOPS))
    assert [file.name == "old" for file in kept_at.iterdir()] == [False]


def test_what_workers_run_is_compiled_apart_from_what_the_host_runs(tmp_path: Path, kept_at: Path) -> None:
    from hashlib import sha256

    file = tmp_path / "guest.wasm"
    file.write_bytes(code(LOOPS))
    where = {"file": str(file), "sha256": sha256(file.read_bytes()).hexdigest(), "mounts": [], "limits": {}}
    for loader in (GuestPrograms(), GuestPrograms(in_host=True), GuestPrograms()):
        loader.load({**where, "variables": []}, "guest")
    assert len([*kept_at.iterdir()]) == 2


# How it is stopped


async def test_a_cancelled_program_is_stopped(programs: Programs, folder: Path | None) -> None:
    running = asyncio.create_task(compiled(programs, LOOPS, folder).run(b"", {}, ProgramLimits()))
    while not runs._running:
        await asyncio.sleep(0.001)
    (run,) = runs._running
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert run.stopped.is_set()


async def test_at_the_end_of_the_program_guests_are_stopped_and_then_the_engines_objects_are_closed(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closable:
        is_closed = False

        def close(self) -> None:
            self.is_closed = True

    program = compiled(programs, LOOPS)
    monkeypatch.setattr(runs, "_open", WeakSet())
    monkeypatch.setattr(runs, "_LEAVE_S", 1000)
    managed = runs.close_at_exit(Closable())
    running = asyncio.create_task(program.run(b"", {}, ProgramLimits()))
    while not runs._running:
        await asyncio.sleep(0.001)
    (run,) = runs._running
    runs._leave()
    assert (run.ended.is_set(), managed.is_closed) == (True, True)
    with pytest.raises(Trapped, match="it was interrupted"):
        await running


def looping(*, stopped: bool) -> tuple[wasmtime.Store, wasmtime.Instance]:
    config = wasmtime.Config()
    config.epoch_interruption = True
    engine = wasmtime.Engine(config)
    store = wasmtime.Store(engine)
    run = Run(b"", output_bytes=0, error_bytes=0, interrupt=engine.increment_epoch)
    if stopped:
        run.stop()
    interrupts.watch(store, run)
    return store, wasmtime.Instance(store, wasmtime.Module(engine, code(LOOPS, "")), [])


def test_a_guest_that_was_stopped_before_it_began_ends_at_its_first_step() -> None:
    with pytest.raises(wasmtime.WasmtimeError, match="stopped"):
        bindings.start(*looping(stopped=True))


async def test_a_guest_goes_on_while_others_are_stopped_and_ends_when_it_is_stopped_itself(programs: Programs) -> None:
    running = asyncio.create_task(compiled(programs, COUNTS).run(b"", {}, ProgramLimits(error_bytes=2**30)))
    async with asyncio.timeout(60):
        while not runs._running:
            await asyncio.sleep(0.001)
        (run,) = runs._running
        for _ in range(3):
            programs._engine.increment_epoch()  # as for another
            written = len(run.error_output)
            while len(run.error_output) < written + 3:
                await asyncio.sleep(0.001)
        run.stop()
        with pytest.raises(Trapped, match="it was interrupted"):
            await running


# The pool of memories


@pytest.mark.skipif(sys.platform != "linux", reason="The pool is for Linux.")
def test_the_pool_has_room_for_four_hundred_guests_and_refuses_what_is_larger() -> None:
    config = wasmtime.Config()
    assert bindings.pool(config, table_elements=7)
    engine = wasmtime.Engine(config)
    for large in ("(table 1 funcref) " * 11, "(table 8 funcref)"):
        with pytest.raises(wasmtime.WasmtimeError, match="pooling allocator"):
            wasmtime.Module(engine, code(large, ""))
    store = wasmtime.Store(engine)
    module = wasmtime.Module(engine, code("(memory 1)" + "(table 1 funcref) " * 10, ""))
    for _ in range(400):
        wasmtime.Instance(store, module, [])
    with pytest.raises(wasmtime.WasmtimeError, match="limit of 400"):
        wasmtime.Instance(store, module, [])


def test_there_is_no_pool_on_other_systems_or_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError

    with monkeypatch.context() as patched:
        patched.setattr(bindings.mmap, "mmap", refuse)
        assert not bindings.pool(wasmtime.Config(), table_elements=7)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not bindings.pool(wasmtime.Config(), table_elements=7)
