"""Tools in folders as they run in the sandbox. What a program cannot do there: tests/tools/test_python_folder.py."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from toolcrib import ToolError
from toolcrib.dialects.hyperpocket import Pocket, PocketAuth
from toolcrib.dialects.hyperpocket.tool import from_local
from toolcrib.dialects.hyperpocket.tool.wasm import WasmTool
from toolcrib.dialects.hyperpocket.tool.wasm.invoker import WasmInvoker
from toolcrib.dialects.hyperpocket.tool.wasm.script import ScriptRuntime

from ...tools.conftest import build_sandbox_python
from .conftest import Settings
from .own_handler import OwnHandler, grant

CONFIG = 'name = "echo"\ndescription = "Says it again."\nlanguage = "python"\n[tool_vars]\nGREETING = "hello"\n'
ECHO = """
import json
import os
import sys


def main():
    print(json.dumps({"body": json.load(sys.stdin), "envs": dict(os.environ)}, sort_keys=True))


if __name__ == "__main__":
    main()
"""


@pytest.fixture
def place(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder `echo`, of a tool, in the working directory. The Python of the sandbox is not there."""
    settings()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "echo"
    folder.mkdir()
    (folder / "config.toml").write_text(CONFIG)
    (folder / "schema.json").write_text('{"type": "object"}')
    (folder / "main.py").write_text(ECHO)
    return folder


@pytest.fixture
def python(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder `echo`, where the Python of the sandbox is there, built once for all tests of this checkout."""
    build_sandbox_python(monkeypatch)
    return place


def test_a_folder_that_was_changed_since_it_was_loaded_does_not_run(place: Path) -> None:
    with Pocket(["echo"]) as pocket:
        (place / "main.py").write_text("print('another')")
        assert "its folder has changed since it was loaded. Load it again." in pocket.invoke("echo", {})


@pytest.mark.full
async def test_a_program_gets_the_arguments_and_the_environment_and_its_output_is_the_result(python: Path) -> None:
    written = '{"body": {"text": "gr\\u00fc\\u00dfe"}, "envs": {"GREETING": "hello"}}'
    with Pocket([from_local("echo")]) as pocket:
        assert pocket.invoke("echo", {"text": "grüße"}) == written
        assert await pocket.acall("echo", {"text": "grüße"}) == (written, False)
    with Pocket([from_local("echo") | json.loads | sorted]) as pocket:
        assert pocket.invoke("echo", {"text": "grüße"}) == '["body","envs"]'
    (python / "main.py").unlink()
    (python / "echo_tool").mkdir()
    (python / "echo_tool" / "__init__.py").write_text("from echo_tool.__main__ import main\n")
    (python / "echo_tool" / "__main__.py").write_text(ECHO)
    with Pocket(["echo"]) as pocket:
        assert pocket.invoke("echo", {"text": "grüße"}) == written


@pytest.mark.full
def test_a_credential_is_in_the_environment_and_redacted_in_the_result(python: Path) -> None:
    with (python / "config.toml").open("a") as file:
        file.write('[auth]\nauth_provider = "github"\nscopes = ["repo"]\n')
    with Pocket([("echo", {"GREETING": "hi"})], auth=PocketAuth(handlers=[OwnHandler])) as pocket:
        grant(pocket.invoke("echo", {}, thread_id="t1"))
        text = pocket.invoke("echo", {}, thread_id="t1")
    assert json.loads(text)["envs"] == {"GREETING": "hi", "OWN_TOKEN": "[secret]"}


FAILURES = {
    "raise ValueError('no such city')": "ValueError: no such city",
    "while True: pass": "did not answer in time",
    "x = [0] * 10**9": "was stopped",
}


@pytest.mark.full
def test_a_program_that_fails_or_does_not_end_is_an_error(python: Path, tmp_path: Path) -> None:
    for number, program in enumerate(FAILURES):
        folder = tmp_path / f"tool{number}"
        folder.mkdir()
        (folder / "config.toml").write_text(CONFIG.replace("echo", folder.name))
        (folder / "schema.json").write_text("{}")
        (folder / "main.py").write_text(program)
    with Pocket([f"tool{number}" for number in range(len(FAILURES))], timeout_s=2) as pocket:
        texts = {program: pocket.invoke(f"tool{number}", {}) for number, program in enumerate(FAILURES)}
    assert [program for program, text in texts.items() if FAILURES[program] not in text] == [], texts


@pytest.mark.full
def test_what_the_program_trusts_runs_in_a_process_of_its_own(python: Path) -> None:
    (python / "fast.so").write_bytes(b"native")
    with Pocket(["echo"]) as pocket:
        tool = pocket.tools["echo"]
        assert isinstance(tool, WasmTool)
        assert "tool.invoker.trusted = True" in pocket.invoke("echo", {})
        tool.invoker.trusted = True
        ran = json.loads(pocket.invoke("echo", {"a": 1}))
    assert (ran["body"], ran["envs"]["GREETING"]) == ({"a": 1}, "hello")


@pytest.mark.full
async def test_a_program_runs_without_a_pocket_and_by_an_invoker_that_goes_on_to_ours(python: Path) -> None:
    invoker = WasmInvoker()
    expected = {"body": {"a": 1}, "envs": {"X": "1"}}
    assert json.loads(invoker.invoke(str(python), ScriptRuntime.Python, {"a": 1}, {"X": "1"})) == expected
    assert json.loads(await invoker.ainvoke(str(python), ScriptRuntime.Python, {"a": 1}, {"X": "1"})) == expected
    with pytest.raises(ToolError, match="cannot run"):
        invoker.invoke(str(python / "gone"), ScriptRuntime.Python, {}, {})

    class More(WasmInvoker):
        async def ainvoke(
            self, tool_path: str, runtime: ScriptRuntime, body: Any, envs: Mapping[str, str], **kwargs: Any
        ) -> str:
            return "more: " + await super().ainvoke(tool_path, runtime, {**body, "b": 2}, {**envs, "Y": "2"})

    with Pocket(["echo"]) as pocket:
        tool = pocket.tools["echo"]
        assert isinstance(tool, WasmTool)
        tool.invoker = More()
        text = await pocket.ainvoke("echo", {"a": 1})
    assert json.loads(text.removeprefix("more: ")) == {
        "body": {"a": 1, "b": 2},
        "envs": {"GREETING": "hello", "Y": "2"},
    }
