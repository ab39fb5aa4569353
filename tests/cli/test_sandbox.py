"""`toolcrib sandbox`."""

import json
from pathlib import Path

import pytest

from toolcrib.cli import main

from .conftest import Run


def test_status_says_whether_python_was_made_and_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["sandbox", "status"]) == 0
    assert "way_out: toolcrib sandbox build-python\n" in capsys.readouterr().out
    assert main(["sandbox", "status", "--json"]) == 0
    missing = json.loads(capsys.readouterr().out)["python"]
    file = Path(missing["file"])
    way_out = "toolcrib sandbox build-python"
    assert missing == {"is_built": False, "file": str(file), "size_bytes": 0, "way_out": way_out}
    assert file.parent == tmp_path / "toolcrib" / "python"
    file.parent.mkdir(parents=True, mode=0o700)
    file.write_bytes(bytes(3 * 1024**2))
    assert main(["sandbox", "status"]) == 0
    assert capsys.readouterr().out.startswith(f"is_built: yes\nfile: {file}\nsize_bytes: {3 * 1024**2}\n")


def test_the_cache_is_shown_and_cleared_but_for_python(toolcrib: Run, tmp_path: Path) -> None:
    files = {"wasm": "ab", "git": "cd/tool.toml", "environments": "ef/bin/python", "python": "gh.wasm"}
    for name, file in files.items():
        (tmp_path / "toolcrib" / name / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "toolcrib" / name / file).write_bytes(bytes(2**20))
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    caches = json.loads(toolcrib("sandbox", "status", "--json", **environment).stdout)["caches"]
    git = {
        "cache": "git",
        "folder": str(tmp_path / "toolcrib" / "git"),
        "entries": 1,
        "size_bytes": 2**20,
        "limit_bytes": 2**30,
    }
    assert ([cache["cache"] for cache in caches], caches[1]) == ([*files], git)
    rows = toolcrib("sandbox", "status", **environment).stdout.splitlines()[-4:]
    assert rows[1:3] == [
        f"git\t1\t{2**20}\t{2**30}\t{tmp_path}/toolcrib/git",
        f"environments\t1\t{2**20}\t{2**32}\t{tmp_path}/toolcrib/environments",
    ]
    assert toolcrib("sandbox", "clear", "git", **environment).stdout == f"git\t1\t{2**20}\t0\n"
    removed = json.loads(toolcrib("sandbox", "clear", "--json", **environment).stdout)
    assert removed[0] == {"cache": "wasm", "removed": 1, "size_bytes": 2**20, "in_use": 0}
    assert [file.name for file in (tmp_path / "toolcrib").rglob("*") if file.is_file()] == ["gh.wasm"]
    done = toolcrib("sandbox", "clear", "gti", **environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert "There is no cache 'gti'. There are: wasm, git, environments, python." in done.stderr


def test_python_is_not_made_in_a_folder_that_others_can_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "toolcrib" / "python").mkdir(parents=True)
    (tmp_path / "toolcrib" / "python").chmod(0o777)
    assert main(["sandbox", "build-python"]) == 1
    assert "must be a folder of yours, with access for no other. Remove it." in capsys.readouterr().err
    assert list((tmp_path / "toolcrib" / "python").iterdir()) == []
