"""`toolcrib new`: a tool that works, with a test, to begin with."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from ..core import ToolcribError
from ..schema.describe import display_name
from .terminal import Output, UsageError

KINDS = ("function", "python", "wasm")

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_TEST = '''"""Run it with pytest."""

from pathlib import Path

from toolcrib import Workbench


def test_{name}() -> None:
    with Workbench([Path(__file__).{place}]) as bench:
        result = bench.call_sync("{name}", {{"text": "two words"}})
    assert result.unwrap() == {expected}
'''
_COUNTED = '{"words": 2, "characters": 9}'
_FUNCTION = '''"""The tool {name}."""

from toolcrib import tool


@tool(read_only=True, idempotent=True, examples=[{{"text": "two words"}}])
def {name}(text: str) -> dict[str, int]:
    """Count the words and the characters of a text.

    Args:
        text: The text to count in.
    """
    return {{"words": len(text.split()), "characters": len(text)}}
'''
_MANIFEST = """# What models see of it, and what it needs. Only what the operator grants is given to it.
name = "{name}"
description = "{description}"
{program}
read_only = true
idempotent = true
timeout_s = 5
examples = [{{ text = "two words" }}]

[parameters]
type = "object"
required = ["text"]
additionalProperties = false

[parameters.properties.text]
type = "string"
description = "{text}"
"""
_MAIN = '''"""The tool {name}: its arguments are JSON on standard input, its result is what it prints.

It runs in the sandbox: the standard library, and what is in a folder `vendor` beside this file.
"""

import json
import sys

arguments = json.load(sys.stdin)
text = arguments["text"]
print(json.dumps({{"words": len(text.split()), "characters": len(text)}}))
'''
_WAT = """;; The tool {name}: its arguments are JSON on standard input, its result is what it writes to standard output.
;; It gives back what it gets. After a change, build it again; README.md says how.
(module
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "_start")
    (loop $more
      ;; At 0: where the text is, and how much of it. At 8: how much was read or written.
      (i32.store (i32.const 0) (i32.const 64))
      (i32.store (i32.const 4) (i32.const 65536))
      (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
      (i32.store (i32.const 4) (i32.load (i32.const 8)))
      (if (i32.load (i32.const 8)) (then
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
        (br $more))))))
"""
_README = """# {name}

A program for WASI preview 1, in WebAssembly text. After a change of `{name}.wat`, build `{name}.wasm` again:

    python -c "import wasmtime; open('{name}.wasm', 'wb').write(wasmtime.wat2wasm(open('{name}.wat').read()))"

In place of it may be any program that reads JSON from standard input and writes its result to standard output. From C:

    clang --target=wasm32-wasi -O2 -o {name}.wasm {name}.c

From Rust: `cargo build --release --target wasm32-wasip1`. From Go: `GOOS=wasip1 GOARCH=wasm go build -o {name}.wasm`.
"""


def run_new(name: str, kind: str, folder: Path) -> int:
    """Write a tool *name* of *kind* into *folder*. Returns the exit status."""
    if not _NAME.fullmatch(name):
        raise UsageError("The name of a tool has only lower-case letters, digits and _, and begins with a letter.")
    if kind not in KINDS:
        raise UsageError(f"--kind: there is no kind '{display_name(kind)}'. The kinds are: {', '.join(KINDS)}.")
    files = _FILES[kind](name)
    for path in files:
        if (folder / path).exists():
            raise ToolcribError(f"{folder / path} is there already. Choose another name, or remove it.")
    output = Output()
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
        output.write(path)
    if kind == "python":
        output.write("\nIt needs the Python of the sandbox, which is made once: toolcrib sandbox build-python")
    source = f"{name}.py" if kind == "function" else f"{name}/"
    output.write(f'\nTry it: toolcrib call {source} {name} text="two words"\nCheck it: toolcrib check {source}')
    return 0


def _function(name: str) -> dict[str, bytes]:
    test = _TEST.format(name=name, place=f'with_name("{name}.py")', expected=_COUNTED)
    return {f"{name}.py": _FUNCTION.format(name=name).encode(), f"test_{name}.py": test.encode()}


def _python(name: str) -> dict[str, bytes]:
    description, text = "Count the words and the characters of a text.", "The text to count in."
    test = _TEST.format(name=name, place="parent", expected=_COUNTED)
    manifest = _MANIFEST.format(name=name, description=description, program='runtime = "python"', text=text)
    files = {"tool.toml": manifest, "main.py": _MAIN.format(name=name), f"test_{name}.py": test}
    return {f"{name}/{path}": content.encode() for path, content in files.items()}


def _wasm(name: str) -> dict[str, bytes]:
    try:
        import wasmtime
    except ModuleNotFoundError:
        raise ToolcribError(
            "A tool of this kind needs the package 'wasmtime': pip install 'toolcrib[sandbox]'."
        ) from None
    source = _WAT.format(name=name)
    description, text = "Give back the arguments.", "Any text."
    manifest = _MANIFEST.format(name=name, description=description, program=f'file = "{name}.wasm"', text=text)
    files = {
        "tool.toml": manifest,
        f"{name}.wat": source,
        "README.md": _README.format(name=name),
        f"test_{name}.py": _TEST.format(name=name, place="parent", expected='{"text": "two words"}'),
    }
    made = {f"{name}/{path}": content.encode() for path, content in files.items()}
    return {**made, f"{name}/{name}.wasm": bytes(wasmtime.wat2wasm(source))}


_FILES: Mapping[str, Callable[[str], dict[str, bytes]]] = {"function": _function, "python": _python, "wasm": _wasm}
