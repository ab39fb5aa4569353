"""Tools in folders: what their files say, how a Pocket takes them, and what runs them, if that is another invoker."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from toolcrib.dialects.hyperpocket import Pocket, PocketAuth
from toolcrib.dialects.hyperpocket.auth import AuthProvider
from toolcrib.dialects.hyperpocket.repository import LocalLock, Lockfile
from toolcrib.dialects.hyperpocket.tool import ToolAuth, ToolRequest, from_git, from_local
from toolcrib.dialects.hyperpocket.tool.wasm import WasmTool, WasmToolRequest
from toolcrib.dialects.hyperpocket.tool.wasm.invoker import WasmInvoker
from toolcrib.dialects.hyperpocket.tool.wasm.script import ScriptRuntime

from .conftest import Settings
from .own_handler import BEGINNING, OwnHandler, grant

CONFIG = 'name = "echo"\ndescription = "Says it again."\nlanguage = "python"\n'
VARS = '[tool_vars]\nGREETING = "hello"\nSIZE = 2\n'
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class Recorder(WasmInvoker):
    """An invoker of a program's own, as programs write them."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, ScriptRuntime, Any, Mapping[str, str]]] = []

    def invoke(self, tool_path: str, runtime: ScriptRuntime, body: Any, envs: Mapping[str, str], **kwargs: Any) -> str:
        self.seen.append((tool_path, runtime, body, envs))
        return json.dumps({"body": body, **dict(sorted(envs.items()))})

    async def ainvoke(
        self, tool_path: str, runtime: ScriptRuntime, body: Any, envs: Mapping[str, str], **kwargs: Any
    ) -> str:
        return self.invoke(tool_path, runtime, body, envs, **kwargs)


@pytest.fixture(autouse=True)
def place(settings: Settings, tmp_path: Path) -> Path:
    """The folder `echo`, of a tool, in the working directory."""
    settings()
    folder = tmp_path / "echo"
    folder.mkdir()
    (folder / "config.toml").write_text(CONFIG)
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    return folder


def loaded(request: WasmToolRequest, tmp_path: Path) -> WasmTool:
    lockfile = Lockfile(tmp_path / "pocket.lock")
    lockfile.add_lock(request.lock)
    lockfile.sync(force_update=False, referenced_only=True)
    return WasmTool.from_tool_request(request, lockfile=lockfile)


def recorded(pocket: Pocket, name: str = "echo") -> Recorder:
    tool, invoker = pocket.tools[name], Recorder()
    assert isinstance(tool, WasmTool)
    tool.invoker = invoker
    return invoker


# Requests


def test_a_request_names_a_lock_a_path_and_variables(tmp_path: Path) -> None:
    local = from_local("echo", {"A": "1"})
    assert isinstance(local, WasmToolRequest) and isinstance(local, ToolRequest)
    assert local.lock == LocalLock(str(tmp_path / "echo"))
    assert (local.rel_path, local.overridden_tool_vars, local.postprocessings) == ("", {"A": "1"}, None)
    assert from_local(path="echo").overridden_tool_vars == {}
    git = from_git("https://git.example/tools", "main", "slack/post", tool_vars={"A": "1"})
    assert git.lock.key() == ("git", "https://git.example/tools", "main")
    assert (git.rel_path, git.overridden_tool_vars) == ("slack/post", {"A": "1"})
    assert str(git) == f"WasmToolRequest(lock={git.lock}, rel_path=slack/post)"
    made = WasmToolRequest(local.lock, "", {"A": "1"}) | str.upper
    assert made.with_postprocessings([len]).override_tool_variables({"B": "2"}) is made
    assert (made.postprocessings, made.overridden_tool_vars) == ([str.upper, len], {"B": "2"})


def test_a_tool_of_a_request_has_what_its_files_say(place: Path, tmp_path: Path) -> None:
    (place / "config.toml").write_text(
        CONFIG.replace("python", "Python") + VARS + '[auth]\nauth_provider = "slack"\nscopes = ["channels:history"]\n'
    )
    (place / "README.md").write_text("# Echo\n")
    tool = loaded(from_local("echo", {"SIZE": "3"}), tmp_path)
    assert (tool.name, tool.description, tool.readme) == ("echo", "Says it again.", "# Echo\n")
    assert (tool.argument_json_schema, tool.json_schema, tool.runtime) == (SCHEMA, SCHEMA, ScriptRuntime.Python)
    assert tool.auth == ToolAuth(auth_provider=AuthProvider.SLACK, scopes=["channels:history"])
    assert (tool.default_tool_vars, tool.overridden_tool_vars) == ({"GREETING": "hello", "SIZE": "2"}, {"SIZE": "3"})
    assert (tool.pkg_lock, tool.rel_path) == (LocalLock(str(place)), "")
    model = tool.schema_model()
    assert model is not None and set(model.model_fields) == {"thread_id", "profile", "body"}
    with pytest.raises(ValueError, match="lockfile is required"):
        WasmTool.from_tool_request(from_local("echo"))
    with pytest.raises(KeyError):
        WasmTool.from_tool_request(from_local("echo"), lockfile=Lockfile(tmp_path / "other.lock"))


# In a Pocket


def test_a_pocket_takes_a_request_a_text_and_either_with_variables(place: Path, tmp_path: Path) -> None:
    (place / "config.toml").write_text(CONFIG + VARS)
    for tool_like, greeting in (
        (from_local("echo"), "hello"),
        ("echo", "hello"),
        (str(place), "hello"),
        (from_local("echo", {"GREETING": "hi"}), "hi"),
        (("echo", {"GREETING": "hi"}), "hi"),
        ((from_local("echo", {"SIZE": "2"}), {"GREETING": "hi"}), "hi"),
    ):
        pocket = Pocket(tools=[tool_like])
        invoker = recorded(pocket)
        assert pocket.invoke("echo", {"text": "a"}, thread_id="t1", profile="work") == (
            f'{{"body": {{"text": "a"}}, "GREETING": "{greeting}", "SIZE": "2"}}'
        )
        [(path, runtime, _, _)] = invoker.seen
        assert (path, runtime) == (str(place), ScriptRuntime.Python)
        assert Path("pocket.lock").read_text() == f"local\t{place}\n"


def test_arguments_are_checked_and_postprocessings_follow(place: Path) -> None:
    def words(text: str) -> int:
        return len(text.split())

    pocket = Pocket([from_local("echo") | str.upper | words])
    recorded(pocket)
    assert pocket.invoke("echo", {"text": "a"}) == "3"
    assert pocket.invoke("echo", '{"text": "a b"}') == "4"
    assert pocket.invoke("echo", {}) == "Tool 'echo': 'text' is missing. Expected string."


def test_credentials_reach_the_tool_once_they_are_granted_and_a_missing_grant_gives_the_url(place: Path) -> None:
    (place / "config.toml").write_text(CONFIG + VARS + '[auth]\nauth_provider = "github"\nscopes = ["repo"]\n')
    pocket = Pocket(["echo"], auth=PocketAuth(handlers=[OwnHandler]))
    invoker = recorded(pocket)
    text, is_paused = pocket.invoke_with_state("echo", {"text": "a"}, thread_id="t1")
    assert (text.startswith(BEGINNING), "&scopes=repo" in text, is_paused, invoker.seen) == (True, True, True, [])
    grant(text)
    answer, is_paused = pocket.invoke_with_state("echo", {"text": "a"}, thread_id="t1")
    assert invoker.seen[0][3] == {"OWN_TOKEN": "token-for-code", "GREETING": "hello", "SIZE": "2"}
    assert (is_paused, "token-for-code" in answer) == (False, False)
    assert pocket.invoke_with_state("echo", {"text": "a"}, thread_id="t2")[1]


def test_a_tool_can_be_invoked_without_a_pocket(place: Path, tmp_path: Path) -> None:
    (place / "config.toml").write_text(CONFIG + VARS)
    tool = loaded(from_local("echo"), tmp_path)
    invoker = tool.invoker = Recorder()
    assert tool.invoke(body={"text": "a"}, envs={"TOKEN": "t"}) == (
        '{"body": {"text": "a"}, "GREETING": "hello", "SIZE": "2", "TOKEN": "t"}'
    )
    assert [seen[:2] for seen in invoker.seen] == [(str(place), ScriptRuntime.Python)]


# Bad input


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (None, "there is no such file"),
        (b"name = ", "Invalid value"),
        (b'name = "echo"\nlanguage = "node"\n', "the language 'node' is not supported: the sandbox runs Python"),
        (b'name = "echo"\nlanguage = "python"\n[tool_vars]\nA = {b = 1}\n', "'tool_vars.A'"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_with_the_reason(
    config: bytes | None, reason: str, place: Path
) -> None:
    file = place / "config.toml"
    file.unlink()
    if config is not None:
        file.write_bytes(config)
    with pytest.raises(ValueError, match="Failed to load config.toml: .*" + reason) as error:
        Pocket(["echo"])
    assert str(file) in str(error.value)


@pytest.mark.parametrize("schema", [None, b"[1]", b"\xff"])
def test_without_a_schema_that_can_be_read_there_is_a_warning_and_any_arguments_are_taken(
    schema: bytes | None, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (place / "schema.json").unlink()
    if schema is not None:
        (place / "schema.json").write_bytes(schema)
    pocket = Pocket(["echo"])
    [warning] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert str(place / "schema.json") in warning.getMessage() and "any arguments" in warning.getMessage()
    assert pocket.tools["echo"].argument_json_schema is None
    recorded(pocket)
    assert pocket.invoke("echo", {"x": [1]}) == '{"body": {"x": [1]}}'


@pytest.mark.parametrize("rel_path", ["..", "../other", "/etc", "echo/../../other", "link", "~"])
def test_a_path_that_leaves_its_package_is_refused(rel_path: str, place: Path, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    place.rename(package / "echo")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.toml").write_text(CONFIG)
    (package / "link").symlink_to(tmp_path / "other")
    request = WasmToolRequest(LocalLock(str(package)), rel_path)
    with pytest.raises(ValueError, match=r"is not inside of|There is no folder"):
        Pocket([request])
    assert Pocket([WasmToolRequest(LocalLock(str(package)), "echo/")]).tools["echo"].name == "echo"


def test_files_that_are_links_to_elsewhere_are_not_read(place: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the host")
    (place / "README.md").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match=r"README.md is not a file of the folder"):
        Pocket(["echo"])
    (place / "README.md").unlink()
    (place / "config.toml").unlink()
    (place / "config.toml").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match=r"Failed to load config\.toml: config.toml is not a file of the folder"):
        Pocket(["echo"])
