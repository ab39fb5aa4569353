"""The cache: what is old or too much of it is removed, and nothing that somebody uses."""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from toolcrib.sandbox import cache

DAY_S = 86_400


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache.private_folder("git")  # type: ignore[return-value]


def entry(folder: Path, name: str, *, size: int = 10, unused_s: float = 0, is_folder: bool = False) -> Path:
    made = folder / name
    if is_folder:
        made.mkdir()
        (made / "file").write_bytes(bytes(size))
    else:
        made.write_bytes(bytes(size))
    os.utime(made, (0, time.time() - unused_s))
    return made


def names(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def test_what_was_not_used_for_long_is_removed(folder: Path) -> None:
    for name, unused_s in (("fresh", 90 * DAY_S - 60), ("old", 90 * DAY_S + 60), ("used", 91 * DAY_S)):
        entry(folder, name, unused_s=unused_s, is_folder=True)
    entry(folder, "file", unused_s=91 * DAY_S)
    (folder / "link").symlink_to("old")
    cache.touch(folder / "used")
    cache.touch(folder / "link")
    cache.touch(folder / "missing")
    cache.trim("git")
    assert names(folder) == {"fresh", "used", "link"}


def test_above_the_limit_the_least_recently_used_go_but_none_that_was_used_lately(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cache.LIMITS, "git", 20)
    for number in range(4):
        entry(folder, f"unused_{number}", unused_s=7200 + number, is_folder=number % 2 == 0)
    cache.trim("git")
    assert names(folder) == {"unused_0", "unused_1"}
    for number in range(3):
        entry(folder, f"new_{number}")
    cache.trim("git")
    assert names(folder) == {"new_0", "new_1", "new_2"}


def test_what_a_dead_process_left_half_made_goes_after_a_day(folder: Path) -> None:
    for name in (".new-1", "tmp1", ".removed-7-x"):
        entry(folder, name, unused_s=DAY_S + 60, is_folder=True)
        entry(folder, f"{name}b", unused_s=60, is_folder=True)
    cache.trim("git")
    assert names(folder) == {".new-1b", "tmp1b", ".removed-7-xb"}
    assert cache.clear("git") == (0, 0)


_HOLDS = """
import sys
from pathlib import Path
from toolcrib.sandbox.cache import hold

print(hold(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


def test_what_a_process_uses_is_removed_only_after_its_end(folder: Path) -> None:
    used = entry(folder, "used", unused_s=100 * DAY_S, is_folder=True)
    entry(folder, "other", is_folder=True)
    command = [sys.executable, "-c", _HOLDS, str(used)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "True\n"
        assert time.time() - used.stat().st_mtime < DAY_S
        os.utime(used, (0, time.time() - 100 * DAY_S))
        cache.trim("git")
        assert cache.clear("git") == (1, 10)
        assert (used / "file").exists()
        process.communicate("")
    assert cache.clear("git") == (1, 10)
    assert names(folder) == set()


_RACES = """
import sys
from pathlib import Path
from toolcrib.sandbox import cache

folder = cache.private_folder("git")
for number in range(300):
    entry = folder / str(number % 3)
    if sys.argv[1] == "clear":
        cache.clear("git")
        continue
    scratch = folder / f".new-{sys.argv[1]}-{number}"
    scratch.mkdir()
    (scratch / "file").write_text("whole")
    try:
        scratch.rename(entry)
    except OSError:
        pass
    if cache.hold(entry):
        assert (entry / "file").read_text() == "whole"
"""


@pytest.mark.full
def test_processes_that_make_use_and_clear_at_once_find_whole_entries_or_none(folder: Path) -> None:
    racing = [
        subprocess.Popen([sys.executable, "-c", _RACES, who], stderr=subprocess.PIPE, text=True)
        for who in ("a", "b", "clear", "clear")
    ]
    assert [process.communicate()[1] for process in racing] == [""] * 4


def test_a_folder_of_the_cache_is_ours_alone_or_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.private_folder("git") == folder
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o710)
    assert cache.private_folder("git") is None
    folder.chmod(0o700)
    (folder.parent / "linked").symlink_to(folder)
    (folder.parent / "file").touch(mode=0o600)
    assert [cache.private_folder(name) for name in ("linked", "file")] == [None, None]
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    assert cache.private_folder("git") is None


def open_files(folder: Path) -> int:
    """How many files in *folder* this process has open."""
    files = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
    return sum(os.path.exists(file) and os.readlink(file).startswith(str(folder)) for file in files)


@pytest.mark.skipif(sys.platform != "linux", reason="Open files are counted on Linux.")
def test_what_is_held_is_one_open_file_and_what_is_removed_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, other = entry(folder, "made", is_folder=True), entry(folder, "other", is_folder=True)
    assert cache.hold(made)
    assert cache.hold(made)
    assert open_files(folder) == 1
    assert not cache.remove(made)
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)  # so that it can still be seen who has it open
    assert cache.remove(other)
    assert open_files(folder) == 1


def test_all_kinds_of_entries_are_cleared_but_for_locks(folder: Path) -> None:
    entry(folder, "file")
    entry(folder, "made.lock")
    (folder / "dangling").symlink_to("missing")
    count, size = cache.clear("git")
    assert (count, size) == (2, 10 + len("missing"))
    assert names(folder) == {"made.lock"}
    assert not cache.remove(folder / "missing")


def test_without_locks_nothing_is_removed_and_all_can_be_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError

    made = entry(folder, "made", is_folder=True)
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert cache.hold(made)
    assert not cache.remove(made)
    assert (made / "file").exists()
