"""Folders of Python in the sandbox, in this process, with a small component in the place of Python."""

import os
from pathlib import Path
from typing import Any

import pytest
import wasmtime

from toolcrib import Context, LoadError, Workbench, tool
from toolcrib.sandbox.cache import clear, private_folder
from toolcrib.sandbox.folders import folder_digest
from toolcrib.sandbox.guest_components import GuestComponents
from toolcrib.sandbox.python_build import python_file

LIMITS = {"memory_bytes": 3 * 2**20, "input_bytes": 10, "output_bytes": 10, "error_bytes": 10}


def python(ends: int | str) -> None:
    """Put a component in the place of Python that ends with a status, or with an exception of this last line."""
    text = ends if isinstance(ends, str) else ""
    place = "".join(f"\\{byte:02x}" for byte in (16, 0, 0, 0, len(text), 0, 0, 0))
    memory = f'(memory (export "memory") 1) (data (i32.const 0) "{place}") (data (i32.const 16) "{text}")'
    result = f"(result i32) (i32.const {0 if text else ends})"
    code = f"""(component
      (core module $m {memory} (func (export "run") {result}))
      (core instance $i (instantiate $m)) (alias core export $i "memory" (core memory $memory))
      (func $run (result {"string" if text else "s32"}) (canon lift (core func $i "run") (memory $memory)))
      (instance $exported (export "run" (func $run)))
      (export "toolcrib:guest/program@1.0.0" (instance $exported)))"""
    assert private_folder("python") is not None
    clear("wasm")  # what was compiled of another
    python_file().write_bytes(bytes(wasmtime.wat2wasm(code)))


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = tmp_path / "tool"
    made.mkdir()
    (made / "tool.py").write_text("print(1)")
    return made


async def ran(folder: Path, *, after: Any = None, arguments: str = "{}") -> tuple[str, str]:
    """How the program in *folder* ends, where *after* is done once it was loaded."""
    nothing: dict[str, Any] = {"variables": [], "mounts": [], "hosts": [], "private_hosts": []}
    where = {**nothing, "folder": str(folder), "program": "tool.py", "sha256": folder_digest(folder), "limits": LIMITS}
    run = GuestComponents().load(where, "use")
    if after is not None:
        after()

    @tool
    async def use(ctx: Context) -> dict[str, Any]:
        return await run(arguments, ctx)

    result = await Workbench([use]).call("use")
    return (result.status, result.unwrap()["text"]) if result.error is None else (result.error.code, result.text)


async def test_how_a_program_ends_is_how_its_call_ends(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert (await ran(folder))[0] == "unavailable"
    assert await ran(folder, after=lambda: python(0)) == ("success", "")
    python(3)
    assert await ran(folder) == ("failed", "Tool 'use' ended with status 3.")
    assert await ran(folder, arguments="x" * 11) == (
        "too_large",
        "The arguments of 'use' are larger than 10 bytes, its limit.",
    )


@pytest.mark.parametrize(
    ("raised", "ended"),
    [
        ("ValueError: no such city", ("failed", "Tool 'use' failed: ValueError: no such city")),
        (
            "MemoryError",
            ("trapped", "Tool 'use' was stopped: it needed more than the 3 MiB of memory that it may have."),
        ),
    ],
)
async def test_an_exception_is_an_error_with_its_last_line(
    folder: Path, caplog: pytest.LogCaptureFixture, raised: str, ended: tuple[str, str]
) -> None:
    python(raised)
    assert await ran(folder) == ended
    assert [record.name for record in caplog.records if record.levelname == "ERROR"] == ["toolcrib.tool.use"]


async def test_a_folder_that_has_changed_does_not_run(folder: Path) -> None:
    python(0)
    assert (await ran(folder, after=lambda: os.utime(folder / "tool.py", (0, 0))))[0] == "success"
    assert await ran(folder, after=lambda: (folder / "tool.py").write_text("print(2)")) == (
        "unavailable",
        "The folder of tool 'use' has changed since it was loaded.",
    )
    where = {"folder": str(folder), "sha256": "0" * 64}
    with pytest.raises(LoadError, match="Its folder has changed since the host loaded it"):
        GuestComponents().load(where, "use")


async def test_python_is_read_once(folder: Path) -> None:
    python(0)
    assert await ran(folder, after=lambda: python_file().unlink()) == ("success", "")
