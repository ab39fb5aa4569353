"""A git repository as tools: search its files, read one, follow its history.

They only read, and only what git tracks: not `.git`, not ignored files, nothing outside. The repository is
`TOOLCRIB_EXAMPLE_REPOSITORY`, else the one the current directory is in, else a small one made in `examples/.data`.
Whatever a model sends reaches git as one argument in a place where git takes it for data: there is no shell, queries
come behind `-e`, paths behind `--` and taken literally, revisions are resolved to a commit first.
"""

import asyncio
import os
import re
from datetime import date, datetime
from pathlib import Path, PurePath
from typing import Annotated, Literal

from _git import git, sample
from pydantic import BaseModel, Field

from toolcrib import Depends, ToolError, tool

_FILE_BYTES = 2_000_000
_TEXT_CHARACTERS = 20_000
_DATA = Path(__file__).resolve().parent / ".data"


class Match(BaseModel):
    path: str
    line: int
    text: str


class Matches(BaseModel):
    matches: list[Match]
    more: Annotated[bool, Field(description="Whether there are more matches than these.")]


class Lines(BaseModel):
    path: str
    first_line: int
    last_line: Annotated[int, Field(description="The last line given here; ask on from the next one.")]
    total_lines: int
    text: str


class Commit(BaseModel):
    id: str
    author: str
    at: datetime
    subject: str


class History(BaseModel):
    commits: Annotated[list[Commit], Field(description="The newest first.")]


async def repository() -> Path:
    """The top folder of the repository that the tools read: provided to them, never chosen by a model."""
    named = os.environ.get("TOOLCRIB_EXAMPLE_REPOSITORY")
    start = _real(named or ".")
    if start.is_dir():
        found = await git(start, "rev-parse", "--show-toplevel", accepts=(0, 128))
        root = _real(os.fsdecode(found.output.rstrip(b"\r\n")))
        if found.output and (not named or root == start):
            return root
    if named:
        raise ToolError(
            "TOOLCRIB_EXAMPLE_REPOSITORY does not name the top folder of a git work tree that git trusts. Correct it, "
            "or unset it to use the repository of the current directory.",
            "unavailable",
        )
    try:
        return await sample(_DATA)
    except OSError as error:
        raise ToolError(
            f"The sample repository cannot be made in {_DATA} ({error.strerror}). "
            "Name one of yours in TOOLCRIB_EXAMPLE_REPOSITORY.",
            "unavailable",
        ) from None


Repository = Annotated[Path, Depends(repository)]
RelativePath = Annotated[str, Field(description="Relative to the top of the repository.", min_length=1, max_length=500)]


@tool(title="Search the repository", read_only=True, idempotent=True, open_world=False, timeout_s=30)
async def search_files(
    root: Repository,
    query: Annotated[str, Field(min_length=1, max_length=500)],
    kind: Literal["text", "regex"] = "text",
    path: RelativePath | None = None,
    ignore_case: bool = False,
    limit: Annotated[int, Field(ge=1, le=200)] = 50,
) -> Matches:
    """Find the lines of the repository's text files that contain a text, or match a regular expression.

    Args:
        query: What to look for.
        kind: Whether the query is plain text or an extended regular expression (POSIX).
        path: Look only into this file or folder.
        ignore_case: Whether upper and lower case are the same.
        limit: The most matches to give.
    """
    how = ["-F" if kind == "text" else "-E", *(["-i"] if ignore_case else [])]
    within = ["--", _inside(path)] if path is not None else []
    plain = ["-n", "-I", "-z", "--no-color", "--no-column", "--full-name", "--no-recurse-submodules"]
    # Status 1 is git's way to say that nothing matched.
    found = await git(root, "grep", *plain, *how, "-e", query, *within, accepts=(0, 1))
    lines = re.findall(r"([^\0]+)\0(\d+)[\0:]([^\n]*)\n", found.output.decode(errors="replace"))
    matches = [Match(path=file, line=int(number), text=text[:500]) for file, number, text in lines[:limit]]
    return Matches(matches=matches, more=found.cut or len(lines) > limit)


@tool(title="Read a file", read_only=True, idempotent=True, open_world=False, timeout_s=30)
async def read_lines(
    root: Repository,
    path: RelativePath,
    first_line: Annotated[int, Field(ge=1)] = 1,
    line_count: Annotated[int, Field(ge=1, le=1000)] = 200,
    revision: Annotated[str, Field(max_length=200)] | None = None,
) -> Lines:
    """Read lines of a text file that git tracks.

    Args:
        path: The file.
        first_line: Where to begin, counted from 1.
        line_count: How many lines to give at most; long ones may make it fewer.
        revision: A commit, branch or tag to read the file as it was there. Without it, as it is on disk now.
    """
    if revision is None:
        content = await asyncio.to_thread(_read, await _tracked(root, path))
        cut = len(content) > _FILE_BYTES
    else:
        commit = await _commit(root, revision)
        content, cut, _ = await git(root, "cat-file", "blob", f"{commit}:{_inside(path)}", limit_bytes=_FILE_BYTES)
    if cut:
        raise ToolError(f"'{path}' is larger than {_FILE_BYTES} bytes. Use search_files to look into it.", "too_large")
    if b"\0" in content:
        raise ToolError(f"'{path}' is not a text file.", "invalid_arguments")
    # By newlines alone, as git counts them.
    lines = [line.removesuffix("\r") for line in content.decode(errors="replace").split("\n")]
    lines = lines[:-1] if not lines[-1] else lines
    if first_line > max(len(lines), 1):
        raise ToolError(f"'{path}' has {len(lines)} lines, so line {first_line} cannot be read.", "invalid_arguments")
    given: list[str] = []
    for line in lines[first_line - 1 : first_line - 1 + line_count]:
        given.append(line if len(line) <= 2_000 else f"{line[:2_000]}…")
        if sum(map(len, given)) > _TEXT_CHARACTERS:
            break
    last = first_line - 1 + len(given)
    return Lines(path=path, first_line=first_line, last_line=last, total_lines=len(lines), text="\n".join(given))


@tool(title="History", read_only=True, idempotent=True, open_world=False, timeout_s=30)
async def history(
    root: Repository,
    path: RelativePath | None = None,
    since: date | None = None,
    revision: Annotated[str, Field(max_length=200)] = "HEAD",
    limit: Annotated[int, Field(ge=1, le=100)] = 20,
) -> History:
    """List commits, of the whole repository or of those that changed one file or folder.

    Args:
        path: Only commits that changed this file or folder, which may be gone by now.
        since: Only commits of this day or later, in UTC.
        revision: The commit, branch or tag to begin at.
        limit: The most commits to give.
    """
    commit = await _commit(root, revision)
    chosen = [f"--max-count={limit}", *([f"--since={since.isoformat()}T00:00:00Z"] if since else [])]
    shape = ["-z", "--format=%H%x00%an%x00%aI%x00%s", "--encoding=UTF-8", "--no-color", "--no-show-signature"]
    found = await git(root, "log", *chosen, *shape, commit, "--", *([_inside(path)] if path is not None else []))
    fields = iter(found.output.decode(errors="replace").split("\0"))
    rows = zip(fields, fields, fields, fields, strict=False)
    commits = [
        Commit(id=id_, author=author[:100], at=datetime.fromisoformat(at), subject=subject[:300])
        for id_, author, at, subject in rows
    ]
    return History(commits=commits)


def _real(path: str) -> Path:
    return Path(path).resolve()


def _inside(path: str) -> str:
    """*path*, if it stays inside the repository by its spelling."""
    pure = PurePath(path)
    if pure.is_absolute() or pure.drive or pure.root or ".." in pure.parts:
        raise ToolError(
            f"'{path}' leads outside the repository. Paths are relative to its top, without '..'.", "invalid_arguments"
        )
    return pure.as_posix()


async def _tracked(root: Path, path: str) -> Path:
    """The file on disk, links followed, if git tracks what they lead to. So a link out of the repository is refused."""
    try:
        file = (root / _inside(path)).resolve(strict=True)
        inside = file.relative_to(root).as_posix() if file.is_file() else ""
    except (OSError, RuntimeError, ValueError):
        inside = ""
    tracked = inside and (await git(root, "ls-files", "-z", "--", inside)).output == os.fsencode(inside) + b"\0"
    if not tracked:
        raise ToolError(f"The repository has no tracked file '{path}'. Use search_files to find one.", "failed")
    return root / inside


def _read(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(_FILE_BYTES + 1)


async def _commit(root: Path, revision: str) -> str:
    """The id of the commit that *revision* names."""
    # No name in git begins with a dash: it would be an option.
    if not revision.startswith("-"):
        found = await git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", accepts=(0, 1, 128))
        if re.fullmatch(rb"[0-9a-f]{40,64}\n", found.output):
            return found.output.decode().strip()
    raise ToolError(f"There is no commit '{revision}' here. Name a commit, a branch or a tag.", "invalid_arguments")
