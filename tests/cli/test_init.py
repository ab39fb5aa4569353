"""`toolcrib init` begins a project, and `toolcrib` alone shows what one needs first."""

from pathlib import Path

import typer

from toolcrib.cli.app import _COMMANDS, app

from .conftest import Run, run_pytest

FILES = {"notes.py", "test_notes.py", "toolcrib.toml", ".toolcrib/", ".gitignore"}


def test_a_new_project_works_is_accepted_and_asks_before_it_destroys(toolcrib: Run, folder: Path) -> None:
    made = toolcrib("init")
    assert (made.returncode, made.stderr, set(made.stdout.partition("\n\n")[0].split())) == (0, "", FILES)
    for command in ('toolcrib call add_note text="Call Ann."', "toolcrib dev", "toolcrib install claude-code"):
        assert command in made.stdout
    assert (folder / ".gitignore").read_text() == ".toolcrib/\n"
    assert toolcrib("check", "--strict").returncode == 0
    assert toolcrib("call", "add_note", "text=Call Ann.").stdout == "1\n"
    asked = toolcrib("call", "delete_notes")
    assert (asked.returncode, (folder / "notes.txt").read_text()) == (3, "Call Ann.\n")
    assert (folder / ".toolcrib" / "store.db").exists()
    test = run_pytest(folder)
    assert (test.returncode, test.stdout.splitlines()[-1][:8]) == (0, "1 passed"), test.stdout


def test_what_is_there_is_never_overwritten(toolcrib: Run, folder: Path) -> None:
    (folder / "notes.py").write_text(
        'from toolcrib import tool\n\n\n@tool\ndef mine() -> int:\n    """M."""\n    return 1\n'
    )
    (folder / ".gitignore").write_text("*.pyc")
    before = (folder / "notes.py").read_bytes()
    stays = "is there, and stays as it is"
    lines = toolcrib("init").stdout.splitlines()
    assert lines[:3] == ["toolcrib.toml", ".toolcrib/", ".gitignore"]
    assert lines[3:5] == [f"notes.py {stays}", f"test_notes.py {stays}"]
    assert (folder / "notes.py").read_bytes() == before
    assert (folder / ".gitignore").read_text() == "*.pyc\n.toolcrib/\n"
    assert toolcrib("call", "mine").stdout == "1\n"
    assert toolcrib("init").stdout.startswith(f"toolcrib.toml {stays}\n\n")
    (folder / "toolcrib.toml").unlink()
    (folder / "pyproject.toml").write_text('[tool.toolcrib]\nsource = [{ from = "notes.py" }]\n')
    assert toolcrib("init").stdout.startswith(f"pyproject.toml {stays}\n\n")


def test_a_folder_that_cannot_be_written_is_an_error(toolcrib: Run, folder: Path) -> None:
    (folder / ".gitignore").mkdir()
    done = toolcrib("init")
    assert (done.returncode, "cannot be written here: Is a directory" in done.stderr) == (1, True)
    assert toolcrib("init", "there").returncode == 2


def test_the_help_shows_five_commands_or_all(toolcrib: Run, environment: dict[str, str]) -> None:
    alone, short, full = toolcrib(), toolcrib("--help"), toolcrib("--help-all")
    assert (alone.returncode, short.returncode, full.returncode) == (2, 0, 0)
    shown = short.stdout.partition("Commands:\n")[2].split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in shown] == ["init", "call", "chat", "serve", "install"]
    assert "toolcrib --help-all" in alone.stderr
    assert [line.split()[0] for line in full.stdout.partition("Commands:\n")[2].split("\n\n")[0].splitlines()] == list(
        _COMMANDS
    )


def test_the_help_has_the_first_sentence_of_each_command() -> None:
    group = typer.main.get_command(app)
    for name, (_, text) in _COMMANDS.items():
        command = group.get_command(None, name)  # type: ignore[attr-defined]
        assert " ".join((command.help or "").split("\n\n")[0].split()) == text, name
    assert {command.name for command in app.registered_commands} <= {*_COMMANDS}
