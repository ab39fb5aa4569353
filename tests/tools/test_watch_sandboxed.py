"""Tools for the sandbox that change on disk: what is loaded again, what is kept, and what is reported of it."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from toolcrib import Workbench
from toolcrib.tools import Permissions
from toolcrib.tools.watch import WatchedSandboxed

from .tool_folders import module, tool_files

CONSTANT = (
    '(data (i32.const 64) "new") (func (export "_start") (i32.store (i32.const 0) (i32.const 64)) '
    "(i32.store (i32.const 4) (i32.const 3)) "
    "(drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))"
)


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def described(watched: WatchedSandboxed) -> dict[str, str]:
    return {tool.spec.name: tool.spec.description for tool in watched.tools()}


def test_a_folder_of_tools_follows_each_and_keeps_one_that_breaks(tmp_path: Path) -> None:
    write(tmp_path, {**tool_files("one"), **tool_files("two")})
    watched = WatchedSandboxed(tmp_path, Permissions())
    assert (described(watched), watched.look()) == ({"one": "Give it back.", "two": "Give it back."}, None)
    write(tmp_path, {**tool_files("one", "Other."), **tool_files("three"), "two/tool.toml": "name ="})
    change = watched.look()
    assert change is not None
    assert (change.added, change.changed, change.removed) == (("three",), ("one",), ())
    assert [problem.place for problem in change.problems] == [str(tmp_path / "two")]
    assert described(watched) == {"one": "Other.", "two": "Give it back.", "three": "Give it back."}
    for file in (tmp_path / "three").iterdir():
        file.unlink()
    write(tmp_path, tool_files("two"))
    change = watched.look()
    assert change is not None
    assert (change.removed, watched.problems) == (("three",), [])


def test_what_a_tool_needs_is_refused_without_permission_when_it_comes_later(tmp_path: Path) -> None:
    write(tmp_path, tool_files("one"))
    watched = WatchedSandboxed(tmp_path / "one", Permissions())
    write(tmp_path, tool_files("one", more='variables = ["REGION"]'))
    change = watched.look()
    assert change is not None
    assert "variables = [" in change.problems[0].reason
    assert [tool.requires["variables"] for tool in watched.tools()] == [[]]


async def test_a_module_that_is_saved_is_the_one_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write(tmp_path, {"guest.wasm": module()})
    watched = WatchedSandboxed(tmp_path / "guest.wasm", Permissions())
    async with Workbench([watched]) as bench:
        assert (await bench.call("guest", '{"a":1}')).text == '{"a":1}'
        write(tmp_path, {"guest.wasm": module(CONSTANT)})
        watched.look()
        assert (await bench.call("guest", "{}")).text == "new"
