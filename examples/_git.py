"""Runs git for the repository tools: bounded, stopped when nobody waits any more, and never through a shell."""

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from toolcrib import ToolError

# What would send git to another repository than the one it is started in (git rev-parse --local-env-vars).
_ELSEWHERE = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE"),
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_PREFIX", "GIT_GRAFT_FILE", "GIT_SHALLOW_FILE"),
)
# Not even from a repository's own settings: no pager, no monitor program, no fetching of what is missing.
_ALWAYS = ("--no-pager", "--no-optional-locks", "--literal-pathspecs", "-c", "core.fsmonitor=false")


class Answer(NamedTuple):
    """What git wrote, whether that was cut at the limit, and its exit status."""

    output: bytes
    cut: bool
    status: int


async def git(root: Path, *arguments: str, accepts: Collection[int] = (0,), limit_bytes: int = 1_000_000) -> Answer:
    """Run git in *root*. Raises ToolError in git's own words where its exit status is not one it *accepts*."""
    environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "none", "LC_ALL": "C"}
    with tempfile.TemporaryFile() as complaints:
        try:
            process = await asyncio.create_subprocess_exec(
                *("git", *_ALWAYS, *arguments),
                cwd=root,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=complaints,
            )
        except FileNotFoundError:
            raise ToolError(
                "git is not installed here, and these tools need it. Install it: https://git-scm.com/downloads.",
                "unavailable",
                retry="never",
            ) from None
        except ValueError:  # a NUL, or half of a surrogate pair
            raise ToolError("An argument holds a character that no file can.", "invalid_arguments") from None
        assert process.stdout is not None
        try:
            output = await process.stdout.readexactly(limit_bytes + 1)
        except asyncio.IncompleteReadError as end:
            output = end.partial
            await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.communicate()
        cut = len(output) > limit_bytes
        if not cut and process.returncode not in accepts:
            complaints.seek(0)
            complaint = complaints.read(300).decode(errors="replace").strip().partition("\n")[0]
            raise ToolError(f"git refused: {complaint.removeprefix('fatal: ') or f'exit status {process.returncode}'}.")
    return Answer(output[:limit_bytes], cut, process.returncode or 0)


async def sample(home: Path) -> Path:
    """A small repository in *home*, made at the first use. Raises OSError where *home* cannot be written."""
    made = home / "repository"
    if not made.is_dir():
        new = _new_folder(home)
        await git(new, "init", "--quiet", "--template=")
        for message, files in _COMMITS.items():
            _write(new, files)
            await git(new, "add", "--all")
            # All that a commit needs is set here: a fresh machine has no identity, and another's hooks are not ours.
            who = ("-c", "user.name=Ada Example", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
            await git(new, *who, "-c", f"core.hooksPath={os.devnull}", "commit", "--quiet", f"--message={message}")
        _put(new, made)
    return made


def _new_folder(home: Path) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="new-", dir=home))


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def _put(new: Path, made: Path) -> None:
    """Move *new* into its place at once, so that nobody ever sees half of it."""
    try:
        new.rename(made)
    except OSError:
        shutil.rmtree(new)  # another process was first
        if not made.is_dir():
            raise


_TO_FAHRENHEIT = "def fahrenheit(celsius: float) -> float:\n    return celsius * 9 / 5 + 32\n"
_TO_CELSIUS = "def celsius(fahrenheit: float) -> float:\n    return (fahrenheit - 32) * 5 / 9\n"
_COMMITS = {
    "Describe the project": {"README.md": "# Temperatures\n\nTurns degrees Celsius into degrees Fahrenheit.\n"},
    "Convert to Fahrenheit": {"convert.py": _TO_FAHRENHEIT},
    "Convert to Celsius as well": {
        "README.md": "# Temperatures\n\nTurns degrees Celsius into degrees Fahrenheit, and back.\n",
        "convert.py": f"{_TO_FAHRENHEIT}\n\n{_TO_CELSIUS}",
    },
}
