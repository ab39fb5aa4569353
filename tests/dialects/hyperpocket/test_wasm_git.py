"""Tools in git repositories: what is fetched and pinned, and what is refused. The repositories are folders here."""

import json
import shutil
from pathlib import Path

import pytest

from toolcrib.core import LoadError
from toolcrib.dialects.hyperpocket import Pocket
from toolcrib.dialects.hyperpocket.repository import GitLock, Lockfile
from toolcrib.dialects.hyperpocket.tool import from_git
from toolcrib.dialects.hyperpocket.tool.wasm import WasmTool, request_of

from ...tools.repositories import Repository
from .conftest import Settings


@pytest.fixture(autouse=True)
def cache(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    settings()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "toolcrib" / "git"


def files(name: str, description: str = "First.") -> dict[str, str]:
    folder = f"tools/{name}"
    return {
        f"{folder}/config.toml": f'name = "{name}"\ndescription = "{description}"\nlanguage = "python"\n',
        f"{folder}/schema.json": json.dumps({"type": "object", "properties": {}}),
        f"{folder}/main.py": "print(1)\n",
    }


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repository")
    made.commit({**files("one"), **files("two"), "README.md": "Tools."})
    return made


def described(pocket: Pocket) -> dict[str, str]:
    return {name: tool.description for name, tool in pocket.tools.items() if isinstance(tool, WasmTool)}


def test_tools_of_a_repository_are_pinned_until_they_are_updated(repository: Repository) -> None:
    url, first = str(repository.folder), repository.git("rev-parse", "HEAD")
    requests = [from_git(url, "main", "tools/one"), from_git(url, "main", "tools/two")]
    assert described(Pocket(tools=requests)) == {"one": "First.", "two": "First."}
    assert Path("pocket.lock").read_text() == f"git\t{url}\tmain\t{first}\n"
    assert {request.lock.ref_sha for request in requests if isinstance(request.lock, GitLock)} == {first}
    second = repository.commit(files("one", "Second."))
    one = from_git(url, "main", "tools/one")
    assert described(Pocket([one])) == {"one": "First."}
    assert described(Pocket([from_git(url, "main", "tools/one")], force_update=True)) == {"one": "Second."}
    assert Path("pocket.lock").read_text() == f"git\t{url}\tmain\t{second}\n"
    lockfile = Lockfile("pocket.lock")
    third = repository.commit(files("one", "Third."))
    lockfile.sync(force_update=False)
    assert second in Path("pocket.lock").read_text()
    lockfile.sync(force_update=True)
    assert third in Path("pocket.lock").read_text()


def test_what_is_pinned_and_was_fetched_needs_no_repository(repository: Repository) -> None:
    url = str(repository.folder)
    Pocket([from_git(url, "main", "tools/one")])
    shutil.rmtree(repository.folder)
    assert described(Pocket([from_git(url, "main", "tools/one")])) == {"one": "First."}
    with pytest.raises(LoadError, match="cannot be fetched"):
        Pocket([from_git(url, "main", "tools/two")])
    with pytest.raises(LoadError, match="cannot be fetched"):
        Pocket([from_git(url, "main", "tools/one")], force_update=True)


def test_an_address_of_github_is_a_repository_a_branch_and_a_folder() -> None:
    for address, ref, folder in (
        ("https://github.com/owner/tools", "HEAD", ""),
        ("https://github.com/owner/tools/tree/main", "main", ""),
        ("https://github.com/owner/tools/tree/main/slack/post-message", "main", "slack/post-message"),
    ):
        request = request_of(address)
        assert request.lock.key() == ("git", "https://github.com/owner/tools", ref)
        assert (request.rel_path, request.overridden_tool_vars) == (folder, {})
    with pytest.raises(LoadError, match="is not the address of a folder"):
        Pocket(["https://github.com/owner/tools/blob/main/README.md"])


@pytest.mark.parametrize(
    ("url", "ref", "rel_path", "message"),
    [
        (None, "main", "..", "is not a folder of a repository"),
        (None, "main", "tools/gone", "there is no folder 'tools/gone'"),
        (None, "--upload-pack=touch x", "tools/one", "is not the name of a branch"),
        (None, "main#x", "tools/one", "not a git address that can be used|not a repository and a ref"),
        ("https://user:secret@git.example/tools", "main", "", "holds no name and no password"),
    ],
)
def test_what_is_not_safe_or_not_there_is_refused(
    url: str | None, ref: str, rel_path: str, message: str, repository: Repository, tmp_path: Path
) -> None:
    with pytest.raises(LoadError, match=message) as refused:
        Pocket([from_git(str(repository.folder) if url is None else url, ref, rel_path)])
    assert "secret" not in str(refused.value)
    assert not (tmp_path / "x").exists() and not (tmp_path / "pocket.lock").exists()
