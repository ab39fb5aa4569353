"""Folders of modules: only those that were granted, by name, and only to read unless both sides say otherwise."""

from pathlib import Path
from typing import Any

import pytest

from toolcrib import Workbench
from toolcrib.core import LoadError
from toolcrib.tools import Permissions, load

from .guests import WASI, Module, folder, outcome, outcomes

# Opens the path at 1024 below file number 3, and writes what is in it; its status is 30 and the error's number.
READS = """
  (data (i32.const 1024) "{path}")
  (func (export "_start") (local $error i32)
    (local.set $error (call $open (i32.const {fd}) (i32.const 1) (i32.const 1024) (i32.const {size}) (i32.const 0)
      (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 16)))
    (if (local.get $error) (then (call $exit (i32.add (local.get $error) (i32.const 30)))))
    (i32.store (i32.const 0) (i32.const 2048)) (i32.store (i32.const 4) (i32.const 4096))
    (local.set $error (call $fd_read (i32.load (i32.const 16)) (i32.const 0) (i32.const 1) (i32.const 8)))
    (if (local.get $error) (then (call $exit (i32.add (local.get $error) (i32.const 30)))))
    (call $write (i32.const 1) (i32.const 2048) (i32.load (i32.const 8))))
"""
# Makes the file at 1024, and writes a word into it.
WRITES = """
  (data (i32.const 1024) "{path}")
  (data (i32.const 2048) "written")
  (func (export "_start") (local $error i32)
    (local.set $error (call $open (i32.const 3) (i32.const 1) (i32.const 1024) (i32.const {size}) (i32.const 1)
      (i64.const 64) (i64.const 64) (i32.const 0) (i32.const 16)))
    (if (local.get $error) (then (call $exit (i32.add (local.get $error) (i32.const 30)))))
    (call $write (i32.load (i32.const 16)) (i32.const 2048) (i32.const 7)))
"""
# Makes a link at "report.txt" that leads to the path at 1024; its status is 30 and the error's number.
LINKS = """
  (data (i32.const 1024) "{target}") (data (i32.const 2048) "report.txt")
  (func (export "_start") (local $error i32)
    (local.set $error (call $link (i32.const 1024) (i32.const {size}) (i32.const 3) (i32.const 2048) (i32.const 10)))
    (if (local.get $error) (then (call $exit (i32.add (local.get $error) (i32.const 30))))))
"""
# Gives the file "towns.txt" in /data another name in /work.
HARD_LINKS = """
  (data (i32.const 1024) "towns.txt")
  (func (export "_start") (local $error i32)
    (local.set $error (call $name
      (i32.const {old}) (i32.const 0) (i32.const 1024) (i32.const 9) (i32.const {new}) (i32.const 1024) (i32.const 9)))
    (if (local.get $error) (then (call $exit (i32.add (local.get $error) (i32.const 30))))))
"""
MAKES_LINKS = f"""{WASI.partition("(memory")[0]}
  (import "wasi_snapshot_preview1" "path_symlink" (func $link (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_link" (func $name (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 4)
"""
DATA = 'mounts = [{ name = "data" }]'
WRITABLE = 'mounts = [{ name = "data", read_only = false }]'


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder to be granted, beside a file that is not."""
    (tmp_path / "secret.txt").write_text("canary")
    made = tmp_path / "data"
    made.mkdir()
    (made / "towns.txt").write_text("Oslo")
    (made / "file").symlink_to(tmp_path / "secret.txt")
    (made / "absolute").symlink_to("/etc/passwd")
    (made / "outside").symlink_to(tmp_path)
    (made / "up").symlink_to("..")
    return made


def reads(path: str, fd: int = 3) -> str:
    return READS.format(path=path, size=len(path), fd=fd)


def writes(path: str) -> str:
    return WRITES.format(path=path, size=len(path))


async def test_a_granted_folder_is_read_and_nothing_outside_of_it(module: Module, data: Path, tmp_path: Path) -> None:
    outside = [
        *("../secret.txt", "/etc/passwd", str(tmp_path / "secret.txt"), "outside/secret.txt", "up/secret.txt"),
        *("file", "file/", "absolute", "outside", "outside/", ".//../secret.txt", "towns.txt/../../secret.txt"),
        *("/data/towns.txt", "./up/../../secret.txt"),
    ]
    sources: list[Any] = []
    for number, path in enumerate(["towns.txt", *outside]):
        made = folder(module, reads(path), DATA, name=f"read_{number}")
        sources.append(Permissions(mounts={"data": data}).to(made))
    async with Workbench(sources) as bench:
        results = [await bench.call(f"read_{number}") for number in range(len(sources))]
    assert results[0].text == "Oslo"
    assert "canary" not in repr(results) and "root:" not in repr(results)
    # 44 there is no such file, 54 it is not a folder, 63 and 76 it may not, 8 and 21 and 28 and 31 it is no way to one.
    assert {result.status for result in results[1:]} == {"error"}
    assert {result.error.code for result in results[1:] if result.error} == {"failed"}


async def test_a_folder_is_written_only_if_both_the_tool_and_the_operator_say_so(module: Module, data: Path) -> None:
    before = {*data.iterdir()}
    granted = Permissions(mounts={"data": data})
    writable = Permissions(mounts={"data": data}, writable=["data"])
    wants = folder(module, writes("new.txt"), WRITABLE, name="wants")
    with pytest.raises(LoadError, match="to write in 'data'"):
        load(granted.to(wants))
    reader = folder(module, writes("other.txt"), DATA, name="reader")
    trusted = folder(module, writes("third.txt"), DATA, name="trusted")
    over = folder(module, writes("towns.txt"), DATA, name="over")
    codes = await outcomes(
        *(writable.to(wants), writable.to(reader), Permissions(mounts={"data": data}, trusted=True).to(trusted)),
        granted.to(over),
    )
    assert [code for code, _ in codes] == ["success", "failed", "failed", "failed"]
    assert {*data.iterdir()} - before == {data / "new.txt"}
    assert [(data / name).read_text() for name in ("new.txt", "towns.txt")] == ["written", "Oslo"]


async def test_only_the_folders_that_it_names_are_there(module: Module, data: Path, tmp_path: Path) -> None:
    made = folder(module, reads("secret.txt", fd=4), DATA)
    both = Permissions(mounts={"data": data, "other": tmp_path})
    assert await outcome(both.to(made)) == ("failed", "Tool 'guest' ended with status 38.")  # 8: there is no file 4


@pytest.mark.parametrize("target", ["../secret.txt", "towns.txt"])
async def test_no_link_is_made_in_a_folder_that_may_be_written(module: Module, data: Path, target: str) -> None:
    """An author's link out of the folder would be followed by a host's program that reads what was written there."""
    made = folder(module, LINKS.format(target=target, size=len(target)), WRITABLE, wasi=MAKES_LINKS)
    before = sorted(data.iterdir())
    code, text = await outcome(Permissions(mounts={"data": data}, writable=["data"]).to(made))
    assert (code, text.startswith("Tool 'guest' ended with status")) == ("failed", True), text
    assert sorted(data.iterdir()) == before


async def test_no_file_of_a_folder_that_is_only_read_gets_a_name_in_one_that_may_be_written(
    module: Module, data: Path, tmp_path: Path
) -> None:
    """A second way by a link: a file that has two names is written by the other one."""
    work = tmp_path / "work"
    work.mkdir()
    mounts = 'mounts = [{ name = "data" }, { name = "work", read_only = false }]'
    made = folder(module, HARD_LINKS.format(old=3, new=4), mounts, wasi=MAKES_LINKS)
    permissions = Permissions(mounts={"data": data, "work": work}, writable=["work"])
    assert (await outcome(permissions.to(made)))[0] == "failed"
    assert list(work.iterdir()) == []


async def test_a_link_in_place_of_a_folder_is_refused(module: Module, data: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(data)
    made = folder(module, reads("towns.txt"), DATA)
    async with Workbench([Permissions(mounts={"data": link}).to(made)]) as bench:
        assert (await bench.call("guest")).text == "Oslo"  # what the operator names is resolved once
        data.rename(tmp_path / "elsewhere")
        data.symlink_to(tmp_path)
        result = await bench.call("guest")
    assert result.text == "Tool 'guest' was stopped: its folder /data is not what it was when the tool was loaded."


def test_a_mount_that_is_not_a_folder_is_not_loaded(module: Module, data: Path) -> None:
    made = folder(module, reads("towns.txt"), DATA)
    for path in (data / "towns.txt", data / "missing"):
        with pytest.raises(LoadError, match="The mount 'data' is not a folder"):
            load(Permissions(mounts={"data": path}).to(made))
