"""`pocket.lock`: what is pinned where, and what is said of a damaged file."""

from pathlib import Path

import pytest

from toolcrib.dialects.hyperpocket.repository import GitLock, LocalLock, Lock, Lockfile, tool_reference

SHA = "0123456789abcdef" * 2 + "01234567"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pocket.lock"


def test_a_lock_file_has_a_line_for_each_lock_with_tabs_between_its_parts(file: Path, tmp_path: Path) -> None:
    made = Lockfile(file)
    assert not file.exists()
    local = tool_reference.LocalLock(str(tmp_path))
    git = tool_reference.GitLock(repository_url="https://git.example/tools/", git_ref="main", ref_sha=SHA)
    made.add_lock(local)
    made.add_lock(git)
    made.write()
    assert file.read_text() == f"local\t{tmp_path}\ngit\thttps://git.example/tools/\tmain\t{SHA}\n"
    read = Lockfile(str(file))
    assert read.locks == {
        ("local", str(tmp_path)): local,
        ("git", "https://git.example/tools", "main"): git,
    }
    assert (read.referenced_locks, read.get_lock(git.key())) == (set(), git)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pocket.lock"]


def test_locks_come_and_go_and_one_that_is_there_keeps_its_commit(file: Path) -> None:
    made = Lockfile(file)
    pinned = GitLock(repository_url="https://git.example/tools", git_ref="main", ref_sha=SHA)
    made.add_lock(pinned)
    made.add_lock(GitLock(repository_url="https://git.example/tools/", git_ref="main"))
    made.add_lock(GitLock(repository_url="https://git.example/tools", git_ref="next"))
    assert made.get_lock(("git", "https://git.example/tools", "main")) is pinned
    assert made.referenced_locks == set(made.locks) and len(made.locks) == 2
    made.remove_lock(pinned.key())
    assert made.referenced_locks == set(made.locks) == {("git", "https://git.example/tools", "next")}
    for missing in (made.get_lock, made.remove_lock):
        with pytest.raises(KeyError):
            missing(pinned.key())


def test_a_lock_that_was_never_in_place_has_no_commit(file: Path) -> None:
    lock = GitLock(repository_url="https://git.example/tools", git_ref="HEAD")
    with pytest.raises(ValueError, match="not in place"):
        lock.toolpkg_path()
    made = Lockfile(file)
    made.add_lock(lock)
    made.write()
    assert file.read_text() == "git\thttps://git.example/tools\tHEAD\tNone\n"
    assert Lockfile(file).locks == {lock.key(): lock}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"remote\tx\n", r"pocket\.lock:1: Unknown tool source: 'remote'"),
        (b"local\t\n", ":1: expected 'local', a tab and a path"),
        (b"git\thttps://git.example/x\tmain\n", ":1: expected .* 'git', URL, ref and commit"),
        (b"git\t\tmain\tNone\n", ":1: expected"),
        (b"git\thttps://git.example/x\tmain\t--upload-pack=x\n", ":1: expected"),
        (f"git\tu\tm\t{SHA}\ngit\tu/\tm\tNone\n".encode(), ":2: this is locked above, too"),
        (b"\xff\xfe", "utf-8"),
    ],
)
def test_a_damaged_lock_file_is_refused_with_its_line(content: bytes, message: str, file: Path) -> None:
    file.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        Lockfile(file)
    assert file.read_bytes() == content


class Counted(Lock):
    """A lock that counts how often it is put in place."""

    tool_source: str = "counted"
    name: str
    calls: list[bool] = []

    def __str__(self) -> str:
        return f"counted\t{self.name}"

    def key(self) -> tuple[str, ...]:
        return self.tool_source, self.name

    def sync(self, force_update: bool = False, **kwargs: object) -> None:
        self.calls.append(force_update)

    def toolpkg_path(self) -> Path:
        return Path()


def test_sync_is_of_all_locks_or_of_those_that_were_added(file: Path, tmp_path: Path) -> None:
    made = Lockfile(file)
    first, second = Counted(name="first", calls=[]), Counted(name="second", calls=[])
    made.add_lock(first)
    made.add_lock(second)
    made.sync(force_update=True, referenced_only=True)
    assert (first.calls, second.calls) == ([True], [True])
    assert file.read_text() == "counted\tfirst\ncounted\tsecond\n"


def test_a_lock_is_put_in_place_once_for_a_lock_file_and_again_where_it_failed(file: Path, tmp_path: Path) -> None:
    made, lock, same = Lockfile(file), Counted(name="one", calls=[]), Counted(name="one", calls=[])
    for each in (lock, same, lock):
        made.sync_once(each)
    assert (lock.calls, same.calls, made.locks, made.referenced_locks) == (
        [False],
        [],
        {lock.key(): lock},
        {lock.key()},
    )
    other = Lockfile(file)
    other.add_lock(lock)
    other.sync_once(same, force_update=True)
    assert (lock.calls, same.calls) == ([False, True], [])
    late = LocalLock(str(tmp_path / "late"))
    for _ in range(2):
        with pytest.raises(ValueError, match="There is no folder"):
            made.sync_once(late)
    Path(late.tool_path).mkdir()
    made.sync_once(late)
    Path(late.tool_path).rmdir()
    made.sync_once(late)
