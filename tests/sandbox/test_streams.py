"""The functions of WASI that are ours, by the numbers that a guest gives them and gets back."""

import struct
from pathlib import Path

import pytest
import wasmtime

from toolcrib.sandbox.modules import Ended, ProgramLimits, Programs

WASI = """
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
"""
END = 65536
"""The size of the memory."""


@pytest.fixture(scope="module")
def programs() -> Programs:
    return Programs(own_signals=False)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


async def ran(programs: Programs, call: str, data: bytes = b"") -> Ended:
    """How a program ends that has *data* at 1024, makes *call*, writes what is at 0 to 64, and ends as *call* did."""
    written = "".join(f"\\{byte:02x}" for byte in data)
    code = f"""(module {WASI} (memory (export "memory") 1)
      (data (i32.const 1024) "{written}")
      (data (i32.const 512) "\\00\\00\\00\\00\\40\\00\\00\\00")
      (func (export "_start") (local $found i32)
        (local.set $found {call})
        (drop (call $write (i32.const 1) (i32.const 512) (i32.const 1) (i32.const 528)))
        (call $exit (local.get $found))))"""
    program = programs.compile(bytes(wasmtime.wat2wasm(code)))
    return await program.run(b"hello", {}, ProgramLimits())


def pieces(*each: tuple[int, int]) -> bytes:
    return b"".join(struct.pack("<II", *piece) for piece in each)


def call(name: str, *numbers: int) -> str:
    return f"(call ${name} {' '.join(f'(i32.const {number})' for number in numbers)})"


SUCCESS, BAD_FILE, FAULT, INVALID, NOT_SUPPORTED = 0, 8, 21, 28, 58


@pytest.mark.parametrize(
    ("made", "data", "status"),
    [
        (call("read", 1, 1024, 1, 0), pieces((0, 8)), BAD_FILE),
        (call("read", 3, 1024, 1, 0), pieces((0, 8)), BAD_FILE),
        (call("write", 0, 1024, 1, 0), pieces((0, 8)), BAD_FILE),
        (call("write", 3, 1024, 1, 0), pieces((0, 8)), BAD_FILE),
        (call("read", 0, END - 8, 1, 0), b"", SUCCESS),
        (call("read", 0, END - 7, 1, 0), b"", FAULT),
        (call("read", 0, -8, 1, 0), b"", FAULT),
        (call("read", 0, 1024, 1, 0), pieces((END - 5, 5)), SUCCESS),
        (call("read", 0, 1024, 1, 0), pieces((END - 4, 5)), FAULT),
        (call("read", 0, 1024, 1, END - 4), pieces((0, 5)), SUCCESS),
        (call("read", 0, 1024, 1, END - 3), pieces((0, 5)), FAULT),
        (call("write", 2, 1024, 1, 0), pieces((END - 4, 5)), FAULT),
        (call("write", 2, 1024, 2, 0), pieces((0, 5), (2**32 - 1, 1)), FAULT),
        (call("read", 0, 1024, -1, 0), b"", SUCCESS),
        (call("poll", 1024, 2048, 0, 0), b"", INVALID),
        (call("poll", 1024, 2048, 1025, 0), b"", INVALID),
        (call("poll", 1024, 2048, -1, 0), b"", INVALID),
        (call("poll", END - 47, 2048, 1, 0), b"", FAULT),
        (call("poll", 1024, END - 31, 1, 0), b"", FAULT),
        (call("poll", 1024, 2048, 1, END - 3), b"", FAULT),
    ],
)
async def test_numbers_that_a_guest_may_not_give_are_refused_and_the_program_goes_on(
    programs: Programs, made: str, data: bytes, status: int
) -> None:
    ended = await ran(programs, made, data)
    assert (ended.status, ended.error_output) == (status, b"")


@pytest.mark.parametrize("memory", ["", "(memory 1)", '(func (export "memory"))'])
async def test_a_guest_without_a_memory_for_us_has_no_streams(programs: Programs, memory: str) -> None:
    refused = f"(i32.eq {call('write', 1, 0, 0, 0)} (i32.const {FAULT}))"
    code = f"""(module {WASI} {memory} (func (export "_start") (if {refused} (then return)) unreachable))"""
    program = programs.compile(bytes(wasmtime.wat2wasm(code)))
    assert (await program.run(b"", {}, ProgramLimits())).status == SUCCESS


async def test_a_read_fills_one_piece_after_the_other(programs: Programs) -> None:
    ended = await ran(programs, call("read", 0, 1024, 3, 60), pieces((0, 2), (16, 9), (32, 9)))
    assert ended.status == SUCCESS
    assert (ended.output[:2], ended.output[16:21], ended.output[32:34]) == (b"he", b"llo\0\0", b"\0\0")
    assert struct.unpack("<I", ended.output[60:]) == (5,)


@pytest.mark.parametrize("file", [1, 2])
async def test_a_write_takes_one_piece_after_the_other(programs: Programs, file: int) -> None:
    data = pieces((1040, 3), (1043, 2)) + b"abcde"
    ended = await ran(programs, call("write", file, 1024, 2, 60), data)
    assert (ended.output + ended.error_output).replace(ended.output[-64:], b"") == b"abcde"
    assert (len(ended.error_output), struct.unpack("<I", ended.output[-4:])) == (5 * (file == 2), (5,))


def subscription(user: int, tag: int, clock: int = 1, timeout: int = 0, flags: int = 0) -> bytes:
    return struct.pack("<QB7xI4xQQH6x", user, tag, clock, timeout, 0, flags)


HOUR = 3_600_000_000_000


@pytest.mark.parametrize(
    ("listed", "events"),
    [
        ([subscription(7, 0, timeout=1)], [(7, 0, 0, 0, 0)]),
        ([subscription(7, 0, timeout=HOUR), subscription(8, 0, timeout=5)], [(8, 0, 0, 0, 0)]),
        ([subscription(7, 0, timeout=HOUR), subscription(8, 1)], [(8, 0, 1, 1, 0)]),
        (
            [subscription(7, 1), subscription(8, 2), subscription(9, 0, timeout=HOUR)],
            [(7, 0, 1, 1, 0), (8, 0, 2, 0, 0)],
        ),
        ([subscription(7, 0, clock=0, timeout=5, flags=1)], [(7, 0, 0, 0, 0)]),
        ([subscription(7, 0, clock=0, timeout=2**63, flags=1), subscription(8, 2)], [(8, 0, 2, 0, 0)]),
        ([subscription(7, 0, clock=1, timeout=5, flags=1)], None),
        ([subscription(7, 2, clock=1, timeout=5, flags=1)], [(7, 0, 2, 0, 0)]),
        ([subscription(7, 0, timeout=5_000_000), subscription(8, 1)], [(8, 0, 1, 1, 0)]),
        ([subscription(7, 0, timeout=0), subscription(8, 1)], [(7, 0, 0, 0, 0), (8, 0, 1, 1, 0)]),
        ([subscription(7, 0, clock=0, timeout=HOUR, flags=1), subscription(8, 0, timeout=HOUR)], [(7, 0, 0, 0, 0)]),
        ([subscription(7, 0, clock=1, timeout=5, flags=2)], [(7, 0, 0, 0, 0)]),
    ],
)
async def test_a_wait_ends_with_what_is_due_first(
    programs: Programs, listed: list[bytes], events: list[tuple[int, ...]] | None
) -> None:
    # The events are at 0, and their number is at 60, where the second one has nothing.
    made = f"""(block (result i32) (local.set $found {call("poll", 1024, 0, len(listed), 2048)})
      (i32.store (i32.const 60) (i32.load (i32.const 2048))) (local.get $found))"""
    ended = await ran(programs, made, b"".join(listed))
    if events is None:
        assert ended.status == NOT_SUPPORTED
        return
    assert ended.status == SUCCESS
    found = [struct.unpack("<QHB5xQH6x", ended.output[at : at + 32]) for at in range(0, 32 * len(events), 32)]
    assert (found, struct.unpack("<I", ended.output[60:])) == (events, (len(events),))
