"""What holds for everything that can be stopped, however it runs: each rule below, in each implementation.

function    `isolation="process"`, in a worker
module      WebAssembly for WASI preview 1
component   WebAssembly for WASI 0.2
python      a folder, in the Python of the sandbox (`full`: it has to be built)
native      a folder of Python that is trusted, in an environment of its own (`full`: the environment is made)
"""

import asyncio
import importlib.util
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Call, Caller, Crib, Workbench
from toolcrib.core import CancellationToken
from toolcrib.tools import Permissions

from ..sandbox.conftest import nothing_left_behind as nothing_left_behind  # of each test here, too
from ..sandbox.family import family
from ..sandbox.test_source_imports import plant
from ..waiting import until
from . import test_components as components
from .conftest import build_sandbox_python
from .guests import LOOPS, SLEEPS, Module

KINDS = [
    *("function", "component"),
    pytest.param("module", marks=pytest.mark.full),  # in a worker, as a component is
    pytest.param("python", marks=pytest.mark.full),
    pytest.param("native", marks=pytest.mark.full),
]

_ENDS = '(func (export "_start") (call $exit (i32.const {status})))'
_COMPONENT_ENDS = '(func (export "run") (result i32) (i32.const {status}))'
_PROGRAM = "import json, os, sys, time\narguments = json.load(sys.stdin)\n"
_FUNCTION = """
import os, sys, time
from toolcrib import tool
@tool(isolation="process", timeout_s=60)
def guest():
    {code}
"""

ACTS: dict[str, dict[str, str]] = {
    "loops": {"module": LOOPS, "component": '(func (export "run") (result i32) (loop $on (br $on)) (i32.const 0))'},
    "sleeps": {"module": SLEEPS},
    "ends well": {"module": _ENDS.format(status=0), "component": _COMPONENT_ENDS.format(status=0)},
    "fails": {"module": _ENDS.format(status=1), "component": _COMPONENT_ENDS.format(status=1)},
}
PYTHON = {
    "loops": "while True: pass",
    "sleeps": "time.sleep(3600)",
    "ends well": "pass",
    "fails": "sys.exit(1)",
    "floods": "while True: sys.stdout.write('x' * 60000)",
    "crashes": "os.abort()",
    "takes memory": "[bytearray(2**30) for _ in range(3)]",
}


@dataclass(frozen=True)
class Made:
    """A tool "guest" that does one thing: its source, and its file."""

    source: Any
    file: Path


@pytest.fixture
def make(tmp_path: Path, module: Module, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Made]:
    def make(kind: str, act: str) -> Made:
        folder = tmp_path / "tool"
        folder.mkdir(exist_ok=True)
        if kind == "function":
            file = folder / "guest.py"
            file.write_text(_FUNCTION.format(code=PYTHON[act]))
            return Made(file, file)
        manifest = 'name = "guest"\ndescription = "Does something."\ntimeout_s = 60\noutput_mb = 1\n'
        if kind in ("python", "native"):
            manifest += 'runtime = "python"\n'
            file = folder / "main.py"
            file.write_text(_PROGRAM + PYTHON[act])
            if kind == "native":
                (folder / "native.so").touch()
            else:
                build_sandbox_python(monkeypatch)
        else:
            file = folder / "tool.wasm"
            code = ACTS[act][kind]
            file.write_bytes(module(code).read_bytes() if kind == "module" else components.component(code))
        (folder / "tool.toml").write_text(manifest)
        return Made(Permissions(trusted=kind == "native", timeout_s=60).to(folder), file)

    return make


async def outcome(bench: Any, **options: Any) -> str:
    result = await bench.call(Call("guest", **options))
    return str(result.error.code if result.error else result.status)


# Of a component test_components.py has the same, with its words, and of a module tests/sandbox/test_wasm.py.
@pytest.mark.parametrize("kind", [KINDS[0], *KINDS[3:]])
@pytest.mark.parametrize(
    ("act", "code"),
    [
        ("ends well", "success"),
        ("fails", "failed"),
        ("crashes", "trapped"),
        ("takes memory", "trapped"),
    ],
)
async def test_how_it_ends_has_one_code(make: Callable[..., Made], kind: str, act: str, code: str) -> None:
    async with Workbench([make(kind, act).source]) as bench:
        # Of a function, the worker itself has crashed.
        assert await outcome(bench) == ("lost" if (kind, act) == ("function", "crashes") else code)


@pytest.mark.parametrize("kind", KINDS[3:])  # what a function prints is its log
async def test_what_it_writes_is_bounded(make: Callable[..., Made], kind: str) -> None:
    async with Workbench([make(kind, "floods").source]) as bench:
        assert await outcome(bench) == "too_large"


@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_stopped_at_its_deadline_and_when_it_is_cancelled(make: Callable[..., Made], kind: str) -> None:
    await require_stopped(make(kind, "loops"))


@pytest.mark.parametrize("kind", [KINDS[0], *KINDS[2:]])  # a component waits in the engine as a module does
async def test_it_is_stopped_while_it_sleeps(make: Callable[..., Made], kind: str) -> None:
    await require_stopped(make(kind, "sleeps"))


async def require_stopped(guest: Made) -> None:
    async with Workbench([guest.source]) as bench:
        assert await outcome(bench, timeout_s=1.0) == "timeout"
        token = CancellationToken()
        asyncio.get_running_loop().call_later(1.0, token.cancel)
        assert await outcome(bench, cancellation=token) == "cancelled"
        await until(lambda: not family())


@pytest.mark.parametrize("kind", KINDS)
async def test_many_that_never_end_are_answered_at_their_deadline_and_hold_no_loop(
    make: Callable[..., Made], kind: str
) -> None:
    """32 at once. Waiting for a worker is in the deadline, and another tool is called meanwhile."""

    def quick() -> str:
        return "quick"

    async with Workbench([make(kind, "loops").source, quick]) as bench:
        await outcome(bench, timeout_s=0.5)  # what is compiled is compiled, and a file is imported
        await bench.call("quick")
        began = time.monotonic()
        calls = [asyncio.create_task(outcome(bench, timeout_s=2.0)) for _ in range(32)]
        rounds = 0
        while not all(call.done() for call in calls):
            assert (await bench.call("quick")).value == "quick"
            rounds += 1
        assert await asyncio.gather(*calls) == ["timeout"] * 32
        assert rounds > 20  # a loop that is held until then has one
        assert time.monotonic() - began < 30


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_loaded_is_what_runs_or_nothing_does(
    make: Callable[..., Made], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What is changed after it was loaded, and approved or locked as it was, never runs in a new worker."""
    made = make(kind, "ends well")
    async with Workbench([made.source]) as bench:
        made.file.write_bytes(made.file.read_bytes() + (b"\n" if kind != "component" else b"\0\1\0"))
        assert await outcome(bench) == "unavailable"
        assert "has changed since" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_changed_after_a_call_runs_in_no_warm_worker(make: Callable[..., Made], kind: str) -> None:
    """A second case: the worker has loaded it already, and goes on with that, or refuses."""
    async with Workbench([make(kind, "ends well").source]) as bench:
        assert await outcome(bench) == "success"
        make(kind, "fails")
        assert await outcome(bench) == ("unavailable" if kind in ("python", "native") else "success")


@pytest.mark.parametrize("kind", [KINDS[0], *KINDS[3:]])
async def test_bytecode_in_its_folder_does_not_run(make: Callable[..., Made], kind: str) -> None:
    """Of a helper beside a program that was reviewed: what stands in `__pycache__` cannot even be read as code."""
    made = make(kind, "ends well")
    helper = made.file.with_name("helper.py")
    helper.write_text("")
    cached = plant(helper)
    head = cached.read_bytes()[4:16] + b"not code"
    cached.write_bytes(importlib.util.MAGIC_NUMBER + head)
    cached.with_name("helper.cpython-314.pyc").write_bytes((3627).to_bytes(2, "little") + b"\r\n" + head)
    made.file.write_text(f"import helper\n{made.file.read_text()}")
    async with Workbench([made.source]) as bench:
        assert await outcome(bench) == "success"


@pytest.mark.parametrize("kind", KINDS)
async def test_as_many_processes_are_kept_as_may_serve(make: Callable[..., Made], kind: str) -> None:
    """Callers come and go, and leave no process behind each."""
    async with Crib([make(kind, "ends well").source]) as crib:
        size = max(2, os.cpu_count() or 2)
        for number in range(size + 1):
            async with crib.workbench(Caller(f"caller_{number}")) as bench:
                assert await outcome(bench) == "success"
        await until(lambda: len(family()) <= 3 * size)  # a worker, and the two that guard it
