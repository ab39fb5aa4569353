"""`toolcrib new` writes tools that work, and `toolcrib check SOURCE...` finds what is weak or wrong in tools."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ..tools.repositories import Repository
from ..tools.tool_folders import tool_files

Run = Callable[..., subprocess.CompletedProcess[str]]

TRAPS = '(func (export "_start") unreachable)'
GOOD = """read_only = true
examples = [{ city = "Oslo" }]
[parameters]
type = "object"
[parameters.properties.city]
type = "string"
description = "A city."
"""


@pytest.fixture
def toolcrib(toolcrib: Run, folder: Path) -> Run:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return toolcrib(*arguments, XDG_CACHE_HOME=str(folder / "cache"))

    return run


def write(folder: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


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
    test = next(folder.rglob("test_mine.py"))
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--basetemp", folder / "tmp", test],
        cwd=folder,
        check=True,
        capture_output=True,
    )
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


@pytest.mark.parametrize("name", ["Mine", "1a", "../x", "a-b", "class", "", "a" * 70])
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


def test_check_tries_the_examples_in_the_sandbox_and_lints_the_rest(toolcrib: Run, folder: Path) -> None:
    write(folder / "t", tool_files("good", "Give back a city.", GOOD))
    write(folder / "t", tool_files("traps", "Give back a city.", GOOD, TRAPS))
    write(folder / "t", tool_files("needs", "Give back a city.", f'variables = ["REGION"]\n{GOOD}'))
    write(folder / "t", tool_files("weak", "Short.", "read_only = true\ndestructive = true"))
    hidden = "Give back a city.\u200b\U000e0041"
    write(folder / "t", tool_files("hidden", hidden, '[parameters.properties.api_key]\ndescription = "Key."'))
    write(folder / "t", {"broken/tool.toml": "name = 1"})
    done = toolcrib("check", "t", "--json")
    found = json.loads(done.stdout)
    levels: dict[str, list[tuple[str, str]]] = {}
    for finding in found["findings"]:
        levels.setdefault(finding["subject"].removeprefix("t: "), []).append((finding["level"], finding["message"]))
    assert (done.returncode, found["ok"], len(levels["t"])) == (1, False, 1)
    assert levels["good"] == [("note", "1 of 1 examples work in the sandbox.")]
    assert levels["traps"][0][1].startswith("Example 1 does not work (trapped)")
    assert levels["needs"] == [("note", "Its examples were not tried: it needs variables.")]
    assert [level for level, _ in levels["weak"]] == ["problem", "warning", "warning", "warning"]
    assert (
        "problem",
        "'description' has characters that a model reads and a person does not see: U+200B, U+E0041.",
    ) in levels["hidden"]
    assert any("looks like a credential" in message for _, message in levels["hidden"])
    plain = toolcrib("check", "t")
    assert "problem: t: weak: It is declared read_only and destructive.\n" in plain.stdout
    assert "\u200b" not in plain.stdout


def test_check_imports_no_python_of_a_stranger(toolcrib: Run, folder: Path) -> None:
    Repository(folder / "r").commit({"t.py": "from toolcrib import tool\nprint('it runs')\n"})
    done = toolcrib("check", "git+./r")
    assert (done.returncode, "it runs" in done.stdout + done.stderr) == (1, False)
    assert "write `trusted = true`" in done.stdout
