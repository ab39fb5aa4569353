"""The digest of a tool's folder: what it depends on, and what a folder may not have."""

import os
from pathlib import Path

import pytest

from toolcrib.core import LoadError
from toolcrib.sandbox import folders
from toolcrib.sandbox.folders import folder_digest, folder_stamp, native_code_in


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "tool"
    (made / "inner").mkdir(parents=True)
    (made / "tool.py").write_text("1")
    (made / "inner" / "data").write_text("22")
    return made


def test_a_digest_is_of_the_names_and_the_contents_of_all_files(folder: Path) -> None:
    seen = {folder_digest(folder)}
    assert folder_digest(folder) in seen
    (folder / "tool.py").write_text("2")
    seen.add(folder_digest(folder))
    (folder / "inner" / "data").rename(folder / "inner" / "date")
    seen.add(folder_digest(folder))
    (folder / "inner" / "date").rename(folder / "date")
    seen.add(folder_digest(folder))
    (folder / "empty").mkdir()
    assert folder_digest(folder) in seen
    assert len(seen) == 4
    assert len(seen.pop()) == 64


def test_a_stamp_is_another_when_a_file_was_changed(folder: Path, tmp_path: Path) -> None:
    before = folder_stamp(folder)
    assert before == folder_stamp(folder) != ""
    os.utime(folder / "inner" / "data", ns=(5, 5))
    changed = folder_stamp(folder)
    assert changed not in (before, "")
    (folder / "more").touch()
    assert folder_stamp(folder) not in (before, changed)
    assert folder_stamp(tmp_path / "nowhere") == ""


@pytest.mark.parametrize("name", ["a.so", "a.pyd", "a.dylib", "a.dll", "a.so.1", "a.cpython-312-x86_64.so.old"])
def test_native_code_is_found_by_its_name(folder: Path, name: str) -> None:
    assert native_code_in(folder) is None
    (folder / "inner" / "also.sock").touch()
    assert native_code_in(folder) is None
    (folder / "inner" / name).touch()
    assert native_code_in(folder) == f"inner/{name}"


def test_a_folder_has_files_and_folders_of_its_own_only(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="cannot be read: No such file"):
        folder_digest(tmp_path / "nowhere")
    (folder / "link").symlink_to(folder / "inner")
    with pytest.raises(LoadError, match="link is a link or a device"):
        folder_digest(folder)
    (folder / "link").unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(LoadError, match="pipe is a link or a device"):
        folder_digest(folder)


def test_a_folder_has_a_bounded_number_of_files_and_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, enough, message in (("MAX_FILES", 2, "more than 1 files"), ("MAX_BYTES", 3, "more than 0 MiB")):
        with monkeypatch.context() as patched:
            patched.setattr(folders, name, enough)
            folder_digest(folder)
            patched.setattr(folders, name, enough - 1)
            with pytest.raises(LoadError, match=message):
                folder_digest(folder)
