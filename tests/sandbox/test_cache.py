"""The cache: what is old or too much of it is removed, and nothing that somebody uses."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from toolcrib.sandbox import cache

DAY_S = 86_400


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = cache.private_folder("git")
    assert made is not None
    return made


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
    for name, days in (("fresh", 1), ("old", 91), ("used", 91)):
        entry(folder, name, unused_s=days * DAY_S, is_folder=True)
    entry(folder, "file", unused_s=91 * DAY_S)
    cache.touch(folder / "used")
    cache.trim("git")
    assert names(folder) == {"fresh", "used"}


def test_above_the_limit_the_least_recently_used_go_but_none_that_was_used_lately(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cache.LIMITS, "git", 25)
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
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        assert time.time() - used.stat().st_mtime < DAY_S
        os.utime(used, (0, time.time() - 100 * DAY_S))
        cache.trim("git")
        assert cache.clear("git") == (1, 10)
        assert (used / "file").exists()
        process.communicate("")
    assert cache.clear("git") == (1, 10)
    assert names(folder) == set()


def test_a_folder_that_is_held_again_after_it_was_removed_is_the_new_one(folder: Path) -> None:
    made = entry(folder, "made", is_folder=True)
    assert cache.hold(made)
    assert not cache.remove(made)
    made.rename(folder / "elsewhere")
    assert not cache.hold(made)
    entry(folder, "made", is_folder=True)
    assert cache.hold(made)
    assert not cache.remove(made)
    assert cache.remove(folder / "elsewhere")
    (folder / "link").symlink_to(made)
    assert not cache.hold(folder / "link")


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
