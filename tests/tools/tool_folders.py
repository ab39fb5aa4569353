"""Folders that programs for the sandbox are tools in."""

from functools import cache

import wasmtime

from .guests import ECHO as ECHO
from .guests import WASI


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
