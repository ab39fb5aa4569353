"""WebAssembly components as tools: what they get, what they give, what they may reach and what stops them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import wasmtime

from toolcrib.core import LoadError
from toolcrib.tools import Permissions, load

from .conftest import Service
from .guests import outcomes

# A program that can write to standard output and send requests; its core module exports `run`: 0 for success.
TEXT = """
(component
  (import "wasi:io/error@0.2.0" (instance $errors (export "error" (type (sub resource)))))
  (alias export $errors "error" (type $error))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (export "output-stream" (type $out (sub resource)))
    (alias outer 1 $error (type $outer))
    (export "error" (type $inner (eq $outer)))
    (type $failure (variant (case "last-operation-failed" (own $inner)) (case "closed")))
    (export "stream-error" (type $stream-error (eq $failure)))
    (export "[method]output-stream.blocking-write-and-flush" (func
      (param "self" (borrow $out)) (param "contents" (list u8)) (result (result (error $stream-error)))))))
  (alias export $streams "output-stream" (type $stream))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (alias outer 1 $stream (type $s)) (export "output-stream" (type $o (eq $s)))
    (export "get-stdout" (func (result (own $o))))))
  (import "toolcrib:guest/http@1.0.0" (instance $http
    (export "fetch" (func (param "request" string) (result (result string (error string)))))))
  (core module $memory
    (memory (export "memory") 4)
    (global $free (mut i32) (i32.const 131072))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (local $at i32)
      (local.set $at (global.get $free))
      (global.set $free (i32.add (global.get $free) (i32.and (i32.add (local.get 3) (i32.const 7)) (i32.const -8))))
      (local.get $at)))
  (core instance $m (instantiate $memory))
  (alias core export $m "memory" (core memory $mem))
  (alias core export $m "realloc" (core func $realloc))
  (core func $write (canon lower (func $streams "[method]output-stream.blocking-write-and-flush") (memory $mem)))
  (core func $stdout (canon lower (func $stdout "get-stdout")))
  (core func $fetch (canon lower (func $http "fetch") (memory $mem) (realloc $realloc)))
  (core module $program
    (import "m" "memory" (memory 4))
    (import "h" "write" (func $write (param i32 i32 i32 i32)))
    (import "h" "stdout" (func $stdout (result i32)))
    (import "h" "fetch" (func $fetch (param i32 i32 i32)))
    {code}
  )
  (core instance $p (instantiate $program (with "m" (instance $m)) (with "h" (instance
    (export "write" (func $write)) (export "stdout" (func $stdout)) (export "fetch" (func $fetch))))))
  (func $run (result (result)) (canon lift (core func $p "run")))
  (instance $exported (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $exported)))
"""

TRAPS = '(func (export "run") (result i32) unreachable)'
NESTS = '(func $f (call $f) (drop (i32.load (i32.const 0)))) (func (export "run") (result i32) (call $f) (i32.const 0))'
FAILS = '(func (export "run") (result i32) (i32.const 1))'
GROWS = '(func (export "run") (result i32) (i32.eq (memory.grow (i32.const {pages})) (i32.const -1)))'
FLOODS = """
(func (export "run") (result i32)
  (loop $again (call $write (call $stdout) (i32.const 4096) (i32.const 4096) (i32.const 65536)) (br $again))
  (i32.const 0))
"""

Folder = Callable[..., Path]


def writes(text: str) -> str:
    return (
        f'(data (i32.const 64) "{hexadecimal(text)}") (func (export "run") (result i32) '
        f"(call $write (call $stdout) (i32.const 64) (i32.const {len(text)}) (i32.const 32)) (i32.const 0))"
    )


def fetches(request: Any) -> str:
    """Code that sends *request*, and writes the response, or why there is none."""
    text = request if isinstance(request, str) else json.dumps(request)
    return (
        f'(data (i32.const 64) "{hexadecimal(text)}") (func (export "run") (result i32) '
        f"(call $fetch (i32.const 64) (i32.const {len(text)}) (i32.const 32)) "
        "(call $write (call $stdout) (i32.load (i32.const 36)) (i32.load (i32.const 40)) (i32.const 16)) (i32.const 0))"
    )


def hexadecimal(text: str) -> str:
    return "".join(f"\\{byte:02x}" for byte in text.encode())


def component(code: str) -> bytes:
    return bytes(wasmtime.wat2wasm(TEXT.replace("{code}", code)))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder with a `tool.toml` and a component of *code*."""

    def make(code: str, manifest: str = "", *, name: str = "guest") -> Path:
        made = tmp_path / name
        made.mkdir()
        (made / "tool.wasm").write_bytes(component(code))
        (made / "tool.toml").write_text(f'name = "{name}"\ndescription = "Does something."\n{manifest}')
        return made

    return make


async def test_a_component_is_a_tool_and_what_stops_it_has_its_code(folder: Folder) -> None:
    codes = {
        writes('{"a": 1}'): ("success", '{"a":1}'),
        FAILS: ("failed", "Tool 'guest_1' ended with status 1."),
        TRAPS: ("trapped", "Tool 'guest_2' was stopped: it aborted (its instruction 'unreachable')."),
        NESTS: ("trapped", "Tool 'guest_3' was stopped: its calls were nested too deeply."),
        # It begins with 4 pages of 64 KiB for each memory, and may have 16.
        GROWS.format(pages=12): ("success", ""),
        GROWS.format(pages=13): ("failed", "Tool 'guest_5' ended with status 1."),
        FLOODS: ("too_large", "Tool 'guest_6' wrote more than 1048576 bytes. Ask for less."),
    }
    manifest = "memory_mb = 1\noutput_mb = 1"
    sources = [folder(code, manifest, name=f"guest_{number}") for number, code in enumerate(codes)]
    assert await outcomes(*sources) == list(codes.values())


async def test_a_component_reaches_the_hosts_that_it_was_granted_and_no_others(
    folder: Folder, service: Service
) -> None:
    here, port = f"localhost:{service.port}", service.port
    service.replies["/"] = (200, {}, b"hello")
    service.replies["/away"] = (302, {"location": f"{service.url}/"}, b"")
    urls = [f"http://{here}/", f"http://{here}/away", f"http://localhost:{port + 1}/"]
    sources = [
        Permissions(hosts=[here], private_hosts=["localhost"]).to(
            folder(fetches({"url": url}), f'hosts = ["{here}"]', name=f"guest_{number}")
        )
        for number, url in enumerate(urls)
    ]
    answer, *refusals = [text for _, text in await outcomes(*sources)]
    assert (json.loads(answer)["status"], json.loads(answer)["body"]) == (200, "aGVsbG8=")
    only = f"may not be reached here. Only these may: {here}."
    assert refusals == [f"'127.0.0.1', port {port}, {only}", f"'localhost', port {port + 1}, {only}"]
    assert [path for _, path, _, _ in service.requests] == ["/", "/away"]


async def test_a_tool_whose_hosts_are_not_granted_is_not_loaded_and_one_without_hosts_has_no_network(
    folder: Folder,
) -> None:
    with pytest.raises(LoadError, match="needs what was not granted: the host"):
        load(folder(writes(""), 'hosts = ["example.com"]'))
    ((_, text),) = await outcomes(folder(fetches({"url": "https://example.com/"}), name="other"))
    assert text == "This tool may not send requests: its tool.toml lists no 'hosts'."


async def test_a_server_that_does_not_answer_and_one_that_answers_too_much_are_ended(
    folder: Folder, service: Service
) -> None:
    here = f"localhost:{service.port}"
    permissions = Permissions(hosts=[here], private_hosts=["localhost"])
    service.replies["/waits"] = None
    service.replies["/much"] = (200, {}, bytes(9 * 1024**2))
    manifest = f'timeout_s = 0.5\nhosts = ["{here}"]'
    waits = folder(fetches({"url": f"http://{here}/waits"}), manifest, name="waits")
    gives_up = folder(
        fetches({"url": f"http://{here}/waits", "timeout_s": 0.1}), f'hosts = ["{here}"]', name="gives_up"
    )
    much = folder(fetches({"url": f"http://{here}/much"}), f'hosts = ["{here}"]', name="much")
    results = await outcomes(*map(permissions.to, (waits, gives_up, much)))
    assert [code for code, _ in results] == ["timeout", "success", "success"]
    assert results[1][1] == "The server did not answer within 0.1 s."
    assert results[2][1] == "The response has more than 8388608 bytes."
