"""The repository example, on real git repositories."""

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Result, Workbench

Ask = Callable[..., Awaitable[Result[Any]]]

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{
        f"GIT_{role}_{what}": value
        for role in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "Łukasz"), ("EMAIL", "l@example.org"))
    },
}


def git(root: Path, *arguments: str, at: str = "2024-01-01T12:00:00Z") -> None:
    dates = {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
    subprocess.run(["git", *arguments], cwd=root, env=ENVIRONMENT | dates, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three commits; names and settings that need care; a secret ignored in it, and one beside it."""
    root = tmp_path / "work tree"
    (root / "src").mkdir(parents=True)
    git(root, "init", "-q")
    (root / ".gitignore").write_text(".env\n")
    (root / "readme.txt").write_text("first\nsecond needle\nthird\n")
    (root / "gone.txt").write_text("a needle that goes\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "Begin")
    (root / "gone.txt").unlink()
    (root / "src" / "żółw.py").write_text("NEEDLE = 'a\fb'\n--output=x needle\n")
    (root / "-n.txt").write_text("dashed needle\n")
    (root / "binary").write_bytes(b"needle\0\n")
    (tmp_path / "outside.txt").write_text("outside needle\n")
    (root / "escape").symlink_to(tmp_path / "outside.txt")
    (root / "settings").symlink_to(".git/config")
    (root / "within").symlink_to("readme.txt")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "Add\n\nA body.", at="2024-02-01T00:00:30Z")
    (root / "readme.txt").write_text("first\nsecond needle\nthird\nfourth")
    git(root, "commit", "-q", "-a", "-m", "Extend", at="2024-03-01T12:00:00Z")
    (root / ".env").write_text("PASSWORD=needle\n")
    # Settings of a user that would change what git writes.
    for name, value in (("grep.column", "true"), ("color.ui", "always"), ("grep.patternType", "perl")):
        git(root, "config", name, value)
    monkeypatch.setenv("TOOLCRIB_EXAMPLE_REPOSITORY", str(root))
    return root


@pytest.fixture
async def ask(repository: Path, examples: Path, asking: Callable[[Workbench], Ask]) -> AsyncIterator[Ask]:
    async with Workbench([examples / "repository.py"]) as bench:
        yield asking(bench)


def failure(result: Result[Any]) -> tuple[str, str]:
    assert result.error is not None, result.text
    return result.error.code, result.error.message


async def test_a_text_is_found_in_tracked_text_files_alone(ask: Ask) -> None:
    found = (await ask("search_files", query="needle")).unwrap()
    assert found.model_dump() == {
        "matches": [
            {"path": "-n.txt", "line": 1, "text": "dashed needle"},
            {"path": "readme.txt", "line": 2, "text": "second needle"},
            {"path": "src/żółw.py", "line": 2, "text": "--output=x needle"},
        ],
        "more": False,
    }


async def test_a_bad_expression_is_refused_in_the_words_of_git(ask: Ask) -> None:
    code, message = failure(await ask("search_files", query="(", kind="regex"))
    assert code == "failed"
    assert message.startswith("git refused: ")


async def test_lines_are_counted_as_the_search_counts_them(ask: Ask) -> None:
    """A form feed ends no line."""
    lines = (await ask("read_lines", path="src/żółw.py", first_line=2, line_count=1)).unwrap()
    assert lines.text == "--output=x needle"


async def test_a_file_is_read_as_it_was_at_a_revision(ask: Ask) -> None:
    assert (await ask("read_lines", path="readme.txt", revision="HEAD~1")).unwrap().total_lines == 3
    assert (await ask("read_lines", path="gone.txt", revision="HEAD~2")).unwrap().text == "a needle that goes"
    assert failure(await ask("read_lines", path="gone.txt", revision="HEAD"))[0] == "failed"


async def test_a_path_that_leads_outside_is_refused(ask: Ask) -> None:
    for path in ("../outside.txt", "src/../../outside.txt", "/etc/passwd", ".."):
        refused = f"'{path}' leads outside the repository. Paths are relative to its top, without '..'."
        for tool, more in (
            *(("read_lines", {}), ("read_lines", {"revision": "HEAD"})),
            *(("history", {}), ("search_files", {"query": "needle"})),
        ):
            assert failure(await ask(tool, path=path, **more)) == ("invalid_arguments", refused)


async def test_what_git_does_not_track_is_not_read(ask: Ask) -> None:
    for path in ("escape", "settings", ".git/config", ".env", "src", "nothing", "bad\0name", "x" * 499):
        code, message = failure(await ask("read_lines", path=path))
        assert code == "failed"
        assert message.startswith("The repository has no tracked file")


async def test_a_link_within_the_repository_is_followed(ask: Ask) -> None:
    assert (await ask("read_lines", path="within", line_count=1)).unwrap().text == "first"


async def test_a_file_swapped_for_a_link_out_of_the_repository_is_not_read(ask: Ask, repository: Path) -> None:
    (repository / "readme.txt").unlink()
    (repository / "readme.txt").symlink_to(repository.parent / "outside.txt")
    assert failure(await ask("read_lines", path="readme.txt"))[0] == "failed"
    (repository / "src").rename(repository / "moved")
    (repository / "src").symlink_to(repository.parent)
    assert failure(await ask("read_lines", path="src/outside.txt"))[0] == "failed"


async def test_a_commit_says_who_and_when(ask: Ask) -> None:
    commit = (await ask("history", limit=1)).unwrap().commits[0]
    assert (commit.author, commit.at.isoformat(), len(commit.id)) == ("Łukasz", "2024-03-01T12:00:00+00:00", 40)


async def test_a_revision_that_is_no_commit_is_refused_and_never_an_option(ask: Ask, tmp_path: Path) -> None:
    before, out = sorted(tmp_path.rglob("*")), tmp_path / "written"
    for revision in (f"--output={out}", f"-p{out}", "--all", "^HEAD", "HEAD~1..HEAD", "nowhere", "", "HEAD:src"):
        refused = f"There is no commit '{revision}' here. Name a commit, a branch or a tag."
        for tool, more in (("history", {}), ("read_lines", {"path": "readme.txt"})):
            assert failure(await ask(tool, revision=revision, **more)) == ("invalid_arguments", refused)
    assert sorted(tmp_path.rglob("*")) == before


async def test_a_query_or_path_with_a_dash_is_data(ask: Ask, tmp_path: Path) -> None:
    found = (await ask("search_files", query="--output=x")).unwrap()
    assert [(match.path, match.line) for match in found.matches] == [("src/żółw.py", 2)]
    for query in (
        f"--open-files-in-pager=touch {tmp_path}/written",
        f"-Otouch {tmp_path}/written",
        "--no-index",
        "-f/etc/passwd",
    ):
        assert (await ask("search_files", query=query)).unwrap().matches == []
        assert (await ask("search_files", query="needle", path=query.replace("/", "_"))).unwrap().matches == []
    assert (await ask("read_lines", path="-n.txt")).unwrap().text == "dashed needle"
    assert not (tmp_path / "written").exists()


async def test_a_path_is_taken_literally(ask: Ask) -> None:
    for path in (":(top)*", ":!src", ":/", "*.txt", "[a-z]*"):
        assert (await ask("search_files", query="needle", path=path)).unwrap().matches == []


async def test_variables_of_git_do_not_lead_to_another_repository(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a git hook, which runs with GIT_DIR set."""
    (tmp_path / "other").mkdir()
    git(tmp_path / "other", "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other" / ".git" / "index"))
    assert len((await ask("history")).unwrap().commits) == 3
    assert len((await ask("search_files", query="needle")).unwrap().matches) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="the slow git is a shell script")
async def test_git_is_stopped_when_the_deadline_has_passed(
    repository: Path, tmp_path: Path, examples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a git that never finishes a search."""
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    note = tmp_path / "process"
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in *rev-parse*) exec "{shutil.which("git")}" "$@";; esac\n'
        f'echo $$ > "{note}"\nexec sleep 600\n'
    )
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}{os.pathsep}{os.environ['PATH']}")
    async with Workbench([examples / "repository.py"], timeout_s=3) as bench:
        assert failure(await bench.call("search_files", {"query": "needle"}))[0] == "timeout"
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)
