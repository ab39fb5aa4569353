"""Programs for the sandbox, in WebAssembly text, and what the tests of them share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from toolcrib import Workbench

WASI = """
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ_sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $environ (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_get" (func $prestat (param i32 i32) (result i32)))
  (memory (export "memory") 8)
  (func $write (param $to i32) (param $from i32) (param $size i32)
    (i32.store (i32.const 0) (local.get $from)) (i32.store (i32.const 4) (local.get $size))
    (drop (call $fd_write (local.get $to) (i32.const 0) (i32.const 1) (i32.const 12))))
"""

COPY = """
  (func $copy (param $to i32)
    (loop $more
      (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 65536))
      (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
      (if (i32.load (i32.const 8)) (then
        (call $write (local.get $to) (i32.const 64) (i32.load (i32.const 8)))
        (br $more)))))
"""
ECHO = COPY + '(func (export "_start") (call $copy (i32.const 1)))'
SAYS = '(data (i32.const 64) "{}") (func (export "_start") (call $write (i32.const 1) (i32.const 64) (i32.const {})))'
# The environment, as it is in memory: NAME=value and a NUL for each.
ENVIRONMENT = """
  (func (export "_start")
    (drop (call $environ_sizes (i32.const 16) (i32.const 20)))
    (drop (call $environ (i32.const 1024) (i32.const 8192)))
    (call $write (i32.const {to}) (i32.const 8192) (i32.load (i32.const 20)))
    (call $exit (i32.const {status})))
"""
LOOPS = '(func (export "_start") (loop $again (br $again)))'
SLEEPS = """
  (func (export "_start")
    (i32.store (i32.const 64) (i32.const 1)) (i32.store8 (i32.const 72) (i32.const 0))
    (i32.store (i32.const 80) (i32.const 1)) (i64.store (i32.const 88) (i64.const 3600000000000))
    (drop (call $poll (i32.const 64) (i32.const 256) (i32.const 1) (i32.const 512))))
"""
GIVES_UP = '(func (export "_start") unreachable)'
# Opens the path at 64 below each of the first file numbers; its status says which of them did it.
OPENS = """
  (data (i32.const 64) "{path}")
  (func (export "_start") (local $fd i32)
    (loop $next
      (if (i32.eqz (call $open (local.get $fd) (i32.const 1) (i32.const 64) (i32.const {size}) (i32.const 0)
          (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 16)))
        (then (call $exit (i32.add (local.get $fd) (i32.const 1)))))
      (if (i32.eqz (call $prestat (local.get $fd) (i32.const 32)))
        (then (call $exit (i32.add (local.get $fd) (i32.const 50)))))
      (local.set $fd (i32.add (local.get $fd) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $fd) (i32.const 32)))))
"""

Module = Callable[..., Path]


def folder(module: Module, code: str, manifest: str = "", *, wasi: str = WASI, name: str = "guest") -> Path:
    """A folder with *code* and a `tool.toml`."""
    file = module(code, wasi=wasi)
    made = file.parent / f"tool_{name}"
    made.mkdir(exist_ok=True)
    file.rename(made / "guest.wasm")
    (made / "tool.toml").write_text(
        f'name = "{name}"\ndescription = "Does what it is told."\nfile = "guest.wasm"\n{manifest}'
    )
    return made


async def outcome(source: Any, arguments: Any = None, **options: Any) -> tuple[str, str]:
    """Code and text of one call of the tool in *source*."""
    (found,) = await outcomes(source, arguments=arguments, **options)
    return found


async def outcomes(*sources: Any, arguments: Any = None, **options: Any) -> list[tuple[str, str]]:
    """Code and text of one call of each tool of *sources*."""
    async with Workbench(sources, **options) as bench:
        results = [await bench.call(spec.name, arguments) for spec in bench.specs()]
        return [(result.error.code if result.error else result.status, result.text) for result in results]
