"""Settings as an API: a program gets the sources and options that the command does."""

import sys
from pathlib import Path

import pytest

from toolcrib import Workbench
from toolcrib.core import LoadError
from toolcrib.workbench.config import config_of, load_sources
from toolcrib.workbench.settings import read_settings

TOOLS = '''
from toolcrib import Context, tool


@tool(read_only=True)
async def peek(context: Context) -> str:
    """Show what the host set."""
    return f"{dict(context.variables)}"


@tool(destructive=True, timeout_s=3)
async def wipe(disk: str) -> str:
    """Wipe a disk."""
    return f"wiped {disk}"
'''
SETTINGS = """\
timeout_s = 5
[[source]]
from = "tools.py"
prefix = "my_"
[[deadline]]
tools = "my_wipe"
timeout_s = 9
[[rule]]
hint = "destructive"
do = "deny"
[variables]
key = "${env:KEY}"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("tools.py").write_text(TOOLS)
    Path("toolcrib.toml").write_text(SETTINGS)
    return tmp_path


async def test_a_program_gets_what_the_command_does(folder: Path) -> None:
    config = config_of(folder / "toolcrib.toml", environ={"KEY": "the-key", "TOOLCRIB_TIMEOUT_S": "7"})
    assert config.options["timeout_s"] == 7
    bench = Workbench(config.sources, **config.options)
    assert [(spec.name, spec.timeout_s) for spec in bench.specs()] == [("my_peek", None)]  # the other is denied
    assert bench.crib.registry.get("my_wipe").spec.timeout_s == 9
    assert (await bench.call("my_peek")).text == "{'key': '[secret]'}"
    denied = await bench.call("my_wipe", {"disk": "sda"})
    assert denied.error.code == "denied"


def test_the_file_is_found_as_the_command_finds_it_and_options_override_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "deep").mkdir()
    monkeypatch.chdir(folder / "deep")
    config = config_of(options={"timeout_s": None, "secrets": ["another"]}, environ={"KEY": "the-key"})
    assert (len(config.sources), config.problems) == (1, ())
    assert config.options["timeout_s"] is None
    assert config.options["secrets"] == ("the-key", "another")
    assert "show_errors" not in config.options


def test_where_there_are_no_settings_the_error_names_what_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LoadError, match=r"There is no toolcrib.toml here or above, and no pyproject.toml"):
        config_of(environ={})
    with pytest.raises(LoadError, match=r"^There is no file nowhere.toml\.$"):
        config_of("nowhere.toml", environ={})


def test_a_required_source_that_cannot_be_loaded_is_an_error_and_any_other_is_left_out(folder: Path) -> None:
    (folder / "toolcrib.toml").write_text(
        '[[source]]\nfrom = "tools.py"\n[[source]]\nfrom = "absent.py"\nrequired = false\n'
    )
    config = config_of(environ={})
    assert [spec.name for spec in Workbench(config.sources).specs()] == ["peek", "wipe"]
    assert [problem.partition(":")[0] for problem in config.problems] == ["toolcrib.toml"]
    settings = read_settings(Path("toolcrib.toml"), {})
    assert [(one.named.required, len(one.problems)) for one in load_sources(settings.sources, settings)] == [
        (True, 0),
        (False, 1),
    ]
    (folder / "toolcrib.toml").write_text('[[source]]\nfrom = "tools.py"\n[[source]]\nfrom = "absent.py"\n')
    with pytest.raises(LoadError, match=r"toolcrib.toml:3: .*There is no file absent.py"):
        config_of(environ={})


@pytest.mark.parametrize(
    "written", ["mcp:https://ada:hunter2pass@127.0.0.1/mcp", "mcp:http://example.org/mcp?key=hunter2pass"]
)
def test_an_error_of_a_source_shows_no_key_of_it(folder: Path, written: str) -> None:
    (folder / "toolcrib.toml").write_text(f'[[source]]\nfrom = "{written}"\nrequired = true\n')
    with pytest.raises(LoadError, match=r"toolcrib.toml:1: mcp:https?://[\w.]+/mcp: ") as refused:
        config_of(environ={})
    assert "hunter2" not in str(refused.value)


async def test_a_module_beside_the_settings_or_in_the_current_folder_is_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    here, beside = tmp_path / "here", tmp_path / "beside"
    for folder, name in ((here, "tools_that_are_here"), (beside, "tools_that_are_beside")):
        folder.mkdir()
        (folder / f"{name}.py").write_text(TOOLS)
    (beside / "toolcrib.toml").write_text(
        '[[source]]\nfrom = "tools_that_are_here"\n[[source]]\nfrom = "tools_that_are_beside"\nprefix = "other_"\n'
    )
    monkeypatch.chdir(here)
    before = [*sys.path]
    for _ in range(2):
        config = config_of(beside / "toolcrib.toml", environ={})
        names = [spec.name for spec in Workbench(config.sources).specs()]
        assert (names, config.problems) == (["peek", "wipe", "other_peek", "other_wipe"], ())
    # After what is installed, and each once.
    assert sys.path == [*before, *(folder for folder in ("", str(beside)) if folder not in before)]
