"""The examples as sources: the folder, each file, and the demo of the wheel, side by side."""

import shutil
from pathlib import Path

import pytest

from toolcrib import Workbench

DATABASE = {"list_tables", "describe_table", "query"}
REPOSITORY = {"search_files", "read_lines", "history"}
DEMO = {"now", "convert_time", "add_duration", "days_between"}


def test_the_folder_loads_every_example_without_a_problem(examples: Path) -> None:
    bench = Workbench([str(examples)])
    assert bench.problems == []
    assert {spec.name for spec in bench.specs()} == DATABASE | REPOSITORY


def test_a_single_file_is_a_source_from_any_directory(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert {spec.name for spec in Workbench([examples / "repository.py"]).specs()} == REPOSITORY
    assert {spec.name for spec in Workbench([examples / "database.py"]).specs()} == DATABASE


def test_the_demo_and_the_examples_share_one_workbench(examples: Path) -> None:
    bench = Workbench(["toolcrib.demo", examples])
    assert {spec.name for spec in bench.specs()} == DEMO | DATABASE | REPOSITORY


def test_every_tool_says_that_it_only_reads_and_describes_each_argument(examples: Path) -> None:
    for spec in Workbench(["toolcrib.demo", examples]).specs():
        assert (spec.hints.read_only, spec.hints.open_world) == (True, False), spec.name
        assert spec.description, spec.name
        assert spec.title, spec.name
        for name, schema in spec.input_schema["properties"].items():
            assert "description" in str(schema), f"{spec.name}: {name}"


async def test_without_settings_each_example_makes_its_sample_once_beside_itself(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the folder, on a machine that knows no git identity, started where there is no repository."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    copy = tmp_path / "examples"
    shutil.copytree(examples, copy, ignore=shutil.ignore_patterns(".data", "__pycache__"))
    settings = tmp_path / "settings"
    settings.write_text("[user]\n useConfigOnly = true\n[commit]\n gpgSign = true\n")
    for name, value in {"HOME": str(tmp_path), "GIT_CONFIG_GLOBAL": str(settings), "GIT_CONFIG_NOSYSTEM": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    for name in ("TOOLCRIB_EXAMPLE_REPOSITORY", "TOOLCRIB_EXAMPLE_DATABASE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        async with Workbench([copy]) as bench:
            history = (await bench.call("history", {})).unwrap()
            assert [commit.subject for commit in history.commits] == [
                "Convert to Celsius as well",
                "Convert to Fahrenheit",
                "Describe the project",
            ]
            sql = "SELECT (SELECT count(*) FROM planets), (SELECT count(*) FROM moons)"
            assert (await bench.call("query", {"sql": sql})).unwrap().rows == [[8, 24]]
    assert sorted(path.name for path in (copy / ".data").iterdir()) == ["planets.db", "repository"]
