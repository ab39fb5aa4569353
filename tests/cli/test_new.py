"""`toolcrib new` writes tools that work, and `toolcrib check SOURCE...` finds what is weak or wrong in tools."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ..tools.repositories import Repository
from .conftest import Run, run_pytest


@pytest.fixture
def toolcrib(toolcrib: Run, folder: Path) -> Run:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return toolcrib(*arguments, XDG_CACHE_HOME=str(folder / "cache"))

    return run


@pytest.mark.parametrize(
    ("kind", "source", "text"),
    [
        ("function", "mine.py", '{"words":2,"characters":9}\n'),
        pytest.param("wasm", "mine/", '{"text":"two words"}\n', marks=pytest.mark.full),
    ],
)
def test_a_new_tool_works_is_accepted_by_check_and_its_test_passes(
    toolcrib: Run, folder: Path, kind: str, source: str, text: str
) -> None:
    made = toolcrib("new", "mine", "--kind", kind)
    assert (made.returncode, made.stderr) == (0, "")
    assert f'Try it: toolcrib call {source} mine text="two words"' in made.stdout
    done = toolcrib("call", source, "mine", "text=two words")
    assert (done.stdout, done.stderr) == (text, "")
    done = toolcrib("check", source, "--strict")
    assert (done.returncode, done.stdout.endswith("1 source, 1 tool: no problems.\n")) == (0, True), done.stdout
    assert run_pytest(folder).returncode == 0
    again = toolcrib("new", "mine", "--kind", kind)
    assert (again.returncode, "is there already" in again.stderr) == (1, True)


def test_a_new_folder_of_python_is_a_program_of_its_own(toolcrib: Run, folder: Path) -> None:
    made = toolcrib("new", "mine", "--kind", "python")
    assert (made.returncode, "toolcrib sandbox build-python" in made.stdout) == (0, True)
    done = subprocess.run(
        [sys.executable, "mine/main.py"], cwd=folder, input='{"text": "two words"}', capture_output=True, text=True
    )
    assert json.loads(done.stdout) == {"words": 2, "characters": 9}
    assert 'runtime = "python"' in (folder / "mine" / "tool.toml").read_text()


@pytest.mark.parametrize("name", ["Mine", "../x", "class", "a" * 65])
def test_a_name_that_is_none_is_refused(toolcrib: Run, folder: Path, name: str) -> None:
    before = sorted(folder.rglob("*"))
    assert toolcrib("new", name).returncode == 2
    assert sorted(folder.rglob("*")) == before


def test_a_tool_is_a_function_unless_another_kind_is_named(toolcrib: Run, folder: Path) -> None:
    (folder / "mine").mkdir()
    assert toolcrib("new", "mine").stdout.splitlines()[:2] == ["mine.py", "test_mine.py"]
    assert toolcrib("new", "mine", "--kind", "python").returncode == 0  # into the folder that is there
    wrong = toolcrib("new", "other", "--kind", "rust")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "Error: --kind: there is no kind 'rust'. The kinds are: function, python, wasm.\n",
    )
    assert "made once" not in toolcrib("new", "third", "--kind", "wasm").stdout
    assert "made once" not in toolcrib("new", "fourth").stdout


def test_check_imports_no_python_of_a_stranger(toolcrib: Run, folder: Path) -> None:
    Repository(folder / "r").commit({"t.py": "from toolcrib import tool\nprint('it runs')\n"})
    done = toolcrib("check", "git+./r")
    assert (done.returncode, "it runs" in done.stdout + done.stderr) == (1, False)
    assert "write `trusted = true`" in done.stdout
