"""`toolcrib sandbox`."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from toolcrib.cli import main

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_status_says_whether_python_was_made_and_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["sandbox", "status"]) == 0
    assert capsys.readouterr().out == "Python: not made yet. Make it once: toolcrib sandbox build-python\n"
    assert main(["sandbox", "status", "--json"]) == 0
    missing = json.loads(capsys.readouterr().out)["python"]
    file = Path(missing["file"])
    assert missing == {"is_built": False, "file": str(file), "size_bytes": 0}
    assert file.parent == tmp_path / "toolcrib" / "python"
    file.parent.mkdir(parents=True, mode=0o700)
    file.write_bytes(bytes(3 * 1024**2))
    assert main(["sandbox", "status"]) == 0
    assert capsys.readouterr().out == f"Python: {file} (3 MiB)\n"


def test_the_cache_is_shown_and_cleared_but_for_python(toolcrib: Run, tmp_path: Path) -> None:
    files = {"wasm": "ab", "git": "cd/tool.toml", "environments": "ef/bin/python", "python": "gh.wasm"}
    for name, file in files.items():
        (tmp_path / "toolcrib" / name / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "toolcrib" / name / file).write_bytes(bytes(2**20))
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    cached = json.loads(toolcrib("sandbox", "status", "--json", **environment).stdout)["cache"]
    git = {"folder": str(tmp_path / "toolcrib" / "git"), "entries": 1, "size_bytes": 2**20, "limit_bytes": 2**30}
    assert (set(cached), cached["git"]) == (set(files), git)
    assert toolcrib("sandbox", "status", **environment).stdout.splitlines()[1:] == [
        f"Compiled programs: 1 in {tmp_path}/toolcrib/wasm (1 MiB of 1024 MiB)",
        f"Folders of repositories: 1 in {tmp_path}/toolcrib/git (1 MiB of 1024 MiB)",
        f"Virtual environments: 1 in {tmp_path}/toolcrib/environments (1 MiB of 4096 MiB)",
    ]
    assert toolcrib("sandbox", "clear", "git", **environment).stdout == "Folders of repositories: 1 removed (1 MiB)\n"
    removed = json.loads(toolcrib("sandbox", "clear", "--json", **environment).stdout)
    assert removed["wasm"] == {"removed": 1, "bytes": 2**20, "left": 0}
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


@pytest.mark.full
def test_python_is_made_once_and_again_when_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    outputs = []
    made_at = []
    for options in ([], [], ["--force"]):
        assert main(["sandbox", "build-python", "--json", *options]) == 0
        outputs.append(capsys.readouterr())
        file = Path(json.loads(outputs[-1].out)["python"]["file"])
        made_at.append(file.stat().st_mtime_ns)
    making, compiling = "Making a component of Python and its standard library ...\n", "Compiling it ...\n"
    assert [output.err for output in outputs] == [making + compiling, compiling, making + compiling]
    assert made_at[0] == made_at[1] < made_at[2]
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert [one.name for one in file.parent.iterdir()] == [file.name]
