"""Modules and folders of Python as programs, in this process: their limits, their cache, and how they end."""

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import wasmtime

from toolcrib import Context, Workbench, tool
from toolcrib.core import LoadError
from toolcrib.sandbox import cache
from toolcrib.sandbox.folders import folder_digest
from toolcrib.sandbox.guests import GuestPrograms
from toolcrib.sandbox.programs import Ended, ProgramLimits
from toolcrib.sandbox.python_build import python_file
from toolcrib.sandbox.wasm import Engine, Granted, Program, write_compiled

from ..tools.guests import COPY, WASI

# Writes 300,000 bytes before it reads anything, then what it reads, and both to standard error too.
TALKS_FIRST = """
  (func $write_all (param $to i32) (param $size i32)
    (loop $more
      (call $write (local.get $to) (i32.const 100000) (local.get $size))
      (local.set $size (i32.sub (local.get $size) (i32.load (i32.const 12))))
      (br_if $more (local.get $size))))
  (func (export "_start")
    (call $write_all (i32.const 1) (i32.const 300000))
    (call $write_all (i32.const 2) (i32.const 300000))
    (call $copy (i32.const 1)))
"""
READS_NOTHING = '(func (export "_start"))'
WRITES_100 = '(func (export "_start") (call $write (i32.const 1) (i32.const 64) (i32.const 100)))'
STATUS = '(func (export "_start") (call $exit (i32.const {})))'


@pytest.fixture(autouse=True)
def cached_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "toolcrib" / "wasm"


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine()


def code(text: str, wasi: str = WASI) -> bytes:
    return bytes(wasmtime.wat2wasm(f"(module {wasi} {text})"))


async def end_of(program: Program, data: bytes = b"", **limits: int) -> Ended:
    return await program.run(data, Granted({}, lambda _: ""), ProgramLimits(**limits))


# Streams and limits


async def test_everything_is_written_and_read_whichever_comes_first(engine: Engine) -> None:
    data = bytes(range(250)) * 1200
    ended = await end_of(engine.compile(code(COPY + TALKS_FIRST)), data)
    assert (ended.status, len(ended.output), ended.output[300_000:] == data) == (0, 600_000, True)
    assert len(ended.error_output) == 16 * 1024
    assert await end_of(engine.compile(code(READS_NOTHING)), data) == Ended(0, b"", b"")


async def test_output_over_the_limit_stops_the_program(engine: Engine) -> None:
    program = engine.compile(code(WRITES_100))
    assert [(await end_of(program, output_bytes=size)).is_over for size in (100, 99)] == [False, True]
    floods = code(
        '(func (export "_start") (loop $on (call $write (i32.const 1) (i32.const 0) (i32.const 999)) (br $on)))'
    )
    assert (await end_of(engine.compile(floods))).is_over


@pytest.mark.parametrize(
    ("text", "stopped"),
    [
        ("unreachable", "it aborted (its instruction 'unreachable')"),
        ("(drop (i32.div_u (i32.const 1) (i32.const 0)))", "it divided by zero"),
        ("(drop (i32.load (i32.const -8)))", "it reached outside its memory"),
        ("(call $nest)", "its calls were nested too deeply"),
        ("(call_indirect (i32.const 5))", "it did what WebAssembly forbids"),
    ],
)
async def test_a_trap_has_its_reason(engine: Engine, text: str, stopped: str) -> None:
    nest = "(table 1 funcref) (func $nest (call $nest) (drop (i32.load (i32.const 0))))"
    assert (await end_of(engine.compile(code(f'{nest} (func (export "_start") {text})')))).reason == stopped


async def test_a_program_has_one_memory_within_its_limit(engine: Engine) -> None:
    for memories in ("(memory 1) (memory 1)", "(memory 1025)"):
        program = engine.compile(code(f'{memories} (func (export "_start"))', ""))
        assert (await end_of(program)).reason.startswith("it cannot begin with the 64 MiB")


def component_of(items: str, count: int, most: int) -> bytes:
    """A component with *count* instances of a module with *items*, whose `fill` takes all that it gets.

    It fails where these have got more than *most* together.
    """
    names = [f"i{number}" for number in range(count)]
    instances = "".join(f"(core instance ${name} (instantiate $filled))" for name in names)
    imports = "".join(f'(import "{name}" "fill" (func ${name} (result i32)))' for name in names)
    sums = "".join(f"(local.set $sum (i32.add (local.get $sum) (call ${name})))" for name in names)
    given = "".join(f'(with "{name}" (instance ${name}))' for name in names)
    return bytes(
        wasmtime.wat2wasm(f"""(component
          (core module $filled {items}) {instances}
          (core module $program {imports} (func (export "run") (result i32) (local $sum i32)
            {sums} (i32.gt_u (local.get $sum) (i32.const {most}))))
          (core instance $p (instantiate $program {given}))
          (func $run (result (result)) (canon lift (core func $p "run")))
          (instance $exported (export "run" (func $run)))
          (export "wasi:cli/run@0.2.0" (instance $exported)))""")
    )


MEMORY = """(memory 1) (func (export "fill") (result i32)
  (loop $on (br_if $on (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) (memory.size))"""
TABLE = """(table 1 funcref) (func (export "fill") (result i32)
  (loop $on (br_if $on (i32.ne (table.grow (ref.null func) (i32.const 10000)) (i32.const -1)))) (table.size))"""


@pytest.mark.parametrize("count", [1, 2, 12])
async def test_the_memories_of_a_component_share_its_limit(engine: Engine, count: int) -> None:
    """Twelve instances had twelve times the memory that was granted to the author."""
    for most, status in ((64, 0), (64 // count * count - 1, 1)):
        program = engine.compile(component_of(MEMORY, count, most))
        assert await end_of(program, memory_bytes=4 * 2**20) == Ended(status, b"", b"")
    begins_with_more = engine.compile(component_of(MEMORY.replace("1)", "33)", 1), 2, 99))
    assert (await end_of(begins_with_more, memory_bytes=4 * 2**20)).reason.startswith("it cannot begin with the 4 MiB")


async def test_the_tables_of_a_component_and_its_instances_are_bounded_as_those_of_a_module(engine: Engine) -> None:
    """A second way to memory that no limit counted: tables, at 8 bytes an element."""
    assert (await end_of(engine.compile(component_of(TABLE, 2, 2 * 100_000)))).status == 0
    assert (await end_of(engine.compile(component_of(TABLE, 17, 1)))).reason.startswith("it cannot begin with")
    assert (await end_of(engine.compile(component_of(MEMORY, 65, 1)))).reason == "it has more than 64 memories"


@pytest.mark.parametrize("text", ['(type $s (array (mut i64))) (func (export "_start"))', "(table 1 externref)"])
def test_no_heap_is_there_that_would_be_a_second_memory(engine: Engine, text: str) -> None:
    """A third way: types that are garbage-collected have a heap of their own, as large as the memory."""
    with pytest.raises(LoadError, match="It is not a valid WebAssembly module"):
        engine.compile(code(text, ""))


async def test_an_exit_status_is_reported_up_to_126(engine: Engine) -> None:
    for status, reported in ((0, 0), (3, 3), (125, 125), (200, 126)):
        assert (await end_of(engine.compile(code(STATUS.format(status))))).status == reported


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('(import "wasi_snapshot_preview1" "nothing" (func)) (func (export "_start"))', "what WASI preview 1 does not"),
        ('(import "env" "f" (func)) (func (export "_start"))', "It imports env.f, which nothing here offers"),
        ('(memory 1 1 shared) (func (export "_start"))', "It is not a valid WebAssembly module"),
        ('(func (export "run"))', "it has no '_start'"),
    ],
)
def test_what_cannot_run_is_refused(engine: Engine, text: str, reason: str) -> None:
    with pytest.raises(LoadError, match=reason):
        engine.compile(code(text, ""))


# The cache


def test_a_module_is_compiled_once_and_its_last_use_is_noted(cached_at: Path) -> None:
    Engine().compile(code(READS_NOTHING))
    (file,) = cached_at.iterdir()
    number = file.stat().st_ino
    os.utime(file, (0, 0))
    Engine().compile(code(READS_NOTHING))
    assert file.stat().st_ino == number, "it was not written again"
    assert file.stat().st_mtime > 0


def test_what_the_engine_does_not_take_is_compiled_again(cached_at: Path) -> None:
    Engine().compile(code(READS_NOTHING))
    (file,) = cached_at.iterdir()
    content = file.read_bytes()
    write_compiled(file, b"no code of this engine")
    Engine().compile(code(READS_NOTHING))
    assert file.read_bytes() == content


def test_the_cache_of_programs_is_bounded(cached_at: Path) -> None:
    assert cache.private_folder("wasm") == cached_at
    (cached_at / "old").touch()
    os.utime(cached_at / "old", (0, 0))
    Engine().compile(code(READS_NOTHING))
    assert [file.name == "old" for file in cached_at.iterdir()] == [False]


# Folders of Python, with a small component in the place of Python

LIMITS = {"memory_bytes": 3 * 2**20, "output_bytes": 10, "error_bytes": 10}


def python(ends: int | str) -> None:
    """Put a component in the place of Python that ends with a status, or with an exception of this last line."""
    text = ends if isinstance(ends, str) else ""
    place = "".join(f"\\{byte:02x}" for byte in (16, 0, 0, 0, len(text), 0, 0, 0))
    memory = f'(memory (export "memory") 1) (data (i32.const 0) "{place}") (data (i32.const 16) "{text}")'
    result = f"(result i32) (i32.const {0 if text else ends})"
    component = f"""(component
      (core module $m {memory} (func (export "run") {result}))
      (core instance $i (instantiate $m)) (alias core export $i "memory" (core memory $memory))
      (func $run (result {"string" if text else "s32"}) (canon lift (core func $i "run") (memory $memory)))
      (instance $exported (export "run" (func $run)))
      (export "toolcrib:guest/program@1.0.0" (instance $exported)))"""
    assert cache.private_folder("python") is not None
    cache.clear("wasm")  # what was compiled of another
    python_file().write_bytes(bytes(wasmtime.wat2wasm(component)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tool"
    folder.mkdir()
    (folder / "tool.py").write_text("print(1)")
    return folder


async def outcome(folder: Path, *, after: Any = None) -> tuple[str, str]:
    """How the program in *folder* ends, where *after* is done once it was loaded."""
    nothing: dict[str, Any] = {"variables": [], "mounts": [], "hosts": [], "private_hosts": []}
    where = {**nothing, "folder": str(folder), "program": "tool.py", "sha256": folder_digest(folder), "limits": LIMITS}
    run = GuestPrograms().load(where, "use")
    if after is not None:
        after()

    @tool
    async def use(ctx: Context) -> dict[str, Any]:
        return await run("{}", ctx)

    result = await Workbench([use]).call("use")
    return (result.status, result.unwrap()["text"]) if result.error is None else (result.error.code, result.text)


async def test_how_python_ends_is_how_its_call_ends(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert (await outcome(folder))[0] == "unavailable"
    assert await outcome(folder, after=lambda: python(0)) == ("success", "")
    assert await outcome(folder, after=lambda: python_file().unlink()) == ("success", "")  # it was loaded before
    python(3)
    assert await outcome(folder) == ("failed", "Tool 'use' ended with status 3.")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    python("ValueError: no such city")
    assert await outcome(folder) == ("failed", "Tool 'use' failed: ValueError: no such city")
    python("MemoryError")
    assert await outcome(folder) == (
        "trapped",
        "Tool 'use' was stopped: it needed more than the 3 MiB of memory that it may have.",
    )
    assert {record.name for record in caplog.records if record.levelname == "ERROR"} == {"toolcrib.tool.use"}


async def test_what_has_changed_since_the_host_read_it_does_not_run(folder: Path) -> None:
    python(0)
    assert (await outcome(folder, after=lambda: os.utime(folder / "tool.py", (0, 0))))[0] == "success"
    assert await outcome(folder, after=lambda: (folder / "tool.py").write_text("print(2)")) == (
        "unavailable",
        "The folder of tool 'use' has changed since it was loaded.",
    )
    where = {"folder": str(folder), "sha256": "0" * 64}
    with pytest.raises(LoadError, match="Its folder has changed since the host loaded it"):
        GuestPrograms().load(where, "use")
    file = folder / "tool.wasm"
    file.write_bytes(code(READS_NOTHING))
    with pytest.raises(LoadError, match="Its file has changed since the host loaded it"):
        GuestPrograms().load({"file": str(file), "sha256": sha256(b"").hexdigest()}, "use")
