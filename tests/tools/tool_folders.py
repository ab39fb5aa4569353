"""Programs for the sandbox, in WebAssembly text, and the folders that they are tools in."""

from functools import cache

import wasmtime

WASI = """
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
"""
ECHO = """
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 64))
    (i32.store (i32.const 4) (i32.const 65536))
    (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 4)))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
"""


@cache
def module(code: str = ECHO) -> bytes:
    """The program of *code*, which begins with the imports of WASI, or has them where it says `{wasi}`."""
    text = code.replace("{wasi}", WASI) if "{wasi}" in code else f"{WASI} {code}"
    return bytes(wasmtime.wat2wasm(f"(module {text})"))


def tool_files(
    name: str, description: str = "Give it back.", more: str = "", code: str = ECHO
) -> dict[str, str | bytes]:
    """The files of a folder *name* with one tool of that name."""
    manifest = f'name = "{name}"\ndescription = "{description}"\nfile = "{name}.wasm"\n{more}\n'
    return {f"{name}/tool.toml": manifest, f"{name}/{name}.wasm": module(code)}
