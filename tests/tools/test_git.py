"""Git addresses, what is fetched of them, and what a repository cannot do to whoever fetches it."""

import os
import random
import shutil
from pathlib import Path

import pytest

from toolcrib.core import LoadError
from toolcrib.sandbox.cache import clear
from toolcrib.tools.git import Fetched, GitAddress, GitSource, is_git_address, parse_git_address
from toolcrib.tools.git import fetch as fetch_source

from .repositories import Repository, served

COMMIT = "0123456789" * 4


@pytest.fixture
def cache(cache: Path) -> Path:
    return cache.with_name("git")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


def fetch(address: GitAddress, **pinned: str) -> Fetched:
    return fetch_source(GitSource(address, **pinned))


def contents(fetched: Fetched) -> dict[str, str]:
    files = [file for file in fetched.path.rglob("*") if not file.is_dir()]
    assert not any(file.is_symlink() for file in files)
    return {file.relative_to(fetched.path).as_posix(): file.read_text() for file in files}


def error_of(address: GitAddress) -> str:
    with pytest.raises(LoadError) as refused:
        fetch(address)
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "address", "canonical"),
    [
        ("git+https://example.com/a/b", GitAddress("https://example.com/a/b"), None),
        ("git+https://example.com/a/b.git@v1.0#x/y", GitAddress("https://example.com/a/b.git", "v1.0", "x/y"), None),
        ("git+ssh://git@example.com/a/b@feature/x", GitAddress("ssh://git@example.com/a/b", "feature/x"), None),
        (f"git+../b@{COMMIT}#x", GitAddress("../b", COMMIT, "x"), f"git+../b@{COMMIT}#x"),
        ("git+/home/me@work/b@v1", GitAddress("/home/me@work/b", "v1"), None),
        ("git+http://127.0.0.1:8000/b", GitAddress("http://127.0.0.1:8000/b"), None),
        ("git+git@example.com:a/b.git@v1#x", GitAddress("git@example.com:a/b.git", "v1", "x"), None),
        ("git@example.com:~me/b", GitAddress("git@example.com:~me/b"), "git+git@example.com:~me/b"),
        (
            "https://github.com/owner/repo/tree/v2/tools/a",
            GitAddress("https://github.com/owner/repo", "v2", "tools/a"),
            "git+https://github.com/owner/repo@v2#tools/a",
        ),
    ],
)
def test_an_address_names_a_repository_a_revision_and_a_folder(
    text: str, address: GitAddress, canonical: str | None
) -> None:
    assert is_git_address(text)
    assert parse_git_address(text) == address
    assert parse_git_address(str(address)) == address
    assert str(address) == (canonical or str(address))


@pytest.mark.parametrize(
    "text", ["https://example.com/mcp", "tools.py", "package.git:x", "https://github.com/owner", "git@x"]
)
def test_other_sources_are_not_git_addresses(text: str) -> None:
    assert not is_git_address(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("git+ext::sh -c touch% /tmp/x", "path"),
        ("git+ext::sh://a/b", "'ext'"),
        ("git+http://example.com/a/b", "over http"),
        ("git+--upload-pack=touch", "path"),
        ("git+ssh://-oProxyCommand=x@host/a", "user"),
        ("git@-oProxyCommand=x:a", "host"),
        ("git@example.com:-oProxyCommand=x", "path"),
        ("git@example.com:a/../../b", "'..' in it"),
        ("git@ext::sh -c touch% x", "not a git address"),
        ("git+https://example.com/a@--upload-pack=touch", "branch"),
        ("git+https://example.com/a@+refs/heads/*:refs/heads/*", "branch"),
        ("git+https://example.com/a#../b", "folder"),
        ("git+https://example.com/a#x/.GIT", "folder"),
        ("git+https://example.com/a/../../b", "'..' in it"),
        ("git+https://example.com/a\nb", "characters"),
        ("https://github.com/owner/repo/blob/main/a.py", "folder"),
    ],
)
def test_what_git_would_read_as_something_else_is_not_an_address(text: str, why: str) -> None:
    with pytest.raises(LoadError, match=why):
        parse_git_address(text)


def test_a_password_in_an_address_is_refused_and_not_quoted() -> None:
    with pytest.raises(LoadError, match="no password") as refused:
        parse_git_address("git+https://me:hunter2hunter2@example.com/a/b")
    assert "hunter2" not in str(refused.value)


def test_a_branch_a_tag_a_commit_or_none_is_fetched_and_the_folder_alone(repository: Repository, cache: Path) -> None:
    first = repository.commit({"tools/a/tool.toml": "one", "tools/b.txt": "b", "other/c": "c"})
    repository.git("tag", "-a", "-m", "x", "v1")
    second = repository.commit({"tools/a/tool.toml": "two"})
    repository.git("branch", "feature/x")
    where = str(repository.folder)
    assert contents(fetch(GitAddress(where, "v1", "tools"))) == {"a/tool.toml": "one", "b.txt": "b"}
    for ref in ("main", "feature/x", "HEAD", second):
        fetched = fetch(GitAddress(where, ref, "tools/a"))
        assert (fetched.commit, contents(fetched)) == (second, {"tool.toml": "two"})
    assert fetch(GitAddress(where, "v1")).commit == first
    assert "no branch and no tag 'v9'" in error_of(GitAddress(where, "v9"))
    for missing in ("none", "other/c"):
        assert f"no folder '{missing}'" in error_of(GitAddress(where, folder=missing))
    assert sorted(path.name[-40:] for path in cache.iterdir()) == sorted([first, second, first])


def test_what_is_in_the_cache_needs_no_repository(repository: Repository) -> None:
    commit = repository.commit({"a/tool.toml": "one"})
    address = GitAddress(str(repository.folder), "main", "a")
    fetched = fetch(address)
    shutil.rmtree(repository.folder)
    assert fetch(address, commit=commit, sha256=fetched.sha256) == fetched
    assert fetch(GitAddress(address.repository, commit, "a")) == fetched
    assert "cannot be fetched" in error_of(address)


def test_what_was_fetched_stays_while_it_is_used(repository: Repository, cache: Path) -> None:
    repository.commit({"a.txt": "one"})
    fetched = fetch(GitAddress(str(repository.folder)))
    (cache / "abandoned").mkdir()
    assert clear("git") == (1, 0)
    assert contents(fetched) == {"a.txt": "one"}


def test_a_damaged_cache_is_fetched_again_and_other_content_is_refused(repository: Repository) -> None:
    commit = repository.commit({"a": "one"})
    address = GitAddress(str(repository.folder))
    fetched = fetch(address)
    (fetched.path / "a").write_text("other")
    assert contents(fetch(address, commit=commit, sha256=fetched.sha256)) == {"a": "one"}
    with pytest.raises(LoadError, match="not what was locked"):
        fetch(address, commit=commit, sha256="0" * 64)


def test_a_link_to_a_file_of_the_folder_is_its_copy_and_any_other_is_refused(repository: Repository) -> None:
    targets = ["/etc/passwd", "../outside", "a/l", "."]
    repository.commit({"t/a/f": "one", "t/l": Path("a/f"), "outside": "x", "t/a/l": Path("../a/f")})
    where = str(repository.folder)
    assert contents(fetch(GitAddress(where, folder="t"))) == {"a/f": "one", "l": "one", "a/l": "one"}
    for target in targets:
        repository.commit({"t/l": Path(target)})
        assert "is refused for 'l': it is a link" in error_of(GitAddress(where, folder="t")), target


@pytest.mark.parametrize("name", ["..", ".GIT", "../x", "/etc/x", "a\\b", "a\nb"])
def test_a_path_that_leads_elsewhere_is_refused(repository: Repository, name: str) -> None:
    blob = repository.blob(b"x")
    repository.commit_tree(("100644", name, blob))
    where = str(repository.folder)
    assert "is refused for" in error_of(GitAddress(where))


def test_a_submodule_a_device_and_a_file_that_is_a_folder_too_are_refused(
    repository: Repository, tmp_path: Path
) -> None:
    blob = repository.blob(f'[submodule "s"]\n\tpath = s\n\turl = ext::touch {tmp_path}/ran\n'.encode())
    commit = repository.commit({"a": "a"})
    where = str(repository.folder)
    repository.commit_tree(("100644", ".gitmodules", blob), ("160000", "s", commit))
    assert "is a submodule" in error_of(GitAddress(where))
    repository.commit_tree(("020000", "device", blob))
    assert "cannot be fetched" in (error := error_of(GitAddress(where))) or "is refused" in error
    repository.commit_tree(("100644", "a", blob), ("40000", "a", repository.tree(("100644", "b", blob))))
    assert "is refused for 'a" in error_of(GitAddress(where))
    assert not (tmp_path / "ran").exists()


def test_no_hook_filter_attribute_or_setting_has_an_effect(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    script = f"#!/bin/sh\necho $0 >> {ran}\ncat\n"
    home = tmp_path / "home"
    template = home / "template" / "hooks"
    template.mkdir(parents=True)
    program = home / "program"
    for file in (program, *(template / name for name in ("post-checkout", "reference-transaction", "post-merge"))):
        file.write_text(script)
        file.chmod(0o755)
    (home / ".gitconfig").write_text(
        f"[core]\n\thooksPath = {template}\n\tfsmonitor = {program}\n\tsshCommand = {program}\n"
        f'[filter "evil"]\n\tsmudge = {program}\n\trequired = true\n[init]\n\ttemplateDir = {home}/template\n'
        f'[uploadpack]\n\tpackObjectsHook = {program}\n[url "/nowhere"]\n\tinsteadOf = {repository.folder}\n'
        f"[credential]\n\thelper = {program}\n"
    )
    for name, value in {
        "HOME": str(home),
        "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
        "GIT_TEMPLATE_DIR": str(home / "template"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.hooksPath",
        "GIT_CONFIG_VALUE_0": str(template),
        "GIT_UPLOAD_PACK": str(program),
        "GIT_DIR": "/nowhere",
        "GIT_EXTERNAL_DIFF": str(program),
        "GIT_EXEC_PATH": "/nowhere",
        "GIT_ALLOW_PROTOCOL": "ext",
    }.items():
        monkeypatch.setenv(name, value)
    repository.git("config", "uploadpack.packObjectsHook", str(program))
    for hook in ("post-checkout", "reference-transaction"):
        shutil.copy(program, repository.folder / ".git" / "hooks" / hook)
    repository.git("config", "core.hooksPath", "/dev/null")
    repository.commit({".gitattributes": "* filter=evil export-subst ident text eol=crlf\n", "a": "$Id$ $Format:%H$\n"})
    repository.git("config", "--unset", "core.hooksPath")
    assert contents(fetch(GitAddress(str(repository.folder))))["a"] == "$Id$ $Format:%H$\n"
    assert not ran.exists()


def test_options_in_place_of_names_reach_no_program(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"a": "one"})
    where = str(repository.folder)
    option = f"--upload-pack=touch {tmp_path}/ran"
    # No such address can be written: this is what happens behind the check of that.
    for address in (
        GitAddress(where, option),
        GitAddress(where, folder=option),
        GitAddress(option),
        GitAddress(f"ext::touch {tmp_path}/ran"),
        GitAddress(f"ssh://-oProxyCommand=touch${{IFS}}{tmp_path}/ran/x"),
        GitAddress("file:///etc"),
    ):
        assert error_of(address)
    assert not (tmp_path / "ran").exists()


@pytest.mark.full
def test_a_small_repository_of_much_content_is_refused_before_it_is_read(repository: Repository) -> None:
    bomb = repository.blob(bytes(70 * 1024**2))
    repository.commit_tree(("100644", "bomb", bomb))
    assert "is larger than 64 MiB" in error_of(GitAddress(str(repository.folder)))
    tree = repository.tree(("100644", "f", repository.blob(b"x")))
    for _ in range(12):  # 10**12 files
        tree = repository.tree(*(("40000", f"d{number}", tree) for number in range(10)))
    repository.commit_tree(("40000", "t", tree))
    error = error_of(GitAddress(str(repository.folder), folder="t"))
    assert "is larger than" in error or "more than 10000 files" in error


def test_a_copy_of_a_link_counts_as_much_as_the_file(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.tools.git.MAX_BYTES", 10_000)
    repository.commit({"a": "x" * 4_000, **{f"l{number}": Path("a") for number in range(5)}})
    assert "is larger than" in error_of(GitAddress(str(repository.folder)))


def test_over_http_the_content_of_other_folders_is_not_sent(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "served" / "r")
    big = random.Random(1).randbytes(1024**2)
    repository.commit({"big": big, "tools/a": "one", "tools/b": "two"})
    address = "{}/r/.git"
    with served(tmp_path / "served") as (url, sent):
        whole = fetch(GitAddress(address.format(url), folder="tools"))
        assert (contents(whole), sum(sent) > 1024**2) == ({"a": "one", "b": "two"}, True)  # it allows no parts
        repository.git("config", "uploadpack.allowFilter", "true")
        repository.commit({"tools/a": "three"})
        sent.clear()
        part = fetch(GitAddress(address.format(url), folder="tools"))
        assert (contents(part), sum(sent) < 10_000) == ({"a": "three", "b": "two"}, True)
        assert "cannot be fetched" in error_of(GitAddress(address.format(f"{url}/moved"), folder="tools"))


def test_the_cache_is_readable_by_nobody_else(repository: Repository, cache: Path) -> None:
    repository.commit({"a/b": "one"})
    fetched = fetch(GitAddress(str(repository.folder)))
    assert cache.stat().st_mode & 0o777 == 0o700
    cache.chmod(0o777)
    assert "others may write" in error_of(GitAddress(str(repository.folder)))
    assert os.listdir(cache) == [fetched.path.name]


def test_bytecode_that_was_committed_is_not_fetched(repository: Repository) -> None:
    """An author can commit a cache that has other code than the source beside it, or bytecode without a source."""
    repository.commit({"t/main.py": "1", "t/__pycache__/helper.cpython-314.pyc": b"x", "t/ghost.pyc": b"x"})
    assert contents(fetch(GitAddress(str(repository.folder), "main", "t"))) == {"main.py": "1"}
