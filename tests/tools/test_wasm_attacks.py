"""What a module can try before it runs, and beside files: compilers, caches, networks and the streams themselves."""

import asyncio
from pathlib import Path

import pytest
import wasmtime

from toolcrib import Workbench
from toolcrib.sandbox import GuestProcesses, Limits, Processes, ProcessWork
from toolcrib.tools import load

from .guests import ECHO, GIVES_UP, WASI, Module, outcome

SOCKETS = """
  (import "wasi_snapshot_preview1" "sock_accept" (func $accept (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_send" (func $send (param i32 i32 i32 i32 i32) (result i32)))
"""
REACHES = """
  (func (export "_start") (local $fd i32)
    (loop $next
      (if (i32.eqz (call $accept (local.get $fd) (i32.const 0) (i32.const 64))) (then (call $exit (i32.const 7))))
      (if (i32.eqz (call $send (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 64)))
        (then (call $exit (i32.const 8))))
      (local.set $fd (i32.add (local.get $fd) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $fd) (i32.const 64)))))
"""


def bomb() -> bytes:
    """A module that takes long to compile: two functions, each of a million operations in a row."""
    deep = "(i32.add (i32.mul (local.get 0) (local.get 1)) " * 400 + "(i32.const 1)" + ")" * 400
    code = f"(func (param i32 i32) (result i32) {f'(local.set 0 {deep}) (local.set 1 {deep})' * 1400} {deep})" * 2
    return bytes(wasmtime.wat2wasm(f'(module {code} (func (export "_start")))'))


async def test_sockets_are_out_of_reach(module: Module) -> None:
    assert await outcome(module(REACHES, wasi=SOCKETS + WASI)) == ("success", "")


@pytest.mark.full
async def test_a_module_that_takes_too_long_to_compile_is_unavailable_and_nobody_waits_for_it(module: Module) -> None:
    file = module(bomb(), "bomb")
    (tool,) = load(file).tools
    assert isinstance(tool.work, ProcessWork)
    processes = Processes(limits=Limits(memory_bytes=None, start_s=1.5))
    tool.work = ProcessWork(tool.work.codec, lambda: processes)
    async with processes, Workbench([tool, module(ECHO, "echo")], show_errors=True) as bench:
        compiling = asyncio.ensure_future(bench.call("bomb"))
        assert (await bench.call("echo", {"a": 1})).value == {"a": 1}
        result = await compiling
    assert result.error is not None
    assert (result.error.code, "It was not loaded within 1.5 s." in result.text) == ("unavailable", True)


async def test_compiled_code_is_never_read_from_beside_a_tool(module: Module, cache: Path) -> None:
    file = module(ECHO)
    other = wasmtime.Module(wasmtime.Engine(), wasmtime.wat2wasm(f"(module {WASI} {GIVES_UP})"))
    for name in ("guest.cwasm", "guest.wasm.cwasm", "tool.cwasm"):
        (file.parent / name).write_bytes(bytes(other.serialize()))
    assert await outcome(file, '{"a":1}') == ("success", '{"a":1}')


@pytest.mark.parametrize("kind", ["link to a folder", "file"])
async def test_a_cache_that_is_not_a_folder_of_ours_is_not_used(
    module: Module, cache: Path, tmp_path: Path, kind: str
) -> None:
    cache.parent.mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    cache.symlink_to(elsewhere) if kind == "link to a folder" else cache.write_text("a file")
    source = module(ECHO)
    assert await outcome(source, '{"a":1}') == ("success", '{"a":1}')
    assert list(elsewhere.iterdir()) == []


async def test_what_others_could_have_written_into_the_cache_is_not_run(module: Module, cache: Path) -> None:
    source = module(ECHO)
    assert (await outcome(source))[0] == "success"
    (kept,) = cache.iterdir()
    content = kept.read_bytes()
    for damaged in (b"", content[:20], content[:-1], b"\0" * 32 + content[32:], content[:32] + b"\x7fELF" * 100):
        kept.write_bytes(damaged)
        assert await outcome(source, '{"a":1}') == ("success", '{"a":1}')
        assert kept.read_bytes() == content


def test_workers_of_modules_are_shared_with_no_other_tool(module: Module) -> None:
    (tool,) = load(module(ECHO)).tools
    assert isinstance(tool.work, ProcessWork)
    assert tool.work.processes is GuestProcesses
